//! Builds and checks keys, roles and virtual servers.

use std::time::SystemTime;

use indexmap::IndexMap;

use super::{ConfigBuilder, FileContext, approvers};
use crate::config::ConfigLocation;
use crate::config::document::escape_step;
use crate::config::file::{BudgetTable, KeyTable, McpGrant, RoleTable, VirtualServerTable};
use crate::config::{
    APPROVER_ROLE, Config, ConfigFinding, KeyConfig, KeyCredential, KeyLimits, RoleConfig,
    RunLimits, Severity, VirtualServer, micro_usd,
};
use crate::nearest::find_nearest;
use crate::pattern::SelectorMode;
use crate::rate::Budget;
use crate::secret::Secret;

const MAX_NAME_LEN: usize = 64;
const MIN_KEY_LEN: usize = 16;

impl ConfigBuilder {
    pub(super) fn add_roles(
        &mut self,
        roles: IndexMap<String, RoleTable>,
        context: &mut FileContext<'_>,
    ) {
        for (name, table) in roles {
            let pointer = format!("/roles/{}", escape_step(&name));
            if !check_name(&name, &pointer, context) {
                continue;
            }
            let RoleTable {
                description,
                tools,
                resources,
            } = table;
            // Keys may have this role without a definition, so removing one must not widen anything.
            if name == APPROVER_ROLE && (tools.is_some() || resources == Some(false)) {
                let message = "the built-in role `approver` cannot restrict anything; set `tools` and `resources` of its keys, or of another role";
                context.error(&pointer, message);
            }
            let texts = tools.as_deref().unwrap_or_default();
            self.add_selections(
                &format!("{pointer}/tools"),
                texts,
                SelectorMode::Narrow,
                context,
            );
            let existing = &mut self.config.roles;
            existing.retain(|role| role.name != name);
            existing.push(RoleConfig {
                name,
                description,
                tools,
                resources: resources.unwrap_or(true),
            });
        }
    }

    pub(super) fn add_virtual_servers(
        &mut self,
        servers: IndexMap<String, VirtualServerTable>,
        context: &mut FileContext<'_>,
    ) {
        for (name, table) in servers {
            let pointer = format!("/virtual_servers/{}", escape_step(&name));
            if !check_name(&name, &pointer, context) {
                continue;
            }
            let VirtualServerTable { description, tools } = table;
            self.add_selections(
                &format!("{pointer}/tools"),
                &tools,
                SelectorMode::Narrow,
                context,
            );
            let existing = &mut self.config.virtual_servers;
            existing.retain(|server| server.name != name);
            existing.push(VirtualServer {
                name,
                description,
                tools,
            });
        }
    }

    pub(super) fn add_keys(
        &mut self,
        keys: IndexMap<String, KeyTable>,
        context: &mut FileContext<'_>,
    ) {
        for (name, table) in keys {
            let pointer = format!("/keys/{}", escape_step(&name));
            if !check_name(&name, &pointer, context) {
                continue;
            }
            for (index, role) in table.roles.iter().enumerate() {
                let location = context
                    .document
                    .location(&format!("{pointer}/roles/{index}"));
                self.roles_used.push((role.clone(), location));
            }
            let key_name = match table.mcp_configs {
                Some(_) => "mcp_configs",
                None => "tools",
            };
            if let Some(key) = build_key(&name, table, &pointer, context) {
                let texts = key.tools.as_deref().unwrap_or_default();
                let pointer = format!("{pointer}/{key_name}");
                self.add_selections(&pointer, texts, SelectorMode::Narrow, context);
                self.config.keys.retain(|existing| existing.name != name);
                self.config.keys.push(key);
            }
        }
    }
}

fn build_key(
    name: &str,
    table: KeyTable,
    pointer: &str,
    context: &mut FileContext<'_>,
) -> Option<KeyConfig> {
    let KeyTable {
        key,
        sha256,
        description,
        enabled,
        expires_at,
        roles,
        tools,
        mcp_configs,
        resources,
        provider_tools,
        inject,
        approval_by,
        rate_limit,
        max_in_flight,
        budget,
        agent,
    } = table;
    let proof = match (key, sha256.as_deref().and_then(parse_digest)) {
        (Some(key), None) if sha256.is_none() => KeyCredential::Key(key),
        (None, Some(digest)) => KeyCredential::Sha256(digest),
        _ => {
            context.error(
                pointer,
                "a key needs either `key` (preferably as `env.NAME`) or `sha256`",
            );
            return None;
        }
    };
    if let KeyCredential::Key(Secret::Literal(key)) = &proof
        && key.len() < MIN_KEY_LEN
    {
        let message = format!(
            "a key shorter than {MIN_KEY_LEN} characters can be guessed; `toolgate keys create` generates a strong one"
        );
        context.error(&format!("{pointer}/key"), message);
        return None;
    }
    let expires_at = match expires_at.as_deref().map(parse_time).transpose() {
        Ok(time) => time,
        Err(_) => {
            let message = "not a valid time; use a form such as `2027-01-31T00:00:00Z`";
            context.error(&format!("{pointer}/expires_at"), message);
            return None;
        }
    };
    Some(KeyConfig {
        name: name.to_owned(),
        proof,
        description,
        enabled: enabled.unwrap_or(true),
        expires_at,
        roles,
        tools: merge_grants(tools, mcp_configs),
        resources: resources.unwrap_or(true),
        provider_tools,
        inject,
        approval_by: approvers(approval_by),
        limits: KeyLimits {
            rate: rate_limit,
            max_in_flight: max_in_flight.map(|count| count as usize),
            budget: budget.map(|table| build_budget(&table)),
            run: agent.map(RunLimits::from).unwrap_or_default(),
        },
    })
}

/// Merges `tools` and the Bifrost-style `mcp_configs`.
fn merge_grants(
    tools: Option<Vec<String>>,
    mcp_configs: Option<Vec<McpGrant>>,
) -> Option<Vec<String>> {
    let Some(grants) = mcp_configs else {
        return tools;
    };
    let mut texts = tools.unwrap_or_default();
    for McpGrant {
        mcp_client_name,
        tools_to_execute,
    } in grants
    {
        let tools = tools_to_execute.iter();
        texts.extend(tools.map(|tool| format!("{mcp_client_name}.{tool}")));
    }
    Some(texts)
}

fn build_budget(table: &BudgetTable) -> Budget {
    Budget {
        calls: table.calls,
        tokens: table.tokens,
        micro_usd: table.usd.map(micro_usd),
        per: table.per,
    }
}

fn parse_digest(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

fn parse_time(text: &str) -> Result<SystemTime, humantime::TimestampError> {
    humantime::parse_rfc3339_weak(text.trim())
}

/// Reports an invalid name. Returns whether the name is valid.
fn check_name(name: &str, pointer: &str, context: &mut FileContext<'_>) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
    let is_valid = !name.is_empty() && name.len() <= MAX_NAME_LEN && name.chars().all(valid);
    if !is_valid {
        let message =
            format!("a name must have 1 to {MAX_NAME_LEN} letters, digits, `_`, `-`, `.` or `@`");
        context.error(pointer, message);
    }
    is_valid
}

/// Reports roles that are used but not defined. These are errors in rules as well: a rule that denies
/// something to a role must not lose its meaning when the role is renamed.
pub(super) fn check_role_names(
    used: Vec<(String, ConfigLocation)>,
    config: &Config,
) -> impl Iterator<Item = ConfigFinding> {
    let names: Vec<String> = config.roles.iter().map(|role| role.name.clone()).collect();
    let unknown = used.into_iter().filter({
        let names = names.clone();
        move |(role, _)| role != APPROVER_ROLE && !names.contains(role)
    });
    unknown.map(move |(role, location)| {
        let suggestion = find_nearest(&role, names.iter().map(String::as_str));
        let hint = match suggestion {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => format!("define it as `[roles.{role}]`"),
        };
        ConfigFinding {
            severity: Severity::Error,
            location,
            message: format!("no role named `{role}`; {hint}"),
        }
    })
}

//! Keys and roles, checked.

use std::time::SystemTime;

use indexmap::IndexMap;

use super::{Merge, Reader};
use crate::config::Place;
use crate::config::check::nearest;
use crate::config::document::escape;
use crate::config::file::{BudgetTable, KeyTable, McpGrant, RoleTable, VirtualServerTable};
use crate::config::{
    APPROVER, Config, Finding, Key, KeyLimits, Proof, Role, RunLimits, Severity, VirtualServer,
    micro_usd,
};
use crate::pattern::Reading;
use crate::rate::Budget;
use crate::secret::Secret;

const LONGEST_NAME: usize = 64;
const SHORTEST_KEY: usize = 16;

impl Merge {
    pub(super) fn add_roles(
        &mut self,
        roles: IndexMap<String, RoleTable>,
        reader: &mut Reader<'_>,
    ) {
        for (name, table) in roles {
            let pointer = format!("/roles/{}", escape(&name));
            if !is_name(&name, &pointer, reader) {
                continue;
            }
            let RoleTable {
                description,
                tools,
                resources,
            } = table;
            let texts = tools.as_deref().unwrap_or_default();
            self.select(&format!("{pointer}/tools"), texts, Reading::Narrow, reader);
            let known = &mut self.config.roles;
            known.retain(|role| role.name != name);
            known.push(Role {
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
        reader: &mut Reader<'_>,
    ) {
        for (name, table) in servers {
            let pointer = format!("/virtual_servers/{}", escape(&name));
            if !is_name(&name, &pointer, reader) {
                continue;
            }
            let VirtualServerTable { description, tools } = table;
            self.select(&format!("{pointer}/tools"), &tools, Reading::Narrow, reader);
            let known = &mut self.config.virtual_servers;
            known.retain(|server| server.name != name);
            known.push(VirtualServer {
                name,
                description,
                tools,
            });
        }
    }

    pub(super) fn add_keys(&mut self, keys: IndexMap<String, KeyTable>, reader: &mut Reader<'_>) {
        for (name, table) in keys {
            let pointer = format!("/keys/{}", escape(&name));
            if !is_name(&name, &pointer, reader) {
                continue;
            }
            for (index, role) in table.roles.iter().enumerate() {
                let place = reader.document.place(&format!("{pointer}/roles/{index}"));
                let used = (role.clone(), Severity::Error, place);
                self.roles_used.push(used);
            }
            let spelled = match table.mcp_configs {
                Some(_) => "mcp_configs",
                None => "tools",
            };
            if let Some(key) = key(&name, table, &pointer, reader) {
                let texts = key.tools.as_deref().unwrap_or_default();
                let pointer = format!("{pointer}/{spelled}");
                self.select(&pointer, texts, Reading::Narrow, reader);
                self.config.keys.retain(|known| known.name != name);
                self.config.keys.push(key);
            }
        }
    }
}

fn key(name: &str, table: KeyTable, pointer: &str, reader: &mut Reader<'_>) -> Option<Key> {
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
        rate_limit,
        max_in_flight,
        budget,
        agent,
    } = table;
    let proof = match (key, sha256.as_deref().and_then(digest)) {
        (Some(key), None) if sha256.is_none() => Proof::Key(key),
        (None, Some(digest)) => Proof::Sha256(digest),
        _ => {
            reader.error(
                pointer,
                "a key needs either `key` (best as `env.NAME`) or `sha256`",
            );
            return None;
        }
    };
    if let Proof::Key(Secret::Literal(key)) = &proof
        && key.len() < SHORTEST_KEY
    {
        let message = format!(
            "a key of fewer than {SHORTEST_KEY} characters can be guessed; `toolgate keys create` makes a good one"
        );
        reader.error(&format!("{pointer}/key"), message);
        return None;
    }
    let expires_at = match expires_at.map(|text| time(&text)) {
        None => None,
        Some(Some(time)) => Some(time),
        Some(None) => {
            let message = "is no time; write one such as `2027-01-31T00:00:00Z`";
            reader.error(&format!("{pointer}/expires_at"), message);
            return None;
        }
    };
    Some(Key {
        name: name.to_owned(),
        proof,
        description,
        enabled: enabled.unwrap_or(true),
        expires_at,
        roles,
        tools: grants(tools, mcp_configs),
        resources: resources.unwrap_or(true),
        limits: KeyLimits {
            rate: rate_limit,
            max_in_flight: max_in_flight.map(|most| most as usize),
            budget: budget.map(|table| read_budget(&table)),
            run: agent.map(RunLimits::from).unwrap_or_default(),
        },
    })
}

/// Both spellings together.
fn grants(tools: Option<Vec<String>>, mcp_configs: Option<Vec<McpGrant>>) -> Option<Vec<String>> {
    let Some(grants) = mcp_configs else {
        return tools;
    };
    let mut texts = tools.unwrap_or_default();
    for McpGrant {
        mcp_client_name,
        tools_to_execute,
    } in grants
    {
        let spelled = tools_to_execute.iter();
        texts.extend(spelled.map(|tool| format!("{mcp_client_name}.{tool}")));
    }
    Some(texts)
}

fn read_budget(table: &BudgetTable) -> Budget {
    Budget {
        calls: table.calls,
        tokens: table.tokens,
        micro_usd: table.usd.map(micro_usd),
        per: table.per,
    }
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

fn time(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339_weak(text.trim()).ok()
}

fn is_name(name: &str, pointer: &str, reader: &mut Reader<'_>) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
    let good = !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(valid);
    if !good {
        let message =
            format!("a name has 1 to {LONGEST_NAME} letters, digits, `_`, `-`, `.` and `@`");
        reader.error(pointer, message);
    }
    good
}

/// Roles that are used and not defined: a mistake in a key, a rule that never matches.
pub(super) fn unknown_roles(
    used: Vec<(String, Severity, Place)>,
    config: &Config,
) -> impl Iterator<Item = Finding> {
    let names: Vec<String> = config.roles.iter().map(|role| role.name.clone()).collect();
    let unknown = used.into_iter().filter({
        let names = names.clone();
        move |(role, ..)| role != APPROVER && !names.contains(role)
    });
    unknown.map(move |(role, severity, place)| {
        let near = nearest(&role, names.iter().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("define it as `[roles.{role}]`"),
        };
        Finding {
            severity,
            place,
            message: format!("no role is called `{role}`; {hint}"),
        }
    })
}

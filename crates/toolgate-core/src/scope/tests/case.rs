//! Plain-data description of one configuration, caller and request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::config::Config;
use crate::policy::{Conditions, RuleSpec, ToolList, Verdict};
use crate::scope::{AccessRules, Filters, Principal};

/// Everything that a scope depends on, except the tools. The default keeps all tools in scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub(super) switches: Switches,
    pub(super) permissions: CasePermissions,
    pub(super) caller: CaseCaller,
    pub(super) filters: Filters,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Switches {
    /// `mcp.enabled` is `false`.
    pub(super) off: bool,
    pub(super) disabled_servers: Vec<String>,
    pub(super) allowlist: Vec<String>,
    pub(super) denylist: Vec<String>,
    /// `tools_to_execute` by server; absent means all.
    pub(super) execute: BTreeMap<String, Vec<String>>,
    /// `tools_to_auto_execute` by server; absent means none.
    pub(super) auto: BTreeMap<String, Vec<String>>,
    pub(super) blocked: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CasePermissions {
    pub(super) rules: Vec<RuleSpec>,
    pub(super) default: Option<Verdict>,
    pub(super) environment: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CaseCaller {
    /// `tools` of the caller's key.
    pub(super) key: Option<Vec<String>>,
    /// Roles of the caller, each with its `tools`.
    pub(super) roles: Vec<(String, Option<Vec<String>>)>,
}

impl Case {
    pub(super) fn config(&self, fixture: &Fixture) -> Config {
        let mut config = fixture.config.clone();
        let switches = &self.switches;
        config.tool_manager.enabled = !switches.off;
        config.security.allow = Some(switches.allowlist.clone()).filter(|list| !list.is_empty());
        config.security.deny.clone_from(&switches.denylist);
        config.blocked_tools.clone_from(&switches.blocked);
        config.permissions.rules.clone_from(&self.permissions.rules);
        config.permissions.default = self.permissions.default;
        config.environment.clone_from(&self.permissions.environment);
        for server in &mut config.servers {
            let name = server.name.as_str();
            server.enabled = !switches.disabled_servers.iter().any(|other| other == name);
            let only = |list: &Vec<String>| ToolList::Only(list.iter().cloned().collect());
            server.lists.execute = switches.execute.get(name).map_or(ToolList::All, only);
            server.lists.auto_execute = switches.auto.get(name).map_or_else(ToolList::none, only);
        }
        config
    }

    /// The same configuration as a user would write it in a file, without the caller.
    pub(super) fn document(&self, fixture: &Fixture) -> Value {
        let switches = &self.switches;
        let server = |name: String| {
            let table = json!({
                "command": "x",
                "enabled": !switches.disabled_servers.contains(&name),
                "tools_to_execute": switches.execute.get(&name).cloned().unwrap_or(vec!["*".to_owned()]),
                "tools_to_auto_execute": switches.auto.get(&name).cloned().unwrap_or_default(),
            });
            (name, table)
        };
        let servers = fixture.servers().into_iter().map(server);
        let rules: Vec<Value> = self.permissions.rules.iter().map(rule_table).collect();
        // Rules may only name roles that exist.
        let roles = self.permissions.rules.iter();
        let roles = roles.flat_map(|rule| rule.when.roles.iter().cloned());
        let roles: BTreeMap<String, Value> = roles.map(|role| (role, json!({}))).collect();
        let mut document = json!({
            "roles": roles,
            "mcp": {"enabled": !switches.off, "blocked_tools": switches.blocked},
            "mcp_servers": servers.collect::<serde_json::Map<_, _>>(),
            "security": {
                "mcp_server_allowlist": switches.allowlist,
                "mcp_server_denylist": switches.denylist,
            },
            "permissions": {"rules": rules},
        });
        if let Some(default) = self.permissions.default {
            document["permissions"]["default"] = json!(default);
        }
        if let Some(environment) = &self.permissions.environment {
            document["environment"] = json!(environment);
        }
        document
    }

    pub(super) fn principal(&self, access: &AccessRules) -> Principal {
        let mut grants = Vec::new();
        if let Some(tools) = &self.caller.key {
            grants.push(access.build_grant("keys.test.tools", tools));
        }
        let defined = self
            .caller
            .roles
            .iter()
            .filter_map(|(_, tools)| tools.as_ref());
        let defined: Vec<&Vec<String>> = defined.collect();
        if !defined.is_empty() {
            let union: Vec<String> = defined.into_iter().flatten().cloned().collect();
            grants.push(access.build_grant("roles", &union));
        }
        Principal {
            roles: self
                .caller
                .roles
                .iter()
                .map(|(name, _)| name.clone())
                .collect(),
            grants,
            ..Principal::default()
        }
    }
}

pub(super) fn rule(tool: &str, verdict: Verdict) -> RuleSpec {
    RuleSpec {
        config_key: format!("{tool}:{verdict:?}"),
        tool: Some(tool.to_owned()),
        server: None,
        resource: None,
        prompt: None,
        when: Conditions::default(),
        approval_by: None,
        verdict,
    }
}

fn rule_table(rule: &RuleSpec) -> Value {
    let mut table = json!({"action": rule.verdict});
    let when = &rule.when;
    let mut put = |key: &str, value: Value| table[key] = value;
    for (key, text) in [("resource", &rule.resource), ("prompt", &rule.prompt)] {
        if let Some(text) = text {
            put(key, json!(text));
        }
    }
    if let Some(tool) = &rule.tool {
        put("tool", json!(tool));
    }
    if let Some(server) = &rule.server {
        put("server", json!(server));
    }
    if let Some(hint) = when.hint {
        put("hint", json!(hint));
    }
    if !when.roles.is_empty() {
        put("roles", json!(when.roles));
    }
    if !when.environments.is_empty() {
        put("environment", json!(when.environments));
    }
    let arguments = when.arguments.iter().cloned();
    put("arguments", json!(arguments.collect::<BTreeMap<_, _>>()));
    table
}

//! Removing or renaming a server, tool, role, virtual server or rule never widens a scope.
//!
//! Configurations are generated as documents, one thing is removed or renamed, and what every caller
//! sees at every MCP endpoint is compared: tools, a resource and a prompt with their verdicts, and the
//! servers whose resources and prompts exist. A change that the gateway refuses widens nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::texts;
use crate::catalog::{Catalog, ItemKind, ServerListing};
use crate::config::{Config, ConfigFormat, Document};
use crate::name::{NameStyle, ServerName};
use crate::policy::{ServerItem, Verdict};
use crate::scope::{AccessRules, Filters, Principal, Scope};

const SERVERS: [&str; 6] = ["fs", "fs_x", "git", "git_hub", "a-b", "mcp"];
const TOOLS: [&str; 7] = [
    "read",
    "x_read",
    "hub_search",
    "search",
    "a.b",
    "a_b",
    "x-read",
];
const RENAMED: &str = "renamed";
const URI: &str = "file:///x";
const PROMPT: &str = "greet";

/// A configuration, and the tools that its servers list.
#[derive(Clone, Debug)]
struct World {
    style: NameStyle,
    servers: BTreeMap<String, Server>,
    roles: BTreeMap<String, Option<Vec<String>>>,
    keys: BTreeMap<String, Key>,
    virtual_servers: BTreeMap<String, Vec<String>>,
    rules: Vec<Value>,
    blocked: Vec<String>,
    denied: Vec<String>,
    allowed: Vec<String>,
}

#[derive(Clone, Debug)]
struct Server {
    tools: BTreeSet<String>,
    settings: Value,
}

#[derive(Clone, Debug)]
struct Key {
    tools: Option<Vec<String>>,
    roles: BTreeSet<String>,
}

#[derive(Clone, Debug)]
enum Change {
    RemoveServer(Index),
    RenameServer(Index),
    RemoveTool(Index, Index),
    RenameTool(Index, Index),
    RemoveRole(Index),
    RenameRole(Index),
    RemoveVirtualServer(Index),
    RenameVirtualServer(Index),
    RemoveAllowRule(Index),
}

/// What exists: by caller, MCP endpoint and item, with the verdict on a tool.
type Visible = BTreeMap<(String, String, String), Option<Verdict>>;

fn any_world() -> impl Strategy<Value = World> {
    let servers = btree_map(select(texts(&SERVERS)), any_server(), 1..5);
    let roles = btree_map(
        select(texts(&["dev", "ops", "approver"])),
        weighted(0.7, vec(any_text(), 0..3)),
        0..3,
    );
    let role_names = btree_set(select(texts(&["dev", "ops", "approver"])), 0..3);
    let key = (weighted(0.7, vec(any_text(), 0..3)), role_names)
        .prop_map(|(tools, roles)| Key { tools, roles });
    let keys = btree_map(select(texts(&["ci", "admin"])), key, 1..3);
    let virtual_servers = btree_map(select(texts(&["v", "w"])), vec(any_text(), 0..3), 0..3);
    let lists = (
        vec(any_text(), 0..2),
        vec(select(texts(&SERVERS)), 0..2),
        weighted(0.2, vec(select(texts(&SERVERS)), 2..5)),
    );
    let style = select(NameStyle::ALL.to_vec());
    let rules = vec(any_rule(), 0..4);
    (style, servers, roles, keys, virtual_servers, rules, lists).prop_map(
        |(style, servers, roles, mut keys, virtual_servers, rules, (blocked, denied, allowed))| {
            for key in keys.values_mut() {
                let is_defined = |role: &String| role == "approver" || roles.contains_key(role);
                key.roles.retain(is_defined);
            }
            World {
                style,
                servers,
                roles,
                keys,
                virtual_servers,
                rules,
                blocked,
                denied,
                allowed: allowed.unwrap_or_default(),
            }
        },
    )
}

fn any_server() -> impl Strategy<Value = Server> {
    let execute = weighted(0.3, btree_set(select(texts(&TOOLS)), 0..4));
    let auto = weighted(0.3, btree_set(select(texts(&TOOLS)), 0..4));
    let tools = btree_set(select(texts(&TOOLS)), 0..5);
    (
        tools,
        execute,
        auto,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.9),
    )
        .prop_map(|(tools, execute, auto, on_all_keys, resources)| {
            let mut settings = json!({
                "command": "x",
                "allow_on_all_virtual_keys": on_all_keys,
                "resources": resources,
            });
            if let Some(execute) = execute {
                settings["tools_to_execute"] = json!(execute);
            }
            if let Some(auto) = auto {
                settings["tools_to_auto_execute"] = json!(auto);
            }
            Server { tools, settings }
        })
}

/// A text that names a tool, mostly with a dot, which is never ambiguous.
fn any_text() -> BoxedStrategy<String> {
    let mut servers = texts(&SERVERS);
    servers.extend(texts(&["gone", "*"]));
    let mut tools = texts(&TOOLS);
    tools.extend(texts(&["*", "*", "x_*", "*a?b", "b"]));
    let separator = select(vec![
        ("", "."),
        ("", "."),
        ("", "."),
        ("", "_"),
        ("", "-"),
        ("mcp__", "__"),
    ]);
    let spelled = (select(servers), separator, select(tools))
        .prop_map(|(server, (before, after), tool)| format!("{before}{server}{after}{tool}"));
    let hashed = (select(texts(&SERVERS)), select(texts(&TOOLS)))
        .prop_map(|(server, tool)| hashed_alias(&server, &tool));
    let bare = select(texts(&["*", "search", "read", "fs", "fs_"]));
    prop_oneof![8 => spelled, 1 => bare, 1 => hashed].boxed()
}

fn hashed_alias(server: &str, tool: &str) -> String {
    let hash = crate::hash::sha256_hex(format!("{server}\0{tool}"));
    let tool = super::oracle::sanitize(tool);
    format!("{server}_{tool}_{}", &hash[..8])
}

fn any_rule() -> impl Strategy<Value = Value> {
    let server = select(texts(&["fs*", "git", "*", "gone"]));
    let role = weighted(0.2, select(texts(&["dev", "ops"])));
    let item = weighted(
        0.3,
        (select(texts(&["fs*", "git", "*", "gone"])), any::<bool>()),
    );
    (
        any_text(),
        weighted(0.3, server),
        item,
        role,
        select(Verdict::ALL.to_vec()),
    )
        .prop_map(|(tool, server, item, role, verdict)| {
            let mut rule = json!({"action": verdict});
            match (item, server) {
                (Some((server, true)), _) => rule["resource"] = json!(format!("{server}:{URI}")),
                (Some((server, false)), _) => rule["prompt"] = json!(format!("{server}.{PROMPT}")),
                (None, Some(server)) => rule["server"] = json!(server),
                (None, None) => rule["tool"] = json!(tool),
            }
            if let Some(role) = role {
                rule["roles"] = json!([role]);
            }
            rule
        })
}

fn any_change() -> impl Strategy<Value = Change> {
    let one = any::<Index>;
    let two = || (any::<Index>(), any::<Index>());
    prop_oneof![
        4 => one().prop_map(Change::RemoveServer),
        4 => one().prop_map(Change::RenameServer),
        2 => two().prop_map(|(server, tool)| Change::RemoveTool(server, tool)),
        2 => two().prop_map(|(server, tool)| Change::RenameTool(server, tool)),
        1 => one().prop_map(Change::RemoveRole),
        1 => one().prop_map(Change::RenameRole),
        1 => one().prop_map(Change::RemoveVirtualServer),
        1 => one().prop_map(Change::RenameVirtualServer),
        1 => one().prop_map(Change::RemoveAllowRule),
    ]
}

impl World {
    fn load(&self) -> Option<Config> {
        let servers: BTreeMap<_, _> = self.servers.iter().map(|(n, s)| (n, &s.settings)).collect();
        let optional = |tools: &Option<Vec<String>>| match tools {
            Some(tools) => json!({"tools": tools}),
            None => json!({}),
        };
        let roles: BTreeMap<_, _> = self.roles.iter().map(|(n, t)| (n, optional(t))).collect();
        let key = |name: &String, key: &Key| {
            let mut table = optional(&key.tools);
            table["key"] = json!(format!("a-long-enough-secret-{name}"));
            table["roles"] = json!(key.roles);
            table
        };
        let keys: BTreeMap<_, _> = self.keys.iter().map(|(n, k)| (n, key(n, k))).collect();
        let virtual_servers = self.virtual_servers.iter();
        let virtual_servers: BTreeMap<_, _> = virtual_servers
            .map(|(n, tools)| (n, json!({"tools": tools})))
            .collect();
        let document = json!({
            "mcp": {"blocked_tools": self.blocked},
            "mcp_servers": servers,
            "roles": roles,
            "keys": keys,
            "virtual_servers": virtual_servers,
            "permissions": {"rules": self.rules},
            "security": {
                "mcp_server_denylist": self.denied,
                "mcp_server_allowlist": self.allowed,
            },
            "tool_name_style": self.style,
        });
        let document = Document::parse("test", ConfigFormat::Json, &document.to_string());
        Config::load(&[document]).ok().map(|(config, _)| config)
    }

    fn catalog(&self, config: &Config) -> Arc<Catalog> {
        let listing = |(name, server): (&String, &Server)| {
            let name = ServerName::parse(name).unwrap();
            let mut listing = ServerListing::default();
            for tool in &server.tools {
                let raw = serde_json::value::to_raw_value(&json!({"name": tool})).unwrap();
                listing.add(&name, ItemKind::Tool, &raw);
            }
            (name, Arc::new(listing.into_sorted()))
        };
        let listings = self.servers.iter().map(listing).collect();
        Arc::new(Catalog::build(
            1,
            self.style,
            &config.server_names(),
            listings,
        ))
    }

    /// Everything that exists for each caller at each endpoint. Endpoints that a change may have
    /// removed are still asked for.
    fn visible(&self, config: &Config, endpoints: &BTreeSet<String>) -> Visible {
        let access = AccessRules::new(config);
        let catalog = self.catalog(config);
        let mut visible = Visible::new();
        let principals = config.keys.iter().map(|key| {
            let principal = access.build_principal(key, &config.roles);
            (key.name.clone(), principal)
        });
        let anonymous = ("anonymous".to_owned(), Principal::default());
        for (caller, principal) in principals.chain([anonymous]) {
            for endpoint in endpoints {
                let filters = Filters {
                    virtual_server: Some(endpoint.clone()).filter(|name| !name.is_empty()),
                    ..Filters::default()
                };
                let mut add = |item: String, verdict| {
                    visible.insert((caller.clone(), endpoint.clone(), item), verdict);
                };
                let view = access.view(&principal, &filters);
                for server in config.server_names() {
                    if view.can_see_resources(&server) {
                        add(format!("{server}:resources"), None);
                    }
                    let (server, uri, name) = (&server, URI, PROMPT);
                    for (kind, item) in [
                        ("resource", ServerItem::Resource { server, uri }),
                        ("prompt", ServerItem::Prompt { server, name }),
                    ] {
                        if let Some(decision) = view.judge_item(item) {
                            add(format!("{server}:{kind}"), Some(decision.verdict));
                        }
                    }
                }
                let scope = Scope::build(view, Arc::clone(&catalog)).unwrap();
                for (entry, judgement) in scope.tools() {
                    add(
                        entry.tool.id.to_string(),
                        Some(judgement.decision().verdict),
                    );
                }
            }
        }
        visible
    }
}

/// Applies a change. Returns the changed world, and the item prefix that the new names replace.
fn apply(world: &World, change: &Change) -> Option<(World, Option<(String, String)>)> {
    let mut after = world.clone();
    let mut renamed = None;
    match change {
        Change::RemoveServer(index) => {
            let name = pick(&after.servers, index)?;
            after.servers.remove(&name);
        }
        Change::RenameServer(index) => {
            let name = pick(&after.servers, index)?;
            let server = after.servers.remove(&name)?;
            after.servers.insert(RENAMED.to_owned(), server);
            renamed = Some((RENAMED.to_owned(), name));
        }
        Change::RemoveTool(server, tool) | Change::RenameTool(server, tool) => {
            let name = pick(&after.servers, server)?;
            let tools = &mut after.servers.get_mut(&name)?.tools;
            let tool = tools.iter().nth(tool.index(tools.len().max(1)))?.clone();
            tools.remove(&tool);
            if matches!(change, Change::RenameTool(..)) {
                tools.insert(RENAMED.to_owned());
            }
        }
        Change::RemoveRole(index) | Change::RenameRole(index) => {
            let name = pick(&after.roles, index)?;
            let tools = after.roles.remove(&name)?;
            if matches!(change, Change::RenameRole(_)) {
                after.roles.insert(RENAMED.to_owned(), tools);
                // Whoever renames a role also renames it in the keys, but may forget the rules.
                for key in after.keys.values_mut() {
                    if key.roles.remove(&name) {
                        key.roles.insert(RENAMED.to_owned());
                    }
                }
            }
        }
        Change::RemoveVirtualServer(index) | Change::RenameVirtualServer(index) => {
            let name = pick(&after.virtual_servers, index)?;
            let tools = after.virtual_servers.remove(&name)?;
            if matches!(change, Change::RenameVirtualServer(_)) {
                after.virtual_servers.insert(RENAMED.to_owned(), tools);
            }
        }
        // All other rules only restrict.
        Change::RemoveAllowRule(index) => {
            let index = index.index(after.rules.len().max(1));
            let is_allow = after.rules.get(index)?["action"] == json!(Verdict::Allow);
            is_allow.then(|| after.rules.remove(index))?;
        }
    }
    Some((after, renamed))
}

fn pick<T>(map: &BTreeMap<String, T>, index: &Index) -> Option<String> {
    let mut names = map.keys();
    names.nth(index.index(map.len().max(1))).cloned()
}

/// Checks one change. Returns whether it was applied to a valid configuration.
fn check(world: &World, change: &Change) -> Result<bool, TestCaseError> {
    let (Some(before), Some((after, renamed))) = (world.load(), apply(world, change)) else {
        return Ok(false);
    };
    // Otherwise the gateway rejects the changed file.
    let Some(config) = after.load() else {
        return Ok(false);
    };
    if !config
        .find_lost_restrictions(&before.known_servers())
        .is_empty()
    {
        return Ok(false);
    }
    let mut endpoints: BTreeSet<String> = world.virtual_servers.keys().cloned().collect();
    endpoints.insert(String::new());
    let seen = world.visible(&before, &endpoints);
    for ((caller, endpoint, item), verdict) in after.visible(&config, &endpoints) {
        let former = match &renamed {
            Some((new, old)) if item.starts_with(new.as_str()) => item.replacen(new, old, 1),
            _ => item.clone(),
        };
        // A tool with a new name is a new tool.
        if former.ends_with(&format!(".{RENAMED}")) {
            continue;
        }
        let former = seen.get(&(caller.clone(), endpoint.clone(), former));
        prop_assert!(
            former.is_some_and(|former| *former <= verdict),
            "`{caller}` sees {item} ({verdict:?}) at `{endpoint}`, was {former:?}\nbefore: {world:#?}\nafter: {after:#?}"
        );
    }
    Ok(true)
}

#[test]
fn removing_or_renaming_never_widens_a_scope() {
    let config = ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let checked = std::cell::Cell::new(0);
    let result = runner.run(&(any_world(), any_change()), |(world, change)| {
        checked.set(checked.get() + u32::from(check(&world, &change)?));
        Ok(())
    });
    result.unwrap();
    assert!(
        checked.get() > 1000,
        "only {} changes were valid",
        checked.get()
    );
}

/// A configuration that names an undefined role does not load, but programs may build their own.
#[test]
fn role_that_does_not_exist_grants_nothing() {
    let document = json!({
        "mcp_servers": {"fs": {"command": "x"}},
        "roles": {"dev": {"tools": ["fs.*"]}, "free": {}},
        "keys": {"ci": {"key": "a-long-enough-secret"}},
    });
    let mut config = super::fixture::load(&document);
    let access = AccessRules::new(&config);
    let server = ServerName::parse("fs").unwrap();
    for (roles, expected) in [
        (&["dev"][..], true),
        (&["free"], true),
        (&["approver"], true),
        (&["gone"], false),
        (&["gone", "free"], false),
        (&["gone", "dev"], true),
    ] {
        config.keys[0].roles = texts(roles);
        let principal = access.build_principal(&config.keys[0], &config.roles);
        let view = access.view(&principal, &Filters::default());
        assert_eq!(view.can_see_resources(&server), expected, "{roles:?}");
    }
}

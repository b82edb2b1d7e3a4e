//! Random cases: mostly open, so that enough is left to be seen.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::policy::{Conditions, Hint, RuleSpec, Verdict};
use crate::scope::Filters;
use crate::scope::tests::case::{Caller, Case, Gate, Permissions};
use crate::scope::tests::oracle::plain;
use crate::scope::tests::{World, texts};

pub(in crate::scope::tests) fn any_case(world: &World) -> impl Strategy<Value = Case> + use<> {
    (
        any_gate(world),
        any_permissions(world),
        any_caller(world),
        any_filters(world),
    )
        .prop_map(|(gate, permissions, caller, filters)| Case {
            gate,
            permissions,
            caller,
            filters,
        })
}

/// A text that names tools of the world, or nearly so.
pub(super) fn any_pattern(world: &World) -> BoxedStrategy<String> {
    let aliases = world.tools.iter().map(|tool| tool.alias.clone());
    let aliases = select(aliases.collect::<Vec<_>>());
    let bare = select(vec![
        "*",
        "*.*",
        "**",
        "",
        "*.",
        "?",
        ".",
        "_*",
        "*_*",
        "*.push",
        "mcp__*",
        "mcp__git__*",
    ]);
    let mut servers = world.servers();
    servers.extend(texts(&["*", "GIT", "g*", "other"]));
    let separators = select(vec![("", "_"), ("", "-"), ("", "."), ("mcp__", "__")]);
    let spelled = (select(servers), separators, any_tool_glob(world))
        .prop_map(|(server, (before, after), tool)| format!("{before}{server}{after}{tool}"));
    prop_oneof![
        8 => spelled,
        2 => aliases,
        1 => bare.prop_map(ToOwned::to_owned),
    ]
    .boxed()
}

/// A raw or plain tool name, with some of it replaced.
fn any_tool_glob(world: &World) -> impl Strategy<Value = String> + use<> {
    let raw = world.tools.iter().map(|tool| tool.name.clone());
    let plain = world.tools.iter().map(|tool| plain(&tool.name));
    let names = select(raw.chain(plain).collect::<Vec<_>>());
    (names, any::<prop::sample::Index>(), 0..9, 1..4usize).prop_map(|(name, at, change, marks)| {
        let at = at.index(name.chars().count());
        let before: String = name.chars().take(at).collect();
        let after: String = name.chars().skip(at + 1).collect();
        match change {
            0..3 => name,
            3 => "*".to_owned(),
            4 => format!("{before}*"),
            5 => format!("*{after}"),
            6 => format!("{before}{}{after}", "?".repeat(marks)),
            7 => format!("{before}*{after}"),
            _ => name.to_uppercase(),
        }
    })
}

fn any_gate(world: &World) -> impl Strategy<Value = Gate> + use<> {
    let servers = world.servers();
    let some = |chance: f64| {
        weighted(chance, subsequence(servers.clone(), 0..servers.len()))
            .prop_map(Option::unwrap_or_default)
    };
    (
        prop::bool::weighted(0.02),
        some(0.1),
        some(0.2),
        some(0.1),
        any_lists(world, 0..2),
        any_lists(world, 0..3),
        vec(any_pattern(world), 0..2),
    )
        .prop_map(
            |(off, disabled_servers, allowlist, denylist, execute, auto, blocked)| Gate {
                off,
                disabled_servers,
                allowlist,
                denylist,
                execute,
                auto,
                blocked,
            },
        )
}

fn any_lists(
    world: &World,
    servers: std::ops::Range<usize>,
) -> impl Strategy<Value = BTreeMap<String, Vec<String>>> + use<> {
    let names: Vec<String> = world.tools.iter().map(|tool| tool.name.clone()).collect();
    let count = names.len();
    btree_map(
        select(world.servers()),
        subsequence(names, 0..=count),
        servers,
    )
}

fn any_permissions(world: &World) -> impl Strategy<Value = Permissions> + use<> {
    // A default of `deny` has a test of its own.
    let default = select(vec![Verdict::Allow, Verdict::Manual, Verdict::Ask]);
    let environment = select(texts(&["production", "staging", "Staging"]));
    (
        vec(any_rule(world), 0..4),
        weighted(0.5, default),
        weighted(0.7, environment),
    )
        .prop_map(|(rules, default, environment)| Permissions {
            rules,
            default,
            environment,
        })
}

/// A rule, seldom a `deny`, with random conditions.
pub(super) fn any_rule(world: &World) -> impl Strategy<Value = RuleSpec> + use<> {
    let verdict = prop_oneof![
        Just(Verdict::Allow),
        Just(Verdict::Manual),
        Just(Verdict::Ask),
        Just(Verdict::Deny),
    ];
    let by_server = (
        select(texts(&["git*", "?s", "*", "GIT"])),
        any_tool_glob(world),
    );
    let by_server = by_server.prop_map(|(server, tool)| (Some(server), Some(tool)));
    let by_pattern = any_pattern(world).prop_map(|tool| (None, Some(tool)));
    let selection = prop_oneof![4 => by_pattern, 1 => by_server];
    (selection, any_conditions(), verdict).prop_map(|((server, tool), when, verdict)| RuleSpec {
        place: "permissions.rules".to_owned(),
        tool,
        server,
        when,
        verdict,
    })
}

fn any_conditions() -> impl Strategy<Value = Conditions> {
    let arguments = weighted(0.2, Just(("path".to_owned(), texts(&["*"]))));
    let some = |names: &[&str]| {
        let list = subsequence(texts(names), 1..=names.len());
        weighted(0.3, list).prop_map(Option::unwrap_or_default)
    };
    let hint = weighted(0.3, select(vec![Hint::ReadOnly, Hint::Destructive]));
    (
        arguments,
        some(&["dev", "ops", "Dev"]),
        some(&["production", "staging"]),
        hint,
    )
        .prop_map(|(arguments, roles, environments, hint)| Conditions {
            arguments: arguments.into_iter().collect(),
            roles,
            environments,
            hint,
        })
}

fn any_caller(world: &World) -> impl Strategy<Value = Caller> + use<> {
    let role = (
        select(texts(&["dev", "ops", "approver"])),
        weighted(0.5, vec(any_pattern(world), 0..4)),
    );
    let key = weighted(0.3, vec(any_pattern(world), 0..5));
    (key, vec(role, 0..3)).prop_map(|(key, roles)| Caller { key, roles })
}

fn any_filters(world: &World) -> impl Strategy<Value = Filters> + use<> {
    let mut clients = world.servers();
    clients.extend(texts(&["*", "g*", "?s", "git?hub", "GIT", "", "git "]));
    let clients = |chance: f64| weighted(chance, vec(select(clients.clone()), 0..4));
    let tools = |chance: f64| weighted(chance, vec(any_pattern(world), 0..4));
    (clients(0.3), clients(0.2), tools(0.4), tools(0.4)).prop_map(
        |(include_clients, exclude_clients, include_tools, exclude_tools)| Filters {
            include_clients,
            exclude_clients,
            include_tools,
            exclude_tools,
            ..Filters::default()
        },
    )
}

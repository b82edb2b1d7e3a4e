//! Random cases, mostly permissive so that enough tools stay visible.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::policy::{Conditions, Hint, RuleSpec, Verdict};
use crate::scope::Filters;
use crate::scope::tests::case::{Case, CaseCaller, CasePermissions, Switches};
use crate::scope::tests::oracle::sanitize;
use crate::scope::tests::{Fixture, texts};

pub(in crate::scope::tests) fn any_case(fixture: &Fixture) -> impl Strategy<Value = Case> + use<> {
    (
        any_switches(fixture),
        any_permissions(fixture),
        any_caller(fixture),
        any_filters(fixture),
    )
        .prop_map(|(switches, permissions, caller, filters)| Case {
            switches,
            permissions,
            caller,
            filters,
        })
}

/// A text that names tools of the fixture, or almost does.
pub(super) fn any_pattern(fixture: &Fixture) -> BoxedStrategy<String> {
    let aliases = fixture.tools.iter().map(|tool| tool.alias.clone());
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
    let mut servers = fixture.servers();
    servers.extend(texts(&["*", "GIT", "g*", "other"]));
    let separators = select(vec![("", "_"), ("", "-"), ("", "."), ("mcp__", "__")]);
    let spelled = (select(servers), separators, any_tool_glob(fixture))
        .prop_map(|(server, (before, after), tool)| format!("{before}{server}{after}{tool}"));
    prop_oneof![
        8 => spelled,
        2 => aliases,
        1 => bare.prop_map(ToOwned::to_owned),
    ]
    .boxed()
}

/// A raw or sanitized tool name, partly replaced by wildcards.
fn any_tool_glob(fixture: &Fixture) -> impl Strategy<Value = String> + use<> {
    let raw = fixture.tools.iter().map(|tool| tool.name.clone());
    let plain = fixture.tools.iter().map(|tool| sanitize(&tool.name));
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

fn any_switches(fixture: &Fixture) -> impl Strategy<Value = Switches> + use<> {
    let servers = fixture.servers();
    let some = |chance: f64| {
        weighted(chance, subsequence(servers.clone(), 0..servers.len()))
            .prop_map(Option::unwrap_or_default)
    };
    (
        prop::bool::weighted(0.02),
        some(0.1),
        some(0.2),
        some(0.1),
        any_lists(fixture, 0..2),
        any_lists(fixture, 0..3),
        vec(any_pattern(fixture), 0..2),
    )
        .prop_map(
            |(off, disabled_servers, allowlist, denylist, execute, auto, blocked)| Switches {
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
    fixture: &Fixture,
    servers: std::ops::Range<usize>,
) -> impl Strategy<Value = BTreeMap<String, Vec<String>>> + use<> {
    let names: Vec<String> = fixture.tools.iter().map(|tool| tool.name.clone()).collect();
    let count = names.len();
    btree_map(
        select(fixture.servers()),
        subsequence(names, 0..=count),
        servers,
    )
}

fn any_permissions(fixture: &Fixture) -> impl Strategy<Value = CasePermissions> + use<> {
    // A default of `deny` has a separate test.
    let default = select(vec![Verdict::Allow, Verdict::Manual, Verdict::Ask]);
    let environment = select(texts(&["production", "staging", "Staging"]));
    (
        vec(any_rule(fixture), 0..4),
        weighted(0.5, default),
        weighted(0.7, environment),
    )
        .prop_map(|(rules, default, environment)| CasePermissions {
            rules,
            default,
            environment,
        })
}

/// A rule with random verdict and conditions.
pub(super) fn any_rule(fixture: &Fixture) -> impl Strategy<Value = RuleSpec> + use<> {
    let verdict = prop_oneof![
        Just(Verdict::Allow),
        Just(Verdict::Manual),
        Just(Verdict::Ask),
        Just(Verdict::Deny),
    ];
    let by_server = (
        select(texts(&["git*", "?s", "*", "GIT"])),
        any_tool_glob(fixture),
    );
    let by_server = by_server.prop_map(|(server, tool)| RuleSpec {
        server: Some(server),
        tool: Some(tool),
        ..empty_rule()
    });
    let by_pattern = any_pattern(fixture).prop_map(|tool| RuleSpec {
        tool: Some(tool),
        ..empty_rule()
    });
    let selection = prop_oneof![4 => by_pattern, 1 => by_server, 1 => any_item_rule(fixture)];
    (selection, any_conditions(), verdict).prop_map(|(rule, when, verdict)| RuleSpec {
        when: if rule.resource.is_some() || rule.prompt.is_some() {
            Conditions {
                arguments: Vec::new(),
                hint: None,
                ..when
            }
        } else {
            when
        },
        verdict,
        ..rule
    })
}

/// A rule about resources or prompts.
fn any_item_rule(fixture: &Fixture) -> impl Strategy<Value = RuleSpec> + use<> {
    let mut servers = fixture.servers();
    servers.extend(texts(&["*", "g*", "GIT"]));
    let resource = select(texts(&["*", "doc://*", "doc://A", "doc://a", "x://?"]));
    let prompt = select(texts(&["*", "greet", "Greet", "g*"]));
    (select(servers), resource, prompt, any::<bool>()).prop_map(
        |(server, resource, prompt, is_resource)| RuleSpec {
            resource: is_resource.then(|| format!("{server}:{resource}")),
            prompt: (!is_resource).then(|| format!("{server}.{prompt}")),
            ..empty_rule()
        },
    )
}

fn empty_rule() -> RuleSpec {
    RuleSpec {
        config_key: "permissions.rules".to_owned(),
        tool: None,
        server: None,
        resource: None,
        prompt: None,
        when: Conditions::default(),
        approval_by: None,
        verdict: Verdict::Deny,
    }
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

fn any_caller(fixture: &Fixture) -> impl Strategy<Value = CaseCaller> + use<> {
    let role = (
        select(texts(&["dev", "ops", "approver"])),
        weighted(0.5, vec(any_pattern(fixture), 0..4)),
    );
    let key = weighted(0.3, vec(any_pattern(fixture), 0..5));
    (key, vec(role, 0..3)).prop_map(|(key, roles)| CaseCaller { key, roles })
}

fn any_filters(fixture: &Fixture) -> impl Strategy<Value = Filters> + use<> {
    let mut clients = fixture.servers();
    clients.extend(texts(&["*", "g*", "?s", "git?hub", "GIT", "", "git "]));
    let clients = |chance: f64| weighted(chance, vec(select(clients.clone()), 0..4));
    let tools = |chance: f64| weighted(chance, vec(any_pattern(fixture), 0..4));
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

//! Rules, tool lists and conditions of the policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::catalog::{Catalog, CatalogEntry, ItemKind, ServerListing};
use crate::config::Approver;
use crate::name::NameStyle;

fn entry(server: &str, tool: &str) -> CatalogEntry {
    let server = ServerName::parse(server).unwrap();
    let json = serde_json::json!({"name": tool});
    let mut listing = ServerListing::default();
    listing.add(
        &server,
        ItemKind::Tool,
        &serde_json::value::to_raw_value(&json).unwrap(),
    );
    let listings = BTreeMap::from([(server.clone(), Arc::new(listing))]);
    let catalog = Catalog::build(1, NameStyle::Underscore, &[server], listings);
    catalog.tools()[0].clone()
}

fn servers() -> Vec<ServerName> {
    ["fs", "git", "git_hub"]
        .map(|name| ServerName::parse(name).unwrap())
        .into()
}

fn rule(tool: &str, verdict: Verdict) -> RuleSpec {
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

fn build(rules: &[RuleSpec], default: Option<Verdict>) -> Policy {
    Policy::build(rules, default, &servers(), Some("production"))
}

fn lists(execute: ToolList, auto_execute: ToolList) -> ToolLists {
    ToolLists {
        execute,
        auto_execute,
    }
}

fn decide(policy: &Policy, entry: &CatalogEntry, lists: &ToolLists) -> Option<Decision> {
    let judged = policy.judge(entry.into(), &["dev".to_owned()], lists);
    judged.map(|judgement| judgement.decision().clone())
}

/// Lists of approvers in every combination, and absent.
const APPROVER_LISTS: [Option<&[Approver]>; 5] = [
    None,
    Some(&[]),
    Some(&[Approver::Admin]),
    Some(&[Approver::Client]),
    Some(&[Approver::Admin, Approver::Client]),
];

#[test]
fn all_asking_rules_must_accept_an_approver() {
    let (read, all) = (entry("fs", "read"), lists(ToolList::All, ToolList::All));
    let approvers = |list: Option<&[Approver]>| list.map(|list| list.iter().copied().collect());
    let asking = |list, argument: bool| RuleSpec {
        approval_by: approvers(list),
        when: Conditions {
            arguments: argument
                .then(|| ("path".to_owned(), vec!["*".to_owned()]))
                .into_iter()
                .collect(),
            ..Conditions::default()
        },
        ..rule("fs.*", Verdict::Ask)
    };
    for one in APPROVER_LISTS {
        for two in APPROVER_LISTS {
            for (conditional_one, conditional_two) in [(false, false), (false, true), (true, true)]
            {
                let rules = [
                    asking(one, conditional_one),
                    asking(two, conditional_two),
                    RuleSpec {
                        approval_by: None,
                        ..rule("fs.*", Verdict::Allow)
                    },
                ];
                let expected: Option<Approvers> = match (one, two) {
                    (Some(one), Some(two)) => {
                        let common = one.iter().filter(|approver| two.contains(approver));
                        Some(common.copied().collect())
                    }
                    (one, two) => approvers(one.or(two)),
                };
                let policy = build(&rules, None);
                let judged = policy.judge((&read).into(), &[], &all).unwrap();
                let decision = judged.decide(&serde_json::json!({"path": "x"}));
                assert_eq!(decision.verdict, Verdict::Ask);
                assert_eq!(decision.approval_by, expected, "{one:?} {two:?}");
            }
        }
    }
}

#[test]
fn lists_decide_where_no_rule_matches() {
    let only = |name: &str| ToolList::Only(BTreeSet::from([name.to_owned()]));
    let read = entry("fs", "read");
    for (execute, auto, default, expected) in [
        (ToolList::All, ToolList::none(), None, Some(Verdict::Manual)),
        (ToolList::All, only("read"), None, Some(Verdict::Allow)),
        (only("write"), ToolList::All, None, None),
        (ToolList::none(), ToolList::All, None, None),
        (
            ToolList::All,
            ToolList::All,
            Some(Verdict::Ask),
            Some(Verdict::Ask),
        ),
        (
            ToolList::All,
            ToolList::none(),
            Some(Verdict::Allow),
            Some(Verdict::Manual),
        ),
    ] {
        let policy = build(&[], default);
        let decision = decide(&policy, &read, &lists(execute, auto));
        assert_eq!(decision.map(|d| d.verdict), expected);
    }
}

#[test]
fn rule_never_adds_a_tool_to_the_scope() {
    let policy = build(&[rule("fs_read", Verdict::Allow)], None);
    let none = lists(ToolList::none(), ToolList::none());
    assert_eq!(decide(&policy, &entry("fs", "read"), &none), None);
}

#[test]
fn rule_may_name_an_alias() {
    let long = "x".repeat(80);
    let entry = entry("fs", &long);
    assert!(entry.alias.len() <= 64);
    let policy = build(&[rule(&entry.alias, Verdict::Deny)], None);
    let all = lists(ToolList::All, ToolList::All);
    let decision = decide(&policy, &entry, &all).unwrap();
    assert_eq!(decision.verdict, Verdict::Deny);
}

#[test]
fn conditions_narrow_a_rule() {
    let all = lists(ToolList::All, ToolList::All);
    let read = entry("fs", "read");
    let deny = |when| RuleSpec {
        when,
        ..rule("fs_*", Verdict::Deny)
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (when, expected) in [
        (
            Conditions {
                roles: names(&["ops", "dev"]),
                ..Conditions::default()
            },
            Verdict::Deny,
        ),
        (
            Conditions {
                roles: names(&["ops"]),
                ..Conditions::default()
            },
            Verdict::Allow,
        ),
        (
            Conditions {
                environments: names(&["production"]),
                ..Conditions::default()
            },
            Verdict::Deny,
        ),
        (
            Conditions {
                environments: names(&["staging"]),
                ..Conditions::default()
            },
            Verdict::Allow,
        ),
        (
            Conditions {
                hint: Some(Hint::Destructive),
                ..Conditions::default()
            },
            Verdict::Deny,
        ),
        (
            Conditions {
                hint: Some(Hint::ReadOnly),
                ..Conditions::default()
            },
            Verdict::Allow,
        ),
    ] {
        let policy = build(&[deny(when.clone())], None);
        assert_eq!(
            decide(&policy, &read, &all).unwrap().verdict,
            expected,
            "{when:?}"
        );
    }
}

#[test]
fn conditional_rules_apply_once_arguments_are_known() {
    let when = |pattern: &str| Conditions {
        arguments: vec![("path".to_owned(), vec![pattern.to_owned()])],
        ..Conditions::default()
    };
    let rules = [
        RuleSpec {
            when: when("/etc/*"),
            ..rule("fs_*", Verdict::Deny)
        },
        RuleSpec {
            when: when("/tmp/*"),
            ..rule("fs.read", Verdict::Allow)
        },
    ];
    let manual = lists(ToolList::All, ToolList::none());
    let read = entry("fs", "read");
    let decide = |rules: &[RuleSpec], path: &str| {
        let judgement = build(rules, None)
            .judge((&read).into(), &[], &manual)
            .unwrap();
        assert_eq!(judgement.decision().verdict, Verdict::Manual);
        judgement.decide(&serde_json::json!({"path": path})).verdict
    };
    assert_eq!(decide(&rules, "/home/x"), Verdict::Manual);
    assert_eq!(decide(&rules, "/etc/x"), Verdict::Deny);
    assert_eq!(decide(&rules, "/tmp/x"), Verdict::Allow);
    let with = [&rules[..], &[rule("fs_*", Verdict::Manual)]].concat();
    assert_eq!(
        decide(&with, "/tmp/x"),
        Verdict::Manual,
        "the stricter rule wins"
    );
}

#[test]
fn can_allow_accounts_for_conditional_rules() {
    let when = Conditions {
        arguments: vec![("path".to_owned(), vec!["/tmp/*".to_owned()])],
        ..Conditions::default()
    };
    let conditional = |verdict| RuleSpec {
        when: when.clone(),
        ..rule("fs_*", verdict)
    };
    let read = entry("fs", "read");
    let (deny, allow) = (conditional(Verdict::Deny), conditional(Verdict::Allow));
    let (none, all) = (ToolList::none(), ToolList::All);
    for (rules, auto_execute, expected) in [
        (vec![deny.clone()], none.clone(), false),
        (vec![deny.clone()], all.clone(), true),
        (vec![deny.clone(), allow.clone()], none.clone(), true),
        (
            vec![allow.clone(), rule("fs_*", Verdict::Manual)],
            none.clone(),
            false,
        ),
        (vec![rule("fs_*", Verdict::Allow), deny], none, true),
        (vec![rule("fs_*", Verdict::Ask), allow], all, false),
    ] {
        let lists = lists(ToolList::All, auto_execute);
        let judgement = build(&rules, None).judge((&read).into(), &[], &lists);
        assert_eq!(judgement.unwrap().can_allow(), expected, "{rules:?}");
    }
}

#[test]
fn ambiguous_and_unmatched_rules_are_reported() {
    let check = |text, verdict| rule(text, verdict).check(&servers());
    assert!(matches!(
        check("git_hub_x", Verdict::Allow),
        Err(RuleError::Selector(SelectorError::Ambiguous { .. }))
    ));
    assert_eq!(check("git_hub_x", Verdict::Deny), Ok(()));
    assert!(check("git_hub_*", Verdict::Allow).is_err());
    assert_eq!(check("git_hub.*", Verdict::Allow), Ok(()));
    assert!(matches!(
        check("Bash", Verdict::Deny),
        Err(RuleError::Selector(SelectorError::NoServer { .. }))
    ));
}

fn any_rule() -> impl Strategy<Value = RuleSpec> {
    let tool = prop::sample::select(vec![
        "*",
        "fs_*",
        "fs.read",
        "git-*",
        "git_hub_*",
        "git_hub_x",
        "*.read",
        "mcp__git__push",
        "nothing",
    ]);
    let verdict = prop::sample::select(vec![
        Verdict::Allow,
        Verdict::Manual,
        Verdict::Ask,
        Verdict::Deny,
    ]);
    (tool, verdict).prop_map(|(tool, verdict)| rule(tool, verdict))
}

proptest! {
    #[test]
    fn order_never_matters_and_denying_never_widens(
        rules in prop::collection::vec(any_rule(), 0..6),
        extra in any_rule(),
        rotation in 0usize..6,
        tool in prop::sample::select(vec![("fs", "read"), ("git", "push"), ("git", "hub_x"), ("git_hub", "x")]),
    ) {
        let all = lists(ToolList::All, ToolList::All);
        let entry = entry(tool.0, tool.1);
        let verdict = |rules: &[RuleSpec]| {
            decide(&build(rules, None), &entry, &all).unwrap().verdict
        };
        let before = verdict(&rules);
        let mut reordered = rules.clone();
        reordered.rotate_left(rotation.min(rules.len()));
        reordered.reverse();
        prop_assert_eq!(verdict(&reordered), before);

        let mut more = rules.clone();
        more.push(RuleSpec { verdict: Verdict::Deny, ..extra.clone() });
        prop_assert!(verdict(&more) >= before);

        let mut relaxed = rules;
        relaxed.push(RuleSpec { verdict: Verdict::Allow, ..extra });
        prop_assert!(verdict(&relaxed) >= before);
    }
}

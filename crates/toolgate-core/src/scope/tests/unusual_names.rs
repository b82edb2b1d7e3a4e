//! Fixtures with unusual but valid names. Each has a property test, and past failures are covered by
//! plain examples.

use proptest::prelude::*;

use super::case::{Case, rule};
use super::properties::{any_case, assert_agrees};
use super::{Fixture, texts, visible};
use crate::name::NameStyle;
use crate::policy::Verdict;
use crate::scope::Filters;

/// Tools with multi-byte characters in their names.
fn multi_byte_names() -> Fixture {
    Fixture::without_hints(
        NameStyle::Underscore,
        &[("fs", &["é", "réd", "日本語", "read", "😀x"])],
    )
}

/// A server named like the prefix of a name style, next to another one.
fn server_named_mcp(style: NameStyle) -> Fixture {
    Fixture::without_hints(
        style,
        &[
            ("mcp", &["run", "_fs__read", "_mcp__run"]),
            ("fs", &["read", "run"]),
        ],
    )
}

/// A server whose name is too long to fit in an alias together with the tool.
fn long_names(style: NameStyle) -> Fixture {
    let server = "s".repeat(64);
    let other = "s".repeat(40);
    let tool = "t".repeat(200);
    Fixture::without_hints(
        style,
        &[(&server, &["read", "delete"]), (&other, &["read", &tool])],
    )
}

/// Servers whose names differ only in separators.
fn mixed_separators(style: NameStyle) -> Fixture {
    Fixture::without_hints(
        style,
        &[
            ("a", &["b_c", "b-c", "x", "-x", "_x"]),
            ("a-b", &["c", "_c"]),
            ("a-b_c", &["d", "c"]),
            ("mcp__a", &["_x", "x", "b_c"]),
        ],
    )
}

fn with_derived<S: Strategy>(
    fixtures: Vec<Fixture>,
    more: fn(&Fixture) -> S,
) -> impl Strategy<Value = (Fixture, S::Value)> {
    prop::sample::select(fixtures).prop_flat_map(move |fixture| {
        let more = more(&fixture);
        (Just(fixture), more)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]
    #[test]
    fn multi_byte_tool_names_agree((fixture, case) in with_derived(vec![multi_byte_names()], any_case)) {
        assert_agrees(&fixture, &case)?;
    }

    #[test]
    fn server_named_mcp_agrees(
        (fixture, case) in with_derived(NameStyle::ALL.map(server_named_mcp).to_vec(), any_case),
    ) {
        assert_agrees(&fixture, &case)?;
    }

    #[test]
    fn names_too_long_for_an_alias_agree(
        (fixture, case) in with_derived(NameStyle::ALL.map(long_names).to_vec(), any_case),
    ) {
        assert_agrees(&fixture, &case)?;
    }

    #[test]
    fn mixed_separators_agree(
        (fixture, case) in with_derived(NameStyle::ALL.map(mixed_separators).to_vec(), any_case),
    ) {
        assert_agrees(&fixture, &case)?;
    }
}

fn granting(list: &[&str]) -> Case {
    let mut case = Case::default();
    case.caller.key = Some(texts(list));
    case
}

#[test]
fn question_mark_matches_one_character() {
    let fixture = multi_byte_names();
    for (pattern, expected) in [
        ("fs.?", &["fs.é"][..]),
        ("fs.??", &["fs.😀x"]),
        ("fs.???", &["fs.réd", "fs.日本語"]),
        ("fs.????", &["fs.read"]),
        ("fs.?????????", &[]),
    ] {
        let found = visible(&fixture, &granting(&[pattern])).unwrap();
        assert_eq!(found, expected, "a key with `{pattern}`");
    }
}

#[test]
fn server_named_mcp_can_be_granted_and_included() {
    let fixture = server_named_mcp(NameStyle::Underscore);
    let all = texts(&["mcp._fs__read", "mcp._mcp__run", "mcp.run"]);
    let both = texts(&["mcp._mcp__run", "mcp.run"]);
    for (text, expected) in [
        ("mcp_*", &all),
        ("mcp.*", &all),
        ("mcp__mcp__*", &all),
        ("mcp__mcp__run", &both),
    ] {
        let mut including = Case::default();
        including.filters.include_tools = Some(texts(&[text]));
        assert_eq!(
            visible(&fixture, &granting(&[text])).as_ref(),
            Ok(expected),
            "key: {text}"
        );
        assert_eq!(
            visible(&fixture, &including).as_ref(),
            Ok(expected),
            "include: {text}"
        );
    }
}

#[test]
fn shortened_alias_names_its_tool() {
    for style in NameStyle::ALL {
        let fixture = long_names(style);
        let id = format!("{}.delete", "s".repeat(64));
        let alias = fixture.alias(&id).to_owned();
        let only = || Some(vec![alias.clone()]);

        let mut denied = Case::default();
        denied.permissions.rules.push(rule(&alias, Verdict::Deny));
        let mut blocked = Case::default();
        blocked.switches.blocked.push(alias.clone());
        let mut excluded = Case::default();
        excluded.filters.exclude_tools = only();
        for (what, case) in [
            ("deny", denied),
            ("blocked", blocked),
            ("exclude", excluded),
        ] {
            assert!(
                !visible(&fixture, &case).unwrap().contains(&id),
                "{what} `{alias}`"
            );
        }

        let mut granted = Case::default();
        granted.caller.key = only();
        let included = Case {
            filters: Filters {
                include_tools: only(),
                ..Filters::default()
            },
            ..Case::default()
        };
        for (what, case) in [("key", granted), ("include", included)] {
            assert_eq!(
                visible(&fixture, &case),
                Ok(vec![id.clone()]),
                "{what} `{alias}`"
            );
        }
    }
}

/// A default is not a rule: it may hide a tool or refuse its calls, but never lets one run.
#[test]
fn default_of_deny_lets_nothing_run() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    let mut case = Case::default();
    case.permissions.default = Some(Verdict::Deny);
    case.switches
        .auto
        .insert("fs".to_owned(), texts(&["read_file"]));
    case.permissions.rules = vec![rule("git_hub.*", Verdict::Allow)];
    let verdicts = super::verdicts(&fixture, &case).unwrap();
    for (tool, verdict) in fixture.tools.iter().zip(verdicts) {
        let runs = verdict.is_some_and(|verdict| verdict < Verdict::Deny);
        assert_eq!(runs, tool.server == "git_hub", "{tool:?}");
    }
}

//! Worlds with strange but valid names: each has its own property, and what went wrong before as
//! a plain example.

use proptest::prelude::*;

use super::case::{Case, rule};
use super::properties::{agrees, any_case};
use super::{World, texts, visible};
use crate::name::NameStyle;
use crate::policy::Verdict;
use crate::scope::Filters;

/// Tools whose names have characters of several bytes.
fn many_bytes() -> World {
    World::unmarked(
        NameStyle::Underscore,
        &[("fs", &["é", "réd", "日本語", "read", "😀x"])],
    )
}

/// A server called as the prefix of a name style, beside another.
fn called_mcp(style: NameStyle) -> World {
    World::unmarked(
        style,
        &[
            ("mcp", &["run", "_fs__read", "_mcp__run"]),
            ("fs", &["read", "run"]),
        ],
    )
}

/// A server whose name is so long that no alias holds it and the tool.
fn long_names(style: NameStyle) -> World {
    let server = "s".repeat(64);
    let other = "s".repeat(40);
    let tool = "t".repeat(200);
    World::unmarked(
        style,
        &[(&server, &["read", "delete"]), (&other, &["read", &tool])],
    )
}

/// Servers that differ in what separates the parts of their names.
fn hyphens(style: NameStyle) -> World {
    World::unmarked(
        style,
        &[
            ("a", &["b_c", "b-c", "x", "-x", "_x"]),
            ("a-b", &["c", "_c"]),
            ("a-b_c", &["d", "c"]),
            ("mcp__a", &["_x", "x", "b_c"]),
        ],
    )
}

fn in_style<S: Strategy>(
    worlds: Vec<World>,
    more: fn(&World) -> S,
) -> impl Strategy<Value = (World, S::Value)> {
    prop::sample::select(worlds).prop_flat_map(move |world| {
        let more = more(&world);
        (Just(world), more)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]
    #[test]
    fn characters_of_several_bytes((world, case) in in_style(vec![many_bytes()], any_case)) {
        agrees(&world, &case)?;
    }

    #[test]
    fn a_server_called_mcp(
        (world, case) in in_style(NameStyle::ALL.map(called_mcp).to_vec(), any_case),
    ) {
        agrees(&world, &case)?;
    }

    #[test]
    fn names_too_long_for_an_alias(
        (world, case) in in_style(NameStyle::ALL.map(long_names).to_vec(), any_case),
    ) {
        agrees(&world, &case)?;
    }

    #[test]
    fn servers_with_other_separators(
        (world, case) in in_style(NameStyle::ALL.map(hyphens).to_vec(), any_case),
    ) {
        agrees(&world, &case)?;
    }
}

fn granting(list: &[&str]) -> Case {
    let mut case = Case::default();
    case.caller.key = Some(texts(list));
    case
}

#[test]
fn a_question_mark_is_one_character() {
    let world = many_bytes();
    for (pattern, expected) in [
        ("fs.?", &["fs.é"][..]),
        ("fs.??", &["fs.😀x"]),
        ("fs.???", &["fs.réd", "fs.日本語"]),
        ("fs.????", &["fs.read"]),
        ("fs.?????????", &[]),
    ] {
        let found = visible(&world, &granting(&[pattern])).unwrap();
        assert_eq!(found, expected, "a key with `{pattern}`");
    }
}

#[test]
fn a_server_called_mcp_can_be_granted_and_included_in_every_style() {
    let world = called_mcp(NameStyle::Underscore);
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
            visible(&world, &granting(&[text])).as_ref(),
            Ok(expected),
            "key: {text}"
        );
        assert_eq!(
            visible(&world, &including).as_ref(),
            Ok(expected),
            "include: {text}"
        );
    }
}

#[test]
fn an_alias_without_its_servers_name_names_its_tool() {
    for style in NameStyle::ALL {
        let world = long_names(style);
        let id = format!("{}.delete", "s".repeat(64));
        let alias = world.alias(&id).to_owned();
        let only = || Some(vec![alias.clone()]);

        let mut denied = Case::default();
        denied.permissions.rules.push(rule(&alias, Verdict::Deny));
        let mut blocked = Case::default();
        blocked.gate.blocked.push(alias.clone());
        let mut excluded = Case::default();
        excluded.filters.exclude_tools = only();
        for (what, case) in [
            ("deny", denied),
            ("blocked", blocked),
            ("exclude", excluded),
        ] {
            assert!(
                !visible(&world, &case).unwrap().contains(&id),
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
                visible(&world, &case),
                Ok(vec![id.clone()]),
                "{what} `{alias}`"
            );
        }
    }
}

/// A default is no rule: it may hide a tool or refuse each call, but never lets one run.
#[test]
fn a_default_of_deny_lets_nothing_run() {
    let world = World::usual(NameStyle::Underscore);
    let mut case = Case::default();
    case.permissions.default = Some(Verdict::Deny);
    case.gate
        .auto
        .insert("fs".to_owned(), texts(&["read_file"]));
    case.permissions.rules = vec![rule("git_hub.*", Verdict::Allow)];
    let sight = super::sight(&world, &case).unwrap();
    for (tool, verdict) in world.tools.iter().zip(sight) {
        let runs = verdict.is_some_and(|verdict| verdict < Verdict::Deny);
        assert_eq!(runs, tool.server == "git_hub", "{tool:?}");
    }
}

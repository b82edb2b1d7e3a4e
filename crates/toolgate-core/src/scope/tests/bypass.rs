//! Attempts to bypass access control: lookalike names and overly broad texts.

use super::case::{Case, rule};
use super::{Fixture, oracle, texts, verdicts, visible};
use crate::name::{NameStyle, ServerName};
use crate::policy::Verdict;
use crate::scope::{AccessRules, Filters, Scope};

type Setting = fn(&mut Case, Vec<String>);

/// Every setting that grants tools by pattern.
const GRANTING: [(&str, Setting); 3] = [
    ("key", |case, list| case.caller.key = Some(list)),
    ("role", |case, list| {
        case.caller.roles = vec![("dev".to_owned(), Some(list))];
    }),
    ("include-tools", |case, list| {
        case.filters.include_tools = Some(list);
    }),
];

/// Every setting that restricts tools by pattern.
const RESTRICTING: [(&str, Setting); 3] = [
    ("blocked", |case, list| case.switches.blocked = list),
    ("exclude-tools", |case, list| {
        case.filters.exclude_tools = Some(list);
    }),
    ("deny", |case, list| {
        let rules = list.iter().map(|text| rule(text, Verdict::Deny));
        case.permissions.rules = rules.collect();
    }),
];

fn with(setting: Setting, list: &[&str]) -> Case {
    let mut case = Case::default();
    setting(&mut case, texts(list));
    case
}

fn visible_tools(fixture: &Fixture, case: &Case) -> Vec<String> {
    visible(fixture, case).unwrap()
}

/// Ids of all tools except these.
fn all_except(fixture: &Fixture, hidden: &[&str]) -> Vec<String> {
    let ids = fixture.tools.iter().map(oracle::OracleTool::id);
    ids.filter(|id| !hidden.contains(&id.as_str())).collect()
}

/// Whether tools of a server may exist for a request before anyone knows them.
fn may_have_tools(fixture: &Fixture, case: &Case, server: &str) -> bool {
    let access = AccessRules::new(&case.config(fixture));
    let principal = case.principal(&access);
    let view = access.view(&principal, &case.filters);
    view.may_have_tools(&ServerName::parse(server).unwrap())
}

#[test]
fn unconnected_server_is_known_only_if_it_may_have_tools() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    let default = Case::default();
    assert!(may_have_tools(&fixture, &default, "fs"));
    assert!(!may_have_tools(&fixture, &default, "nobodys"));
    for (name, setting) in GRANTING {
        let (own, other) = (with(setting, &["fs.*"]), with(setting, &["git.*"]));
        assert!(may_have_tools(&fixture, &own, "fs"), "{name}");
        assert!(!may_have_tools(&fixture, &other, "fs"), "{name}");
    }
    for (name, setting) in RESTRICTING {
        let (all, some) = (with(setting, &["fs.*"]), with(setting, &["fs.read_file"]));
        assert!(!may_have_tools(&fixture, &all, "fs"), "{name}");
        assert!(may_have_tools(&fixture, &some, "fs"), "{name}");
    }
}

#[test]
fn lookalike_texts_grant_and_restrict_nothing() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    for text in [
        // lookalike letters
        "FS_read_file",
        "fs_Read_file",
        "Fs.read_file",
        "MCP__fs__read_file",
        "f\u{455}_read_file",
        "fs_re\u{430}d_file",
        "\u{ff46}\u{ff53}_read_file",
        "fs_read\u{ff3f}file",
        "fs\u{ff0e}read_file",
        "fs_read_file\u{200b}",
        "\u{feff}fs_read_file",
        "fs_re\u{301}ad_file",
        // spaces and control characters
        " fs_read_file",
        "fs_read_file ",
        "fs _read_file",
        "fs_ read_file",
        "fs_read_file\0",
        "fs_read_file\0*",
        "fs\0_read_file",
        "fs_read_file\n",
        "\nfs_read_file",
        "fs_read_file\nfs_write_file",
        "fs_read_file,fs_write_file",
        // separators
        "fs",
        "fs_",
        "fs.",
        "fs__read_file",
        "fs--read_file",
        "fs..read_file",
        "fs:read_file",
        "fs/read_file",
        "fs read_file",
        "fsread_file",
        "mcp_fs_read_file",
        "mcp__fs_read_file",
        "mcp__fs.read_file",
        "mcp__fs__",
        "mcp__mcp__fs__read_file",
        "fs.fs.read_file",
        "fs_fs_read_file",
        "read_file",
        ".read_file",
        // wildcards over servers
        "**",
        "?",
        "?s_read_file",
        "f*",
        "f*_read_file",
        "f*.read_file",
        "fs*",
        "*_read_file",
        "*-read_file",
        "*read_file",
        "mcp__*",
        "mcp__*__read_file",
        "*.",
        "*.*.read_file",
        "",
    ] {
        for (what, setting) in GRANTING {
            let found = visible(&fixture, &with(setting, &[text]));
            assert_eq!(found, Ok(vec![]), "{what} {text:?}");
        }
        for (what, setting) in RESTRICTING {
            let found = visible(&fixture, &with(setting, &[text]));
            assert_eq!(found, Ok(all_except(&fixture, &[])), "{what} {text:?}");
        }
    }
}

/// Counterpart of the test above: correct spellings do grant and restrict.
#[test]
fn every_valid_spelling_grants_and_restricts_one_tool() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    for (text, id) in [
        ("fs_read_file", "fs.read_file"),
        ("fs-read_file", "fs.read_file"),
        ("fs.read_file", "fs.read_file"),
        ("mcp__fs__read_file", "fs.read_file"),
        ("fs_read*", "fs.read_file"),
        ("*.read_fil?", "fs.read_file"),
        ("fs_odd name/x.y", "fs.odd name/x.y"),
        ("fs_odd_name_x_y", "fs.odd name/x.y"),
        ("fs.odd?name?x?y", "fs.odd name/x.y"),
    ] {
        for (what, setting) in GRANTING {
            assert_eq!(
                visible_tools(&fixture, &with(setting, &[text])),
                [id],
                "{what} {text}"
            );
        }
        for (what, setting) in RESTRICTING {
            let found = visible_tools(&fixture, &with(setting, &[text]));
            assert_eq!(found, all_except(&fixture, &[id]), "{what} {text}");
        }
    }
}

#[test]
fn lookalike_tools_are_distinguished() {
    let names = [
        "delete",
        "Delete",
        "d\u{435}lete",
        "\u{ff44}elete",
        "delete ",
        " delete",
        "delete\n",
        "delete\u{200b}",
    ];
    let fixture = Fixture::without_hints(NameStyle::Underscore, &[("fs", &names)]);
    let ids_of = |texts: &[&str]| -> Vec<String> {
        let mut ids: Vec<String> = texts.iter().map(|name| format!("fs.{name}")).collect();
        ids.sort();
        ids
    };
    let padded = ["delete ", "delete\n", "delete\u{200b}"];
    for (pattern, matching) in [
        ("fs.delete", &["delete"][..]),
        ("fs.Delete", &["Delete"]),
        ("fs.delete ", &["delete "]),
        ("fs.delete_", &padded),
        ("fs.delete\n", &["delete\n"]),
        ("fs.d_lete", &["d\u{435}lete"]),
        ("fs._delete", &[" delete"]),
        ("fs._elete", &["\u{ff44}elete"]),
        (
            "fs.delete*",
            &["delete", "delete ", "delete\n", "delete\u{200b}"],
        ),
        ("fs.*", &names),
    ] {
        for (what, setting) in GRANTING {
            let found = visible_tools(&fixture, &with(setting, &[pattern]));
            assert_eq!(found, ids_of(matching), "{what} {pattern:?}");
        }
        for (what, setting) in RESTRICTING {
            let found = visible_tools(&fixture, &with(setting, &[pattern]));
            let ids = ids_of(matching);
            let hidden: Vec<&str> = ids.iter().map(String::as_str).collect();
            assert_eq!(found, all_except(&fixture, &hidden), "{what} {pattern:?}");
        }
    }
}

#[test]
fn server_tool_lists_match_raw_names_only() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    for (text, expected) in [
        ("read_file", &["fs.read_file"][..]),
        ("odd name/x.y", &["fs.odd name/x.y"]),
        ("odd_name_x_y", &[]),
        ("fs_read_file", &[]),
        ("fs.read_file", &[]),
        ("Read_file", &[]),
        ("read_file ", &[]),
        ("read_file\0", &[]),
        ("read_*", &[]),
        ("?ead_file", &[]),
        ("", &[]),
    ] {
        let mut case = Case::default();
        case.switches
            .execute
            .insert("fs".to_owned(), texts(&[text]));
        case.filters.include_clients = Some(texts(&["fs"]));
        assert_eq!(visible_tools(&fixture, &case), expected, "{text:?}");
    }
}

#[test]
fn client_filters_match_whole_names_case_sensitively() {
    let fixture = Fixture::without_hints(
        NameStyle::Underscore,
        &[("fs", &["x"]), ("git", &["x"]), ("git_hub", &["x"])],
    );
    for (text, matching) in [
        ("git", &["git.x"][..]),
        ("git*", &["git.x", "git_hub.x"]),
        ("git_*", &["git_hub.x"]),
        ("git?hub", &["git_hub.x"]),
        ("?s", &["fs.x"]),
        ("*", &["fs.x", "git.x", "git_hub.x"]),
        ("GIT", &[]),
        ("git ", &[]),
        (" git", &[]),
        ("g\u{456}t", &[]),
        ("\u{ff47}it", &[]),
        ("git\0", &[]),
        ("git\n", &[]),
        ("git-hub", &[]),
        ("git.x", &[]),
        ("git,fs", &[]),
        ("gi", &[]),
        ("?", &[]),
        ("", &[]),
    ] {
        let mut including = Case::default();
        including.filters.include_clients = Some(texts(&[text]));
        assert_eq!(
            visible_tools(&fixture, &including),
            matching,
            "include {text:?}"
        );
        let mut excluding = Case::default();
        excluding.filters.exclude_clients = Some(texts(&[text]));
        assert_eq!(
            visible_tools(&fixture, &excluding),
            all_except(&fixture, matching),
            "exclude {text:?}"
        );
    }
}

#[test]
fn ambiguous_restriction_applies_to_both_servers() {
    for style in NameStyle::ALL {
        let fixture = Fixture::standard(style);
        let remaining = all_except(&fixture, &["git.hub_search", "git_hub.search"]);
        for text in ["git_hub_search", "git_hub_sea*", "git_hub_searc?"] {
            for (what, setting) in RESTRICTING {
                let found = visible_tools(&fixture, &with(setting, &[text]));
                assert_eq!(found, remaining, "{style:?} {what} {text}");
            }
        }
    }
}

#[test]
fn text_that_names_one_server_grants_its_tools() {
    for style in NameStyle::ALL {
        let fixture = Fixture::standard(style);
        for (text, expected) in [
            ("git_hub.*", &["git_hub.push", "git_hub.search"][..]),
            ("git_hub.sear??", &["git_hub.search"]),
            ("git-hub_*", &["git.hub_search"]),
            ("git.hub*", &["git.hub_search"]),
            ("mcp__git_hub__search", &["git_hub.search"]),
            ("mcp__git__hub_search", &["git.hub_search"]),
            ("git.hub_search", &["git.hub_search"]),
        ] {
            for (what, setting) in GRANTING {
                let found = visible_tools(&fixture, &with(setting, &[text]));
                assert_eq!(found, expected, "{style:?} {what} {text}");
            }
        }
    }
}

/// `git_hub_search` may also be the tool `hub_search` of `git`, and `git_hub_*` all tools of `git`
/// that start with `hub_`.
#[test]
fn text_that_names_two_servers_grants_nothing() {
    for style in NameStyle::ALL {
        let fixture = Fixture::standard(style);
        for text in [
            "git_hub_search",
            "git_hub-search",
            "git_hub_*",
            "git_hub_s*",
        ] {
            for (what, setting) in &GRANTING[..2] {
                let found = visible_tools(&fixture, &with(*setting, &[text]));
                assert_eq!(found, [""; 0], "{style:?} {what} {text}");
            }
        }
    }
}

#[test]
fn included_text_is_resolved_against_existing_tools() {
    for style in NameStyle::ALL {
        let fixture = Fixture::standard(style);
        let is_alias = fixture.alias("git_hub.search") == "git_hub_search";
        let ambiguous = Err("git_hub_search".to_owned());
        for (text, expected) in [
            // Only one of the two servers has such a tool.
            ("git_hub-search", Ok(texts(&["git_hub.search"]))),
            ("git_hub_push", Ok(texts(&["git_hub.push"]))),
            ("git_hub_log", Ok(texts(&[]))),
            // Both have: an alias selects its tool, and a glob the longest server name.
            (
                "git_hub_search",
                if is_alias {
                    Ok(texts(&["git_hub.search"]))
                } else {
                    ambiguous
                },
            ),
            ("git_hub_s*", Ok(texts(&["git_hub.search"]))),
        ] {
            let found = visible(&fixture, &with(GRANTING[2].1, &[text]));
            assert_eq!(found, expected, "{style:?} {text}");
        }
    }
}

#[test]
fn included_text_names_the_tool_that_exists_for_the_caller() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    let taken = fixture.alias("git.hub_search").to_owned();
    assert_ne!(taken, "git_hub_search", "the other tool has that alias");
    let including = |text: &str| with(GRANTING[2].1, &[text]);
    assert_eq!(
        visible_tools(&fixture, &including("git_hub_search")),
        ["git_hub.search"]
    );
    assert_eq!(
        visible_tools(&fixture, &including(&taken)),
        ["git.hub_search"]
    );
    for close in [
        |case: &mut Case| case.switches.blocked = texts(&["git_hub.s*"]),
        |case: &mut Case| case.switches.disabled_servers = texts(&["git_hub"]),
        |case: &mut Case| case.filters.exclude_clients = Some(texts(&["git_hub"])),
        |case: &mut Case| case.permissions.rules = vec![rule("git_hub.s*", Verdict::Deny)],
        |case: &mut Case| case.caller.key = Some(texts(&["git.*"])),
    ] {
        let mut case = including("git_hub_search");
        close(&mut case);
        assert_eq!(
            visible_tools(&fixture, &case),
            ["git.hub_search"],
            "{case:#?}"
        );
    }
}

#[test]
fn names_that_match_nothing_are_reported_with_a_suggestion() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    let mut case = with(
        GRANTING[2].1,
        &["FS_read_file", "git.push", "fs.nothing_like_it"],
    );
    case.filters.exclude_tools = Some(texts(&["fs-write_fil"]));
    case.filters.include_clients = Some(texts(&["Git", "fs", "git", "git_hub"]));
    case.caller.key = Some(texts(&["fs.*", "git.*"]));
    let access = AccessRules::new(&case.config(&fixture));
    let principal = case.principal(&access);
    let view = access.view(&principal, &case.filters);
    let scope = Scope::build(view, fixture.catalog.clone()).unwrap();
    let found: Vec<String> = scope
        .unmatched_filters()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "`Git` in `x-bf-mcp-include-clients` matches nothing; did you mean `git`?",
            "`git_hub` in `x-bf-mcp-include-clients` matches nothing; did you mean `git`?",
            "`FS_read_file` in `x-bf-mcp-include-tools` matches nothing; did you mean `fs_read_file`?",
            "`fs.nothing_like_it` in `x-bf-mcp-include-tools` matches nothing",
            "`fs-write_fil` in `x-bf-mcp-exclude-tools` matches nothing; did you mean `fs_write_file`?",
        ],
        "what is hidden from the key is reported as what does not exist"
    );
}

#[test]
fn tool_cannot_impersonate_a_tool_of_another_server() {
    let fixture = Fixture::without_hints(
        NameStyle::Underscore,
        &[
            ("evil", &["fs_read", "fs.read", "mcp__fs__read", "read"]),
            ("fs", &["read"]),
        ],
    );
    for text in [
        "fs_read",
        "fs-read",
        "fs.read",
        "mcp__fs__read",
        "fs_*",
        "fs.*",
    ] {
        for (what, setting) in GRANTING {
            assert_eq!(
                visible_tools(&fixture, &with(setting, &[text])),
                ["fs.read"],
                "{what} {text}"
            );
        }
        for (what, setting) in RESTRICTING {
            let found = visible_tools(&fixture, &with(setting, &[text]));
            assert_eq!(found, all_except(&fixture, &["fs.read"]), "{what} {text}");
        }
    }
}

#[test]
fn unconfigured_server_contributes_no_tools() {
    let read = [("read", None, None)];
    let listed = [("fs", &read[..]), ("gone", &read[..])];
    let fixture = Fixture::with_configured(NameStyle::Underscore, &["fs"], &listed);
    assert_eq!(fixture.tools.len(), 2);
    for text in ["*", "*.read", "*.*"] {
        for (what, setting) in GRANTING {
            assert_eq!(
                visible_tools(&fixture, &with(setting, &[text])),
                ["fs.read"],
                "{what} {text}"
            );
        }
    }
    let mut case = Case::default();
    case.filters.include_clients = Some(texts(&["gone"]));
    assert_eq!(visible_tools(&fixture, &case), [""; 0]);
}

#[test]
fn headers_parse_into_lists() {
    for (values, expected) in [
        (&[][..], None),
        (&[""], Some(&[][..])),
        (&["  "], Some(&[])),
        (&[","], Some(&[])),
        (&[", ,"], Some(&[])),
        (&[",,,", " , "], Some(&[])),
        (&["fs"], Some(&["fs"])),
        (&[" fs , git "], Some(&["fs", "git"])),
        (&["fs,,git,"], Some(&["fs", "git"])),
        (&["fs", "git"], Some(&["fs", "git"])),
        (&["fs", "", ",", "git"], Some(&["fs", "git"])),
        (&["fs\t,\tgit"], Some(&["fs", "git"])),
        (&["fs;git"], Some(&["fs;git"])),
        (&["fs git"], Some(&["fs git"])),
        (&["\"fs\""], Some(&["\"fs\""])),
        (&["fs\u{ff0c}git"], Some(&["fs\u{ff0c}git"])),
    ] {
        let found = Filters::parse_list(values.iter().copied());
        assert_eq!(found, expected.map(texts), "{values:?}");
    }
}

#[test]
fn empty_headers_include_nothing_and_exclude_nothing() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    for values in [&[""][..], &[","], &[", ,"], &["", ""]] {
        let list = Filters::parse_list(values.iter().copied());
        assert_eq!(list, Some(vec![]), "{values:?}");
        let filters = |include: bool, clients: bool| Filters {
            include_clients: list.clone().filter(|_| include && clients),
            include_tools: list.clone().filter(|_| include && !clients),
            exclude_clients: list.clone().filter(|_| !include && clients),
            exclude_tools: list.clone().filter(|_| !include && !clients),
            ..Filters::default()
        };
        for clients in [true, false] {
            for (include, expected) in [(true, vec![]), (false, all_except(&fixture, &[]))] {
                let case = Case {
                    filters: filters(include, clients),
                    ..Case::default()
                };
                assert_eq!(
                    visible_tools(&fixture, &case),
                    expected,
                    "{:?}",
                    case.filters
                );
            }
        }
    }
}

/// A repeated header extends the list instead of replacing it.
#[test]
fn repeated_headers_form_one_list() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    let mut case = Case::default();
    case.filters.exclude_tools = Filters::parse_list(["fs_*", "git_hub_*", ""]);
    assert_eq!(visible_tools(&fixture, &case), ["git.log", "git.push"]);
    case.filters.include_tools = Filters::parse_list(["*.push", "fs.read_file, git_hub.push*"]);
    assert_eq!(visible_tools(&fixture, &case), ["git.push"]);
}

#[test]
fn long_texts_and_glob_bombs_are_fast() {
    let server = "a".repeat(64);
    let long = "a".repeat(20_000);
    let fixture = Fixture::without_hints(NameStyle::Underscore, &[(&server, &[&long, "b"])]);
    let bomb = format!("{}b", "*a".repeat(40));
    let questions = format!("{}*b", "*?".repeat(40));
    let patterns = [
        format!("{server}.{bomb}"),
        format!("*.{bomb}"),
        format!("{server}_{}?{}b", "*".repeat(5_000), "*".repeat(5_000)),
        format!("*.{long}b"),
        format!("{server}-*{}", "?".repeat(20_001)),
    ];
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    for (what, setting) in GRANTING {
        assert_eq!(
            visible_tools(&fixture, &with(setting, &patterns)),
            [""; 0],
            "{what}"
        );
    }
    for (what, setting) in RESTRICTING {
        assert_eq!(
            visible_tools(&fixture, &with(setting, &patterns)),
            all_except(&fixture, &[]),
            "{what}"
        );
    }
    let mut case = Case::default();
    case.filters.include_clients = Some(vec![bomb, questions]);
    assert_eq!(verdicts(&fixture, &case).unwrap(), [None, None]);
}

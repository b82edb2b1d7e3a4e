//! What an attacker would try: names that look like others, and texts that mean too much.

use super::case::{Case, rule};
use super::{World, oracle, sight, texts, visible};
use crate::name::NameStyle;
use crate::policy::Verdict;
use crate::scope::Filters;

type Setting = fn(&mut Case, Vec<String>);

/// Everything that opens tools, by patterns over tools.
const OPENING: [(&str, Setting); 3] = [
    ("key", |case, list| case.caller.key = Some(list)),
    ("role", |case, list| {
        case.caller.roles = vec![("dev".to_owned(), Some(list))];
    }),
    ("include-tools", |case, list| {
        case.filters.include_tools = Some(list);
    }),
];

/// Everything that closes tools, by patterns over tools.
const CLOSING: [(&str, Setting); 3] = [
    ("blocked", |case, list| case.gate.blocked = list),
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

fn seen(world: &World, case: &Case) -> Vec<String> {
    visible(world, case).unwrap()
}

/// The ids of all tools but these.
fn all_but(world: &World, hidden: &[&str]) -> Vec<String> {
    let ids = world.tools.iter().map(oracle::Tool::id);
    ids.filter(|id| !hidden.contains(&id.as_str())).collect()
}

#[test]
fn texts_that_only_look_like_a_name_open_and_close_nothing() {
    let world = World::usual(NameStyle::Underscore);
    for text in [
        // letters that are others
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
        for (what, setting) in OPENING {
            let found = visible(&world, &with(setting, &[text]));
            assert_eq!(found, Ok(vec![]), "{what} {text:?}");
        }
        for (what, setting) in CLOSING {
            let found = visible(&world, &with(setting, &[text]));
            assert_eq!(found, Ok(all_but(&world, &[])), "{what} {text:?}");
        }
    }
}

/// The counterpart of the above: the same places do open and close what is spelled well.
#[test]
fn every_good_spelling_opens_and_closes_one_tool() {
    let world = World::usual(NameStyle::Underscore);
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
        for (what, setting) in OPENING {
            assert_eq!(seen(&world, &with(setting, &[text])), [id], "{what} {text}");
        }
        for (what, setting) in CLOSING {
            let found = seen(&world, &with(setting, &[text]));
            assert_eq!(found, all_but(&world, &[id]), "{what} {text}");
        }
    }
}

#[test]
fn tools_that_only_look_alike_are_told_apart() {
    let names = [
        "delete",
        "Delete",
        "d\u{435}lete",
        "\u{ff44}elete",
        "delete ",
        " delete",
        "delete\0",
        "delete\n",
        "delete\u{200b}",
    ];
    let world = World::unmarked(NameStyle::Underscore, &[("fs", &names)]);
    let named = |texts: &[&str]| -> Vec<String> {
        let mut ids: Vec<String> = texts.iter().map(|name| format!("fs.{name}")).collect();
        ids.sort();
        ids
    };
    let padded = ["delete ", "delete\0", "delete\n", "delete\u{200b}"];
    for (pattern, matching) in [
        ("fs.delete", &["delete"][..]),
        ("fs.Delete", &["Delete"]),
        ("fs.delete ", &["delete "]),
        ("fs.delete_", &padded),
        ("fs.delete\0", &["delete\0"]),
        ("fs.delete\n", &["delete\n"]),
        ("fs.d_lete", &["d\u{435}lete"]),
        ("fs._delete", &[" delete"]),
        ("fs._elete", &["\u{ff44}elete"]),
        (
            "fs.delete*",
            &[
                "delete",
                "delete ",
                "delete\0",
                "delete\n",
                "delete\u{200b}",
            ],
        ),
        ("fs.*", &names),
    ] {
        for (what, setting) in OPENING {
            let found = seen(&world, &with(setting, &[pattern]));
            assert_eq!(found, named(matching), "{what} {pattern:?}");
        }
        for (what, setting) in CLOSING {
            let found = seen(&world, &with(setting, &[pattern]));
            let ids = named(matching);
            let hidden: Vec<&str> = ids.iter().map(String::as_str).collect();
            assert_eq!(found, all_but(&world, &hidden), "{what} {pattern:?}");
        }
    }
}

#[test]
fn raw_lists_know_raw_names_only() {
    let world = World::usual(NameStyle::Underscore);
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
        case.gate.execute.insert("fs".to_owned(), texts(&[text]));
        case.filters.include_clients = Some(texts(&["fs"]));
        assert_eq!(seen(&world, &case), expected, "{text:?}");
    }
}

#[test]
fn clients_are_whole_names_in_their_own_letters() {
    let world = World::unmarked(
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
        assert_eq!(seen(&world, &including), matching, "include {text:?}");
        let mut excluding = Case::default();
        excluding.filters.exclude_clients = Some(texts(&[text]));
        assert_eq!(
            seen(&world, &excluding),
            all_but(&world, matching),
            "exclude {text:?}"
        );
    }
}

#[test]
fn a_text_that_fits_two_servers_closes_both() {
    for style in NameStyle::ALL {
        let world = World::usual(style);
        let left = all_but(&world, &["git.hub_search", "git_hub.search"]);
        for text in ["git_hub_search", "git_hub_sea*", "git_hub_searc?"] {
            for (what, setting) in CLOSING {
                let found = seen(&world, &with(setting, &[text]));
                assert_eq!(found, left, "{style:?} {what} {text}");
            }
        }
    }
}

#[test]
fn a_glob_that_fits_two_servers_opens_the_longest() {
    for style in NameStyle::ALL {
        let world = World::usual(style);
        for (text, expected) in [
            ("git_hub_*", &["git_hub.push", "git_hub.search"][..]),
            ("git_hub_s*", &["git_hub.search"]),
            ("git_hub.sear??", &["git_hub.search"]),
            ("git-hub_*", &["git.hub_search"]),
            ("git.hub*", &["git.hub_search"]),
            ("mcp__git_hub__search", &["git_hub.search"]),
            ("mcp__git__hub_search", &["git.hub_search"]),
            ("git.hub_search", &["git.hub_search"]),
        ] {
            for (what, setting) in OPENING {
                let found = seen(&world, &with(setting, &[text]));
                assert_eq!(found, expected, "{style:?} {what} {text}");
            }
        }
    }
}

/// `git_hub.search` may also be the tool `hub.search` of `git`.
#[test]
fn an_exact_text_that_fits_two_servers_opens_nothing_but_an_included_alias() {
    for style in NameStyle::ALL {
        let world = World::usual(style);
        for text in ["git_hub_search", "git_hub-search"] {
            for (what, setting) in &OPENING[..2] {
                let found = seen(&world, &with(*setting, &[text]));
                assert_eq!(found, [""; 0], "{style:?} {what} {text}");
            }
            let is_alias = world.alias("git_hub.search") == text;
            let expected = match is_alias {
                true => Ok(texts(&["git_hub.search"])),
                false => Err(text.to_owned()),
            };
            let found = visible(&world, &with(OPENING[2].1, &[text]));
            assert_eq!(found, expected, "{style:?} {text}");
        }
    }
}

#[test]
fn an_included_alias_is_its_own_tool_while_that_is_in_scope() {
    let world = World::usual(NameStyle::Underscore);
    let taken = world.alias("git.hub_search").to_owned();
    assert_ne!(taken, "git_hub_search", "that is the other's");
    let including = |text: &str| with(OPENING[2].1, &[text]);
    assert_eq!(
        seen(&world, &including("git_hub_search")),
        ["git_hub.search"]
    );
    assert_eq!(seen(&world, &including(&taken)), ["git.hub_search"]);
    for close in [
        |case: &mut Case| case.gate.blocked = texts(&["git_hub.s*"]),
        |case: &mut Case| case.gate.disabled_servers = texts(&["git_hub"]),
        |case: &mut Case| case.filters.exclude_clients = Some(texts(&["git_hub"])),
        |case: &mut Case| case.permissions.rules = vec![rule("git_hub.s*", Verdict::Deny)],
        |case: &mut Case| case.gate.off = true,
    ] {
        let mut case = including("git_hub_search");
        close(&mut case);
        let found = visible(&world, &case);
        assert_eq!(found, Err("git_hub_search".to_owned()), "{case:#?}");
    }
    let mut case = including("git_hub_search");
    case.caller.key = Some(texts(&["git.*"]));
    let found = visible(&world, &case);
    let only = texts(&["git.hub_search"]);
    assert_eq!(found, Ok(only), "the other server does not exist for it");
}

#[test]
fn a_tool_cannot_take_the_name_of_another_servers() {
    let world = World::unmarked(
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
        for (what, setting) in OPENING {
            assert_eq!(
                seen(&world, &with(setting, &[text])),
                ["fs.read"],
                "{what} {text}"
            );
        }
        for (what, setting) in CLOSING {
            let found = seen(&world, &with(setting, &[text]));
            assert_eq!(found, all_but(&world, &["fs.read"]), "{what} {text}");
        }
    }
}

#[test]
fn a_server_that_is_not_configured_offers_nothing() {
    let read = [("read", None, None)];
    let offered = [("fs", &read[..]), ("gone", &read[..])];
    let world = World::with_configured(NameStyle::Underscore, &["fs"], &offered);
    assert_eq!(world.tools.len(), 2);
    for text in ["*", "*.read", "*.*"] {
        for (what, setting) in OPENING {
            assert_eq!(
                seen(&world, &with(setting, &[text])),
                ["fs.read"],
                "{what} {text}"
            );
        }
    }
    let mut case = Case::default();
    case.filters.include_clients = Some(texts(&["gone"]));
    assert_eq!(seen(&world, &case), [""; 0]);
}

#[test]
fn headers_become_lists() {
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
        let found = Filters::list(values.iter().copied());
        assert_eq!(found, expected.map(texts), "{values:?}");
    }
}

#[test]
fn headers_without_names_include_nothing_and_exclude_nothing() {
    let world = World::usual(NameStyle::Underscore);
    for values in [&[""][..], &[","], &[", ,"], &["", ""]] {
        let list = Filters::list(values.iter().copied());
        assert_eq!(list, Some(vec![]), "{values:?}");
        let filters = |include: bool, clients: bool| Filters {
            include_clients: list.clone().filter(|_| include && clients),
            include_tools: list.clone().filter(|_| include && !clients),
            exclude_clients: list.clone().filter(|_| !include && clients),
            exclude_tools: list.clone().filter(|_| !include && !clients),
            ..Filters::default()
        };
        for clients in [true, false] {
            for (include, expected) in [(true, vec![]), (false, all_but(&world, &[]))] {
                let case = Case {
                    filters: filters(include, clients),
                    ..Case::default()
                };
                assert_eq!(seen(&world, &case), expected, "{:?}", case.filters);
            }
        }
    }
}

/// A header that is sent again adds to a list; it replaces none.
#[test]
fn repeated_headers_are_one_list() {
    let world = World::usual(NameStyle::Underscore);
    let mut case = Case::default();
    case.filters.exclude_tools = Filters::list(["fs_*", "git_hub_*", ""]);
    assert_eq!(seen(&world, &case), ["git.log", "git.push"]);
    case.filters.include_tools = Filters::list(["*.push", "fs.read_file, git_hub.push*"]);
    assert_eq!(seen(&world, &case), ["git.push"]);
}

#[test]
fn very_long_texts_and_glob_bombs_end_quickly() {
    let server = "a".repeat(64);
    let long = "a".repeat(20_000);
    let world = World::unmarked(NameStyle::Underscore, &[(&server, &[&long, "b"])]);
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
    for (what, setting) in OPENING {
        assert_eq!(seen(&world, &with(setting, &patterns)), [""; 0], "{what}");
    }
    for (what, setting) in CLOSING {
        assert_eq!(
            seen(&world, &with(setting, &patterns)),
            all_but(&world, &[]),
            "{what}"
        );
    }
    let mut case = Case::default();
    case.filters.include_clients = Some(vec![bomb, questions]);
    assert_eq!(sight(&world, &case).unwrap(), [None, None]);
}

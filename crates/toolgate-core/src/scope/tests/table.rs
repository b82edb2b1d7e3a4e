//! Tests every combination of the filter levels.

use std::collections::BTreeMap;

use super::case::{Case, rule};
use super::{Fixture, oracle, texts, verdicts, verdicts_with};
use crate::name::NameStyle;
use crate::policy::{Conditions, Hint, RuleSpec, Verdict};
use crate::scope::AccessRules;

/// One setting of a level. It replaces the whole level and changes nothing else.
type Setting = fn(&mut Case);
type Level = Vec<Setting>;

fn switches() -> Vec<Level> {
    vec![
        vec![|case| case.switches.off = false, |case| {
            case.switches.off = true
        }],
        vec![|case| case.switches.disabled_servers = vec![], |case| {
            case.switches.disabled_servers = texts(&["git"])
        }],
        vec![
            |case| (case.switches.allowlist, case.switches.denylist) = (vec![], vec![]),
            |case| {
                (case.switches.allowlist, case.switches.denylist) =
                    (texts(&["fs", "git_hub"]), vec![])
            },
            |case| {
                (case.switches.allowlist, case.switches.denylist) =
                    (vec![], texts(&["git_hub", "FS"]))
            },
        ],
        vec![
            |case| case.switches.execute = BTreeMap::new(),
            |case| {
                case.switches.execute = BTreeMap::from([
                    ("fs".to_owned(), texts(&["read_file", "odd name/x.y"])),
                    ("git".to_owned(), texts(&["push", "hub_search", "LOG"])),
                ]);
            },
            |case| {
                let none = |server: &str| (server.to_owned(), vec![]);
                case.switches.execute = BTreeMap::from(["fs", "git", "git_hub"].map(none));
            },
        ],
        vec![|case| case.switches.blocked = vec![], |case| {
            case.switches.blocked = texts(&["git_hub_s*", "fs-write_file"])
        }],
        vec![
            |case| case.permissions = super::case::CasePermissions::default(),
            |case| case.permissions.rules = narrowing_rules(),
            |case| case.permissions.rules = vec![rule("*", Verdict::Deny)],
        ],
    ]
}

fn callers() -> Vec<Level> {
    vec![
        vec![
            |case| case.caller.key = None,
            |case| case.caller.key = Some(texts(&["git_hub_*", "git.log", "fs_odd_name_x_?"])),
            |case| case.caller.key = Some(vec![]),
        ],
        vec![
            |case| case.caller.roles = vec![],
            |case| case.caller.roles = vec![("dev".to_owned(), None)],
            |case| {
                case.caller.roles = vec![
                    ("plain".to_owned(), None),
                    ("ops".to_owned(), Some(texts(&["*.push", "mcp__fs__odd*"]))),
                    ("dev".to_owned(), Some(texts(&["git-*"]))),
                ];
            },
            |case| case.caller.roles = vec![("none".to_owned(), Some(vec![]))],
        ],
    ]
}

fn requests() -> Vec<Level> {
    vec![
        vec![
            |case| case.filters.include_clients = None,
            |case| case.filters.include_clients = Some(texts(&["gi?", "f*"])),
            |case| case.filters.include_clients = Some(vec![]),
        ],
        vec![|case| case.filters.exclude_clients = None, |case| {
            case.filters.exclude_clients = Some(texts(&["git_*", "Fs"]))
        }],
        vec![
            |case| case.filters.include_tools = None,
            |case| {
                let list = ["git_hub_*", "fs.odd name/*", "git-push"];
                case.filters.include_tools = Some(texts(&list));
            },
            |case| case.filters.include_tools = Some(vec![]),
            |case| case.filters.include_tools = Some(texts(&["*.push", "git_hub_search"])),
        ],
        vec![|case| case.filters.exclude_tools = None, |case| {
            case.filters.exclude_tools = Some(texts(&["git_hub_push", "fs_read*"]))
        }],
    ]
}

/// Rules with each verdict and condition.
fn narrowing_rules() -> Vec<RuleSpec> {
    let when = |when: Conditions, rule: RuleSpec| RuleSpec { when, ..rule };
    let dev = Conditions {
        roles: texts(&["admin", "dev"]),
        ..Conditions::default()
    };
    let elsewhere = Conditions {
        environments: texts(&["staging"]),
        ..Conditions::default()
    };
    let destructive = Conditions {
        hint: Some(Hint::Destructive),
        ..Conditions::default()
    };
    let on_arguments = Conditions {
        arguments: vec![("path".to_owned(), texts(&["*"]))],
        ..Conditions::default()
    };
    vec![
        when(dev, rule("git_hub_*", Verdict::Deny)),
        when(elsewhere, rule("*", Verdict::Deny)),
        when(destructive, rule("*", Verdict::Ask)),
        when(on_arguments, rule("fs_*", Verdict::Deny)),
        rule("fs.*", Verdict::Allow),
        rule("fs_odd name?x.y", Verdict::Manual),
    ]
}

/// Visits every combination of the settings.
fn for_each_combination(levels: &[Level], case: &mut Case, visit: &mut impl FnMut(&mut Case)) {
    let Some((level, rest)) = levels.split_first() else {
        return visit(case);
    };
    for setting in level {
        setting(case);
        for_each_combination(rest, case, visit);
    }
}

fn assert_every_combination_agrees(style: NameStyle, levels: [Vec<Level>; 3]) -> usize {
    let fixture = Fixture::standard(style);
    let servers = fixture.servers();
    let [switches, callers, requests] = levels;
    let request_levels = [callers, requests].concat();
    let mut combinations = 0;
    for_each_combination(&switches, &mut Case::default(), &mut |case| {
        let access = AccessRules::new(&case.config(&fixture));
        for_each_combination(&request_levels, case, &mut |case| {
            let expected = oracle::verdicts(case, &servers, &fixture.tools).map_err(drop);
            let found = verdicts_with(&fixture, case, &access).map_err(drop);
            assert_eq!(found, expected, "{case:#?}");
            combinations += 1;
        });
    });
    combinations
}

#[test]
fn every_combination_of_levels() {
    let levels = [switches(), callers(), requests()];
    let product: usize = levels.iter().flatten().map(Vec::len).product();
    let combinations = assert_every_combination_agrees(NameStyle::Underscore, levels);
    assert_eq!(combinations, product);
}

/// Styles differ only in aliases, so the levels that match aliases suffice.
#[test]
fn every_combination_of_patterns_in_the_other_styles() {
    for style in [NameStyle::Hyphen, NameStyle::Mcp] {
        let switches: Vec<Level> = switches().into_iter().skip(4).collect();
        let requests: Vec<Level> = requests().into_iter().skip(2).collect();
        let combinations = assert_every_combination_agrees(style, [switches, callers(), requests]);
        assert_eq!(combinations, 2 * 3 * 3 * 4 * 4 * 2);
    }
}

#[test]
fn lists_and_the_default_decide_where_no_rule_does() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    let servers = fixture.servers();
    let auto: Level = vec![|case| case.switches.auto = BTreeMap::new(), |case| {
        case.switches.auto = BTreeMap::from([("fs".to_owned(), texts(&["read_file"]))])
    }];
    let default: Level = vec![
        |case| case.permissions.default = None,
        |case| case.permissions.default = Some(Verdict::Allow),
        |case| case.permissions.default = Some(Verdict::Manual),
        |case| case.permissions.default = Some(Verdict::Ask),
    ];
    let environment: Level = vec![
        |case| case.permissions.environment = None,
        |case| case.permissions.environment = Some("staging".to_owned()),
        |case| case.permissions.environment = Some("Staging".to_owned()),
    ];
    let rules: Level = vec![
        |case| case.permissions.rules = vec![],
        |case| case.permissions.rules = narrowing_rules(),
        |case| case.permissions.rules = vec![rule("git_hub_*", Verdict::Allow)],
    ];
    let mut roles = callers();
    let levels = [auto, default, environment, rules, roles.remove(1)];
    let mut all_verdicts = Vec::new();
    for_each_combination(&levels, &mut Case::default(), &mut |case| {
        let expected = oracle::verdicts(case, &servers, &fixture.tools).unwrap();
        assert_eq!(verdicts(&fixture, case).unwrap(), expected, "{case:#?}");
        all_verdicts.extend(expected.into_iter().flatten());
    });
    for verdict in [Verdict::Allow, Verdict::Manual, Verdict::Ask] {
        assert!(all_verdicts.contains(&verdict), "no case has {verdict:?}");
    }
}

/// A configuration parsed from text has the same effect.
#[test]
fn configuration_text_has_the_same_effect() {
    let fixture = Fixture::standard(NameStyle::Underscore);
    for level in switches() {
        for setting in level {
            let mut case = Case::default();
            setting(&mut case);
            let read = AccessRules::new(&super::fixture::load(&case.document(&fixture)));
            let found = verdicts_with(&fixture, &case, &read).unwrap();
            let expected = oracle::verdicts(&case, &fixture.servers(), &fixture.tools).unwrap();
            assert_eq!(found, expected, "{case:#?}");
        }
    }
}

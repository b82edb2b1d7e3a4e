//! Properties of scopes over random configurations, callers and requests.

mod random;

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::{
    Case, Fixture, Verdicts, item_verdicts, items, oracle, texts, verdicts, verdicts_with,
};
use crate::catalog::{DefinitionReview, DefinitionReviews};
use crate::config::{DefinitionOverrides, OnDefinitionChange, OnSuspiciousDefinition};
use crate::name::NameStyle;
use crate::policy::{Conditions, RuleSpec, Verdict};
use crate::scope::{AccessRules, FilterError, Filters};
pub(super) use random::any_case;
use random::{any_pattern, any_rule};

fn standard() -> impl Strategy<Value = Fixture> {
    let fixtures = NameStyle::ALL.map(Fixture::standard);
    prop::sample::select(fixtures.to_vec())
}

/// A standard fixture, a case over it, and a value that `more` derives from the fixture.
fn standard_with<S: Strategy>(
    more: fn(&Fixture) -> S,
) -> impl Strategy<Value = (Fixture, Case, S::Value)>
where
    S::Value: Clone,
{
    standard().prop_flat_map(move |fixture| {
        let (case, more) = (any_case(&fixture), more(&fixture));
        (Just(fixture), case, more)
    })
}

/// Asserts that the gateway and the oracle agree.
pub(super) fn assert_agrees(fixture: &Fixture, case: &Case) -> Result<(), TestCaseError> {
    let expected = oracle::verdicts(case, &fixture.servers(), &fixture.tools);
    match (verdicts(fixture, case), expected) {
        (Ok(found), Ok(expected)) => prop_assert_eq!(found, expected),
        (Err(FilterError { text }), Err(ambiguous)) => {
            prop_assert!(ambiguous.contains(&oracle::AmbiguousText(text)));
        }
        (found, expected) => prop_assert!(false, "found {found:?}, expected {expected:?}"),
    }
    let servers = fixture.servers();
    for (item, found) in items(fixture).iter().zip(item_verdicts(fixture, case)) {
        let expected = oracle::item_verdict(case, &servers, &fixture.tools, item);
        prop_assert_eq!(found, expected, "{:?}", item);
    }
    Ok(())
}

/// Returns whether no tool became visible and no verdict became less strict.
fn is_no_wider(before: &Verdicts, after: &Verdicts) -> bool {
    before
        .iter()
        .zip(after)
        .all(|(before, after)| match (before, after) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(before), Some(after)) => after >= before,
        })
}

/// Asserts that after a restriction, no request sees more. A request that was rejected because a name in
/// `include-tools` is ambiguous may become valid, but sees no more than without that list.
fn assert_not_wider(fixture: &Fixture, before: &Case, after: &Case) -> Result<(), TestCaseError> {
    let mut unfiltered = before.clone();
    unfiltered.filters.include_tools = None;
    let before_verdicts = verdicts(fixture, before).or_else(|_| verdicts(fixture, &unfiltered));
    match (before_verdicts, verdicts(fixture, after)) {
        (Ok(before), Ok(after)) => prop_assert!(is_no_wider(&before, &after), "{:?}", after),
        (Err(error), Ok(_)) => prop_assert!(false, "{error:?}"),
        (_, Err(_)) => {}
    }
    let (before, after) = (
        item_verdicts(fixture, before),
        item_verdicts(fixture, after),
    );
    prop_assert!(is_no_wider(&before, &after), "{:?} {:?}", before, after);
    Ok(())
}

fn reorder_case(case: &Case, rotation: usize) -> Case {
    let mut case = case.clone();
    reorder(&mut case.permissions.rules, rotation);
    reorder(&mut case.caller.roles, rotation);
    let roles = case
        .caller
        .roles
        .iter_mut()
        .filter_map(|(_, tools)| tools.as_mut());
    let filters = &mut case.filters;
    let lists = [
        &mut filters.include_clients,
        &mut filters.exclude_clients,
        &mut filters.include_tools,
        &mut filters.exclude_tools,
        &mut case.caller.key,
    ];
    for list in lists.into_iter().flatten().chain(roles) {
        reorder(list, rotation);
    }
    let switches = &mut case.switches;
    for list in [
        &mut switches.blocked,
        &mut switches.allowlist,
        &mut switches.denylist,
    ] {
        reorder(list, rotation);
    }
    for list in switches
        .execute
        .values_mut()
        .chain(switches.auto.values_mut())
    {
        reorder(list, rotation);
    }
    case
}

fn reorder<T>(list: &mut [T], rotation: usize) {
    if !list.is_empty() {
        list.rotate_left(rotation % list.len());
    }
    if rotation % 2 == 1 {
        list.reverse();
    }
}

/// A case, and the same case with include lists that are shorter or no longer absent.
fn narrowed_case(fixture: &Fixture) -> impl Strategy<Value = (Case, Case)> + use<> {
    let lists = prop::collection::vec(any_pattern(fixture), 0..4);
    (any_case(fixture), lists).prop_flat_map(|(case, new)| {
        let shorter = |list: &Option<Vec<String>>| {
            let list = list.clone().unwrap_or_else(|| new.clone());
            let length = list.len();
            subsequence(list, 0..=length)
        };
        let (clients, tools) = (&case.filters.include_clients, &case.filters.include_tools);
        let narrower = (shorter(clients), shorter(tools));
        (Just(case.clone()), narrower).prop_map(|(case, (clients, tools))| {
            let mut after = case.clone();
            after.filters.include_clients = Some(clients);
            after.filters.include_tools = Some(tools);
            (case, after)
        })
    })
}

/// A fixture, a case over it, the settings of definitions, and the review of each tool.
fn reviewed_case()
-> impl Strategy<Value = (Fixture, Case, DefinitionOverrides, Vec<DefinitionReview>)> {
    use OnDefinitionChange::{Off, Pin, Warn};
    let on_change = prop::sample::select(vec![None, Some(Off), Some(Warn), Some(Pin)]);
    let on_suspicion = prop::sample::select(vec![
        None,
        Some(OnSuspiciousDefinition::Off),
        Some(OnSuspiciousDefinition::Warn),
        Some(OnSuspiciousDefinition::Block),
    ]);
    let settings =
        (on_change, on_suspicion).prop_map(|(on_change, on_suspicion)| DefinitionOverrides {
            on_change,
            on_suspicion,
        });
    let review = any::<(bool, bool)>().prop_map(|(is_trusted, is_harmless)| DefinitionReview {
        is_trusted,
        is_harmless,
    });
    standard().prop_flat_map(move |fixture| {
        let reviews = prop::collection::vec(review.clone(), fixture.tools.len());
        let case = any_case(&fixture);
        (Just(fixture), case, settings.clone(), reviews)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn gateway_agrees_with_the_oracle((fixture, case, ()) in standard_with(|_| Just(()))) {
        assert_agrees(&fixture, &case)?;
    }
}

proptest! {
    #[test]
    fn deny_rule_never_widens((fixture, before, extra) in standard_with(any_rule)) {
        let mut after = before.clone();
        after.permissions.rules.push(RuleSpec { verdict: Verdict::Deny, ..extra });
        assert_not_wider(&fixture, &before, &after)?;
    }

    /// Everything that hides all tools of a server hides its resources and prompts.
    #[test]
    fn what_hides_a_server_hides_its_resources_and_prompts(
        (fixture, before, extra) in standard_with(any_rule),
        at in 0usize..3,
        gate in 0usize..10,
    ) {
        let server = fixture.servers()[at].clone();
        let deny = |tool: Option<String>, server: Option<String>| RuleSpec {
            tool,
            server,
            resource: None,
            prompt: None,
            when: Conditions::default(),
            verdict: Verdict::Deny,
            ..extra.clone()
        };
        let all = format!("{server}.*");
        let mut after = before.clone();
        match gate {
            0 => after.permissions.rules.push(deny(Some(all), None)),
            1 => after.permissions.rules.push(deny(None, Some(server.clone()))),
            2 => after.permissions.rules.push(deny(Some("*".to_owned()), None)),
            3 => after.switches.blocked.push(all),
            4 => after.switches.denylist.push(server.clone()),
            5 => after.switches.disabled_servers.push(server.clone()),
            6 => after.filters.exclude_clients.get_or_insert_default().push(server.clone()),
            7 => after.filters.include_clients = Some(Vec::new()),
            8 => after.filters.include_tools = Some(Vec::new()),
            _ => {
                after.caller.key = Some(Vec::new());
                after.caller.roles = vec![("dev".to_owned(), Some(texts(&[])))];
            }
        }
        for (item, verdict) in items(&fixture).iter().zip(item_verdicts(&fixture, &after)) {
            prop_assert!(item.server != server || verdict.is_none(), "{item:?} {verdict:?}");
        }
    }

    #[test]
    fn blocked_tool_never_widens((fixture, before, extra) in standard_with(any_pattern)) {
        let mut after = before.clone();
        after.switches.blocked.push(extra);
        assert_not_wider(&fixture, &before, &after)?;
    }

    #[test]
    fn exclusion_never_widens(
        (fixture, before, extra) in standard_with(any_pattern),
        client in prop::sample::select(vec!["git", "git*", "?s", "FS", "*", ""]),
    ) {
        let mut after = before.clone();
        after.filters.exclude_tools.get_or_insert_default().push(extra);
        assert_not_wider(&fixture, &before, &after)?;
        let mut after = before.clone();
        after.filters.exclude_clients.get_or_insert_default().push(client.to_owned());
        assert_not_wider(&fixture, &before, &after)?;
    }

    #[test]
    fn narrower_inclusion_never_widens((fixture, _, (before, after)) in standard_with(narrowed_case)) {
        // A shorter list may no longer contain the ambiguous text.
        if let (Ok(before), Ok(after)) = (verdicts(&fixture, &before), verdicts(&fixture, &after)) {
            prop_assert!(is_no_wider(&before, &after));
        }
        let (before, after) = (item_verdicts(&fixture, &before), item_verdicts(&fixture, &after));
        prop_assert!(is_no_wider(&before, &after));
    }

    #[test]
    fn order_never_matters((fixture, case, rotation) in standard_with(|_| 0usize..8)) {
        let found = |case: &Case| verdicts(&fixture, case).map_err(drop);
        prop_assert_eq!(found(&reorder_case(&case, rotation)), found(&case));
        let mut other = fixture.clone();
        reorder(&mut other.config.servers, rotation);
        prop_assert_eq!(verdicts(&other, &case).map_err(drop), found(&case));
    }

    #[test]
    fn explanations_agree_with_judgements((fixture, case, ()) in standard_with(|_| Just(()))) {
        let access = AccessRules::new(&case.config(&fixture));
        let principal = case.principal(&access);
        let view = access.view(&principal, &case.filters).resolve_filters(&fixture.catalog);
        let Ok(view) = view else { return Ok(()) };
        for entry in fixture.catalog.tools() {
            let steps = view.explain(entry.into());
            let passes = steps.iter().all(|step| step.passes);
            prop_assert_eq!(passes, view.judge(entry.into()).is_some(), "{:#?}", steps);
        }
    }

    #[test]
    fn definition_hides_its_tool_and_changes_nothing_else(
        (fixture, case, settings, reviews) in reviewed_case()
    ) {
        let mut config = case.config(&fixture);
        config.definitions = settings;
        let mut given = DefinitionReviews::default();
        for (entry, review) in fixture.catalog.tools().iter().zip(&reviews) {
            given.insert(&entry.tool, *review);
        }
        let reviewed = fixture.with_reviews(&given);
        // A filter means the tools that exist, so that hidden tools may change what it means.
        let case = Case { filters: Filters::default(), ..case };
        let without = verdicts(&fixture, &case)?;
        let with = verdicts_with(&reviewed, &case, &AccessRules::new(&config))?;
        for ((review, without), with) in reviews.iter().zip(without).zip(with) {
            let is_hidden = (settings.on_change == Some(OnDefinitionChange::Pin) && !review.is_trusted)
                || (settings.on_suspicion == Some(OnSuspiciousDefinition::Block) && !review.is_harmless);
            prop_assert_eq!(with, without.filter(|_| !is_hidden));
        }
    }
}

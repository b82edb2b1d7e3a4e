//! Random configurations, callers and requests.

mod random;

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::{Case, Sight, World, oracle, sight};
use crate::name::NameStyle;
use crate::policy::{RuleSpec, Verdict};
use crate::scope::{Access, FilterError};
pub(super) use random::any_case;
use random::{any_pattern, any_rule};

fn usual() -> impl Strategy<Value = World> {
    let worlds = NameStyle::ALL.map(World::usual);
    prop::sample::select(worlds.to_vec())
}

/// A world of the usual kind, a case in it, and what `more` makes of the world.
fn usual_with<S: Strategy>(more: fn(&World) -> S) -> impl Strategy<Value = (World, Case, S::Value)>
where
    S::Value: Clone,
{
    usual().prop_flat_map(move |world| {
        let (case, more) = (any_case(&world), more(&world));
        (Just(world), case, more)
    })
}

/// The gateway sees what the specification says.
pub(super) fn agrees(world: &World, case: &Case) -> Result<(), TestCaseError> {
    let expected = oracle::sight(case, &world.servers(), &world.tools);
    match (sight(world, case), expected) {
        (Ok(found), Ok(expected)) => prop_assert_eq!(found, expected),
        (Err(FilterError { text }), Err(unclear)) => {
            prop_assert!(unclear.contains(&oracle::TwoMeanings(text)));
        }
        (found, expected) => prop_assert!(false, "found {found:?}, expected {expected:?}"),
    }
    Ok(())
}

/// Nothing is seen that was not, and no verdict is laxer.
fn is_no_wider(before: &Sight, after: &Sight) -> bool {
    before
        .iter()
        .zip(after)
        .all(|(before, after)| match (before, after) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(before), Some(after)) => after >= before,
        })
}

/// After something was closed, a refused request stays refused and no other sees more.
fn closes(world: &World, before: &Case, after: &Case) -> Result<(), TestCaseError> {
    match (sight(world, before), sight(world, after)) {
        (Ok(before), Ok(after)) => prop_assert!(is_no_wider(&before, &after), "{:?}", after),
        (Err(_), Ok(after)) => prop_assert!(false, "no longer refused: {after:?}"),
        (_, Err(_)) => {}
    }
    Ok(())
}

fn shuffled(case: &Case, turn: usize) -> Case {
    let mut case = case.clone();
    turned(&mut case.permissions.rules, turn);
    turned(&mut case.caller.roles, turn);
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
        turned(list, turn);
    }
    let gate = &mut case.gate;
    for list in [&mut gate.blocked, &mut gate.allowlist, &mut gate.denylist] {
        turned(list, turn);
    }
    for list in gate.execute.values_mut().chain(gate.auto.values_mut()) {
        turned(list, turn);
    }
    case
}

fn turned<T>(list: &mut [T], turn: usize) {
    if !list.is_empty() {
        list.rotate_left(turn % list.len());
    }
    if turn % 2 == 1 {
        list.reverse();
    }
}

/// A case and one whose lists of what the request includes are shorter, or no longer absent.
fn narrowed(world: &World) -> impl Strategy<Value = (Case, Case)> + use<> {
    let lists = prop::collection::vec(any_pattern(world), 0..4);
    (any_case(world), lists).prop_flat_map(|(case, new)| {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn the_gateway_sees_what_the_specification_says((world, case, ()) in usual_with(|_| Just(()))) {
        agrees(&world, &case)?;
    }
}

proptest! {
    #[test]
    fn a_deny_rule_never_widens((world, before, extra) in usual_with(any_rule)) {
        let mut after = before.clone();
        after.permissions.rules.push(RuleSpec { verdict: Verdict::Deny, ..extra });
        closes(&world, &before, &after)?;
    }

    #[test]
    fn a_blocked_tool_never_widens((world, before, extra) in usual_with(any_pattern)) {
        let mut after = before.clone();
        after.gate.blocked.push(extra);
        closes(&world, &before, &after)?;
    }

    #[test]
    fn an_exclusion_never_widens(
        (world, before, extra) in usual_with(any_pattern),
        client in prop::sample::select(vec!["git", "git*", "?s", "FS", "*", ""]),
    ) {
        let mut after = before.clone();
        after.filters.exclude_tools.get_or_insert_default().push(extra);
        closes(&world, &before, &after)?;
        let mut after = before.clone();
        after.filters.exclude_clients.get_or_insert_default().push(client.to_owned());
        closes(&world, &before, &after)?;
    }

    #[test]
    fn a_narrower_inclusion_never_widens((world, _, (before, after)) in usual_with(narrowed)) {
        // A shorter list may lack the text that could not be understood.
        if let (Ok(before), Ok(after)) = (sight(&world, &before), sight(&world, &after)) {
            prop_assert!(is_no_wider(&before, &after));
        }
    }

    #[test]
    fn order_never_matters((world, case, turn) in usual_with(|_| 0usize..8)) {
        let found = |case: &Case| sight(&world, case).map_err(drop);
        prop_assert_eq!(found(&shuffled(&case, turn)), found(&case));
        let mut other = world.clone();
        turned(&mut other.config.servers, turn);
        prop_assert_eq!(sight(&other, &case).map_err(drop), found(&case));
    }

    #[test]
    fn explanations_agree_with_judgements((world, case, ()) in usual_with(|_| Just(()))) {
        let access = Access::new(&case.config(&world));
        let principal = case.principal(&access);
        let lens = access.lens(&principal, &case.filters);
        for entry in world.catalog.tools() {
            let steps = lens.explain(entry.into());
            let passes = steps.iter().all(|step| step.passes);
            prop_assert_eq!(passes, lens.judge(entry.into()).is_some(), "{:#?}", steps);
        }
    }
}

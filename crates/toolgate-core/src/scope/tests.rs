//! Scopes against an independent reading of their specification.
//!
//! A [`Case`] is one configuration, caller and request; the gateway and the [`oracle`] look at the
//! same [`World`] through it and must see the same. The table goes through every combination of
//! the filter levels, the properties through random ones, and `bypass` through what an attacker
//! would try.

mod bypass;
mod case;
mod oracle;
mod properties;
mod strange;
mod table;
mod world;

use case::Case;
use world::World;

use super::{Access, FilterError, Scope};
use crate::policy::Verdict;

/// What is said of each tool of a world, in its order; none for one that does not exist.
type Sight = Vec<Option<Verdict>>;

/// What the gateway shows.
fn sight(world: &World, case: &Case) -> Result<Sight, FilterError> {
    sight_with(world, case, &Access::new(&case.config(world)))
}

fn sight_with(world: &World, case: &Case, access: &Access) -> Result<Sight, FilterError> {
    let principal = case.principal(access);
    let lens = access.lens(&principal, &case.filters);
    let scope = Scope::build(&lens, world.catalog.clone())?;
    let mut sight = vec![None; world.tools.len()];
    for (entry, judgement) in scope.tools() {
        sight[entry.index] = Some(judgement.decision().verdict);
    }
    Ok(sight)
}

/// The ids of the tools that the gateway shows, or the text that it cannot understand.
fn visible(world: &World, case: &Case) -> Result<Vec<String>, String> {
    let sight = sight(world, case).map_err(|error| error.text)?;
    let seen = world.tools.iter().zip(sight);
    let seen = seen.filter(|(_, verdict)| verdict.is_some());
    Ok(seen.map(|(tool, _)| tool.id()).collect())
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

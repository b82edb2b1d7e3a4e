//! Scopes, kept by what determines them, so that a request costs a look-up.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use toolgate_core::Catalog;
use toolgate_core::scope::{Filters, Scope};

use super::rules::Rules;
use crate::call::CallError;
use crate::caller::Caller;

/// Tools in all scopes together that are kept.
const MOST_TOOLS: u64 = 400_000;
/// A scope holds its catalog; one that nobody asks for any more lets it go.
const IDLE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    rules: u64,
    catalog: u64,
    caller: Option<Arc<str>>,
    filters: Filters,
}

#[derive(Debug)]
pub(super) struct Scopes(Cache<Key, Arc<Scope>>);

impl Scopes {
    pub(super) fn new() -> Self {
        // An empty one takes some room too, and so do the filters that led to it.
        let weigh = |key: &Key, scope: &Arc<Scope>| {
            let weight = scope.len() + 16 + key.filters.size();
            u32::try_from(weight).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .max_capacity(MOST_TOOLS)
                .weigher(weigh)
                .time_to_idle(IDLE)
                .build(),
        )
    }

    pub(super) fn get(
        &self,
        rules: &Rules,
        catalog: &Arc<Catalog>,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Arc<Scope>, CallError> {
        let principal = rules.principal(caller)?;
        let key = Key {
            rules: rules.generation,
            catalog: catalog.generation(),
            caller: caller.key().cloned(),
            filters: filters.clone(),
        };
        if let Some(scope) = self.0.get(&key) {
            return Ok(scope);
        }
        let lens = rules.access.lens(principal, filters);
        let scope = Arc::new(Scope::build(&lens, Arc::clone(catalog))?);
        self.0.insert(key, Arc::clone(&scope));
        Ok(scope)
    }
}

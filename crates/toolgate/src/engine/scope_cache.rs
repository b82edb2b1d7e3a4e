//! Caches scopes by everything they depend on, so that most requests need only a lookup.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use toolgate_core::Catalog;
use toolgate_core::scope::{Filters, Scope};
use toolgate_mcp::large::run_large;

use super::rules::Rules;
use crate::call::CallError;
use crate::caller::Caller;

/// Total number of tools in all cached scopes.
const MAX_CACHED_TOOLS: u64 = 400_000;
/// Size of names that weighs as much as a tool. A cached scope has several copies of the names.
const BYTES_PER_TOOL: usize = 16;
/// A cached scope keeps its whole catalog alive, so unused ones are evicted early.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    rules: u64,
    catalog: u64,
    caller: Option<Arc<str>>,
    filters: Filters,
}

#[derive(Debug)]
pub(super) struct ScopeCache(Cache<Key, Arc<Scope>>);

impl ScopeCache {
    pub(super) fn new() -> Self {
        // Empty scopes and their filters take up memory as well.
        let weigh = |key: &Key, scope: &Arc<Scope>| {
            let names = key.filters.name_count() + key.filters.name_bytes() / BYTES_PER_TOOL;
            let weight = scope.len() + 16 + names;
            u32::try_from(weight).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .max_capacity(MAX_CACHED_TOOLS)
                .weigher(weigh)
                .time_to_idle(IDLE_TIMEOUT)
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
            filters: Filters {
                // Clients for which servers list nothing else share the scope.
                client: catalog.profile().cloned(),
                ..filters.clone()
            },
        };
        if let Some(scope) = self.0.get(&key) {
            return Ok(scope);
        }
        // Every name is compared with every tool.
        let work = filters.name_count() * catalog.tools().len();
        let scope = run_large(work, || {
            let view = rules.access.view(principal, filters);
            Scope::build(view, Arc::clone(catalog))
        });
        let scope = Arc::new(scope?);
        self.0.insert(key, Arc::clone(&scope));
        Ok(scope)
    }
}

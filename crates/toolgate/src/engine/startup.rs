//! Servers that connect for the first time. Until a server has been connected once, nobody knows its tools.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use toolgate_core::scope::Filters;
use toolgate_mcp::ServerState;
use toolgate_mcp::registry::RegistryEntry;

use super::Engine;
use crate::caller::Caller;

/// Servers with tools for a request that have never been connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingServers {
    /// In order.
    pub(crate) names: Vec<String>,
    /// Whether one of them is still connecting.
    pub(crate) is_starting: bool,
}

impl Engine {
    /// Returns how long model requests wait for servers that connect for the first time, unless they say so.
    pub(crate) fn startup_wait(&self) -> Duration {
        self.0.rules.load().manager.startup_wait
    }

    /// Waits until the first connection attempts of servers with tools for a request have ended. Returns the
    /// servers that are still missing; none that the caller may not know of.
    pub(crate) async fn wait_for_startup(
        &self,
        caller: &Caller,
        filters: &Filters,
        within: Duration,
    ) -> MissingServers {
        let entries = self.0.deps.registry.entries();
        // Most often there is none.
        if !entries.iter().any(|entry| has_never_connected(entry)) {
            return MissingServers::default();
        }
        let missing = self.with_tools_for(entries, caller, filters);
        let starting = missing.iter().filter(|entry| is_starting(entry));
        let settled = join_all(starting.map(|entry| entry.wait_settled()));
        // The state afterwards says which are missing.
        let _ = tokio::time::timeout(within, settled).await;
        let missing: Vec<_> = missing
            .into_iter()
            .filter(|entry| has_never_connected(entry))
            .collect();
        MissingServers {
            is_starting: missing.iter().any(|entry| is_starting(entry)),
            names: missing
                .iter()
                .map(|entry| entry.server.name.to_string())
                .collect(),
        }
    }

    /// Keeps the servers that have never been connected and may have tools for a request.
    fn with_tools_for(
        &self,
        mut entries: Vec<Arc<RegistryEntry>>,
        caller: &Caller,
        filters: &Filters,
    ) -> Vec<Arc<RegistryEntry>> {
        let rules = self.0.rules.load();
        let Ok(principal) = rules.principal(caller) else {
            return Vec::new();
        };
        let view = rules.access.view(principal, filters);
        entries.retain(|entry| {
            let name = &entry.server.name;
            let is_selected = filters.server.as_ref().is_none_or(|only| only == name);
            is_selected && has_never_connected(entry) && view.may_have_tools(name)
        });
        entries
    }
}

fn has_never_connected(entry: &RegistryEntry) -> bool {
    let status = entry.status();
    status.session.is_none() && status.state != ServerState::Disabled
}

fn is_starting(entry: &RegistryEntry) -> bool {
    entry.status().state == ServerState::Connecting
}

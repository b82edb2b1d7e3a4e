//! History of tool definitions: stores each new definition as catalogs change.

mod store;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use store::DefinitionStore;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::{Catalog, ToolId};

use crate::store::{Store, StoreError};

/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Effectively never; the select below needs some duration.
const NO_RETRY: Duration = Duration::from_secs(365 * 24 * 3600);

/// A current or former definition of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolVersion {
    /// SHA-256 of the definition, in hex.
    pub hash: String,
    /// The definition as JSON, as the server sent it.
    pub definition: String,
    /// Milliseconds since the Unix epoch.
    pub first_seen: i64,
    /// Milliseconds since the Unix epoch.
    pub last_seen: i64,
}

/// A tool definition currently offered by a server.
#[derive(Clone, Debug)]
struct ObservedTool {
    tool: ToolId,
    hash: String,
    definition: String,
}

/// Records definitions in a task and returns those recorded.
#[derive(Debug)]
pub(crate) struct DefinitionHistory {
    store: DefinitionStore,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl DefinitionHistory {
    pub(crate) fn start(store: Store, catalogs: watch::Receiver<Arc<Catalog>>) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let store = DefinitionStore::new(store);
        tasks.spawn(record_definitions(store.clone(), catalogs, stop.clone()));
        tasks.close();
        Self { store, tasks, stop }
    }

    /// Returns all definitions of a tool, most recently seen first.
    pub(crate) async fn versions(&self, tool: &ToolId) -> Result<Vec<ToolVersion>, StoreError> {
        self.store.versions(tool).await
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Stores the new and changed definitions of each catalog until stopped.
async fn record_definitions(
    store: DefinitionStore,
    mut catalogs: watch::Receiver<Arc<Catalog>>,
    stop: CancellationToken,
) {
    let mut known: HashMap<ToolId, String> = HashMap::new();
    loop {
        let catalog = Arc::clone(&catalogs.borrow_and_update());
        let changed = changed_definitions(&catalog, &known);
        let stored = if changed.is_empty() {
            Ok(())
        } else {
            store.record(&changed).await
        };
        let retry_after = match stored {
            Ok(()) => {
                let tools = catalog.tools().iter();
                known = tools
                    .map(|entry| (entry.tool.id.clone(), entry.tool.hash.clone()))
                    .collect();
                NO_RETRY
            }
            Err(error) => {
                tracing::error!(%error, "failed to store tool definitions; retrying");
                RETRY_DELAY
            }
        };
        tokio::select! {
            changed = catalogs.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(retry_after) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn changed_definitions(catalog: &Catalog, known: &HashMap<ToolId, String>) -> Vec<ObservedTool> {
    let mut changed = Vec::new();
    for entry in catalog.tools() {
        let tool = &entry.tool;
        let previous = known.get(&tool.id);
        if previous == Some(&tool.hash) {
            continue;
        }
        if previous.is_some() {
            tracing::warn!(tool = %tool.id, "server changed the definition of a tool");
        }
        changed.push(ObservedTool {
            tool: tool.id.clone(),
            hash: tool.hash.clone(),
            definition: tool.sent_definition().get().to_owned(),
        });
    }
    changed
}

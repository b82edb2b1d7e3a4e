//! Notes each definition that a tool has had, as catalogs come and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::{Catalog, ToolId};

use crate::store::{Seen, Store};

/// Before what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(10);
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The task that writes.
#[derive(Debug)]
pub(crate) struct History {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl History {
    pub(crate) fn start(store: Store, catalogs: watch::Receiver<Arc<Catalog>>) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(keep(store, catalogs, stop.clone()));
        tasks.close();
        Self { tasks, stop }
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Writes down what is new in each catalog until it is told to stop.
async fn keep(store: Store, mut catalogs: watch::Receiver<Arc<Catalog>>, stop: CancellationToken) {
    let mut known: HashMap<ToolId, String> = HashMap::new();
    loop {
        let catalog = Arc::clone(&catalogs.borrow_and_update());
        let seen = news(&catalog, &known);
        let noted = match seen.is_empty() {
            true => Ok(()),
            false => store.note(&seen).await,
        };
        let again = match noted {
            Ok(()) => {
                let tools = catalog.tools().iter();
                known = tools
                    .map(|entry| (entry.tool.id.clone(), entry.tool.hash.clone()))
                    .collect();
                NEVER
            }
            Err(error) => {
                tracing::error!(%error, "definitions of tools could not be noted; trying again");
                AGAIN
            }
        };
        tokio::select! {
            changed = catalogs.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(again) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn news(catalog: &Catalog, known: &HashMap<ToolId, String>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for entry in catalog.tools() {
        let tool = &entry.tool;
        let before = known.get(&tool.id);
        if before == Some(&tool.hash) {
            continue;
        }
        if before.is_some() {
            tracing::warn!(tool = %tool.id, "the server changed the definition");
        }
        seen.push(Seen {
            tool: tool.id.clone(),
            hash: tool.hash.clone(),
            definition: tool.definition.get().to_owned(),
        });
    }
    seen
}

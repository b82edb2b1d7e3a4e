//! Runs active in this process, by id, so that they can be cancelled.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Registry of active runs.
#[derive(Debug, Default)]
pub(super) struct ActiveRuns {
    runs: Mutex<HashMap<String, CancellationToken>>,
    /// Parent of every run's token.
    cancel_all: CancellationToken,
}

/// Registration of an active run, removed on drop.
#[derive(Debug)]
pub(super) struct ActiveRunGuard {
    id: String,
    token: CancellationToken,
    registry: Arc<ActiveRuns>,
}

impl ActiveRuns {
    pub(super) fn register(self: &Arc<Self>, id: &str) -> ActiveRunGuard {
        let token = self.cancel_all.child_token();
        self.runs.lock().insert(id.to_owned(), token.clone());
        ActiveRunGuard {
            id: id.to_owned(),
            token,
            registry: Arc::clone(self),
        }
    }

    /// Cancels all runs.
    pub(super) fn cancel_all(&self) {
        self.cancel_all.cancel();
    }

    /// Cancels one run. Returns false if it is not active.
    pub(super) fn cancel(&self, id: &str) -> bool {
        let token = self.runs.lock().get(id).cloned();
        token.inspect(CancellationToken::cancel).is_some()
    }
}

impl ActiveRunGuard {
    pub(super) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns whether all runs were cancelled, rather than this one alone.
    pub(super) fn are_all_cancelled(&self) -> bool {
        self.registry.cancel_all.is_cancelled()
    }
}

impl Drop for ActiveRunGuard {
    fn drop(&mut self) {
        self.registry.runs.lock().remove(&self.id);
    }
}

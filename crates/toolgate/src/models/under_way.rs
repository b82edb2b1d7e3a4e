//! Runs that are under way here, so that they can be cut off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    runs: Mutex<HashMap<String, CancellationToken>>,
    all: CancellationToken,
}

/// A run's place among them; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    id: String,
    token: CancellationToken,
    all: Arc<UnderWay>,
}

impl UnderWay {
    pub(crate) fn enter(self: &Arc<Self>, id: &str) -> Place {
        let token = self.all.child_token();
        self.with(|runs| runs.insert(id.to_owned(), token.clone()));
        Place {
            id: id.to_owned(),
            token,
            all: Arc::clone(self),
        }
    }

    /// Cuts all of them off.
    pub(crate) fn stop(&self) {
        self.all.cancel();
    }

    /// Cuts a run off; false if there is none.
    pub(crate) fn cancel(&self, id: &str) -> bool {
        let token = self.with(|runs| runs.get(id).cloned());
        token.inspect(CancellationToken::cancel).is_some()
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, CancellationToken>) -> T) -> T {
        f(&mut self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Whether all of them were cut off, rather than this one.
    pub(crate) fn is_for_all(&self) -> bool {
        self.all.all.is_cancelled()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.with(|runs| runs.remove(&self.id));
    }
}

//! Work in progress, by id, so that it can be cancelled: agent runs and the requests of MCP clients.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Work in progress, by id.
#[derive(Debug, Default)]
pub(crate) struct ActiveSet {
    tokens: Mutex<HashMap<String, Arc<CancellationToken>>>,
    /// Parent of every token.
    cancel_all: CancellationToken,
}

/// Registration of one piece of work, removed on drop.
#[derive(Debug)]
pub(crate) struct ActiveGuard {
    id: String,
    token: Arc<CancellationToken>,
    set: Arc<ActiveSet>,
}

impl ActiveSet {
    /// Registers work until the returned guard is dropped.
    pub(crate) fn register(self: &Arc<Self>, id: &str) -> ActiveGuard {
        let token = Arc::new(self.cancel_all.child_token());
        self.tokens.lock().insert(id.to_owned(), Arc::clone(&token));
        ActiveGuard {
            id: id.to_owned(),
            token,
            set: Arc::clone(self),
        }
    }

    /// Cancels the work with this id. Returns false if it is not in progress.
    pub(crate) fn cancel(&self, id: &str) -> bool {
        let token = self.tokens.lock().get(id).cloned();
        token.inspect(|token| token.cancel()).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.lock().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.lock().is_empty()
    }

    /// Cancels all work, including work registered later.
    pub(crate) fn cancel_all(&self) {
        self.cancel_all.cancel();
    }
}

impl ActiveGuard {
    /// Token that is cancelled with the work.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns whether all work was cancelled, rather than this piece alone.
    pub(crate) fn are_all_cancelled(&self) -> bool {
        self.set.cancel_all.is_cancelled()
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        let mut tokens = self.set.tokens.lock();
        // The id may have been reused by an MCP client.
        if tokens
            .get(&self.id)
            .is_some_and(|token| Arc::ptr_eq(token, &self.token))
        {
            tokens.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_affects_only_the_named_work() {
        let set = Arc::new(ActiveSet::default());
        let (one, text) = (set.register("1"), set.register("\"1\""));
        assert!(!set.cancel("2"));
        assert!(!one.token().is_cancelled());
        assert!(set.cancel("1"));
        assert!(one.token().is_cancelled() && !one.are_all_cancelled());
        assert!(!text.token().is_cancelled());
        let reused = set.register("1");
        drop(one);
        assert!(set.cancel("1"));
        assert!(reused.token().is_cancelled());
        drop(reused);
        assert!(!set.cancel("1"));
    }

    #[test]
    fn cancel_all_affects_later_work() {
        let set = Arc::new(ActiveSet::default());
        let before = set.register("1");
        set.cancel_all();
        let after = set.register("2");
        for guard in [before, after] {
            assert!(guard.token().is_cancelled() && guard.are_all_cancelled());
        }
    }
}

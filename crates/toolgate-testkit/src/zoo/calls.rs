//! Requests in progress, so that they can be cancelled by id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Open requests by scope (connection or session) and raw id.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    open: Arc<Mutex<HashMap<Key, CancellationToken>>>,
}

/// Registration of an open request; dropping it removes the request.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) cancelled: CancellationToken,
    key: Key,
    open: Arc<Mutex<HashMap<Key, CancellationToken>>>,
}

type Key = (String, String);

impl OpenCalls {
    pub(crate) fn open(&self, scope: &str, id: &str) -> OpenCall {
        let key = (scope.to_owned(), id.to_owned());
        let cancelled = CancellationToken::new();
        let mut open = self.open.lock();
        open.insert(key.clone(), cancelled.clone());
        OpenCall {
            cancelled,
            key,
            open: Arc::clone(&self.open),
        }
    }

    pub(crate) fn cancel(&self, scope: &str, id: &str) {
        let key = (scope.to_owned(), id.to_owned());
        if let Some(call) = self.open.lock().get(&key) {
            call.cancel();
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.open.lock().remove(&self.key);
    }
}

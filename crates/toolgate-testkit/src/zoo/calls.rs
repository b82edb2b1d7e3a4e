//! The requests that are being worked on, so that they can be cancelled by their id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

/// Open requests by the connection they came from and their raw id.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    open: Arc<Mutex<HashMap<Key, CancellationToken>>>,
}

/// An open request, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) cancelled: CancellationToken,
    key: Key,
    open: Arc<Mutex<HashMap<Key, CancellationToken>>>,
}

type Key = (String, String);

impl Calls {
    pub(crate) fn open(&self, scope: &str, id: &str) -> OpenCall {
        let key = (scope.to_owned(), id.to_owned());
        let cancelled = CancellationToken::new();
        let mut open = self.open.lock().unwrap();
        open.insert(key.clone(), cancelled.clone());
        OpenCall {
            cancelled,
            key,
            open: Arc::clone(&self.open),
        }
    }

    pub(crate) fn cancel(&self, scope: &str, id: &str) {
        let key = (scope.to_owned(), id.to_owned());
        if let Some(call) = self.open.lock().unwrap().get(&key) {
            call.cancel();
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.open.lock().unwrap().remove(&self.key);
    }
}

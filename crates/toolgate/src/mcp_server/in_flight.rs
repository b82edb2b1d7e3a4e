//! Requests of one client that are in flight, so that the client can cancel them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// A client's requests in flight, keyed by the raw text of their ids.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests(Mutex<HashMap<String, Arc<CancellationToken>>>);

/// One request, in flight until the guard is dropped.
#[derive(Debug)]
pub(super) struct InFlightGuard {
    id: String,
    token: Arc<CancellationToken>,
    requests: Arc<InFlightRequests>,
}

impl InFlightRequests {
    /// Registers a request until the returned guard is dropped.
    pub(super) fn register(self: &Arc<Self>, id: &RawValue) -> InFlightGuard {
        let (id, token) = (id.get().to_owned(), Arc::new(CancellationToken::new()));
        self.0.lock().insert(id.clone(), Arc::clone(&token));
        InFlightGuard {
            id,
            token,
            requests: Arc::clone(self),
        }
    }

    /// Cancels the request with this id, if it is in flight.
    pub(super) fn cancel(&self, id: &RawValue) {
        let token = self.0.lock().get(id.get()).cloned();
        if let Some(token) = token {
            token.cancel();
        }
    }
}

impl InFlightGuard {
    /// Waits until the client cancels the request.
    pub(super) async fn wait_cancelled(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut requests = self.requests.0.lock();
        // The client may have reused the id.
        if requests
            .get(&self.id)
            .is_some_and(|token| Arc::ptr_eq(token, &self.token))
        {
            requests.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn cancel_affects_only_the_named_request() {
        let requests = Arc::new(InFlightRequests::default());
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (one, text) = (
            requests.register(&raw("1")),
            requests.register(&raw("\"1\"")),
        );
        requests.cancel(&raw("2"));
        assert!(one.wait_cancelled().now_or_never().is_none());
        requests.cancel(&raw("1"));
        assert!(one.wait_cancelled().now_or_never().is_some());
        assert!(text.wait_cancelled().now_or_never().is_none());
        let reused = requests.register(&raw("1"));
        drop(one);
        requests.cancel(&raw("1"));
        assert!(reused.wait_cancelled().now_or_never().is_some());
    }
}

//! Requests of one client that are under way, so that it can cancel them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::jsonrpc;

/// By the text of their ids.
#[derive(Debug, Default)]
pub struct UnderWay(Mutex<HashMap<String, Arc<CancellationToken>>>);

/// One request; under way as long as it lives.
#[derive(Debug)]
pub struct Place {
    id: String,
    token: Arc<CancellationToken>,
    all: Arc<UnderWay>,
}

impl UnderWay {
    pub fn enter(self: &Arc<Self>, id: &RawValue) -> Place {
        let (id, token) = (id.get().to_owned(), Arc::new(CancellationToken::new()));
        self.with(|all| all.insert(id.clone(), Arc::clone(&token)));
        Place {
            id,
            token,
            all: Arc::clone(self),
        }
    }

    /// Takes a notification; `notifications/cancelled` ends the request that it names.
    pub fn hear(&self, method: &str, params: Option<&RawValue>) {
        let params = params.filter(|_| method == "notifications/cancelled");
        if let Some(id) = jsonrpc::cancelled(params)
            && let Some(token) = self.with(|all| all.get(id.get()).cloned())
        {
            token.cancel();
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, Arc<CancellationToken>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.with(|all| {
            // A client may have used the id again.
            if all
                .get(&self.id)
                .is_some_and(|own| Arc::ptr_eq(own, &self.token))
            {
                all.remove(&self.id);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_the_request_that_is_named_is_cancelled() {
        let all = Arc::new(UnderWay::default());
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (one, text) = (all.enter(&raw("1")), all.enter(&raw("\"1\"")));
        let params = raw(r#"{"requestId": 1, "reason": "enough"}"#);
        all.hear("notifications/other", Some(&params));
        assert!(one.cancelled().now_or_never().is_none());
        all.hear("notifications/cancelled", Some(&params));
        assert!(one.cancelled().now_or_never().is_some());
        assert!(text.cancelled().now_or_never().is_none());
        let again = all.enter(&raw("1"));
        drop(one);
        all.hear("notifications/cancelled", Some(&params));
        assert!(again.cancelled().now_or_never().is_some());
    }
}

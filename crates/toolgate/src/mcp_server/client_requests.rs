//! Requests to a legacy client that await a response.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use toolgate_mcp::jsonrpc::{self, INTERNAL_ERROR, Object, RpcError, RpcResult};

/// Sends a message to a client; returns false if the client cannot receive it.
pub(super) type MessageSender = Arc<dyn Fn(String) -> bool + Send + Sync>;

/// The open requests to one client.
#[derive(Debug, Default)]
pub(super) struct ClientRequests {
    last_id: AtomicU64,
    open: Mutex<OpenRequests>,
}

#[derive(Debug, Default)]
struct OpenRequests {
    senders: HashMap<u64, oneshot::Sender<RpcResult>>,
    /// The client has disconnected.
    closed: bool,
}

/// One open request. Dropping it before the response sends `notifications/cancelled`.
struct RequestGuard {
    id: u64,
    requests: Arc<ClientRequests>,
    send: MessageSender,
}

impl ClientRequests {
    /// Sends a request to the client and returns a future for the response. Dropping the future
    /// cancels the request.
    pub(super) fn send(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
        send: MessageSender,
    ) -> BoxFuture<'static, RpcResult> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        let request = Object::new()
            .text("jsonrpc", "2.0")
            .raw("id", &id.to_string())
            .text("method", method);
        let request = match params {
            Some(params) => request.raw("params", params.get()),
            None => request,
        };
        let is_open = self.open.lock().insert(id, sender);
        if !is_open || !send(request.to_string()) {
            self.open.lock().senders.remove(&id);
            let unreachable =
                RpcError::new(INTERNAL_ERROR, "client cannot receive requests right now");
            return Box::pin(std::future::ready(Err(unreachable)));
        }
        let guard = RequestGuard {
            id,
            requests: Arc::clone(self),
            send,
        };
        Box::pin(async move {
            let _guard = guard;
            let no_response = || RpcError::new(INTERNAL_ERROR, "client did not respond");
            receiver.await.unwrap_or_else(|_| Err(no_response()))
        })
    }

    /// Completes an open request; returns false if there is none with this id.
    pub(super) fn complete(&self, id: &RawValue, result: RpcResult) -> bool {
        let Ok(id) = id.get().parse::<u64>() else {
            return false;
        };
        let sender = self.open.lock().senders.remove(&id);
        sender.is_some_and(|sender| sender.send(result).is_ok())
    }

    /// Fails all open and all later requests because the client has disconnected.
    pub(super) fn close(&self) {
        let mut open = self.open.lock();
        open.closed = true;
        open.senders.clear();
    }
}

impl OpenRequests {
    /// Adds a request unless the client has disconnected; returns whether it was added.
    fn insert(&mut self, id: u64, sender: oneshot::Sender<RpcResult>) -> bool {
        if !self.closed {
            self.senders.insert(id, sender);
        }
        !self.closed
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let unanswered = self.requests.open.lock().senders.remove(&self.id);
        if unanswered.is_some() {
            let params = Object::new().raw("requestId", &self.id.to_string());
            (self.send)(jsonrpc::notification("notifications/cancelled", &params));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn responses_complete_their_requests_and_dropped_requests_are_cancelled() {
        let requests = Arc::new(ClientRequests::default());
        let sent: Arc<Mutex<Vec<String>>> = Arc::default();
        let sender: MessageSender = Arc::new({
            let sent = Arc::clone(&sent);
            move |message| {
                sent.lock().push(message);
                true
            }
        });
        let send = |method| requests.send(method, None, Arc::clone(&sender));
        let last = || sent.lock().last().cloned().unwrap();
        let one = send("elicitation/create");
        assert!(last().contains(r#""id":1"#), "{}", last());
        let two = send("roots/list");
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let result = || Ok(RawValue::TRUE.to_owned());
        assert!(requests.complete(&id("2"), result()));
        assert!(!requests.complete(&id("2"), result()), "already answered");
        assert!(
            !requests.complete(&id("\"1\""), result()),
            "not an id we issued"
        );
        assert_eq!(two.await.unwrap().get(), "true");
        assert!(
            last().contains("roots/list"),
            "an answered request is not cancelled"
        );
        drop(one);
        assert!(last().contains(r#""params":{"requestId":1}"#), "{}", last());
        assert!(
            !requests.complete(&id("1"), result()),
            "request was dropped"
        );
        let unreachable = requests.send("roots/list", None, Arc::new(|_| false));
        assert!(
            unreachable.await.is_err(),
            "an unreachable client cannot answer"
        );
        let three = send("roots/list");
        requests.close();
        assert!(three.await.is_err());
        assert!(send("roots/list").await.is_err(), "client has disconnected");
    }
}

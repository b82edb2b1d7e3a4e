//! Requests from a server to the client, tracked until they are answered or cancelled.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::clean::json::clean_json;

use crate::client_handler::ClientHandler;
use crate::jsonrpc;

/// The server's open requests on one connection; clones share them.
#[derive(Clone, Debug)]
pub(super) struct ServerRequests {
    tasks: TaskTracker,
    /// Keyed by the raw text of the request id.
    open: Arc<Mutex<HashMap<String, CancellationToken>>>,
}

/// One request from a server, borrowed from its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerRequest<'a> {
    pub(super) id: &'a RawValue,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
}

impl ServerRequests {
    pub(super) fn new(tasks: &TaskTracker) -> Self {
        Self {
            tasks: tasks.clone(),
            open: Arc::default(),
        }
    }

    /// Answers a server request through the handler, or with a default response if no client can
    /// answer. A person may never respond, so the request is dropped when `end` is cancelled.
    pub(super) fn answer(
        &self,
        handler: &Arc<dyn ClientHandler>,
        request: ServerRequest<'_>,
        end: &CancellationToken,
        reply: impl FnOnce(String) + Send + 'static,
    ) {
        let ServerRequest { id, method, params } = request;
        if method == "ping" || !handler.can_answer_requests() {
            return reply(jsonrpc::default_response(id, method));
        }
        let id = id.to_owned();
        let params = params.map(clean_json);
        let response = handler.on_request(method, params.as_deref());
        let end = end.child_token();
        self.with(|open| open.insert(id.get().to_owned(), end.clone()));
        let requests = self.clone();
        self.tasks.spawn(async move {
            let result = tokio::select! {
                result = response => Some(result),
                () = end.cancelled() => None,
            };
            requests.with(|open| open.remove(id.get()));
            if let Some(result) = result {
                reply(jsonrpc::response(&id, &result));
            }
        });
    }

    /// Handles the server's `notifications/cancelled`.
    pub(super) fn cancel(&self, params: Option<&RawValue>) {
        let id = jsonrpc::cancelled_request_id(params);
        let end = id.and_then(|id| self.with(|open| open.get(id.get()).cloned()));
        if let Some(end) = end {
            end.cancel();
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, CancellationToken>) -> T) -> T {
        f(&mut self.open.lock())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::jsonrpc::RpcResult;

    /// A handler that never answers.
    #[derive(Debug)]
    struct NeverAnswers;

    impl ClientHandler for NeverAnswers {
        fn on_notification(&self, _: &str, _: Option<&RawValue>) {}

        fn on_request(&self, _: &str, _: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn cancelled_and_ended_requests_are_forgotten() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        let requests = ServerRequests::new(&tasks);
        let handler: Arc<dyn ClientHandler> = Arc::new(NeverAnswers);
        for id in ["1", "\"1\""] {
            let request = ServerRequest {
                id: &raw(id),
                method: "elicitation/create",
                params: None,
            };
            requests.answer(&handler, request, &end, |reply| panic!("{reply}"));
        }
        let params = raw(r#"{"requestId": 1}"#);
        requests.cancel(Some(&params));
        while tasks.len() > 1 {
            tokio::task::yield_now().await;
        }
        end.cancel();
        tasks.close();
        tasks.wait().await;
        assert!(requests.with(|open| open.is_empty()));
    }
}

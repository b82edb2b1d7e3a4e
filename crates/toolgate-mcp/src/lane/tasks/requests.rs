//! Requests about a task, and its cancellation.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::value::RawValue;

use crate::client_handler::{ClientHandler, ModernClient};
use crate::jsonrpc::Object;
use crate::lane::{Lane, UpstreamRequest, UpstreamToolCall};
use crate::task::TaskObserver;
use crate::transport::RequestError;

/// Time for the server to answer a request about a task.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the server to confirm the end of a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that requests about a task need.
#[derive(Clone, Debug)]
pub(in crate::lane) struct TaskRequests {
    pub(super) lane: Lane,
    /// Headers of the caller that the server's config forwards.
    pub(super) headers: HeaderMap,
    /// Answers the server's questions.
    pub(super) handler: Option<Arc<dyn ClientHandler>>,
    pub(super) client: Option<Arc<ModernClient>>,
    pub(super) observer: Option<Arc<dyn TaskObserver>>,
}

/// Cancels a task on drop, unless it has ended.
#[derive(Debug)]
pub(super) struct CancelGuard {
    pub(super) requests: TaskRequests,
    /// `None` once the task has ended.
    pub(super) id: Option<String>,
}

impl TaskRequests {
    pub(in crate::lane) fn new(lane: &Lane, call: &UpstreamToolCall<'_>) -> Self {
        // The client's input belongs to the call and not to requests about the task.
        let client = call.modern_client.as_ref().map(|client| {
            Arc::new(ModernClient {
                capabilities: Arc::clone(&client.capabilities),
                input: Object::new(),
                has_state: false,
            })
        });
        Self {
            lane: lane.clone(),
            headers: call.headers.clone(),
            handler: call.handler.clone(),
            client,
            observer: call.tasks.observer().cloned(),
        }
    }

    pub(super) fn request(&self, method: &'static str, id: &str) -> UpstreamRequest {
        UpstreamRequest {
            method,
            params: Object::new().text("taskId", id),
            name: Some(id.to_owned()),
            headers: self.headers.clone(),
            modern_client: self.client.clone(),
            declares_tasks: true,
            ..UpstreamRequest::default()
        }
    }

    pub(super) async fn send(
        &self,
        request: UpstreamRequest,
    ) -> Result<Box<RawValue>, RequestError> {
        let method = request.method;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.lane.send(request)).await;
        answer.unwrap_or_else(|_| Err(RequestError::Lost(format!("no answer to `{method}`"))))
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        let observer = self.requests.observer.as_ref();
        let Some(id) = self
            .id
            .take()
            .filter(|_| !observer.is_some_and(|observer| observer.is_left_running()))
        else {
            return;
        };
        let requests = self.requests.clone();
        let tasks = self.requests.lane.0.tasks.clone();
        tasks.spawn(async move {
            let request = requests.request("tasks/cancel", &id);
            let cancelled = tokio::time::timeout(CANCEL_TIMEOUT, requests.lane.send(request)).await;
            if !matches!(cancelled, Ok(Ok(_))) {
                let server = &requests.lane.key().server;
                tracing::debug!(%server, "server did not confirm the end of a task");
            }
        });
    }
}

//! Routes incoming messages on connections that carry all responses of a server: stdio and SSE.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::pending::PendingRequests;
use super::server_requests::{ServerRequest, ServerRequests};
use super::{RequestError, TransportEvent, forward_list_changed, progress_request_id};
use crate::client_handler::{ClientHandler, notify};
use crate::jsonrpc::{self, Incoming};

/// Routes responses and progress to pending requests, list changes to the supervisor, and the rest
/// to the connection's handler.
#[derive(Clone, Debug)]
pub(super) struct MessageRouter {
    pub(super) pending: PendingRequests,
    pub(super) events: mpsc::Sender<TransportEvent>,
    pub(super) handler: Arc<dyn ClientHandler>,
    pub(super) server_requests: ServerRequests,
    /// Cancelled when the connection closes.
    pub(super) end: CancellationToken,
}

impl MessageRouter {
    /// Routes one text; `reply` sends the response to a server request.
    pub(super) fn route(&self, text: &str, reply: impl Fn(String) + Clone + Send + 'static) {
        if text.trim().is_empty() {
            return;
        }
        let messages = match jsonrpc::parse(text) {
            Ok(messages) => messages,
            Err(error) => {
                tracing::debug!(%error, "ignoring invalid message");
                return;
            }
        };
        for message in messages {
            match message {
                Incoming::Response {
                    id: Some(id),
                    result,
                } => {
                    let outcome = RequestError::from_response(result);
                    if !self.pending.complete(id, outcome) {
                        tracing::debug!(id, "ignoring response without a pending request");
                    }
                }
                Incoming::Response { id: None, .. } => {
                    tracing::debug!("ignoring response with an unknown id")
                }
                Incoming::Request { id, method, params } => {
                    let request = ServerRequest {
                        id,
                        method: &method,
                        params,
                    };
                    let (handler, end) = self.request_handler();
                    self.server_requests
                        .answer(&handler, request, &end, reply.clone());
                }
                Incoming::Notification { method, params } => {
                    self.handle_notification(&method, params)
                }
            }
        }
    }

    /// Selects the handler for a server request and the token that ends it. Stdio and SSE do not
    /// tie server requests to calls, so a call's handler is used only if it is the sole one.
    fn request_handler(&self) -> (Arc<dyn ClientHandler>, CancellationToken) {
        let sole = if self.handler.can_answer_requests() {
            self.pending.sole_handler(&self.end)
        } else {
            None
        };
        sole.unwrap_or_else(|| (Arc::clone(&self.handler), self.end.clone()))
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        if forward_list_changed(method, &self.events) {
            return;
        }
        let handler = match method {
            "notifications/cancelled" => return self.server_requests.cancel(params),
            "notifications/progress" => {
                progress_request_id(params).and_then(|id| self.pending.handler(id))
            }
            _ => Some(Arc::clone(&self.handler)),
        };
        if let Some(handler) = handler {
            notify(&*handler, method, params);
        }
    }
}

//! Forwards notifications and requests from servers to clients: those of one request with its
//! answer, all others to the client's session.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_mcp::client_handler::{ClientHandler, LogLevel};
use toolgate_mcp::jsonrpc::{self, Object, RpcError, RpcResult};

use super::client_requests::{ClientRequests, MessageSender};
use super::resource_subscriptions::RESOURCE_UPDATED;

const PROGRESS: &str = "notifications/progress";
/// Maximum size of notifications that belong to no request.
const MAX_NOTIFICATION_BYTES: usize = 1024 * 1024;

/// Handles server messages that belong to one request of a client.
pub(super) struct RequestNotifier {
    pub(super) sender: MessageSender,
    /// The client's progress token; without one, progress is not forwarded.
    pub(super) progress_token: Option<Box<RawValue>>,
    /// Requests to a legacy client; modern clients receive input requests as results.
    pub(super) client_requests: Option<Arc<ClientRequests>>,
    /// Minimum level of forwarded log messages; without one, none are forwarded.
    pub(super) min_log_level: Option<LogLevel>,
}

/// Handles server messages that belong to none of the client's requests.
pub(super) struct SessionNotifier {
    pub(super) sender: MessageSender,
    pub(super) client_requests: Arc<ClientRequests>,
}

impl ClientHandler for RequestNotifier {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let message = match (method, &self.progress_token, params) {
            (PROGRESS, Some(token), Some(params)) => progress_notification(params, token),
            ("notifications/message", ..)
                if self
                    .min_log_level
                    .is_some_and(|min| forwards_log(min, params)) =>
            {
                jsonrpc::raw_notification(method, params)
            }
            _ => return,
        };
        // Dropped if the client has disconnected.
        (self.sender)(message);
    }

    fn on_request(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        match &self.client_requests {
            Some(requests) => requests.send(method, params, Arc::clone(&self.sender)),
            None => Box::pin(std::future::ready(Err(RpcError::method_not_found(method)))),
        }
    }
}

/// Returns whether a log message has at least this level. Messages with an unknown level count as such.
pub(super) fn forwards_log(min_level: LogLevel, params: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct Message {
        level: LogLevel,
    }
    let message = params.and_then(|params| serde_json::from_str(params.get()).ok());
    message.is_none_or(|Message { level }| level >= min_level)
}

/// Encodes a progress notification with the client's own token.
fn progress_notification(params: &RawValue, token: &RawValue) -> String {
    let members: Result<indexmap::IndexMap<String, &RawValue>, _> =
        serde_json::from_str(params.get());
    let members = members.unwrap_or_default().into_iter();
    let params = members.fold(Object::new(), |params, (name, value)| match name.as_str() {
        "progressToken" => params.raw(&name, token.get()),
        _ => params.raw(&name, value.get()),
    });
    jsonrpc::notification(PROGRESS, &params)
}

impl fmt::Debug for RequestNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestNotifier")
            .field("progress_token", &self.progress_token)
            .finish_non_exhaustive()
    }
}

impl ClientHandler for SessionNotifier {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        match method {
            // Resource updates are sent by `ResourceSubscriptions`, and the progress token is not
            // the client's.
            RESOURCE_UPDATED | PROGRESS => return,
            _ => {}
        }
        let bytes = params.map_or(0, |params| params.get().len());
        if bytes > MAX_NOTIFICATION_BYTES {
            tracing::debug!(method, bytes, "dropping oversized notification");
            return;
        }
        // Dropped if the client has no open stream.
        (self.sender)(jsonrpc::raw_notification(method, params));
    }

    fn on_request(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        self.client_requests
            .send(method, params, Arc::clone(&self.sender))
    }
}

impl fmt::Debug for SessionNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionNotifier")
            .field(&self.client_requests)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn drops_oversized_and_request_bound_notifications() {
        let sent: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = Arc::clone(&sent);
        let notifier = SessionNotifier {
            sender: Arc::new(move |message| {
                sink.lock().push(message);
                true
            }),
            client_requests: Arc::default(),
        };
        let long =
            RawValue::from_string(format!("\"{}\"", "x".repeat(MAX_NOTIFICATION_BYTES))).unwrap();
        notifier.on_notification("notifications/message", Some(&long));
        notifier.on_notification("notifications/progress", Some(RawValue::NULL));
        notifier.on_notification(RESOURCE_UPDATED, Some(RawValue::NULL));
        notifier.on_notification("notifications/message", Some(RawValue::NULL));
        let sent = sent.lock();
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert!(sent[0].contains("notifications/message"));
    }
}

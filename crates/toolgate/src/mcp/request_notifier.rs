//! Forwards notifications and requests from a server to the client whose request caused them.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_mcp::client_handler::{ClientHandler, LogLevel};
use toolgate_mcp::jsonrpc::{self, Object, RpcResult};
use toolgate_mcp::serve::{ClientRequests, MessageSender, method_not_found, notification};

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

impl ClientHandler for RequestNotifier {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let message = match (method, &self.progress_token, params) {
            ("notifications/progress", Some(token), Some(params)) => {
                progress_notification(params, token)
            }
            ("notifications/message", ..) if self.forwards_log(params) => {
                notification(method, params)
            }
            _ => return,
        };
        // Dropped if the client has disconnected.
        (self.sender)(message);
    }

    fn on_request(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        match &self.client_requests {
            Some(requests) => requests.send(method, params, Arc::clone(&self.sender)),
            None => Box::pin(std::future::ready(Err(method_not_found(method)))),
        }
    }
}

impl RequestNotifier {
    /// Returns whether a log message is forwarded. Messages with an unknown level are.
    fn forwards_log(&self, params: Option<&RawValue>) -> bool {
        #[derive(Deserialize)]
        struct Message {
            level: LogLevel,
        }
        let message = params.and_then(|params| serde_json::from_str(params.get()).ok());
        self.min_log_level
            .is_some_and(|min| message.is_none_or(|Message { level }| level >= min))
    }
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
    jsonrpc::notification("notifications/progress", &params)
}

impl fmt::Debug for RequestNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestNotifier")
            .field("progress_token", &self.progress_token)
            .finish_non_exhaustive()
    }
}

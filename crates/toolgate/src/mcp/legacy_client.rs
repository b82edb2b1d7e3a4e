//! A client of the legacy era, whose session spans its requests.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_mcp::client_handler::{ClientHandler, LogLevel, SessionClient};
use toolgate_mcp::jsonrpc::{Object, RpcResult};
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::serve::{
    ClientRequests, InFlightGuard, InFlightRequests, InitializeRequest, MessageSender,
    empty_object, notification,
};

use super::resource_subscriptions::{RESOURCE_UPDATED, ResourceSubscriptions};
use super::{McpRequestContext, McpServer, parse_params};
use crate::call::ClientSession;
use crate::gateway::Gateway;

const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
/// Maximum size of notifications that belong to no request.
const MAX_NOTIFICATION_BYTES: usize = 1024 * 1024;

/// State of a legacy client's session.
#[derive(Debug)]
pub struct LegacyClient {
    id: String,
    initialize: InitializeRequest,
    notifier: Arc<SessionNotifier>,
    /// Resources the client has subscribed to.
    pub(super) resources: ResourceSubscriptions,
    in_flight: Arc<InFlightRequests>,
    /// Minimum level of log messages the client has requested.
    log_level: Mutex<Option<LogLevel>>,
    disconnected: CancellationToken,
}

/// Handles notifications and requests from servers that belong to none of the client's requests.
struct SessionNotifier {
    sender: MessageSender,
    client_requests: Arc<ClientRequests>,
}

impl LegacyClient {
    /// Creates a client. Messages that belong to none of its requests are sent through `sender`.
    pub fn new(id: String, initialize: InitializeRequest, sender: MessageSender) -> Self {
        let to_client = Arc::clone(&sender);
        Self {
            id,
            initialize,
            notifier: Arc::new(SessionNotifier {
                sender,
                client_requests: Arc::default(),
            }),
            resources: ResourceSubscriptions::new(move |params| {
                // Dropped if the client has no open stream.
                to_client(notification(RESOURCE_UPDATED, Some(params)));
            }),
            in_flight: Arc::default(),
            log_level: Mutex::default(),
            disconnected: CancellationToken::new(),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the negotiated protocol revision.
    pub fn version(&self) -> &'static str {
        self.initialize.version
    }

    /// Registers a request so that the client can cancel it.
    pub fn track_request(&self, request: &RawValue) -> InFlightGuard {
        self.in_flight.register(request)
    }

    /// Handles a notification from the client.
    pub fn handle_notification(&self, gateway: &Gateway, method: &str, params: Option<&RawValue>) {
        self.in_flight.on_notification(method, params);
        if method == ROOTS_CHANGED {
            gateway
                .servers()
                .notify_session_lanes(&self.id, ROOTS_CHANGED);
        }
    }

    /// Handles the client's response to a request that was sent to it.
    pub fn handle_response(&self, id: &RawValue, answer: RpcResult) {
        self.notifier.client_requests.complete(id, answer);
    }

    /// Cancels all requests that wait for a response from the client.
    pub fn cancel_client_requests(&self) {
        self.notifier.client_requests.close();
    }

    /// Ends the session: cancels pending requests to the client and drops its subscriptions and
    /// lanes.
    pub fn disconnect(&self, gateway: &Gateway) {
        // Must come first, so that no new lane is opened after the existing ones are closed.
        self.disconnected.cancel();
        self.cancel_client_requests();
        self.resources.close();
        gateway.servers().end_session(&self.id);
    }

    /// Returns a token that is cancelled when the client disconnects.
    pub fn disconnect_token(&self) -> &CancellationToken {
        &self.disconnected
    }

    /// Returns the sender for messages that belong to none of the client's requests.
    pub(super) fn message_sender(&self) -> MessageSender {
        Arc::clone(&self.notifier.sender)
    }

    pub(super) fn client_requests(&self) -> Arc<ClientRequests> {
        Arc::clone(&self.notifier.client_requests)
    }

    pub(super) fn log_level(&self) -> Option<LogLevel> {
        *self
            .log_level
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session presented to servers, if the client needs its own lanes: because servers
    /// can send it requests, or because it has set a log level.
    pub(super) fn client_session(&self) -> Option<ClientSession> {
        let log_level = self.log_level();
        if !self.initialize.can_answer_requests() && log_level.is_none() {
            return None;
        }
        let handler: Arc<dyn ClientHandler> = Arc::<SessionNotifier>::clone(&self.notifier);
        Some(ClientSession {
            id: self.id.clone(),
            client: SessionClient {
                capabilities: self.initialize.capabilities.get().into(),
                handler,
                log_level,
                disconnected: self.disconnected.clone(),
            },
        })
    }
}

impl McpServer {
    /// Handles `logging/setLevel`: sets the minimum level of log messages sent to the client.
    pub(super) fn set_log_level(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        #[derive(Deserialize)]
        struct Params {
            level: LogLevel,
        }
        let Params { level } = parse_params(params)?;
        if let Some(client) = &context.client {
            let set = client.log_level.lock();
            *set.unwrap_or_else(PoisonError::into_inner) = Some(level);
            let request = UpstreamRequest {
                method: "logging/setLevel",
                params: Object::new().text("level", level.as_str()),
                ..UpstreamRequest::default()
            };
            self.gateway
                .servers()
                .request_on_session_lanes(&client.id, &request);
        }
        Ok(empty_object())
    }
}

impl ClientHandler for SessionNotifier {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        match method {
            // Resource updates are sent by `ResourceSubscriptions`, and the progress token is not
            // the client's.
            RESOURCE_UPDATED | "notifications/progress" => return,
            _ => {}
        }
        let bytes = params.map_or(0, |params| params.get().len());
        if bytes > MAX_NOTIFICATION_BYTES {
            tracing::debug!(method, bytes, "dropping oversized notification");
            return;
        }
        // Dropped if the client has no open stream.
        (self.sender)(notification(method, params));
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
    use super::*;

    #[test]
    fn drops_oversized_and_request_bound_notifications() {
        let sent: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = Arc::clone(&sent);
        let notifier = SessionNotifier {
            sender: Arc::new(move |message| {
                sink.lock().unwrap().push(message);
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
        let sent = sent.lock().unwrap();
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert!(sent[0].contains("notifications/message"));
    }
}

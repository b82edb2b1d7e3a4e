//! A legacy client: its declared capabilities, log level, requests in flight and subscriptions.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_core::catalog::ClientProfile;
use toolgate_mcp::client_handler::{ClientHandler, LogLevel, SessionClient};
use toolgate_mcp::jsonrpc::{self, Object, RpcResult};
use toolgate_mcp::lane::UpstreamRequest;

use super::client_requests::{ClientRequests, MessageSender};
use super::method::{ClientNotification, InitializeRequest};
use super::notifier::SessionNotifier;
use super::resource_subscriptions::{RESOURCE_UPDATED, ResourceSubscriptions};
use crate::active_set::ActiveSet;
use crate::call::ClientSession;
use crate::gateway::Gateway;

/// State of a legacy client.
#[derive(Debug)]
pub(super) struct LegacyClient {
    id: String,
    share_owner: Option<Arc<str>>,
    initialize: InitializeRequest,
    notifier: Arc<SessionNotifier>,
    /// Resources the client has subscribed to.
    pub(super) resources: ResourceSubscriptions,
    pub(super) in_flight: Arc<ActiveSet>,
    /// Minimum level of log messages the client has requested.
    log_level: Mutex<Option<LogLevel>>,
    disconnected: CancellationToken,
}

impl LegacyClient {
    /// Creates a client. Messages that belong to none of its requests are sent through `sender`.
    pub(super) fn new(
        id: String,
        share_owner: Option<Arc<str>>,
        initialize: InitializeRequest,
        in_flight: Arc<ActiveSet>,
        sender: MessageSender,
    ) -> Self {
        let to_client = Arc::clone(&sender);
        Self {
            id,
            share_owner,
            initialize,
            notifier: Arc::new(SessionNotifier {
                sender,
                client_requests: Arc::default(),
            }),
            resources: ResourceSubscriptions::new(move |params| {
                // Dropped if the client has no open stream.
                to_client(jsonrpc::raw_notification(RESOURCE_UPDATED, Some(params)));
            }),
            in_flight,
            log_level: Mutex::default(),
            disconnected: CancellationToken::new(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the negotiated protocol revision.
    pub(super) fn version(&self) -> &'static str {
        self.initialize.version
    }

    /// Returns whether the client expects streams to start with an event that has only an id.
    pub(super) fn expects_announced_ids(&self) -> bool {
        self.version() >= "2025-11-25"
    }

    /// Handles a notification from the client.
    pub(super) fn handle_notification(
        &self,
        gateway: &Gateway,
        notification: &ClientNotification<'_>,
    ) {
        match notification {
            ClientNotification::Cancelled { request_id } => {
                self.in_flight.cancel(request_id.get());
            }
            ClientNotification::RootsChanged => {
                gateway
                    .servers()
                    .notify_session_lanes(&self.id, ClientNotification::ROOTS_CHANGED);
            }
            ClientNotification::Initialized => {}
        }
    }

    /// Handles the client's response to a request that was sent to it.
    pub(super) fn handle_response(&self, id: &RawValue, result: RpcResult) {
        self.notifier.client_requests.complete(id, result);
    }

    /// Cancels all requests that wait for a response from the client.
    pub(super) fn cancel_client_requests(&self) {
        self.notifier.client_requests.close();
    }

    /// Cancels pending requests to the client and drops its subscriptions and lanes.
    pub(super) fn disconnect(&self, gateway: &Gateway) {
        // Must come first, so that no new lane is opened after the existing ones are closed.
        self.disconnected.cancel();
        self.cancel_client_requests();
        self.resources.close();
        gateway.servers().end_session(&self.id);
    }

    /// Returns a token that is cancelled when the client disconnects.
    pub(super) fn disconnect_token(&self) -> &CancellationToken {
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
        *self.log_level.lock()
    }

    /// Sets the minimum level of log messages sent to the client.
    pub(super) fn set_log_level(&self, gateway: &Gateway, level: LogLevel) {
        *self.log_level.lock() = Some(level);
        let request = UpstreamRequest {
            method: "logging/setLevel",
            params: Object::new().text("level", level.as_str()),
            ..UpstreamRequest::default()
        };
        gateway
            .servers()
            .request_on_session_lanes(&self.id, &request);
    }

    /// Returns the profile of the client's capabilities.
    pub(super) fn profile(&self) -> Option<&ClientProfile> {
        self.initialize.capabilities.profile.as_ref()
    }

    /// Returns the session presented to servers, if the client needs its own lanes: because it has
    /// capabilities, or because it has set a log level.
    pub(super) fn client_session(&self) -> Option<ClientSession> {
        let log_level = self.log_level();
        if self.profile().is_none() && log_level.is_none() {
            return None;
        }
        let capabilities = &self.initialize.capabilities;
        let handler: Arc<dyn ClientHandler> = Arc::<SessionNotifier>::clone(&self.notifier);
        Some(ClientSession {
            id: self.id.clone(),
            client: SessionClient {
                owner: self.share_owner.clone(),
                capabilities: Arc::clone(&capabilities.declared),
                handler,
                log_level,
                can_answer_requests: capabilities.can_answer_requests(),
                is_modern: false,
                disconnected: self.disconnected.clone(),
            },
        })
    }
}

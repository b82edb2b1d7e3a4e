//! Resource subscriptions of clients: `resources/subscribe` and the forwarding of updates.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use toolgate_core::catalog::replace_text_member;
use toolgate_core::name::ServerName;
use toolgate_core::policy::ServerItem;
use toolgate_core::scope::Filters;
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::jsonrpc::{self, INVALID_PARAMS, RpcError, RpcResult};
use toolgate_mcp::registry::ResourceSubscription;

use super::names;
use super::request::{RequestHandler, to_rpc_error};
use super::resources::unknown_resource;
use crate::call::CallError;
use crate::caller::Caller;
use crate::gateway::Gateway;

pub(super) const RESOURCE_UPDATED: &str = "notifications/resources/updated";

/// Subscriptions per client.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// Sends the parameters of a resource update notification to a client.
pub(super) type UpdateSender = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// Subscriptions of a legacy client, by the URIs it uses.
pub(super) struct ResourceSubscriptions {
    sender: UpdateSender,
    subscriptions: Mutex<HashMap<String, ResourceSubscription>>,
}

/// Forwards updates to the client while the resource is visible to it.
struct UpdateForwarder {
    sender: UpdateSender,
    server: ServerName,
    /// The server's raw URI of the resource.
    uri: String,
    /// Whether the client uses the server's raw URIs.
    uses_raw_names: bool,
    gateway: Gateway,
    caller: Caller,
    filters: Filters,
}

/// The parameters of an update notification.
#[derive(serde::Deserialize)]
struct UpdatedResource {
    uri: String,
}

impl ResourceSubscriptions {
    pub(super) fn new(sender: impl Fn(&RawValue) + Send + Sync + 'static) -> Self {
        Self {
            sender: Arc::new(sender),
            subscriptions: Mutex::default(),
        }
    }

    /// Returns whether the client may subscribe to a resource.
    fn has_room_for(&self, uri: &str) -> bool {
        let subscriptions = self.subscriptions.lock();
        subscriptions.len() < MAX_SUBSCRIPTIONS || subscriptions.contains_key(uri)
    }

    /// Drops all subscriptions.
    pub(super) fn close(&self) {
        self.subscriptions.lock().clear();
    }
}

impl RequestHandler {
    pub(super) async fn subscribe(&self, uri: String) -> RpcResult {
        let Some(session) = &self.session else {
            return Err(RpcError::method_not_found("resources/subscribe"));
        };
        let resources = &session.client.resources;
        if !resources.has_room_for(&uri) {
            let message =
                format!("at most {MAX_SUBSCRIPTIONS} resources can be subscribed to per client");
            return Err(RpcError::new(INVALID_PARAMS, message));
        }
        let sender = Arc::clone(&resources.sender);
        let subscription = self.subscribe_resource(&uri, sender).await?;
        resources.subscriptions.lock().insert(uri, subscription);
        Ok(jsonrpc::empty_object())
    }

    pub(super) fn unsubscribe(&self, uri: &str) -> RpcResult {
        let Some(session) = &self.session else {
            return Err(RpcError::method_not_found("resources/unsubscribe"));
        };
        session.client.resources.subscriptions.lock().remove(uri);
        Ok(jsonrpc::empty_object())
    }

    /// Sends updates of a resource to `sender` until the returned subscription is dropped.
    pub(super) async fn subscribe_resource(
        &self,
        uri: &str,
        sender: UpdateSender,
    ) -> Result<ResourceSubscription, RpcError> {
        let (server, raw_uri) = self.resolve_resource(uri)?;
        let filters = &self.context.filters;
        let forwarder = UpdateForwarder {
            sender,
            server: server.clone(),
            uri: raw_uri.to_owned(),
            uses_raw_names: self.endpoint.single_server().is_some(),
            gateway: self.gateway().clone(),
            caller: self.caller.clone(),
            filters: filters.clone(),
        };
        let handler = Arc::new(forwarder);
        let subscription = self.gateway().resources().subscribe(
            &self.caller,
            &self.context,
            &server,
            raw_uri,
            handler,
        );
        subscription.await.map_err(|error| match error {
            CallError::UnknownItem(_) => unknown_resource(uri),
            error => to_rpc_error(&error),
        })
    }
}

impl ClientHandler for UpdateForwarder {
    fn on_notification(&self, _: &str, params: Option<&RawValue>) {
        let item = ServerItem::Resource {
            server: &self.server,
            uri: &self.uri,
        };
        let resources = self.gateway.resources();
        let in_scope = resources.can_see(&self.caller, &self.filters, item);
        let Some(params) = params.filter(|_| in_scope) else {
            return;
        };
        let parsed = serde_json::from_str::<UpdatedResource>(params.get());
        match (self.uses_raw_names, parsed) {
            (false, Ok(UpdatedResource { uri })) => {
                let uri = names::qualify_uri(&self.server, &uri);
                (self.sender)(&replace_text_member(params, "uri", &uri));
            }
            _ => (self.sender)(params),
        }
    }

    fn on_request(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        Box::pin(std::future::ready(Err(RpcError::method_not_found(method))))
    }
}

impl fmt::Debug for ResourceSubscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uris: Vec<String> = self.subscriptions.lock().keys().cloned().collect();
        f.debug_tuple("ResourceSubscriptions").field(&uris).finish()
    }
}

impl fmt::Debug for UpdateForwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateForwarder")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

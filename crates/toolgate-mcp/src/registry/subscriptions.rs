//! Resource subscriptions of clients.
//!
//! All subscribers of a resource share one upstream subscription on the shared lane, which is
//! renewed whenever that lane reconnects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::HeaderMap;
use indexmap::IndexMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_core::name::ServerName;

use super::{Entries, Registry};
use crate::Deadline;
use crate::client_handler::ClientHandler;
use crate::fair_queue::Slot;
use crate::handshake::Era;
use crate::jsonrpc::{Object, RpcError, RpcResult};
use crate::lane::Lane;
use crate::transport::RequestError;

const LOG_MESSAGE: &str = "notifications/message";
const RESOURCE_UPDATED: &str = "notifications/resources/updated";
const SUBSCRIPTION_ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Maximum size of a log message, and number of those that wait to be read.
const MAX_LOG_BYTES: usize = 64 * 1024;
pub(super) const MAX_UNREAD_LOGS: usize = 256;

/// Maximum number of distinct resources with subscribers.
pub const MAX_SUBSCRIBED_RESOURCES: usize = 10_000;
/// Delay before resubscribing after a modern server ended a subscription; doubles after failures.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);
const MAX_RESUBSCRIBE_DELAY: Duration = Duration::from_secs(30);
/// Timeout of `resources/subscribe` and `resources/unsubscribe` on legacy servers.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Identifies a resource. Ordered by server, so that the resources of one server are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ResourceKey {
    server: ServerName,
    uri: String,
}

#[derive(Debug, Default)]
pub(super) struct UpstreamSubscriptions(Mutex<BTreeMap<ResourceKey, SubscribedResource>>);

#[derive(Debug)]
struct SubscribedResource {
    handlers: Vec<Arc<dyn ClientHandler>>,
    /// A modern server's response to the subscription.
    state: watch::Sender<SubscriptionState>,
    /// Whether a server has accepted the subscription before, so that accepting it again ends a gap.
    established: bool,
    /// Ends the upstream subscription on drop.
    _stop: DropGuard,
}

/// A modern server's response to a subscription.
#[derive(Clone, Debug, Default)]
enum SubscriptionState {
    #[default]
    Pending,
    Accepted,
    Rejected(Arc<RequestError>),
}

/// Subscription to a resource, cancelled on drop.
#[derive(Debug)]
pub struct ResourceSubscription {
    key: ResourceKey,
    handler: Arc<dyn ClientHandler>,
    subscriptions: Arc<UpstreamSubscriptions>,
    _slot: Option<Slot>,
}

/// Reasons why a resource cannot be subscribed to.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    #[error(transparent)]
    Server(Arc<RequestError>),
    #[error("too many resource subscriptions")]
    TooMany,
    #[error("server did not accept the subscription")]
    Refused,
}

/// A log message of a server on its shared lane, which says nothing about the call that it belongs to.
#[derive(Clone, Debug)]
pub struct ServerLog {
    pub server: ServerName,
    /// The parameters of the notification.
    pub params: Arc<RawValue>,
}

/// Handles what a server sends on its shared lane outside of calls: resource updates and log messages.
#[derive(Debug)]
pub(super) struct SharedLaneHandler {
    pub(super) server: ServerName,
    pub(super) logs: broadcast::Sender<ServerLog>,
    pub(super) subscriptions: Arc<UpstreamSubscriptions>,
}

#[derive(Deserialize)]
struct UpdatedParams {
    uri: String,
}

#[derive(Deserialize)]
struct AcknowledgedParams {
    notifications: GrantedNotifications,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct GrantedNotifications {
    resource_subscriptions: Vec<String>,
}

impl ClientHandler for SharedLaneHandler {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        match method {
            RESOURCE_UPDATED => {
                if let Ok(UpdatedParams { uri }) = serde_json::from_str(params.get()) {
                    self.subscriptions
                        .notify(&self.server, &uri, &without_subscription_id(params));
                }
            }
            // Fails if nobody listens.
            LOG_MESSAGE if params.get().len() <= MAX_LOG_BYTES => drop(self.logs.send(ServerLog {
                server: self.server.clone(),
                params: params.to_owned().into(),
            })),
            SUBSCRIPTION_ACKNOWLEDGED => {
                let params = serde_json::from_str::<AcknowledgedParams>(params.get());
                let Ok(AcknowledgedParams { notifications }) = params else {
                    tracing::debug!(server = %self.server, "ignoring malformed acknowledgement");
                    return;
                };
                for uri in notifications.resource_subscriptions {
                    let server = self.server.clone();
                    let key = ResourceKey { server, uri };
                    self.subscriptions.mark_accepted(&key);
                }
            }
            _ => {}
        }
    }

    fn on_request(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        Box::pin(std::future::ready(Err(RpcError::method_not_found(method))))
    }

    fn can_answer_requests(&self) -> bool {
        false
    }
}

impl UpstreamSubscriptions {
    /// Adds a subscriber. Also returns the token that ends the upstream subscription if this is the
    /// first one; `None` if the limit is reached.
    fn add(
        self: &Arc<Self>,
        key: ResourceKey,
        handler: Arc<dyn ClientHandler>,
    ) -> Option<(ResourceSubscription, Option<CancellationToken>)> {
        let subscription = ResourceSubscription {
            key: key.clone(),
            handler: Arc::clone(&handler),
            subscriptions: Arc::clone(self),
            _slot: None,
        };
        let first = self.with(|subscriptions| {
            if let Some(resource) = subscriptions.get_mut(&key) {
                resource.handlers.push(handler);
                return Some(None);
            }
            if subscriptions.len() >= MAX_SUBSCRIBED_RESOURCES {
                return None;
            }
            let stop = CancellationToken::new();
            let resource = SubscribedResource {
                handlers: vec![handler],
                state: watch::Sender::default(),
                established: false,
                _stop: stop.clone().drop_guard(),
            };
            subscriptions.insert(key, resource);
            Some(Some(stop))
        });
        first.map(|stop| (subscription, stop))
    }

    /// Notifies the subscribers of a resource and of its parents.
    fn notify(&self, server: &ServerName, uri: &str, params: &RawValue) {
        let handlers: Vec<Arc<dyn ClientHandler>> = self.with(|subscriptions| {
            let first = ResourceKey {
                server: server.clone(),
                uri: String::new(),
            };
            subscriptions
                .range(first..)
                .take_while(|(key, _)| key.server == *server)
                .filter(|(key, _)| is_same_or_below(uri, &key.uri))
                .flat_map(|(_, resource)| resource.handlers.clone())
                .collect()
        });
        for handler in handlers {
            handler.on_notification(RESOURCE_UPDATED, Some(params));
        }
    }

    /// Records that a modern server accepted a subscription. If it had been accepted before, the
    /// resource may have changed in between, so its subscribers are notified. This must not happen
    /// earlier: a change between the notification and the new subscription would be missed.
    fn mark_accepted(&self, key: &ResourceKey) {
        if self.mark_established(key, SubscriptionState::Accepted) {
            self.notify_missed_updates(key);
        }
    }

    /// Sets the state and returns whether the subscription had been established before.
    fn mark_established(&self, key: &ResourceKey, state: SubscriptionState) -> bool {
        self.with(|subscriptions| {
            subscriptions.get_mut(key).is_some_and(|resource| {
                resource.state.send_replace(state);
                std::mem::replace(&mut resource.established, true)
            })
        })
    }

    /// Reports a resource as changed because updates may have been missed.
    fn notify_missed_updates(&self, key: &ResourceKey) {
        let params = Object::new().text("uri", &key.uri).to_string();
        if let Ok(params) = RawValue::from_string(params) {
            self.notify(&key.server, &key.uri, &params);
        }
    }

    /// Waits until a modern server has accepted or rejected a subscription.
    async fn wait_accepted(
        &self,
        key: &ResourceKey,
        within: Duration,
    ) -> Result<(), SubscribeError> {
        let state = self.with(|subscriptions| Some(subscriptions.get(key)?.state.subscribe()));
        let mut state = state.ok_or(SubscribeError::Refused)?;
        let state = state.wait_for(|state| !matches!(state, SubscriptionState::Pending));
        match tokio::time::timeout(within, state).await {
            Ok(Ok(state)) => match &*state {
                SubscriptionState::Rejected(error) => {
                    Err(SubscribeError::Server(Arc::clone(error)))
                }
                _ => Ok(()),
            },
            _ => Err(SubscribeError::Refused),
        }
    }

    fn contains(&self, key: &ResourceKey) -> bool {
        self.with(|subscriptions| subscriptions.contains_key(key))
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<ResourceKey, SubscribedResource>) -> T) -> T {
        f(&mut self.0.lock())
    }
}

/// Removes the id of our upstream subscription, which clients do not know, from parameters.
fn without_subscription_id(params: &RawValue) -> Box<RawValue> {
    type Members<'a> = IndexMap<String, &'a RawValue>;
    let Ok(mut members) = serde_json::from_str::<Members<'_>>(params.get()) else {
        return params.to_owned();
    };
    let meta = members.get("_meta").copied();
    let Some(mut meta) = meta.and_then(|meta| serde_json::from_str::<Members<'_>>(meta.get()).ok())
    else {
        return params.to_owned(); // without `_meta` there is no id
    };
    meta.shift_remove("io.modelcontextprotocol/subscriptionId");
    let rest = to_raw_value(&meta).unwrap_or_else(|_| params.to_owned());
    if meta.is_empty() {
        members.shift_remove("_meta");
    } else {
        members.insert("_meta".to_owned(), &rest);
    }
    to_raw_value(&members).unwrap_or_else(|_| params.to_owned())
}

/// Returns whether a resource is the subscribed one or below it.
fn is_same_or_below(uri: &str, resource: &str) -> bool {
    let rest = uri.strip_prefix(resource);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || resource.ends_with('/'))
}

impl ResourceSubscription {
    /// Keeps a slot of the subscriber until the subscription ends.
    #[must_use]
    pub fn with_slot(mut self, slot: Slot) -> Self {
        self._slot = Some(slot);
        self
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        self.subscriptions.with(|subscriptions| {
            let Some(resource) = subscriptions.get_mut(&self.key) else {
                return;
            };
            let is_same = |handler: &Arc<dyn ClientHandler>| Arc::ptr_eq(handler, &self.handler);
            if let Some(at) = resource.handlers.iter().position(is_same) {
                resource.handlers.swap_remove(at);
            }
            if resource.handlers.is_empty() {
                subscriptions.remove(&self.key);
            }
        });
    }
}

/// Maintains one upstream subscription across reconnects.
struct SubscriptionTask {
    key: ResourceKey,
    subscriptions: Arc<UpstreamSubscriptions>,
    entries: Entries,
    changes: watch::Receiver<()>,
    stop: CancellationToken,
}

impl Registry {
    /// Notifies `handler` whenever a resource changes, until the returned subscription is dropped.
    /// `lane` is the shared lane of the server.
    pub async fn subscribe_resource(
        &self,
        lane: &Lane,
        uri: &str,
        handler: Arc<dyn ClientHandler>,
        deadline: Deadline,
    ) -> Result<ResourceSubscription, SubscribeError> {
        let within = deadline.saturating_duration_since(Deadline::now());
        let key = ResourceKey {
            server: lane.key().server.clone(),
            uri: uri.to_owned(),
        };
        let added = self.subscriptions.add(key.clone(), handler);
        let (subscription, first) = added.ok_or(SubscribeError::TooMany)?;
        if let Some(stop) = first {
            let task = SubscriptionTask {
                key,
                subscriptions: Arc::clone(&self.subscriptions),
                entries: Arc::clone(&self.entries),
                changes: self.changes.subscribe(),
                stop: stop.clone(),
            };
            let (lane, stop_all) = (lane.clone(), self.stop.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = task.run(lane) => {}
                    () = stop_all.cancelled() => {}
                }
            });
        }
        match lane.session().era {
            Era::Legacy => {
                let result = subscribe(lane, "resources/subscribe", uri, within).await;
                result.map_err(|error| SubscribeError::Server(Arc::new(error)))?;
                self.subscriptions
                    .mark_established(&subscription.key, SubscriptionState::Accepted);
            }
            Era::Modern => {
                self.subscriptions
                    .wait_accepted(&subscription.key, within)
                    .await?
            }
        }
        Ok(subscription)
    }
}

impl SubscriptionTask {
    async fn run(mut self, mut lane: Lane) {
        let uri = self.key.uri.clone();
        loop {
            let next = tokio::select! {
                next = next_lane(&self.key.server, &self.entries, &mut self.changes, &lane) => next,
                () = listen(&lane, &self.key, &self.subscriptions) => return,
                () = self.stop.cancelled() => break,
            };
            lane = next;
            // `listen` renews the subscription of a modern server in the next iteration.
            if lane.session().era == Era::Legacy {
                let renewed = subscribe(&lane, "resources/subscribe", &uri, SUBSCRIBE_TIMEOUT);
                if let Err(error) = renewed.await {
                    tracing::debug!(server = %self.key.server, %error, "failed to renew resource subscription");
                }
                self.subscriptions.notify_missed_updates(&self.key);
            }
        }
        if lane.session().era == Era::Legacy {
            // Errors are ignored because the server may be gone. A subscriber may have been added
            // in the meantime, and its subscription must survive this `unsubscribe`.
            let _ = subscribe(&lane, "resources/unsubscribe", &uri, SUBSCRIBE_TIMEOUT).await;
            if self.subscriptions.contains(&self.key) {
                let _ = subscribe(&lane, "resources/subscribe", &uri, SUBSCRIBE_TIMEOUT).await;
            }
        }
    }
}

/// Waits for the lane that replaces `old`.
async fn next_lane(
    server: &ServerName,
    entries: &Entries,
    changes: &mut watch::Receiver<()>,
    old: &Lane,
) -> Lane {
    loop {
        let entry = entries.load().get(server).cloned();
        let newer = async {
            match &entry {
                Some(entry) => entry.newer_lane(old).await,
                None => None,
            }
        };
        let changed = async {
            if changes.changed().await.is_err() {
                std::future::pending().await
            }
        };
        tokio::select! {
            Some(lane) = newer => return lane,
            () = changed => {}
        }
    }
}

/// Sends `resources/subscribe` or `resources/unsubscribe` to a legacy server.
async fn subscribe(
    lane: &Lane,
    method: &'static str,
    uri: &str,
    within: Duration,
) -> Result<(), RequestError> {
    let request = lane.request(method, Object::new().text("uri", uri), HeaderMap::new());
    let result = tokio::time::timeout(within, request).await;
    result
        .map_err(|_| RequestError::Lost("server did not respond in time".to_owned()))?
        .map(drop)
}

/// Keeps the subscription stream of a modern server open. Never returns; on legacy servers and
/// after a rejection it only waits.
async fn listen(lane: &Lane, key: &ResourceKey, subscriptions: &UpstreamSubscriptions) {
    let mut delay = RESUBSCRIBE_DELAY;
    while lane.session().era == Era::Modern {
        let filter = serde_json::json!({"resourceSubscriptions": [key.uri]}).to_string();
        let params = Object::new().raw("notifications", &filter);
        let request = lane.request("subscriptions/listen", params, HeaderMap::new());
        match request.await {
            Ok(_) => delay = RESUBSCRIBE_DELAY,
            Err(error @ (RequestError::Rpc(_) | RequestError::Status { .. })) => {
                let state = SubscriptionState::Rejected(Arc::new(error));
                if subscriptions.mark_established(key, state) {
                    subscriptions.notify_missed_updates(key);
                }
                break;
            }
            Err(_) => delay = (delay * 2).min(MAX_RESUBSCRIBE_DELAY),
        }
        tokio::time::sleep(delay).await;
    }
    std::future::pending().await
}

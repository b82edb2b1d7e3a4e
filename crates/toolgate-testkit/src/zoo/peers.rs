//! Client state that outlives a request.
//!
//! Legacy clients are identified by their scope, which is a session or a connection. Modern
//! clients are stateless; only their open `subscriptions/listen` streams are tracked.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::Value;

use super::change::{Change, ListenFilter};
use super::client_request::PendingClientRequests;
use super::outbox::Outbox;
use super::rpc::notification;

const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) pending_requests: PendingClientRequests,
    clients: Mutex<HashMap<String, Client>>,
    listeners: Mutex<HashMap<u64, Listener>>,
    next: AtomicU64,
}

/// A legacy client.
#[derive(Debug, Default)]
struct Client {
    capabilities: Value,
    /// Minimum log level; everything is logged until the client sets one.
    level: Option<String>,
    subscriptions: HashSet<String>,
    /// Streams for messages that belong to no request. Dropping one ends the stream.
    streams: Vec<Outbox>,
}

#[derive(Debug)]
struct Listener {
    filter: ListenFilter,
    meta: String,
    outbox: Outbox,
}

/// Registration of a listening modern client; dropping it ends the registration.
#[derive(Debug)]
pub(crate) struct ListenGuard<'a> {
    peers: &'a Peers,
    number: u64,
}

impl Peers {
    /// Registers a client that sent `initialize`.
    pub(crate) fn register(&self, scope: &str, capabilities: Option<&Value>) {
        let mut clients = self.clients.lock();
        let client = clients.entry(scope.to_owned()).or_default();
        *client = Client {
            capabilities: capabilities.cloned().unwrap_or_default(),
            streams: std::mem::take(&mut client.streams),
            ..Client::default()
        };
    }

    pub(crate) fn add_stream(&self, scope: &str, outbox: Outbox) {
        let mut clients = self.clients.lock();
        let client = clients.entry(scope.to_owned()).or_default();
        client.streams.retain(|stream| !stream.is_closed());
        client.streams.push(outbox);
    }

    pub(crate) fn set_log_level(&self, scope: &str, level: &str) {
        let mut clients = self.clients.lock();
        clients.entry(scope.to_owned()).or_default().level = Some(level.to_owned());
    }

    pub(crate) fn subscribe(&self, scope: &str, uri: &str) {
        let mut clients = self.clients.lock();
        let client = clients.entry(scope.to_owned()).or_default();
        client.subscriptions.insert(uri.to_owned());
    }

    pub(crate) fn unsubscribe(&self, scope: &str, uri: &str) {
        if let Some(client) = self.clients.lock().get_mut(scope) {
            client.subscriptions.remove(uri);
        }
    }

    pub(crate) fn capabilities(&self, scope: &str) -> Value {
        let clients = self.clients.lock();
        let client = clients.get(scope);
        client.map_or(Value::Null, |client| client.capabilities.clone())
    }

    pub(crate) fn log_level(&self, scope: &str) -> Option<String> {
        self.clients.lock().get(scope)?.level.clone()
    }

    /// Returns the client's open stream for messages that belong to no request.
    pub(crate) fn stream(&self, scope: &str) -> Option<Outbox> {
        self.clients.lock().get(scope)?.stream().cloned()
    }

    /// Acknowledges the filter and registers the outbox for matching changes, sent with this raw
    /// `meta`.
    pub(crate) fn listen(
        &self,
        filter: ListenFilter,
        meta: String,
        outbox: Outbox,
    ) -> ListenGuard<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let notifications = serde_json::json!(filter);
        let params = format!(r#"{{{meta},"notifications":{notifications}}}"#);
        let acknowledged = notification("notifications/subscriptions/acknowledged", &params);
        let listener = Listener {
            filter,
            meta,
            outbox,
        };
        // Under the lock, so that no change overtakes the acknowledgement or is lost after it.
        let mut listeners = self.listeners.lock();
        listener.outbox.notify(acknowledged);
        listeners.insert(number, listener);
        drop(listeners);
        ListenGuard {
            peers: self,
            number,
        }
    }

    /// Notifies every client that subscribed to the change.
    pub(crate) fn announce(&self, change: &Change) {
        for client in self.clients.lock().values() {
            let is_subscribed = match change {
                Change::Tools | Change::Prompts | Change::Resources => true,
                Change::Resource(uri) => client.subscriptions.contains(uri),
            };
            if is_subscribed && let Some(stream) = client.stream() {
                stream.notify(change.notification(""));
            }
        }
        for listener in self.listeners.lock().values() {
            if listener.filter.matches(change) {
                listener.outbox.notify(change.notification(&listener.meta));
            }
        }
    }

    /// Removes a client, abandons the requests to it and ends its streams.
    pub(crate) fn remove(&self, scope: &str) {
        self.pending_requests.abandon_all(scope);
        self.clients.lock().remove(scope);
    }

    /// Removes all clients.
    pub(crate) fn remove_all(&self) {
        self.clients.lock().clear();
    }
}

impl Client {
    /// Returns the first open stream: no message goes to more than one.
    fn stream(&self) -> Option<&Outbox> {
        self.streams.iter().find(|stream| !stream.is_closed())
    }
}

impl Drop for ListenGuard<'_> {
    fn drop(&mut self) {
        let mut listeners = self.peers.listeners.lock();
        listeners.remove(&self.number);
    }
}

pub(crate) fn is_log_level(level: &str) -> bool {
    LEVELS.contains(&level)
}

/// Returns whether messages at level `info` pass this minimum level.
pub(crate) fn includes_info(level: &str) -> bool {
    LEVELS[..2].contains(&level)
}

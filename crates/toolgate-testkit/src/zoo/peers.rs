//! What the server remembers of its clients between two requests.
//!
//! Legacy clients are known by their scope, which is a session or a connection. Modern ones
//! are forgotten after each request; only those that listen are kept, while they do.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::change::{Change, Filter};
use super::outbox::Outbox;
use super::question::Questions;
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
    pub(crate) questions: Questions,
    clients: Mutex<HashMap<String, Client>>,
    listeners: Mutex<HashMap<u64, Listener>>,
    next: AtomicU64,
}

/// A legacy client.
#[derive(Debug, Default)]
struct Client {
    capabilities: Value,
    /// What it wants logged; before it said so, everything.
    level: Option<String>,
    subscriptions: HashSet<String>,
    /// Where it hears what belongs to no request. The stream ends when this is dropped.
    streams: Vec<Outbox>,
}

#[derive(Debug)]
struct Listener {
    filter: Filter,
    meta: String,
    outbox: Outbox,
}

/// A modern client that listens, until this is dropped.
#[derive(Debug)]
pub(crate) struct Listening<'a> {
    peers: &'a Peers,
    number: u64,
}

impl Peers {
    /// A client introduced itself.
    pub(crate) fn begin(&self, scope: &str, capabilities: Option<&Value>) {
        let mut clients = self.clients.lock().unwrap();
        let client = clients.entry(scope.to_owned()).or_default();
        *client = Client {
            capabilities: capabilities.cloned().unwrap_or_default(),
            streams: std::mem::take(&mut client.streams),
            ..Client::default()
        };
    }

    pub(crate) fn add_stream(&self, scope: &str, outbox: Outbox) {
        let mut clients = self.clients.lock().unwrap();
        let client = clients.entry(scope.to_owned()).or_default();
        client.streams.retain(|stream| !stream.is_closed());
        client.streams.push(outbox);
    }

    pub(crate) fn set_level(&self, scope: &str, level: &str) {
        let mut clients = self.clients.lock().unwrap();
        clients.entry(scope.to_owned()).or_default().level = Some(level.to_owned());
    }

    pub(crate) fn subscribe(&self, scope: &str, uri: &str) {
        let mut clients = self.clients.lock().unwrap();
        let client = clients.entry(scope.to_owned()).or_default();
        client.subscriptions.insert(uri.to_owned());
    }

    pub(crate) fn unsubscribe(&self, scope: &str, uri: &str) {
        if let Some(client) = self.clients.lock().unwrap().get_mut(scope) {
            client.subscriptions.remove(uri);
        }
    }

    pub(crate) fn capabilities(&self, scope: &str) -> Value {
        let clients = self.clients.lock().unwrap();
        let client = clients.get(scope);
        client.map_or(Value::Null, |client| client.capabilities.clone())
    }

    pub(crate) fn level(&self, scope: &str) -> Option<String> {
        self.clients.lock().unwrap().get(scope)?.level.clone()
    }

    /// The stream for what belongs to no request, if the client has one open.
    pub(crate) fn stream(&self, scope: &str) -> Option<Outbox> {
        self.clients.lock().unwrap().get(scope)?.stream().cloned()
    }

    /// Acknowledges the filter; from there on the outbox hears of the changes that pass it, with
    /// this raw `meta`.
    pub(crate) fn listen(&self, filter: Filter, meta: String, outbox: Outbox) -> Listening<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let shown = serde_json::json!(filter);
        let params = format!(r#"{{{meta},"notifications":{shown}}}"#);
        let acknowledged = notification("notifications/subscriptions/acknowledged", &params);
        let listener = Listener {
            filter,
            meta,
            outbox,
        };
        // Under the lock, so that no change overtakes the acknowledgement or is missed after it.
        let mut listeners = self.listeners.lock().unwrap();
        listener.outbox.notify(acknowledged);
        listeners.insert(number, listener);
        drop(listeners);
        Listening {
            peers: self,
            number,
        }
    }

    /// Tells everybody who wants to know.
    pub(crate) fn announce(&self, change: &Change) {
        for client in self.clients.lock().unwrap().values() {
            let wanted = match change {
                Change::Tools | Change::Prompts | Change::Resources => true,
                Change::Resource(uri) => client.subscriptions.contains(uri),
            };
            if let (true, Some(stream)) = (wanted, client.stream()) {
                stream.notify(change.notification(""));
            }
        }
        for listener in self.listeners.lock().unwrap().values() {
            if listener.filter.wants(change) {
                listener.outbox.notify(change.notification(&listener.meta));
            }
        }
    }

    /// The client is gone; nobody waits for it, and its streams end.
    pub(crate) fn forget(&self, scope: &str) {
        self.questions.forget(scope);
        self.clients.lock().unwrap().remove(scope);
    }

    /// All clients are gone.
    pub(crate) fn forget_all(&self) {
        self.clients.lock().unwrap().clear();
    }
}

impl Client {
    /// The first open one: no message goes to more than one stream.
    fn stream(&self) -> Option<&Outbox> {
        self.streams.iter().find(|stream| !stream.is_closed())
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut listeners = self.peers.listeners.lock().unwrap();
        listeners.remove(&self.number);
    }
}

pub(crate) fn is_level(level: &str) -> bool {
    LEVELS.contains(&level)
}

/// Whether a client that wants this level sees a message at level `info`.
pub(crate) fn shows_info(level: &str) -> bool {
    LEVELS[..2].contains(&level)
}

//! Open connections: their bounds, in all, per address and per key, and their timeouts.
//!
//! When all places are taken, the connection that has waited longest for a request is closed, so that
//! connections which send nothing cannot keep others out. If every connection is busy, a few further
//! ones are accepted for probes and the administrator.

mod body;
mod body_refused;
mod stream;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) use body::{BodyTimeout, BusyBody, ProgressBody};
pub(super) use body_refused::BodyRefused;
use parking_lot::Mutex;
pub(super) use stream::WatchedStream;
use tokio_util::sync::CancellationToken;
use toolgate::metrics::Bound;
use toolgate::{Gateway, Hold, LoadLevel};
use toolgate_core::caller::describe_share_owner;
use toolgate_core::config::HttpSettings;

use super::error::ApiError;

/// Interval at which timeouts are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which a refused request is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// All open connections. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: HttpSettings,
    gateway: Gateway,
    started: Instant,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    last_id: u64,
    by_id: HashMap<u64, Arc<ConnectionState>>,
    /// Connections of each remote address.
    per_peer: HashMap<IpAddr, usize>,
    /// Connections that use each key.
    per_key: HashMap<Arc<str>, usize>,
}

/// A connection as others see it. Times are milliseconds since the server started; 0 stands for none.
#[derive(Debug)]
struct ConnectionState {
    peer: IpAddr,
    /// Since when the connection has waited for a request; 0 while one is served.
    waiting_since: AtomicU64,
    /// When the first byte of the awaited request arrived.
    header_since: AtomicU64,
    /// Whether a request was served.
    is_used: AtomicBool,
    /// Whether the body of the last request has not been read to its end.
    has_unread_body: AtomicBool,
    close: CancellationToken,
}

/// An open connection. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct Connection {
    connections: Connections,
    id: u64,
    state: Arc<ConnectionState>,
    key: Mutex<Option<Arc<str>>>,
    /// Whether a caller uses the connection, rather than the administrator.
    is_caller: AtomicBool,
    /// The memory of the current request's body, if it is large. Work that outlives the request holds it,
    /// too.
    body: Mutex<Option<Arc<Hold>>>,
    /// The memory of the current request's response, if it is large.
    response: Mutex<Option<Hold>>,
    /// Whether only probes and the administrator are served.
    is_reserved: bool,
}

/// A request that is served on a connection. While it exists, the connection is busy.
#[derive(Debug)]
pub(super) struct ServedRequest(Arc<Connection>);

impl Connections {
    pub(super) fn new(gateway: Gateway, settings: HttpSettings) -> Self {
        Self(Arc::new(Inner {
            settings,
            gateway,
            started: Instant::now(),
            open: Mutex::default(),
        }))
    }

    /// Admits a connection; `None` if it must be closed at once.
    pub(super) fn admit(&self, peer: SocketAddr) -> Option<Arc<Connection>> {
        let settings = &self.0.settings;
        let peer = peer.ip().to_canonical();
        let mut open = self.0.open.lock();
        let of_peer = open.per_peer.get(&peer).copied().unwrap_or(0);
        if !settings.is_shared(peer) && of_peer >= settings.max_connections_per_peer {
            drop(open);
            self.report(Bound::ConnectionsPerPeer, &peer.to_string());
            return None;
        }
        let is_full = open.by_id.len() >= settings.regular_connections();
        let is_reserved = is_full && !open.close_longest_waiting();
        if is_reserved && open.by_id.len() >= settings.max_connections {
            drop(open);
            self.report(Bound::Connections, &peer.to_string());
            return None;
        }
        open.last_id += 1;
        let id = open.last_id;
        let state = Arc::new(ConnectionState {
            peer,
            waiting_since: AtomicU64::new(self.now()),
            header_since: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            has_unread_body: AtomicBool::new(false),
            close: CancellationToken::new(),
        });
        open.by_id.insert(id, Arc::clone(&state));
        *open.per_peer.entry(peer).or_default() += 1;
        drop(open);
        if is_full {
            self.report(Bound::Connections, &peer.to_string());
        }
        Some(Arc::new(Connection {
            connections: self.clone(),
            id,
            state,
            key: Mutex::default(),
            is_caller: AtomicBool::new(false),
            body: Mutex::default(),
            response: Mutex::default(),
            is_reserved,
        }))
    }

    /// Returns how many connections are busy, and how many of them callers may use.
    pub(super) fn busy(&self) -> (usize, usize) {
        let open = self.0.open.lock();
        let is_busy =
            |state: &&Arc<ConnectionState>| state.waiting_since.load(Ordering::Relaxed) == 0;
        let busy = open.by_id.values().filter(is_busy).count();
        (busy, self.0.settings.regular_connections())
    }

    /// Closes connections that exceed their timeouts, until stopped.
    pub(super) async fn run_timeouts(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = stop.cancelled() => return,
            }
            self.close_expired();
        }
    }

    fn close_expired(&self) {
        let settings = &self.0.settings;
        let now = self.now();
        let open = self.0.open.lock();
        let states: Vec<Arc<ConnectionState>> = open.by_id.values().cloned().collect();
        drop(open);
        for state in states {
            let waiting_since = state.waiting_since.load(Ordering::Relaxed);
            if waiting_since == 0 || state.close.is_cancelled() {
                continue;
            }
            let header_since = state.header_since.load(Ordering::Relaxed);
            let is_used = state.is_used.load(Ordering::Relaxed);
            let (since, timeout) = match header_since {
                0 if is_used => (waiting_since, settings.idle_timeout),
                0 => (waiting_since, settings.header_timeout),
                since => (since, settings.header_timeout),
            };
            if u128::from(now.saturating_sub(since)) >= timeout.as_millis() {
                state.close.cancel();
                if header_since != 0 || !is_used {
                    self.report(Bound::HeaderTime, &state.peer.to_string());
                }
            }
        }
    }

    fn report(&self, bound: Bound, who: &str) {
        self.0.gateway.report_bound(bound, who);
    }

    /// Returns the time since the start, which is never 0.
    fn now(&self) -> u64 {
        let elapsed = self.0.started.elapsed().as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_add(1)
    }
}

impl OpenConnections {
    /// Closes the connection that has waited longest for a request. Returns whether there is one.
    fn close_longest_waiting(&mut self) -> bool {
        let waiting = self.by_id.iter().filter_map(|(id, state)| {
            let since = state.waiting_since.load(Ordering::Relaxed);
            (since != 0 && !state.close.is_cancelled()).then_some((since, *id))
        });
        let Some((_, id)) = waiting.min() else {
            return false;
        };
        // Its place is free at once; the connection itself ends in a moment.
        if let Some(state) = self.by_id.remove(&id) {
            state.close.cancel();
        }
        true
    }
}

impl Connection {
    /// Waits until the connection must be closed.
    pub(super) async fn closed(&self) {
        self.state.close.cancelled().await;
    }

    /// Begins to serve a request.
    pub(super) fn begin(self: &Arc<Self>) -> ServedRequest {
        self.state.waiting_since.store(0, Ordering::Relaxed);
        self.state.header_since.store(0, Ordering::Relaxed);
        self.state.is_used.store(true, Ordering::Relaxed);
        ServedRequest(Arc::clone(self))
    }

    pub(super) fn body_timeout(&self) -> Duration {
        self.connections.0.settings.body_timeout
    }

    /// Returns whether a large part of the current request's body has arrived, or a large response is
    /// being sent.
    pub(super) fn holds_body(&self) -> bool {
        self.body.lock().is_some() || self.response.lock().is_some()
    }

    /// Returns the memory of the current request's body, for work that may outlive the request.
    pub(super) fn body(&self) -> Option<Arc<Hold>> {
        self.body.lock().clone()
    }

    /// Counts bytes of the current request's body towards the limits.
    fn hold_body(&self, bytes: usize) -> Result<(), BodyRefused> {
        if !self.is_caller.load(Ordering::Relaxed) {
            return Ok(());
        }
        let gateway = &self.connections.0.gateway;
        let held = if gateway.load_level() == LoadLevel::Normal {
            let mut body = self.body.lock();
            let hold = body.get_or_insert_with(|| Arc::new(self.new_hold()));
            hold.try_grow(bytes).map_err(BodyRefused::from)
        } else {
            Err(BodyRefused::Overloaded(gateway.load().bound))
        };
        held.inspect_err(|refused| {
            let key = self.key.lock().clone();
            self.report(refused.bound(), key.as_deref().unwrap_or(""));
        })
    }

    /// Counts the bytes of a response until it has been sent. They are never refused, since the request
    /// has taken effect; instead, further requests of the key are.
    fn hold_response(&self, bytes: usize) {
        if self.is_caller.load(Ordering::Relaxed) {
            let mut response = self.response.lock();
            response.get_or_insert_with(|| self.new_hold()).grow(bytes);
        }
    }

    /// Counts bytes of a response no longer.
    fn release_response(&self, bytes: usize) {
        if let Some(response) = &*self.response.lock() {
            response.shrink(bytes);
        }
    }

    /// Returns a hold on memory for the key that the connection uses.
    fn new_hold(&self) -> Hold {
        let held = self.connections.0.gateway.held_bytes();
        held.hold(self.key.lock().as_ref())
    }

    fn report_stalled(&self) {
        self.report(Bound::WriteTime, &self.state.peer.to_string());
    }

    /// Counts the memory of the current request no longer.
    fn release_memory(&self) {
        drop(self.body.lock().take());
        drop(self.response.lock().take());
    }

    fn set_unread_body(&self, unread: bool) {
        self.state.has_unread_body.store(unread, Ordering::Relaxed);
    }

    fn has_unread_body(&self) -> bool {
        self.state.has_unread_body.load(Ordering::Relaxed)
    }

    /// Takes note that bytes arrived.
    fn on_read(&self) {
        let is_waiting = self.state.waiting_since.load(Ordering::Relaxed) != 0;
        if is_waiting && self.state.header_since.load(Ordering::Relaxed) == 0 {
            let now = self.connections.now();
            self.state.header_since.store(now, Ordering::Relaxed);
        }
    }

    pub(super) fn report(&self, bound: Bound, who: &str) {
        self.connections.report(bound, who);
    }

    /// Returns an error if callers are not served now or on this connection, or if their key has too
    /// many connections.
    pub(super) fn admit_caller(&self, key: Option<&Arc<str>>) -> Result<(), ApiError> {
        if self.is_reserved {
            let message = "the gateway has too many connections (`http.max_connections`); try again in a moment";
            return Err(ApiError::overloaded(message, RETRY_AFTER));
        }
        let gateway = &self.connections.0.gateway;
        if gateway.load_level() == LoadLevel::Critical {
            gateway.check_load()?;
        }
        self.is_caller.store(true, Ordering::Relaxed);
        if let Some(key) = key {
            self.bind_key(key)?;
        }
        gateway.held_bytes().check(key).map_err(|full| {
            self.report(full.bound(), key.map_or("", |key| &**key));
            BodyRefused::from(full).to_error()
        })
    }

    fn bind_key(&self, key: &Arc<str>) -> Result<(), ApiError> {
        let mut bound = self.key.lock();
        if bound.as_ref() == Some(key) {
            return Ok(());
        }
        let max = self.connections.0.settings.max_connections_per_key;
        let mut open = self.connections.0.open.lock();
        if open.per_key.get(key).is_some_and(|count| *count >= max) {
            drop(open);
            self.report(Bound::ConnectionsPerKey, key);
            let message = format!(
                "the limit of {max} open connections for {} is reached (`http.max_connections_per_key`); close some or reuse them",
                describe_share_owner(Some(key))
            );
            return Err(ApiError::too_many_requests(message, Some(RETRY_AFTER)));
        }
        *open.per_key.entry(Arc::clone(key)).or_default() += 1;
        if let Some(before) = bound.replace(Arc::clone(key)) {
            decrement(&mut open.per_key, &before);
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut open = self.connections.0.open.lock();
        open.by_id.remove(&self.id);
        decrement(&mut open.per_peer, &self.state.peer);
        if let Some(key) = self.key.get_mut() {
            decrement(&mut open.per_key, key);
        }
    }
}

impl Drop for ServedRequest {
    fn drop(&mut self) {
        let Self(connection) = self;
        connection.release_memory();
        let now = connection.connections.now();
        connection.state.waiting_since.store(now, Ordering::Relaxed);
    }
}

/// Removes one from a count, and the count once it is 0.
fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

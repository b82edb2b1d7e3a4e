//! Sessions of legacy MCP clients. A session belongs to the key that opened it and is invisible to
//! other keys.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolgate::mcp::{LegacyClient, McpEndpoint};
use toolgate::serve::{InitializeRequest, MAX_SESSIONS, MessageSender, SESSION_IDLE_TIMEOUT};
use toolgate::{Caller, Gateway};
use toolgate_core::scope::Filters;

/// Messages buffered for a listening client; more are dropped.
const LISTENER_BUFFER_MESSAGES: usize = 256;
/// Maximum number of sessions of one key, so that it cannot evict the sessions of other keys.
const MAX_SESSIONS_PER_KEY: usize = MAX_SESSIONS / 4;
/// Interval between sweeps for idle sessions and removed keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A session of a legacy client.
#[derive(Debug)]
pub(crate) struct McpSession {
    pub(super) client: Arc<LegacyClient>,
    pub(super) endpoint: McpEndpoint,
    pub(super) caller: Caller,
    pub(super) filters: Filters,
    listener: Arc<SessionListener>,
    last_used: Mutex<Instant>,
}

/// Sender to the event stream that the client has opened, if any.
#[derive(Debug, Default)]
struct SessionListener(Mutex<Option<mpsc::Sender<String>>>);

impl SessionListener {
    fn send(&self, message: String) -> bool {
        let sender = self.with(|sender| sender.clone());
        sender.is_some_and(|sender| sender.try_send(message).is_ok())
    }

    fn with<T>(&self, f: impl FnOnce(&mut Option<mpsc::Sender<String>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl McpSession {
    pub(super) fn new(
        endpoint: McpEndpoint,
        caller: Caller,
        initialize: InitializeRequest,
        filters: Filters,
    ) -> Self {
        let listener: Arc<SessionListener> = Arc::default();
        let sender: MessageSender = Arc::new({
            let listener = Arc::clone(&listener);
            move |message| listener.send(message)
        });
        let id = uuid::Uuid::new_v4().to_string();
        Self {
            client: Arc::new(LegacyClient::new(id, initialize, sender)),
            endpoint,
            caller,
            filters,
            listener,
            last_used: Mutex::new(Instant::now()),
        }
    }

    /// Returns the session's messages from now on. Replaces an earlier listener, because the protocol
    /// forbids sending a message on more than one stream.
    pub(super) fn listen(&self) -> mpsc::Receiver<String> {
        let (sender, messages) = mpsc::channel(LISTENER_BUFFER_MESSAGES);
        self.listener.with(|listener| listener.replace(sender));
        messages
    }

    fn last_used(&self) -> std::sync::MutexGuard<'_, Instant> {
        let last_used = self.last_used.lock();
        last_used.unwrap_or_else(PoisonError::into_inner)
    }
}

/// All sessions; a new one evicts the least recently used.
#[derive(Clone, Debug)]
pub(crate) struct McpSessions(Cache<String, Arc<McpSession>>);

impl McpSessions {
    pub(crate) fn new(gateway: Gateway) -> Self {
        Self(
            Cache::builder()
                .max_capacity(MAX_SESSIONS as u64)
                .time_to_idle(SESSION_IDLE_TIMEOUT)
                .eviction_policy(EvictionPolicy::lru())
                .eviction_listener(move |_, session: Arc<McpSession>, _| {
                    session.client.disconnect(&gateway)
                })
                .build(),
        )
    }

    pub(super) fn open(&self, session: McpSession) {
        if let Some(key) = session.caller.key() {
            let all = self.0.iter().map(|(_, session)| session);
            let of_key: Vec<_> = all
                .filter(|session| session.caller.key() == Some(key))
                .collect();
            let oldest = of_key.iter().min_by_key(|session| *session.last_used());
            if let Some(oldest) = oldest.filter(|_| of_key.len() >= MAX_SESSIONS_PER_KEY) {
                self.end(oldest);
            }
        }
        let id = session.client.id().to_owned();
        self.0.insert(id, Arc::new(session));
    }

    /// Returns the session with this id if it belongs to the caller.
    pub(super) fn find(&self, id: &str, caller: &Caller) -> Option<Arc<McpSession>> {
        let session = self.0.get(id)?;
        *session.last_used() = Instant::now();
        (session.caller.key() == caller.key()).then_some(session)
    }

    pub(super) fn end(&self, session: &McpSession) {
        self.0.invalidate(session.client.id());
    }

    /// Fails the requests sent to clients, because no more responses can arrive.
    pub(crate) fn cancel_client_requests(&self) {
        for (_, session) in &self.0 {
            session.client.cancel_client_requests();
        }
    }

    /// Ends idle sessions and sessions whose key was removed, until `stop` is cancelled.
    pub(crate) async fn sweep(self, gateway: Gateway, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        let mut changes = gateway.subscribe_catalog();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = changes.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
            for (_, session) in &self.0 {
                if !gateway.keys().is_valid(&session.caller) {
                    self.end(&session);
                }
            }
            // The cache evicts lazily: this runs its idle expiry and eviction listeners.
            self.0.run_pending_tasks();
        }
    }
}

//! The table of legacy sessions. A session belongs to the key that opened it and is invisible to
//! other keys.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio_util::sync::CancellationToken;
use toolgate_mcp::client_handler::{MAX_SESSIONS, SESSION_IDLE_TIMEOUT};

use super::session::Session;
use crate::caller::Caller;
use crate::gateway::Gateway;

/// The HTTP header with the id of a legacy client's session.
pub const SESSION_ID_HEADER: &str = "mcp-session-id";

/// Maximum number of sessions of one key, so that it cannot evict the sessions of other keys.
const MAX_SESSIONS_PER_KEY: usize = MAX_SESSIONS / 4;
/// Interval between sweeps for idle sessions and removed keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Error returned when a request that needs a session does not name one of the caller's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The request names no session.
    #[error("no session id was sent")]
    Missing,
    /// Also returned for the sessions of other callers, so as not to reveal them.
    #[error("unknown session; send `initialize` again")]
    Unknown,
}

/// All sessions; a new one evicts the least recently used.
#[derive(Debug)]
pub(super) struct Sessions(Cache<String, Arc<Session>>);

impl Sessions {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self(
            Cache::builder()
                .max_capacity(MAX_SESSIONS as u64)
                .time_to_idle(SESSION_IDLE_TIMEOUT)
                .eviction_policy(EvictionPolicy::lru())
                .eviction_listener(move |_, session: Arc<Session>, _| {
                    session.client.disconnect(&gateway);
                })
                .build(),
        )
    }

    pub(super) fn add(&self, session: Arc<Session>) {
        if let Some(key) = session.owner.caller.key() {
            let all = self.0.iter().map(|(_, session)| session);
            let of_key: Vec<_> = all
                .filter(|session| session.owner.caller.key() == Some(key))
                .collect();
            let oldest = of_key.iter().min_by_key(|session| session.last_used());
            if let Some(oldest) = oldest.filter(|_| of_key.len() >= MAX_SESSIONS_PER_KEY) {
                self.end(oldest);
            }
        }
        self.0.insert(session.client.id().to_owned(), session);
    }

    /// Returns the session that the headers name, if it belongs to the caller.
    pub(super) fn find(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<Arc<Session>, SessionError> {
        let id = headers
            .get(SESSION_ID_HEADER)
            .ok_or(SessionError::Missing)?;
        let session = id.to_str().ok().and_then(|id| self.0.get(id));
        let session = session
            .filter(|session| session.owner.caller.key() == caller.key())
            .ok_or(SessionError::Unknown)?;
        session.mark_used();
        Ok(session)
    }

    pub(super) fn end(&self, session: &Session) {
        self.0.invalidate(session.client.id());
    }

    /// Fails the requests sent to clients, because no more responses can arrive.
    pub(super) fn cancel_client_requests(&self) {
        for (_, session) in &self.0 {
            session.client.cancel_client_requests();
        }
    }

    /// Ends idle sessions and sessions whose key was removed, until `stop` is cancelled.
    pub(super) async fn run_sweeper(&self, gateway: &Gateway, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        let mut changes = gateway.subscribe_catalog();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = changes.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
            for (_, session) in &self.0 {
                if !gateway.keys().is_valid(&session.owner.caller) {
                    self.end(&session);
                }
            }
            // The cache evicts lazily: this runs its idle expiry and eviction listeners.
            self.0.run_pending_tasks();
        }
    }
}

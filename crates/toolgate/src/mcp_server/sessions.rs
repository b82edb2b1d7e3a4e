//! The table of legacy sessions. A session belongs to the key that opened it and is invisible to
//! other keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use toolgate_mcp::share::{SharedEntry, make_room};

use super::session::Session;
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::metrics::Bound;

/// The HTTP header with the id of a legacy client's session.
pub const SESSION_ID_HEADER: &str = "mcp-session-id";

/// The HTTP header with the id of the last event that a client has received.
pub const LAST_EVENT_ID_HEADER: &str = "last-event-id";

/// Interval between sweeps for idle sessions and removed keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

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

/// Error returned when a client's stream cannot be opened or continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// There is no such session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The event after which the stream should continue is not kept.
    #[error("unknown `Last-Event-ID`; what followed it is no longer kept")]
    UnknownEvent,
}

/// All sessions. When a caller has its share of them, a new one ends the one that it has not used for
/// longest.
#[derive(Debug)]
pub(super) struct Sessions {
    gateway: Gateway,
    open: Mutex<HashMap<String, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self {
            gateway,
            open: Mutex::default(),
        }
    }

    pub(super) fn add(&self, session: &Arc<Session>) {
        let share = self.gateway.capacity().sessions;
        let owner = session.owner.caller.share_owner();
        let ended = {
            let mut open = self.open.lock();
            let entries = open.iter().map(|(id, session)| SharedEntry {
                key: id,
                owner: session.owner.caller.share_owner(),
                last_used: session.last_used(),
                is_idle: true,
            });
            let entries: Vec<_> = entries.collect();
            // Every session can be ended, so there is always room.
            let ended = make_room(&entries, owner, share).ok().flatten();
            let ended = ended.and_then(|id| open.remove(&id));
            open.insert(session.client.id().to_owned(), Arc::clone(session));
            self.gateway.set_session_count(open.len());
            ended
        };
        if let Some(ended) = ended {
            let of_owner = ended.owner.caller.share_owner() == owner;
            let bound = if of_owner {
                Bound::SessionsPerKey
            } else {
                Bound::Sessions
            };
            let key = ended.owner.caller.share_owner();
            self.gateway
                .report_bound(bound, key.map_or("", |key| &**key));
            ended.disconnect(&self.gateway);
        }
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
        let id = id.to_str().map_err(|_| SessionError::Unknown)?;
        let session = self.open.lock().get(id).cloned();
        let session = session
            .filter(|session| session.owner.caller.key() == caller.key())
            .ok_or(SessionError::Unknown)?;
        if session.is_idle(self.gateway.capacity().session_idle_timeout) {
            self.end(&session);
            return Err(SessionError::Unknown);
        }
        session.mark_used();
        Ok(session)
    }

    pub(super) fn end(&self, session: &Session) {
        let ended = {
            let mut open = self.open.lock();
            let ended = open.remove(session.client.id());
            self.gateway.set_session_count(open.len());
            ended
        };
        if let Some(session) = ended {
            session.disconnect(&self.gateway);
        }
    }

    /// Fails the requests sent to clients, because no more responses can arrive.
    pub(super) fn cancel_client_requests(&self) {
        for session in self.list() {
            session.client.cancel_client_requests();
        }
    }

    /// Ends idle sessions and sessions whose key was removed, and closes the connections to servers of
    /// clients that have gone, until `stop` is cancelled.
    pub(super) async fn run_sweeper(&self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        let mut changes = self.gateway.subscribe_catalog();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = changes.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
            self.sweep();
        }
    }

    fn sweep(&self) {
        let capacity = self.gateway.capacity();
        for session in self.list() {
            session.sweep_streams(capacity.session_disconnect_timeout);
            let is_valid = self.gateway.keys().is_valid(&session.owner.caller);
            if !is_valid || session.is_idle(capacity.session_idle_timeout) {
                self.end(&session);
            } else if session.is_abandoned(capacity.session_disconnect_timeout) {
                // The session stays: if the client returns, its connections are opened again.
                self.gateway.servers().end_session(session.client.id());
            }
        }
    }

    /// Returns the only session, if there is just one.
    pub(super) fn only_one(&self) -> Option<Arc<Session>> {
        let open = self.open.lock();
        let mut sessions = open.values();
        let first = sessions.next()?;
        sessions.next().is_none().then(|| Arc::clone(first))
    }

    fn list(&self) -> Vec<Arc<Session>> {
        self.open.lock().values().cloned().collect()
    }
}

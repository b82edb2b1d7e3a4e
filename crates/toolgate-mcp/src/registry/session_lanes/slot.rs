//! One session lane: its connection, the calls on it, and whose turn it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolgate_core::config::{PerSession, ServerConfig, ServerConnection};

use crate::fair_queue::Owner;
use crate::lane::{Lane, LaneKey};
use crate::share::SharedEntry;

/// Time without calls after which a process ends that was started for a single client without the
/// configuration of its server asking for it.
const AUTOMATIC_IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The place of a session lane, which may not be open yet.
#[derive(Debug)]
pub(in crate::registry) struct LaneSlot {
    /// The settings under which the lane was opened.
    pub(super) server: Arc<ServerConfig>,
    /// The name of the client's key.
    owner: Owner,
    pub(super) lane: OnceCell<Lane>,
    pub(super) last_used: Mutex<Instant>,
    /// Calls in flight on the lane.
    pub(super) calls: TaskTracker,
    /// Admits one call at a time where the requests of a server do not say which call they belong to.
    turns: Option<Arc<Semaphore>>,
    pub(super) stop: CancellationToken,
    /// Cancels the listening task on drop.
    _guard: DropGuard,
}

/// Counts as a call on a session lane until dropped.
#[derive(Debug)]
pub struct SessionCall {
    _token: TaskTrackerToken,
    pub(super) turn: Option<LaneTurn>,
}

/// The only call in flight on a lane. The lane is closed if the call is not answered: a late question of
/// the server would reach the client of the next call.
#[derive(Debug)]
pub(super) struct LaneTurn {
    _permit: OwnedSemaphorePermit,
    is_answered: bool,
    lane: CancellationToken,
}

impl LaneSlot {
    pub(super) fn new(server: Arc<ServerConfig>, owner: Owner) -> Self {
        let stop = CancellationToken::new();
        Self {
            owner,
            lane: OnceCell::new(),
            last_used: Mutex::new(Instant::now()),
            calls: TaskTracker::new(),
            turns: is_automatic(&server).then(|| Arc::new(Semaphore::new(1))),
            server,
            _guard: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Returns whether the slot can serve the given settings.
    pub(super) fn is_usable(&self, server: &ServerConfig) -> bool {
        let is_open = self.lane.get().is_none_or(Lane::is_open);
        is_open && !self.stop.is_cancelled() && !server.needs_reconnect(&self.server)
    }

    pub(super) fn is_expired(&self, timeout: Duration) -> bool {
        let timeout = if is_automatic(&self.server) {
            timeout.min(AUTOMATIC_IDLE_TIMEOUT)
        } else {
            timeout
        };
        self.calls.is_empty() && self.last_used.lock().elapsed() > timeout
    }

    pub(super) fn entry<'a>(&'a self, key: &'a LaneKey) -> SharedEntry<'a, LaneKey> {
        SharedEntry {
            key,
            owner: self.owner.as_ref(),
            last_used: *self.last_used.lock(),
            is_idle: self.calls.is_empty(),
        }
    }

    /// Takes the turn of a call where only one may be in flight; `None` if another one is.
    pub(super) fn try_take_turn(&self) -> Option<Option<LaneTurn>> {
        let Some(turns) = &self.turns else {
            return Some(None);
        };
        let permit = Arc::clone(turns).try_acquire_owned().ok()?;
        Some(Some(LaneTurn {
            _permit: permit,
            is_answered: false,
            lane: self.stop.clone(),
        }))
    }

    /// Waits for the turn of a call where only one may be in flight.
    pub(super) async fn take_turn(&self) -> Option<LaneTurn> {
        let turns = Arc::clone(self.turns.as_ref()?);
        // Never closed.
        let permit = turns.acquire_owned().await.ok()?;
        Some(LaneTurn {
            _permit: permit,
            is_answered: false,
            lane: self.stop.clone(),
        })
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        if let Some(lane) = self.lane.get() {
            lane.close().await;
        }
    }
}

impl SessionCall {
    pub(super) fn new(slot: &LaneSlot) -> Self {
        Self {
            _token: slot.calls.token(),
            turn: None,
        }
    }

    /// Takes note that the server has answered the call.
    pub fn mark_answered(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.is_answered = true;
        }
    }
}

impl Drop for LaneTurn {
    fn drop(&mut self) {
        if !self.is_answered {
            self.lane.cancel();
        }
    }
}

/// Returns whether the server's processes for single clients are started without its configuration
/// saying so.
pub(super) fn is_automatic(server: &ServerConfig) -> bool {
    let is_stdio = matches!(server.connection, ServerConnection::Stdio(_));
    is_stdio && server.per_session == PerSession::Auto
}

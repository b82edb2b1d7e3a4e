//! How a call obtains the shared lane of a server: it waits for its turn, wakes an idle server, and waits for a
//! lost connection as long as that may be back in time.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::timeout_at;
use toolgate_core::name::ServerName;

use super::entry::SupervisorHandle;
use super::{AccessError, AccessTimeouts, LaneAccess, ServerUnavailable};
use crate::Deadline;
use crate::fair_queue::Owner;
use crate::lane::Lane;
use crate::status::{ServerState, ServerStatus};
use crate::supervisor::STDIO_START_TIMEOUT;

impl SupervisorHandle {
    /// Acquires a permit, then reads the lane, which may have closed during the wait. A closing lane
    /// waits for all permits, so a caller that finds no lane releases its permit before it waits
    /// for the next lane.
    pub(super) async fn access(
        &self,
        server: &ServerName,
        owner: &Owner,
        timeouts: AccessTimeouts,
    ) -> Result<LaneAccess, AccessError> {
        let busy = |busy| AccessError::Busy {
            server: server.clone(),
            busy,
        };
        let now = Instant::now();
        let reconnect_by = now.checked_add(timeouts.reconnect).unwrap_or(now);
        let reconnect_by = reconnect_by.min(timeouts.deadline.into_std());
        let mut start_wait = Duration::ZERO;
        loop {
            if self.is_reconnecting(reconnect_by) {
                let _place = self.activity.wait_for_connection(owner).map_err(busy)?;
                self.wait_reconnected(reconnect_by).await;
            }
            let waiting = Instant::now();
            let up = self.wait_lane().await;
            start_wait += waiting.elapsed();
            up.map_err(|status| ServerUnavailable {
                server: server.clone(),
                status,
            })?;
            let deadline = timeouts.deadline + start_wait;
            let acquired = timeout_at(deadline, self.activity.acquire(owner)).await;
            let permit = acquired
                .map_err(|_| busy(self.activity.busy_error(owner)))?
                .map_err(busy)?;
            if Deadline::now() >= deadline {
                // The calls before this one ended with its time, so nothing would wait for its answer.
                return Err(busy(self.activity.busy_error(owner)));
            }
            if let Some(lane) = &*self.lane.borrow() {
                return Ok(LaneAccess {
                    lane: lane.clone(),
                    permit,
                    outdated: false,
                    start_wait,
                    session_call: None,
                });
            }
        }
    }

    /// Returns a lane and a permit if both are available without waiting.
    pub(super) fn try_access(&self, owner: &Owner) -> Option<LaneAccess> {
        let permit = self.activity.try_acquire(owner)?;
        let lane = self.lane.borrow().clone()?;
        Some(LaneAccess {
            lane,
            permit,
            outdated: false,
            start_wait: Duration::ZERO,
            session_call: None,
        })
    }

    /// Returns whether the connection is lost and the next attempt is due before the deadline.
    fn is_reconnecting(&self, deadline: Instant) -> bool {
        self.lane.borrow().is_none()
            && self.status.borrow().state == ServerState::Unavailable
            && may_connect_by(&self.status.borrow(), deadline)
    }

    /// Waits for a lost connection to be re-established.
    async fn wait_reconnected(&self, deadline: Instant) {
        let (mut lanes, mut statuses) = (self.lane.clone(), self.status.clone());
        let wait = async {
            tokio::select! {
                _ = lanes.wait_for(Option::is_some) => {}
                _ = statuses.wait_for(|status| !may_connect_by(status, deadline)) => {}
            }
        };
        // The caller looks at the state in any case, so a timeout needs no handling.
        let _ = timeout_at(deadline.into(), wait).await;
    }

    /// Returns the lane, waking an idle server if needed.
    async fn wait_lane(&self) -> Result<Lane, Arc<ServerStatus>> {
        let current_status = || Arc::clone(&self.status.borrow());
        if let Some(lane) = &*self.lane.borrow() {
            return Ok(lane.clone());
        }
        let is_reconnecting = matches!(current_status().state, ServerState::Connecting)
            && current_status().session.is_some();
        if current_status().state != ServerState::Asleep && !is_reconnecting {
            return Err(current_status());
        }
        let mut lanes = self.lane.clone();
        let mut statuses = self.status.clone();
        self.activity.wake.notify_one();
        let up = lanes.wait_for(Option::is_some);
        let failed = statuses.wait_for(|status| {
            matches!(
                status.state,
                ServerState::Unavailable
                    | ServerState::NeedsAuth
                    | ServerState::Disabled
                    | ServerState::Error
            )
        });
        let opened = tokio::time::timeout(STDIO_START_TIMEOUT, async {
            tokio::select! {
                biased;
                lane = up => lane.ok().and_then(|lane| lane.clone()),
                _ = failed => None,
            }
        });
        opened.await.ok().flatten().ok_or_else(current_status)
    }
}

/// Returns whether a server without a connection may have one before the deadline.
fn may_connect_by(status: &ServerStatus, deadline: Instant) -> bool {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let is_in_time = |at: SystemTime| {
        let delay = at.duration_since(SystemTime::now()).unwrap_or_default();
        delay <= remaining
    };
    let may_connect = match status.state {
        ServerState::Unavailable => status.next_try_at.is_none_or(is_in_time),
        ServerState::Connecting | ServerState::Healthy | ServerState::Degraded => true,
        ServerState::Asleep
        | ServerState::NeedsAuth
        | ServerState::Disabled
        | ServerState::Error => false,
    };
    may_connect && !remaining.is_zero()
}

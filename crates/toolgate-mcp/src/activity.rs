//! Limits and counts the calls in flight at one server, and tracks how long it has been idle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use toolgate_core::config::ServerTuning;
use toolgate_core::plural::count;

use crate::fair_queue::{FairQueue, Owner, QueueLimits, QueueUsage, Slot};

/// Counts and limits the calls of one server.
#[derive(Debug)]
pub(crate) struct Activity {
    slots: FairQueue,
    /// Calls that wait for the connection. They have the same share as queued calls.
    reconnecting: FairQueue,
    last_used: Mutex<Instant>,
    /// Notified when a call needs a server that was stopped for being idle.
    pub(crate) wake: Notify,
}

/// Permission for one call in flight; dropping it admits the next call.
#[derive(Debug)]
pub struct CallPermit {
    _slot: Slot,
    activity: Arc<Activity>,
}

/// Error returned when no call can be queued, or none got its turn in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} in flight and {waiting} queued{}; try again in a moment",
    count(*.in_flight as u64, "call", "calls"),
    if *.of_key { " for this key (`max_in_flight_per_key`)" } else { "" }
)]
pub struct ServerBusy {
    pub in_flight: usize,
    pub waiting: usize,
    /// Whether the calls of the caller's key alone are the reason.
    pub of_key: bool,
}

impl Activity {
    pub(crate) fn new(tuning: &ServerTuning) -> Self {
        let mut limits = QueueLimits::shared(tuning.max_in_flight, tuning.max_queue);
        if let Some(max) = tuning.max_in_flight_per_key {
            limits.slots_per_owner = max;
        }
        let waiting = QueueLimits {
            slots: limits.max_waiting,
            slots_per_owner: limits.max_waiting_per_owner,
            max_waiting: 0,
            max_waiting_per_owner: 0,
        };
        Self {
            slots: FairQueue::new(limits),
            reconnecting: FairQueue::new(waiting),
            last_used: Mutex::new(Instant::now()),
            wake: Notify::new(),
        }
    }

    /// Acquires a permit for a call of `owner`, waiting for one unless the queue is full.
    pub(crate) async fn acquire(self: &Arc<Self>, owner: &Owner) -> Result<CallPermit, ServerBusy> {
        let slot = self.slots.acquire(owner).await;
        slot.map(|slot| self.permit(slot))
            .map_err(|_| self.busy_error(owner))
    }

    /// Acquires a permit if one is available immediately.
    pub(crate) fn try_acquire(self: &Arc<Self>, owner: &Owner) -> Option<CallPermit> {
        self.slots.try_acquire(owner).map(|slot| self.permit(slot))
    }

    /// Takes a place among the calls that wait for the connection.
    pub(crate) fn wait_for_connection(&self, owner: &Owner) -> Result<Slot, ServerBusy> {
        let waiting = &self.reconnecting;
        waiting.try_acquire(owner).ok_or_else(|| {
            let of_owner = waiting.usage_of(owner).in_use;
            let of_key = owner.is_some() && of_owner >= waiting.limits().slots_per_owner;
            ServerBusy {
                in_flight: 0,
                waiting: if of_key {
                    of_owner
                } else {
                    waiting.usage().in_use
                },
                of_key,
            }
        })
    }

    fn permit(self: &Arc<Self>, slot: Slot) -> CallPermit {
        CallPermit {
            _slot: slot,
            activity: Arc::clone(self),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.usage().in_use
    }

    /// Waits until no call is in flight, or until the timeout.
    pub(crate) async fn wait_idle(&self, within: Duration) {
        // The caller closes the connection in any case, so a timeout needs no handling.
        let _ = tokio::time::timeout(within, self.slots.wait_idle()).await;
    }

    /// Returns how long no call has been in flight.
    pub(crate) fn idle_for(&self) -> Duration {
        match self.in_flight() {
            0 => self.last_used.lock().elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Marks the server as used now.
    pub(crate) fn touch(&self) {
        *self.last_used.lock() = Instant::now();
    }

    pub(crate) fn busy_error(&self, owner: &Owner) -> ServerBusy {
        let limits = self.slots.limits();
        let of_owner = self.slots.usage_of(owner);
        let of_key = owner.is_some()
            && (of_owner.in_use >= limits.slots_per_owner
                || of_owner.waiting >= limits.max_waiting_per_owner);
        let QueueUsage { in_use, waiting } = if of_key { of_owner } else { self.slots.usage() };
        ServerBusy {
            in_flight: in_use,
            waiting,
            of_key,
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.activity.touch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_in_flight_and_queue_length_are_limited() {
        let tuning = ServerTuning {
            max_in_flight: 1,
            max_queue: 1,
            ..ServerTuning::default()
        };
        let activity = Arc::new(Activity::new(&tuning));
        let first = activity.acquire(&None).await.unwrap();
        assert_eq!(activity.in_flight(), 1);
        assert_eq!(activity.idle_for(), Duration::ZERO);
        let mut second = Box::pin(activity.acquire(&None));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(
            activity.acquire(&None).await.unwrap_err(),
            ServerBusy {
                in_flight: 1,
                waiting: 1,
                of_key: false
            }
        );
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(activity.slots.usage().waiting, 0);
        drop(second);
        activity.wait_idle(Duration::from_secs(5)).await;
        assert_eq!(activity.in_flight(), 0);
    }

    #[test]
    fn calls_that_wait_for_the_connection_are_limited_per_key() {
        let activity = Activity::new(&ServerTuning {
            max_queue: 4,
            ..ServerTuning::default()
        });
        let (first, other): (Owner, Owner) = (Some("a".into()), Some("b".into()));
        let wait = |owner: &Owner| activity.wait_for_connection(owner);
        let places: Vec<_> = (0..3).map(|_| wait(&first).unwrap()).collect();
        let busy = wait(&first).unwrap_err();
        assert_eq!((busy.waiting, busy.of_key), (3, true));
        let _place = wait(&other).unwrap();
        assert!(!wait(&other).unwrap_err().of_key);
        drop(places);
        assert!(wait(&first).is_ok());
    }
}

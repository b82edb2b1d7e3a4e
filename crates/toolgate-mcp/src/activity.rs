//! Limits and counts the calls in flight at one server, and tracks how long it has been idle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use toolgate_core::config::ServerTuning;
use toolgate_core::plural::count;

use crate::bounded_semaphore::{BoundedSemaphore, QueueFull};

/// Counts and limits the calls of one server.
#[derive(Debug)]
pub(crate) struct Activity {
    permits: BoundedSemaphore,
    last_used: Mutex<Instant>,
    /// Notified when a call needs a server that was stopped for being idle.
    pub(crate) wake: Notify,
}

/// Permission for one call in flight; dropping it admits the next call.
#[derive(Debug)]
pub struct CallPermit {
    _permit: OwnedSemaphorePermit,
    activity: Arc<Activity>,
}

/// Error returned when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} in flight and {waiting} queued; try again in a moment",
    count(*.in_flight as u64, "call", "calls")
)]
pub struct ServerBusy {
    pub in_flight: usize,
    pub waiting: usize,
}

impl Activity {
    pub(crate) fn new(tuning: &ServerTuning) -> Self {
        Self {
            permits: BoundedSemaphore::new(tuning.max_in_flight, tuning.max_queue),
            last_used: Mutex::new(Instant::now()),
            wake: Notify::new(),
        }
    }

    /// Acquires a permit, waiting for one unless the queue is full.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<CallPermit, ServerBusy> {
        let permit = self.permits.acquire().await;
        permit
            .map(|permit| self.wrap(permit))
            .map_err(|QueueFull| self.busy_error())
    }

    /// Acquires a permit if one is available immediately.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<CallPermit> {
        self.permits.try_acquire().map(|permit| self.wrap(permit))
    }

    fn wrap(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> CallPermit {
        CallPermit {
            _permit: permit,
            activity: Arc::clone(self),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.permits.in_flight()
    }

    /// Waits until no call is in flight, or until the timeout.
    pub(crate) async fn wait_idle(&self, within: Duration) {
        // The caller closes the connection in any case, so a timeout needs no handling.
        let _ = tokio::time::timeout(within, self.permits.wait_idle()).await;
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

    pub(crate) fn busy_error(&self) -> ServerBusy {
        ServerBusy {
            in_flight: self.in_flight(),
            waiting: self.permits.waiting(),
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
        let first = activity.acquire().await.unwrap();
        assert_eq!(activity.in_flight(), 1);
        assert_eq!(activity.idle_for(), Duration::ZERO);
        let mut second = Box::pin(activity.acquire());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(
            activity.acquire().await.unwrap_err(),
            ServerBusy {
                in_flight: 1,
                waiting: 1
            }
        );
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(activity.permits.waiting(), 0);
        drop(second);
        activity.wait_idle(Duration::from_secs(5)).await;
        assert_eq!(activity.in_flight(), 0);
    }
}

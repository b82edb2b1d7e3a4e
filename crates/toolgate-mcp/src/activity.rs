//! The calls under way at one server: how many may be, how many may wait, and since when none is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use toolgate_core::config::Care;

/// Counts and bounds the calls of one server.
#[derive(Debug)]
pub(crate) struct Activity {
    places: Arc<Semaphore>,
    size: usize,
    waiting: AtomicUsize,
    max_queue: usize,
    last_used: Mutex<Instant>,
    /// A call wants a server that sleeps.
    pub(crate) wake: Notify,
}

/// A call's place; dropping it lets the next one in.
#[derive(Debug)]
pub struct Turn {
    _permit: OwnedSemaphorePermit,
    activity: Arc<Activity>,
}

/// Too many calls wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{in_flight} calls are under way and {waiting} wait; try again in a moment")]
pub struct Busy {
    pub in_flight: usize,
    pub waiting: usize,
}

impl Activity {
    pub(crate) fn new(care: &Care) -> Self {
        Self {
            places: Arc::new(Semaphore::new(care.max_in_flight)),
            size: care.max_in_flight,
            waiting: AtomicUsize::new(0),
            max_queue: care.max_queue,
            last_used: Mutex::new(Instant::now()),
            wake: Notify::new(),
        }
    }

    /// Takes a place, or waits for one as long as the queue is not full.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Turn, Busy> {
        if let Some(turn) = self.try_enter() {
            return Ok(turn);
        }
        let queued = Queued::enter(self)?;
        let permit = Arc::clone(&self.places).acquire_owned().await;
        drop(queued);
        // The semaphore is never closed.
        permit
            .map(|permit| self.turn(permit))
            .map_err(|_| self.busy())
    }

    /// Takes a place if one is free.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Turn> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(self.turn(permit))
    }

    fn turn(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Turn {
        Turn {
            _permit: permit,
            activity: Arc::clone(self),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.size - self.places.available_permits()
    }

    /// Waits, at most for a while, until no call is under way.
    pub(crate) async fn quiet(&self, within: Duration) {
        let all = u32::try_from(self.size).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(within, self.places.acquire_many(all)).await;
    }

    /// How long no call has been under way.
    pub(crate) fn idle_for(&self) -> Duration {
        match self.in_flight() {
            0 => self
                .last_used
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Counts as used now.
    pub(crate) fn touch(&self) {
        *self
            .last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn busy(&self) -> Busy {
        Busy {
            in_flight: self.in_flight(),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.activity.touch();
    }
}

/// One who waits; leaves the queue when dropped.
struct Queued<'a>(&'a Activity);

impl<'a> Queued<'a> {
    fn enter(activity: &'a Activity) -> Result<Self, Busy> {
        let entered =
            activity
                .waiting
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                    (waiting < activity.max_queue).then_some(waiting + 1)
                });
        entered.map(|_| Self(activity)).map_err(|_| activity.busy())
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bounded_number_runs_a_bounded_number_waits() {
        let care = Care {
            max_in_flight: 1,
            max_queue: 1,
            ..Care::default()
        };
        let activity = Arc::new(Activity::new(&care));
        let first = activity.enter().await.unwrap();
        assert_eq!(activity.in_flight(), 1);
        assert_eq!(activity.idle_for(), Duration::ZERO);
        let mut second = Box::pin(activity.enter());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(
            activity.enter().await.unwrap_err(),
            Busy {
                in_flight: 1,
                waiting: 1
            }
        );
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(activity.waiting.load(Ordering::Relaxed), 0);
        drop(second);
        activity.quiet(Duration::from_secs(5)).await;
        assert_eq!(activity.in_flight(), 0);
    }
}

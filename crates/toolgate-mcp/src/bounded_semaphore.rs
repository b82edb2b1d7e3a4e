//! A semaphore that limits how much work is in flight and how much may wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A semaphore with a bounded queue.
#[derive(Debug)]
pub struct BoundedSemaphore {
    permits: Arc<Semaphore>,
    size: usize,
    waiting: AtomicUsize,
    max_waiting: usize,
}

/// Error returned when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

impl BoundedSemaphore {
    /// Creates a semaphore with `size` permits, for which at most `max_waiting` may queue.
    pub fn new(size: usize, max_waiting: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(size)),
            size,
            waiting: AtomicUsize::new(0),
            max_waiting,
        }
    }

    /// Acquires a permit, waiting for one unless the queue is full.
    pub async fn acquire(&self) -> Result<OwnedSemaphorePermit, QueueFull> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        let _queued = QueueSlot::enter(self)?;
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        // The semaphore is never closed.
        permit.map_err(|_| QueueFull)
    }

    /// Acquires a permit if one is available immediately.
    pub fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits until all permits are free.
    pub async fn wait_idle(&self) {
        let all = u32::try_from(self.size).unwrap_or(u32::MAX);
        // The permits are released at once.
        drop(self.permits.acquire_many(all).await);
    }

    /// Returns the number of permits.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of permits in use.
    pub fn in_flight(&self) -> usize {
        self.size - self.permits.available_permits()
    }

    /// Returns how many wait for a permit.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A place in the queue, released on drop.
struct QueueSlot<'a>(&'a BoundedSemaphore);

impl<'a> QueueSlot<'a> {
    fn enter(semaphore: &'a BoundedSemaphore) -> Result<Self, QueueFull> {
        let join = |waiting: usize| (waiting < semaphore.max_waiting).then_some(waiting + 1);
        let joined = semaphore
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, join);
        joined.map(|_| Self(semaphore)).map_err(|_| QueueFull)
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permits_and_queue_length_are_limited() {
        let semaphore = BoundedSemaphore::new(1, 1);
        let first = semaphore.acquire().await.unwrap();
        let mut second = Box::pin(semaphore.acquire());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!((semaphore.in_flight(), semaphore.waiting()), (1, 1));
        assert_eq!(semaphore.acquire().await.unwrap_err(), QueueFull);
        // A dropped waiter leaves the queue.
        drop(second);
        assert_eq!(semaphore.waiting(), 0);
        let mut second = Box::pin(semaphore.acquire());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        let second = second.await.unwrap();
        assert_eq!((semaphore.in_flight(), semaphore.waiting()), (1, 0));
        drop(second);
        semaphore.wait_idle().await;
        assert_eq!(semaphore.in_flight(), 0);
    }
}

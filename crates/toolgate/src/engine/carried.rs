//! A call under way, carried by whoever waits for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Work that somebody waits for. Whoever drops it cancels it, and it comes to its end without them.
///
/// A task of its own would do as much, and would wake another thread for most calls.
pub(super) struct Carried<T: Send + 'static> {
    /// None once it has ended.
    work: Option<BoxFuture<'static, T>>,
    cancel: CancellationToken,
    /// Its place among what is under way.
    place: TaskTrackerToken,
    runtime: Handle,
}

impl<T: Send + 'static> Carried<T> {
    pub(super) fn new(
        work: BoxFuture<'static, T>,
        cancel: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        Self {
            work: Some(work),
            cancel,
            place: tasks.token(),
            runtime: Handle::current(),
        }
    }
}

impl<T: Send + 'static> Future for Carried<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out meanwhile, so that one that panics is not gone on with.
        let Some(mut work) = self.work.take() else {
            return Poll::Pending;
        };
        let answer = work.as_mut().poll(context);
        if answer.is_pending() {
            self.work = Some(work);
        }
        answer
    }
}

impl<T: Send + 'static> Drop for Carried<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.cancel.cancel();
            self.place.task_tracker().spawn_on(work, &self.runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_carries_it() {
        let tasks = TaskTracker::new();
        let work = Box::pin(async {
            tokio::task::yield_now().await;
            tokio::task::try_id()
        });
        let waiting = TaskTracker::new();
        let waiter = waiting.spawn(async move {
            let carried = Carried::new(work, CancellationToken::new(), &tasks);
            assert_eq!(tasks.len(), 1, "it is under way");
            (carried.await, tokio::task::try_id(), tasks.len())
        });
        let (carrier, own, left) = waiter.await.unwrap();
        assert!(carrier.is_some());
        assert_eq!(carrier, own);
        assert_eq!(left, 0);
    }

    #[tokio::test]
    async fn what_panics_is_not_gone_on_with() {
        let tasks = TaskTracker::new();
        let work = Box::pin(async { panic!("as it should") });
        let carried: Carried<()> = Carried::new(work, CancellationToken::new(), &tasks);
        assert!(AssertUnwindSafe(carried).catch_unwind().await.is_err());
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn what_is_dropped_is_cancelled_and_comes_to_its_end() {
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let closed = Arc::new(AtomicBool::new(false));
        let work = {
            let (cancel, closed) = (cancel.clone(), Arc::clone(&closed));
            Box::pin(async move {
                cancel.cancelled().await;
                tokio::task::yield_now().await;
                closed.store(true, Ordering::Relaxed);
            })
        };
        let carried = Carried::new(work, cancel, &tasks);
        assert!(carried.now_or_never().is_none());
        assert!(!closed.load(Ordering::Relaxed));
        tasks.close();
        tasks.wait().await;
        assert!(closed.load(Ordering::Relaxed));
    }
}

//! Runs a call inside the future that awaits it, and finishes it in the background once that future
//! is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Work polled by its caller. Dropping it cancels the work and spawns it to completion, so that it
/// can still clean up.
///
/// Spawning a task for every call would have the same effect, but would wake another thread for
/// most calls.
pub(super) struct CancelOnDrop<T: Send + 'static> {
    /// `None` once the work has finished.
    work: Option<BoxFuture<'static, T>>,
    cancel: CancellationToken,
    /// Keeps the tracker waiting while the work is in flight.
    token: TaskTrackerToken,
    runtime: Handle,
}

impl<T: Send + 'static> CancelOnDrop<T> {
    pub(super) fn new(
        work: BoxFuture<'static, T>,
        cancel: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        Self {
            work: Some(work),
            cancel,
            token: tasks.token(),
            runtime: Handle::current(),
        }
    }
}

impl<T: Send + 'static> Future for CancelOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out while polling, so that work that panics is not polled again by `drop`.
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

impl<T: Send + 'static> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.cancel.cancel();
            self.token.task_tracker().spawn_on(work, &self.runtime);
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
    async fn work_runs_in_the_task_that_awaits_it() {
        let tasks = TaskTracker::new();
        let work = Box::pin(async {
            tokio::task::yield_now().await;
            tokio::task::try_id()
        });
        let waiting = TaskTracker::new();
        let waiter = waiting.spawn(async move {
            let call = CancelOnDrop::new(work, CancellationToken::new(), &tasks);
            assert_eq!(tasks.len(), 1, "in flight");
            (call.await, tokio::task::try_id(), tasks.len())
        });
        let (work_task, waiter_task, remaining) = waiter.await.unwrap();
        assert!(work_task.is_some());
        assert_eq!(work_task, waiter_task);
        assert_eq!(remaining, 0);
    }

    #[tokio::test]
    async fn panicking_work_is_not_polled_again() {
        let tasks = TaskTracker::new();
        let work = Box::pin(async { panic!("expected") });
        let call: CancelOnDrop<()> = CancelOnDrop::new(work, CancellationToken::new(), &tasks);
        assert!(AssertUnwindSafe(call).catch_unwind().await.is_err());
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn dropping_cancels_the_work_and_lets_it_finish() {
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
        let call = CancelOnDrop::new(work, cancel, &tasks);
        assert!(call.now_or_never().is_none());
        assert!(!closed.load(Ordering::Relaxed));
        tasks.close();
        tasks.wait().await;
        assert!(closed.load(Ordering::Relaxed));
    }
}

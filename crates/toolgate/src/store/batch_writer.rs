//! A task that writes queued items in batches, so that callers do not wait for the disk.
//!
//! The queue is bounded: an item that does not fit is dropped, counted and handed back. A batch that
//! cannot be written is retried until it can. Stopping the writer writes all queued items.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::StoreError;

/// Delay before an item is written, unless the sink says otherwise.
pub(crate) const BATCH_DELAY: Duration = Duration::from_millis(50);
/// Delay before retrying a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Destination of the batches of a [`BatchWriter`].
pub(crate) trait BatchSink: Send + Sync + 'static {
    type Item: Send + 'static;
    /// Items made ready for writing. It is dropped once they are written or given up.
    type Batch: Send + Sync;

    /// Returns how long the first item of a batch waits for others.
    fn delay(&self) -> Duration {
        BATCH_DELAY
    }

    fn prepare(&self, items: Vec<Self::Item>) -> Self::Batch;

    /// Writes a batch, all or nothing. The outcome of a failed write may be unknown, so a retry must
    /// not write a second time what is there already.
    fn write(
        &self,
        batch: &Self::Batch,
        attempt: WriteAttempt,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Whether a batch is written for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAttempt {
    First,
    Retry,
}

/// Limits of a [`BatchWriter`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSettings {
    /// Name of the items in logs.
    pub(crate) kind: &'static str,
    pub(crate) max_queued: usize,
    pub(crate) max_batch: usize,
}

/// An item that was not queued.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct DroppedItem<T> {
    pub(crate) item: T,
    pub(crate) reason: DropReason,
    /// Items dropped since the writer started, including this one.
    pub(crate) dropped: u64,
}

/// Reason why an item was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DropReason {
    #[error("the write queue is full")]
    QueueFull,
    #[error("the gateway has stopped")]
    Stopped,
}

/// Handle of the task.
#[derive(Debug)]
pub(crate) struct BatchWriter<T> {
    queue: mpsc::Sender<T>,
    dropped: AtomicU64,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl<T: Send + 'static> BatchWriter<T> {
    pub(crate) fn start<S: BatchSink<Item = T>>(sink: S, settings: BatchSettings) -> Self {
        let (queue, inbox) = mpsc::channel(settings.max_queued);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let task = WriteTask {
            sink,
            settings,
            stop: stop.clone(),
        };
        tasks.spawn(task.run(inbox));
        tasks.close();
        Self {
            queue,
            dropped: AtomicU64::new(0),
            tasks,
            stop,
        }
    }

    /// Queues an item for writing.
    pub(crate) fn enqueue(&self, item: T) -> Result<(), DroppedItem<T>> {
        self.queue.try_send(item).map_err(|error| {
            let (item, reason) = match error {
                TrySendError::Full(item) => (item, DropReason::QueueFull),
                TrySendError::Closed(item) => (item, DropReason::Stopped),
            };
            DroppedItem {
                item,
                reason,
                dropped: self.dropped.fetch_add(1, Ordering::Relaxed) + 1,
            }
        })
    }

    /// Stops the task after it has written all queued items.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

struct WriteTask<S> {
    sink: S,
    settings: BatchSettings,
    stop: CancellationToken,
}

impl<S: BatchSink> WriteTask<S> {
    /// Writes items until `stop` is cancelled, then writes the remaining ones.
    async fn run(self, mut inbox: mpsc::Receiver<S::Item>) {
        loop {
            let mut items = Vec::new();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                received = inbox.recv_many(&mut items, self.settings.max_batch) => {
                    if received == 0 {
                        return;
                    }
                }
            }
            self.collect(&mut items, &mut inbox).await;
            self.write(items).await;
        }
        inbox.close();
        let mut rest = Vec::new();
        while let Ok(item) = inbox.try_recv() {
            rest.push(item);
        }
        self.write(rest).await;
    }

    /// Fills a batch with the items that arrive shortly after the first. Sleeping instead of receiving
    /// avoids a wakeup per item.
    async fn collect(&self, items: &mut Vec<S::Item>, inbox: &mut mpsc::Receiver<S::Item>) {
        if items.len() < self.settings.max_batch {
            self.sleep_until_stop(self.sink.delay()).await;
        }
        while items.len() < self.settings.max_batch
            && let Ok(item) = inbox.try_recv()
        {
            items.push(item);
        }
    }

    async fn write(&self, items: Vec<S::Item>) {
        if items.is_empty() {
            return;
        }
        let kind = self.settings.kind;
        let count = items.len();
        let batch = self.sink.prepare(items);
        let mut attempt = WriteAttempt::First;
        while let Err(error) = self.sink.write(&batch, attempt).await {
            if attempt == WriteAttempt::Retry && self.stop.is_cancelled() {
                tracing::error!(%error, kind, count, "stopping without having written records");
                return;
            }
            tracing::error!(%error, kind, count, "failed to write records; retrying");
            attempt = WriteAttempt::Retry;
            self.sleep_until_stop(RETRY_DELAY).await;
        }
    }

    async fn sleep_until_stop(&self, duration: Duration) {
        tokio::select! {
            () = tokio::time::sleep(duration) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tokio::sync::Semaphore;

    use super::*;

    /// Fails the first writes, then keeps the batches. Each write needs a permit.
    #[derive(Clone)]
    struct FakeSink {
        failures: Arc<AtomicU64>,
        permits: Arc<Semaphore>,
        batches: Arc<Mutex<Vec<Vec<u32>>>>,
    }

    impl FakeSink {
        fn new(failures: u64, permits: usize) -> Self {
            Self {
                failures: Arc::new(AtomicU64::new(failures)),
                permits: Arc::new(Semaphore::new(permits)),
                batches: Arc::default(),
            }
        }

        fn written(&self) -> Vec<u32> {
            self.batches.lock().concat()
        }
    }

    impl BatchSink for FakeSink {
        type Item = u32;
        type Batch = Vec<u32>;

        fn prepare(&self, items: Vec<u32>) -> Vec<u32> {
            items
        }

        async fn write(&self, batch: &Vec<u32>, _: WriteAttempt) -> Result<(), StoreError> {
            self.permits.acquire().await.unwrap().forget();
            let count = |left: u64| left.checked_sub(1);
            let failed = self
                .failures
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
            if failed.is_ok() {
                return Err(StoreError::SealFailed);
            }
            self.batches.lock().push(batch.clone());
            Ok(())
        }
    }

    fn settings() -> BatchSettings {
        BatchSettings {
            kind: "test",
            max_queued: 4,
            max_batch: 2,
        }
    }

    #[tokio::test]
    async fn stop_writes_everything_in_order() {
        let sink = FakeSink::new(0, 10);
        let writer = BatchWriter::start(sink.clone(), settings());
        for item in 0..4 {
            writer.enqueue(item).unwrap();
        }
        writer.stop().await;
        assert_eq!(sink.written(), [0, 1, 2, 3]);
        let dropped = writer.enqueue(4).unwrap_err();
        let expected = (4, DropReason::Stopped, 1);
        assert_eq!((dropped.item, dropped.reason, dropped.dropped), expected);
    }

    #[tokio::test]
    async fn items_beyond_the_queue_are_dropped_and_counted() {
        let sink = FakeSink::new(0, 0);
        let writer = BatchWriter::start(sink.clone(), settings());
        // The task has not run yet, so that the queue is full.
        let dropped: Vec<_> = (0..6)
            .filter_map(|item| writer.enqueue(item).err())
            .collect();
        let dropped: Vec<_> = dropped
            .iter()
            .map(|dropped| (dropped.item, dropped.reason, dropped.dropped))
            .collect();
        let full = DropReason::QueueFull;
        assert_eq!(dropped, [(4, full, 1), (5, full, 2)]);
        sink.permits.add_permits(10);
        writer.stop().await;
        assert_eq!(sink.written(), [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn failed_batches_are_retried() {
        let sink = FakeSink::new(1, 10);
        let writer = BatchWriter::start(sink.clone(), settings());
        writer.enqueue(0).unwrap();
        writer.enqueue(1).unwrap();
        toolgate_testkit::eventually(
            "the first write fails",
            Duration::from_secs(5),
            async || (sink.failures.load(Ordering::Relaxed) == 0).then_some(()),
        )
        .await;
        writer.enqueue(2).unwrap();
        writer.stop().await;
        assert_eq!(sink.written(), [0, 1, 2]);
    }
}

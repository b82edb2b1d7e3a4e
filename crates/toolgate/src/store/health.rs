//! Whether the store can be written. While it cannot, changes and calls are refused instead of being
//! acknowledged and lost.
//!
//! A failed write marks the store. Only a probe clears the mark: a value written and committed through
//! the writer and read back through a separate connection.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::writer::Durability;
use super::{Store, StoreError, clock};

/// Interval between probes while writes succeed.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between probes while writes fail.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(500);

/// Shared state; clones share it.
#[derive(Clone, Debug)]
pub(super) struct StoreHealth(Arc<watch::Sender<Option<Arc<str>>>>);

/// Task that probes the store at intervals.
#[derive(Debug)]
pub(crate) struct StoreMonitor {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl StoreHealth {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Returns why the store cannot be written, if it cannot.
    pub(super) fn problem(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.0.subscribe()
    }

    /// Returns an error if the store cannot be written.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.problem() {
            Some(reason) => Err(StoreError::NotWritable(reason)),
            None => Ok(()),
        }
    }

    /// Passes on the result of a write. A failure that concerns the whole store marks it.
    pub(super) fn observe<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result
            && error.is_write_failure()
        {
            self.mark(error);
        }
        result
    }

    fn mark(&self, error: &StoreError) {
        let reason: Arc<str> = error.to_string().into();
        let is_new = self.0.send_if_modified(|problem| {
            let is_new = problem.is_none();
            *problem = Some(Arc::clone(&reason));
            is_new
        });
        if is_new {
            tracing::error!(%error, "the store cannot be written; refusing changes and calls until it can");
        }
    }

    fn clear(&self) {
        let was_marked = self.0.send_if_modified(|problem| problem.take().is_some());
        if was_marked {
            tracing::info!("the store can be written again");
        }
    }
}

impl StoreMonitor {
    pub(crate) fn start(store: Store) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(probe_until_stopped(store, stop.clone()));
        tasks.close();
        Self { tasks, stop }
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for StoreMonitor {
    fn drop(&mut self) {
        // The task shares the store, which would otherwise never be closed.
        self.stop.cancel();
    }
}

async fn probe_until_stopped(store: Store, stop: CancellationToken) {
    let mut problems = store.health.subscribe();
    loop {
        let probed = tokio::select! {
            () = stop.cancelled() => return,
            probed = store.probe() => probed,
        };
        match store.health.observe(probed) {
            Ok(()) => store.health.clear(),
            Err(error) => tracing::debug!(%error, "the store still cannot be written"),
        }
        let interval = match *problems.borrow_and_update() {
            Some(_) => RECOVERY_INTERVAL,
            None => PROBE_INTERVAL,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
            // A write failed: find out soon whether the next one works.
            _ = problems.changed() => {}
        }
    }
}

impl Store {
    /// Writes a value and reads it back through another connection. The value is the latest time seen,
    /// which the store has to remember anyway.
    async fn probe(&self) -> Result<(), StoreError> {
        let written = clock::now().to_string();
        let mut transaction = self.writer.begin_unchecked(Durability::Disk).await?;
        sqlx::query(
            "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )
        .bind(clock::LATEST_TIME_KEY)
        .bind(&written)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        let row = sqlx::query("SELECT value FROM meta WHERE key = $1")
            .bind(clock::LATEST_TIME_KEY)
            .fetch_optional(self.readers())
            .await?;
        let read: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        // Another probe, of a second handle of the same store, may have written a later time.
        if read.is_some_and(|read| read >= written) {
            Ok(())
        } else {
            Err(StoreError::NotWritable(
                "a committed write cannot be read back".into(),
            ))
        }
    }
}

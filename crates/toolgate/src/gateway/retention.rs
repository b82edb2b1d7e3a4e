//! The task that deletes expired records, approvals, runs and what belongs to them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Runs;
use crate::approval::ApprovalService;
use crate::audit::AuditLog;
use crate::code_mode::delete_expired_scripts;
use crate::models::Models;
use crate::store::{Store, StoreError, clock};

/// Interval between deletions by age.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval between checks of the size of the audit trail.
const SIZE_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum age of agent runs, and of scripts, which are only useful with them.
const JOURNAL_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum age of the ids of responses. OpenAI stores a response for that long.
const RESPONSE_ID_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Owners of data that expires.
#[derive(Debug)]
pub(super) struct ExpiringData {
    pub(super) audit: AuditLog,
    pub(super) approvals: ApprovalService,
    pub(super) models: Models,
    pub(super) runs: Runs,
    /// Holds suspended scripts.
    pub(super) store: Store,
}

/// Handle to the task.
#[derive(Debug)]
pub(super) struct RetentionTask {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl RetentionTask {
    pub(super) fn start(data: ExpiringData) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(sweep_until_stopped(data, stop.clone()));
        tasks.close();
        Self { tasks, stop }
    }

    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for RetentionTask {
    fn drop(&mut self) {
        // The task shares the gateway's components, which would otherwise never be dropped.
        self.stop.cancel();
    }
}

async fn sweep_until_stopped(data: ExpiringData, stop: CancellationToken) {
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    let mut size_check = tokio::time::interval(SIZE_CHECK_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = sweep.tick() => data.delete_expired().await,
            _ = size_check.tick() => data.enforce_max_size().await,
        }
    }
}

impl ExpiringData {
    async fn delete_expired(&self) {
        let Some(retention) = self.audit.retention() else {
            return;
        };
        let now = clock::now();
        let millis = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let before = now - millis(retention);
        log_deleted_records(self.audit.delete_expired(before).await);
        let journals_before = now - millis(JOURNAL_RETENTION.min(retention));
        let others = [
            (
                "model records",
                self.models.delete_records(Some(before)).await,
            ),
            ("approvals", self.approvals.delete_closed(before).await),
            ("runs", self.runs.delete_expired(journals_before).await),
            (
                "response ids",
                self.models
                    .delete_response_ids(now - millis(RESPONSE_ID_RETENTION))
                    .await,
            ),
            (
                "scripts",
                delete_expired_scripts(&self.store, journals_before).await,
            ),
        ];
        for (what, deleted) in others {
            if let Err(error) = deleted {
                tracing::error!(%error, what, "failed to delete expired data");
            }
        }
    }

    async fn enforce_max_size(&self) {
        let Some(deleted) = self.audit.enforce_max_size().await.transpose() else {
            return;
        };
        log_deleted_records(deleted);
        if let Err(error) = self.models.delete_records(None).await {
            tracing::error!(%error, "failed to delete the oldest model records");
        }
    }
}

fn log_deleted_records(deleted: Result<u64, StoreError>) {
    match deleted {
        Ok(0) => {}
        Ok(deleted) => tracing::info!(deleted, "deleted the oldest audit records"),
        Err(error) => tracing::error!(%error, "failed to delete the oldest audit records"),
    }
}

//! Decisions that approvers made apart from the run, on the page or over the API. A resumed run uses them, and a
//! run may continue by itself once all its calls are decided (`resume_on_approval`).

use std::sync::{Arc, Weak};

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use toolgate_llm::prompt::RequestedToolCall;

use super::replay::Replay;
use super::resume::{CallDecision, ResumeError, ResumeRequest, ResumeTrigger, start_resumed};
use super::runs::{Inner, RunQuery, Runs};
use super::{RunRecord, RunState, RunStopReason};
use crate::approval::{Approval, ApprovalState};
use crate::store::{StoreError, clock};

/// What approvers have said about a call.
pub(super) enum EarlierDecision {
    Made(CallDecision),
    /// The approval with this id is still open.
    Open(String),
    /// The call needs no approver, or nobody decided in time.
    None,
}

/// Waiting runs that are looked at when the gateway starts.
const MAX_SWEPT_RUNS: usize = 1000;

impl RunRecord {
    /// Returns whether the run ended because its calls need approval.
    pub(super) fn awaits_approval(&self) -> bool {
        let reason = RunStopReason::NeedsApproval.as_str();
        self.state == RunState::Waiting && self.stop_reason.as_deref() == Some(reason)
    }
}

impl Runs {
    /// Returns the decision that approvers have made about a call.
    pub(super) async fn earlier_decision(
        &self,
        call: &RequestedToolCall,
        replay: &Replay,
    ) -> Result<EarlierDecision, StoreError> {
        let ids = replay.approvals.get(&call.id);
        let Some(ids) = ids.filter(|ids| !ids.is_empty()) else {
            return Ok(EarlierDecision::None);
        };
        for id in ids {
            let approval = self.engine().approval(id).await?;
            let Some(approval) = approval.filter(|approval| approval.expires_at > clock::now())
            else {
                return Ok(EarlierDecision::None);
            };
            match approval.state {
                ApprovalState::Approved => {}
                ApprovalState::Denied => {
                    let reason = approval.decision.and_then(|decision| decision.reason);
                    return Ok(EarlierDecision::Made(CallDecision::Deny { reason }));
                }
                ApprovalState::Pending => return Ok(EarlierDecision::Open(approval.id)),
                _ => return Ok(EarlierDecision::None),
            }
        }
        let approve = CallDecision::Approve { arguments: None };
        Ok(EarlierDecision::Made(approve))
    }

    /// Resumes waiting runs as their calls are decided, until the gateway stops.
    pub(crate) fn watch_approvals(&self) {
        let events = self.engine().subscribe_approvals();
        let stop = self.stop_token().clone();
        // The task must not keep a gateway alive that is dropped without being stopped.
        let work = watch(self.downgrade(), events);
        self.tasks().spawn(async move {
            stop.run_until_cancelled(work).await;
        });
    }

    /// Resumes a run in the background if all its calls are decided and its settings allow that.
    pub(super) fn resume_if_decided(&self, id: &str) {
        let (runs, id) = (self.clone(), id.to_owned());
        self.tasks().spawn(async move {
            let request = ResumeRequest {
                decided_by: "resume_on_approval".to_owned(),
                stream: Some(false),
                ..ResumeRequest::default()
            };
            let started = start_resumed(&runs, &id, request, ResumeTrigger::Decision).await;
            let resumed = match started {
                Ok(started) => started.response(&id).await.map(drop),
                Err(error) => Err(error),
            };
            match resumed {
                Ok(()) => tracing::info!(run = id, "resumed run after its calls were decided"),
                Err(
                    error @ (ResumeError::Undecided(_)
                    | ResumeError::NeedsApprover { .. }
                    | ResumeError::AwaitsCaller(_)
                    | ResumeError::NotResumable { .. }
                    | ResumeError::Unknown(_)),
                ) => tracing::debug!(run = id, %error, "run is not resumed"),
                Err(error) => tracing::warn!(run = id, %error, "failed to resume run"),
            }
        });
    }

    /// Resumes runs whose calls were decided while nobody was watching.
    async fn resume_decided_runs(&self) {
        let query = RunQuery {
            state: Some(RunState::Waiting.as_str().to_owned()),
            limit: MAX_SWEPT_RUNS,
            ..RunQuery::default()
        };
        match self.list(&query).await {
            Ok(runs) => {
                for run in runs.iter().filter(|run| run.awaits_approval()) {
                    self.resume_if_decided(&run.id);
                }
            }
            Err(error) => tracing::error!(%error, "failed to look for runs to resume"),
        }
    }
}

async fn watch(runs: Weak<Inner>, mut events: Receiver<Arc<Approval>>) {
    if let Some(runs) = Runs::upgrade(&runs) {
        runs.resume_decided_runs().await;
    }
    loop {
        let event = events.recv().await;
        let Some(runs) = Runs::upgrade(&runs) else {
            return;
        };
        match event {
            Ok(approval) => {
                let is_decided = matches!(
                    approval.state,
                    ApprovalState::Approved | ApprovalState::Denied
                );
                if let Some(run) = approval.request.from.run_id.as_ref().filter(|_| is_decided) {
                    runs.resume_if_decided(run);
                }
            }
            Err(RecvError::Lagged(_)) => runs.resume_decided_runs().await,
            Err(RecvError::Closed) => return,
        }
    }
}

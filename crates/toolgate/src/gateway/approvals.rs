//! Handle for approvals and permanent grants.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::Inner;
use crate::approval::{
    Approval, ApprovalGrant, ApprovalState, DecideError, Decider, DecisionTerms, Ruling,
};
use crate::engine::is_undecidable;
use crate::store::StoreError;

/// Pending approvals that are looked at when the configuration changes; there are never more.
const MAX_SWEPT_APPROVALS: usize = 1000;

/// Handle for the approvals of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Approvals<'a>(&'a Inner);

impl<'a> Approvals<'a> {
    pub(super) fn new(gateway: &'a Inner) -> Self {
        Self(gateway)
    }

    /// Returns approvals, oldest first. Pending ones that nobody can decide any more are ended.
    pub async fn list(
        self,
        state: Option<ApprovalState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        loop {
            let mut approvals = self.0.approvals.list(state, after, limit).await?;
            for approval in &mut approvals {
                *approval = self.refresh(approval.clone()).await?;
            }
            // Those that have just ended make room for others on the page.
            if approvals
                .iter()
                .all(|approval| state.is_none_or(|state| state == approval.state))
            {
                return Ok(approvals);
            }
        }
    }

    /// Counts the approvals that wait for a decision, also for the metrics.
    pub async fn count_waiting(self) -> Result<i64, StoreError> {
        let waiting = self.0.approvals.count_waiting().await?;
        self.0.metrics.set_waiting_approvals(waiting);
        Ok(waiting)
    }

    /// Returns an approval by id.
    pub async fn get(self, id: &str) -> Result<Option<Approval>, StoreError> {
        match self.0.approvals.get(id).await? {
            Some(approval) => Ok(Some(self.refresh(approval).await?)),
            None => Ok(None),
        }
    }

    /// Decides on a pending approval. Fails if the tool has changed since the call, or if edited
    /// arguments do not fit its schema. Edited arguments are converted like those of a call.
    pub async fn decide(
        self,
        id: &str,
        mut ruling: Ruling,
        by: &Decider,
    ) -> Result<Approval, DecideError> {
        let approval = self.get(id).await?;
        let approval = approval.ok_or_else(|| DecideError::NotFound(id.to_owned()))?;
        let engine = &self.0.engine;
        if let Ruling::Approve { arguments, .. } = &mut ruling
            && approval.state == ApprovalState::Pending
        {
            *arguments = engine.check_ruling(&approval.request, arguments.take())?;
        }
        let terms = DecisionTerms {
            approvers: approval.request.approvers,
            expiry: engine.approval_settings().expiry,
        };
        self.0.approvals.decide(id, ruling, by, terms).await
    }

    /// Ends the pending approvals that nobody can decide under a changed configuration.
    pub(super) async fn end_undecidable(self) {
        let pending = Some(ApprovalState::Pending);
        if let Err(error) = self.list(pending, None, MAX_SWEPT_APPROVALS).await {
            tracing::error!(%error, "failed to look for approvals that nobody can decide");
        }
    }

    /// Brings a pending approval up to date with the configuration in force.
    async fn refresh(self, mut approval: Approval) -> Result<Approval, StoreError> {
        if approval.state != ApprovalState::Pending {
            return Ok(approval);
        }
        let approvers = self.0.engine.current_approvers(&approval.request);
        if is_undecidable(&approval.request, approvers) {
            return self.0.approvals.expire_undecidable(approval).await;
        }
        approval.request.approvers = approvers;
        Ok(approval)
    }

    /// Subscribes to approvals, published when they are created or change their state.
    pub fn subscribe(self) -> broadcast::Receiver<Arc<Approval>> {
        self.0.approvals.subscribe()
    }

    /// Returns all permanent grants, oldest first.
    pub async fn grants(self) -> Result<Vec<ApprovalGrant>, StoreError> {
        self.0.approvals.grants().await
    }

    /// Revokes a permanent grant; returns `false` if it does not exist.
    pub async fn revoke_grant(self, id: &str, by: &Decider) -> Result<bool, StoreError> {
        self.0.approvals.revoke_grant(id, by).await
    }

    /// Returns the time that a call of an MCP client waits for its approval.
    pub(crate) fn wait_time(self) -> Duration {
        self.0.engine.approval_settings().wait
    }
}

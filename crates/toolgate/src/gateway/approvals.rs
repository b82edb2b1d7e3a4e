//! Handle for approvals and permanent grants.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::Inner;
use crate::approval::{Approval, ApprovalGrant, ApprovalState, DecideError, Decider, Ruling};
use crate::store::StoreError;

/// Handle for the approvals of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Approvals<'a>(&'a Inner);

impl<'a> Approvals<'a> {
    pub(super) fn new(gateway: &'a Inner) -> Self {
        Self(gateway)
    }

    /// Returns approvals, oldest first.
    pub async fn list(
        self,
        state: Option<ApprovalState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        self.0.approvals.list(state, after, limit).await
    }

    /// Returns an approval by id.
    pub async fn get(self, id: &str) -> Result<Option<Approval>, StoreError> {
        self.0.approvals.get(id).await
    }

    /// Decides on a pending approval. Fails if the tool has changed since the call, or if edited
    /// arguments do not fit its schema.
    pub async fn decide(
        self,
        id: &str,
        ruling: Ruling,
        by: &Decider,
    ) -> Result<Approval, DecideError> {
        if let Ruling::Approve { arguments, .. } = &ruling
            && let Some(approval) = self.get(id).await?
            && approval.state == ApprovalState::Pending
        {
            let engine = &self.0.engine;
            engine.check_ruling(&approval.request, arguments.as_ref())?;
        }
        let expiry = self.0.engine.approval_settings().expiry;
        self.0.approvals.decide(id, ruling, by, expiry).await
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

//! An approval claimed by a call.

use tokio::runtime::Handle;

use super::{Approval, ApprovalService, ApprovalState};

/// An approval claimed by a call. Dropping it makes the approval usable again, unless the call may
/// have been sent.
#[derive(Debug)]
pub(crate) struct Ticket {
    service: ApprovalService,
    approval: Box<Approval>,
    /// Whether the call may have reached its tool.
    is_used: bool,
    is_settled: bool,
    /// Closes the approval even if the ticket is dropped outside of the runtime.
    runtime: Handle,
}

impl Ticket {
    pub(super) fn new(service: ApprovalService, approval: Approval) -> Self {
        Self {
            service,
            approval: Box::new(approval),
            is_used: false,
            is_settled: false,
            runtime: Handle::current(),
        }
    }

    pub(crate) fn approval(&self) -> &Approval {
        &self.approval
    }

    /// Marks the ticket as used: the call is about to reach its tool.
    pub(crate) fn mark_used(&mut self) {
        self.is_used = true;
    }

    /// Marks the ticket as unused: the call has not reached its tool, or will be repeated.
    pub(crate) fn mark_unused(&mut self) {
        self.is_used = false;
    }

    /// Ends the approval in the given state if it was used; otherwise makes it usable again.
    pub(crate) async fn settle(mut self, if_used: ApprovalState) {
        self.is_settled = true;
        let approval = (*self.approval).clone();
        let to = if self.is_used {
            if_used
        } else {
            ApprovalState::Approved
        };
        let finished = self.service.finish(approval, to);
        if let Err(error) = finished.await {
            tracing::error!(%error, approval = self.approval.id, "failed to close approval");
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let to = if self.is_used {
            ApprovalState::Unknown
        } else {
            ApprovalState::Approved
        };
        let _guard = self.runtime.enter();
        self.service.finish((*self.approval).clone(), to);
    }
}

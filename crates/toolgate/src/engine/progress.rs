//! What a call holds on its way to its server: its audit record, the approvals that it claimed and the
//! charge to its key's budget.
//!
//! A call that was never sent is not charged and uses up no approval, however it ends: each part gives
//! back what it holds when it is dropped, unless `mark_sent` was called.

use toolgate_core::name::ToolId;

use super::limits::Charge;
use crate::approval::{ApprovalState, Ticket};
use crate::audit::Attempt;
use crate::call::{CallError, UsedApproval};

/// State that outlives the work of a call, which may be cancelled at any await point.
pub(super) struct CallProgress {
    pub(super) attempt: Attempt,
    /// Approvals claimed by the call, of which a fallback may need another one.
    tickets: Vec<Ticket>,
    /// `None` if the key has no budget.
    charge: Option<Charge>,
}

impl CallProgress {
    pub(super) fn new(attempt: Attempt) -> Self {
        Self {
            attempt,
            tickets: Vec::new(),
            charge: None,
        }
    }

    pub(super) fn add_ticket(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }

    /// Takes note of the price of the call and of its charge to a budget.
    pub(super) fn set_charge(&mut self, price: u64, charge: Option<Charge>) {
        self.charge = charge;
        let record = &mut self.attempt.record;
        record.charged = true;
        record.cost_micro_usd = i64::try_from(price).unwrap_or(i64::MAX);
    }

    /// Marks the call as sent: from here on, it may reach the tool.
    pub(super) fn mark_sent(&mut self, tool: &ToolId) {
        self.attempt.mark_sent();
        self.use_tickets(tool);
        if let Some(charge) = &mut self.charge {
            charge.keep();
        }
    }

    /// Marks the call as not sent, since it certainly did not reach the tool.
    pub(super) fn mark_unsent(&mut self, tool: &ToolId) {
        self.attempt.mark_unsent();
        self.keep_tickets(tool);
        if let Some(charge) = self.charge.take() {
            charge.refund();
        }
    }

    /// Uses up the approvals of a tool.
    pub(super) fn use_tickets(&mut self, tool: &ToolId) {
        self.tickets_for(tool).for_each(Ticket::mark_used);
    }

    /// Leaves the approvals of a tool for another call.
    pub(super) fn keep_tickets(&mut self, tool: &ToolId) {
        self.tickets_for(tool).for_each(Ticket::mark_unused);
    }

    fn tickets_for(&mut self, tool: &ToolId) -> impl Iterator<Item = &mut Ticket> {
        let tickets = self.tickets.iter_mut();
        tickets.filter(move |ticket| ticket.approval().request.tool == *tool)
    }

    /// Returns the approval with which a tool ran.
    pub(super) fn used_approval(&self, tool: &ToolId) -> Option<UsedApproval> {
        let mut approvals = self.tickets.iter().map(Ticket::approval);
        let approval = approvals.find(|approval| approval.request.tool == *tool)?;
        Some(UsedApproval {
            id: approval.id.clone(),
            edited: approval.edited.is_some(),
        })
    }

    /// Closes the approvals that the call used and releases the others. Returns the attempt, which
    /// is still to be closed. The answer is `None` if the call panicked.
    pub(super) async fn settle<T>(self, answer: Option<&Result<T, CallError>>) -> Attempt {
        let Self {
            attempt, tickets, ..
        } = self;
        let if_used = match answer {
            Some(Err(error)) if error.is_uncertain() => ApprovalState::Unknown,
            Some(_) => ApprovalState::Done,
            None => ApprovalState::Unknown,
        };
        for ticket in tickets {
            // Boxed, since most calls have none.
            Box::pin(ticket.settle(if_used)).await;
        }
        attempt
    }
}

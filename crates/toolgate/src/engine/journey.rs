//! The way of one call through the engine, from its beginning to the end of its record.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use toolgate_core::name::ToolId;
use toolgate_core::scope::Scope;

use super::Inner;
use super::find::Finder;
use super::limits::Limited;
use super::own::OwnTool;
use super::rules::Rules;
use crate::approval::Approval;
use crate::audit::Attempt;
use crate::call::{Approved, CallError, Outcome, ToolCall};
use crate::caller::Caller;

/// A call on its way, with all that was decided when it began.
pub(super) struct Journey {
    pub(super) caller: Caller,
    pub(super) call: ToolCall,
    pub(super) request_id: String,
    pub(super) rules: Arc<Rules>,
    pub(super) scope: Arc<Scope>,
}

/// How far a call has come; it outlives the call's work, which may be cancelled at any point.
pub(super) struct Progress {
    pub(super) attempt: Attempt,
    /// Approvals that were taken for it.
    pub(super) tickets: Vec<Ticket>,
}

/// An approval that was taken for a call.
pub(super) struct Ticket {
    pub(super) approval: Approval,
    /// Whether the call may have reached its tool.
    pub(super) used: bool,
}

impl Progress {
    /// Notes whether the tickets for a tool are used.
    pub(super) fn uses(&mut self, tool: &ToolId, used: bool) {
        let tickets = self.tickets.iter_mut();
        for ticket in tickets.filter(|ticket| ticket.approval.ask.tool == *tool) {
            ticket.used = used;
        }
    }

    /// The approval with which a tool ran.
    pub(super) fn approved(&self, tool: &ToolId) -> Option<Approved> {
        let mut tickets = self.tickets.iter();
        let ticket = tickets.find(|ticket| ticket.approval.ask.tool == *tool)?;
        Some(Approved {
            id: ticket.approval.id.clone(),
            edited: ticket.approval.edited.is_some(),
        })
    }
}

impl Inner {
    /// Carries a call to its end, whatever that is, and closes its record.
    pub(super) async fn carry(
        self: Arc<Self>,
        caller: Caller,
        call: ToolCall,
        request_id: String,
        (attempt, cancel): (Attempt, CancellationToken),
    ) -> Result<Outcome, CallError> {
        let mut progress = Progress {
            attempt,
            tickets: Vec::new(),
        };
        // It is some KB, which would be moved about several times.
        let work = Box::pin(self.go(caller, call, request_id, &mut progress));
        let work = AssertUnwindSafe(work);
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => Some(Err(CallError::Cancelled)),
            answer = work.catch_unwind() => answer.ok(),
        };
        let Progress { attempt, tickets } = progress;
        let uncertain = match &answer {
            Some(Err(error)) => error.is_uncertain(),
            Some(Ok(_)) => false,
            None => true,
        };
        if !tickets.is_empty() {
            Box::pin(self.settle(tickets, uncertain)).await;
        }
        let panicked = || CallError::Panicked(attempt.record.tool_id_or_own());
        let answer = answer.unwrap_or_else(|| Err(panicked()));
        self.close(attempt, answer)
    }

    /// Uses up the tickets that a call ran with, and gives back the others.
    async fn settle(&self, tickets: Vec<Ticket>, uncertain: bool) {
        let approvals = &self.parts.approvals;
        for Ticket { approval, used } in tickets {
            match (used, uncertain) {
                (true, false) => approvals.done(approval).await,
                (true, true) => approvals.uncertain(approval).await,
                (false, _) => approvals.give_back(approval).await,
            }
        }
    }

    async fn go(
        self: &Arc<Self>,
        caller: Caller,
        call: ToolCall,
        request_id: String,
        progress: &mut Progress,
    ) -> Result<Outcome, CallError> {
        let began = Instant::now();
        let journey = self.begin(caller, call, request_id)?;
        if let Some(own) = self.own_tool(&journey) {
            progress.attempt.about(&own.id());
            // Boxed, as all that is rare, so that it does not make every call larger.
            let result = Box::pin(self.run_own(&journey, own, &mut progress.attempt.record));
            let result = result.await?;
            let (result, handle) = match own {
                OwnTool::ReadResult => (result, None),
                OwnTool::ListResources | OwnTool::ReadResource | OwnTool::Code(_) => {
                    self.bounded(&journey, result)
                }
            };
            return Ok(Outcome {
                handle,
                ..Outcome::new(own.id(), result, began)
            });
        }
        let ToolCall { name, server, .. } = &journey.call;
        let target = self.finder(&journey).find(name, server.as_ref())?;
        let arguments = journey.call.arguments.clone();
        let run = self.clear(&journey, target, arguments, progress).await?;
        let (id, arguments) = (run.target.entry.tool.id.clone(), run.arguments.clone());
        let is_stand_in = run.target.instead_of.is_some();
        let answer = self.send(&journey, run, began, progress).await;
        let away = answer
            .as_ref()
            .is_err_and(|error| error.is_not_sent() && !matches!(error, CallError::Busy { .. }));
        if is_stand_in || !away {
            return answer;
        }
        match self.finder(&journey).stand_in(&id) {
            Some(target) => {
                // With the arguments that were cleared, which an approver may have edited.
                let run = self.clear(&journey, target, Ok(arguments), progress);
                let run = Box::pin(run).await?;
                Box::pin(self.send(&journey, run, began, progress)).await
            }
            None => answer,
        }
    }

    /// Who calls, and what exists for them.
    fn begin(
        &self,
        caller: Caller,
        call: ToolCall,
        request_id: String,
    ) -> Result<Journey, CallError> {
        let rules = self.rules.load_full();
        if let Some(key) = caller.key() {
            rules.holder(&caller)?;
            rules.limits.count(&Limited::Key(Arc::clone(key)))?;
        }
        let catalog = self.parts.registry.catalog();
        let filters = &call.request.filters;
        let scope = self.scopes.get(&rules, &catalog, &caller, filters)?;
        Ok(Journey {
            caller,
            call,
            request_id,
            rules,
            scope,
        })
    }

    /// Counts and records what came of an attempt.
    fn close(
        &self,
        attempt: Attempt,
        answer: Result<Outcome, CallError>,
    ) -> Result<Outcome, CallError> {
        let word = match &answer {
            Ok(outcome) if outcome.result.is_error() => "tool_error",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        if let Err(CallError::Store(error)) = &answer {
            tracing::error!(%error, "a call was refused because the store failed");
        }
        let tool = answer.as_ref().map(|outcome| outcome.tool.clone()).ok();
        let tool = tool.or_else(|| attempt.record.tool_id());
        self.parts.metrics.count(tool.as_ref(), word);
        tracing::debug!(
            request = attempt.record.request_id,
            tool = attempt.record.name,
            origin = attempt.record.origin,
            outcome = word,
            "tool call"
        );
        attempt.close(&answer);
        answer
    }

    fn finder<'a>(&'a self, journey: &'a Journey) -> Finder<'a> {
        Finder {
            rules: &journey.rules,
            scope: &journey.scope,
            registry: &self.parts.registry,
            caller: &journey.caller,
            filters: &journey.call.request.filters,
        }
    }
}

//! Decides whether a call may run: evaluates its arguments, asks hooks, and obtains an approval where one
//! is needed.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::policy::{Decision, Verdict};

use super::evaluate::{Evaluated, Evaluation};
use super::find::ResolvedTool;
use super::{CallContext, CallProgress, Inner};
use crate::approval::{ApprovalOrigin, ApprovalRequest, Clearance};
use crate::audit::AuditRecord;
use crate::call::{Arguments, ArgumentsError, CallError};
use crate::hook::{Proposal, Review};

/// Bytes of the conversation shown to an approver.
const MAX_CONVERSATION_BYTES: usize = 64 * 1024;

/// A call that is allowed to run.
pub(super) struct AuthorizedCall {
    pub(super) target: ResolvedTool,
    pub(super) arguments: Arguments,
    /// Whether the call needed an approval, by a person or a hook.
    pub(super) needed_approval: bool,
}

/// A call that hooks review, with what they have decided so far.
struct ReviewedCall {
    arguments: Arguments,
    decision: Decision,
    is_approved: bool,
}

impl Inner {
    pub(super) async fn authorize(
        &self,
        context: &CallContext,
        target: ResolvedTool,
        arguments: Result<Arguments, ArgumentsError>,
        progress: &mut CallProgress,
    ) -> Result<AuthorizedCall, CallError> {
        let id = &target.entry.tool.id;
        let server_rules = context.rules.servers.get(&id.server);
        progress.attempt.masker = server_rules.map(|server_rules| server_rules.masker.clone());
        progress.attempt.set_tool(id);
        let record = &mut progress.attempt.record;
        let fallback_for = target.fallback_for.as_ref();
        record.instead_of = fallback_for.map(|requested| requested.server.to_string());
        let arguments = arguments?;
        let decision = self.decide(context, &target, &arguments, record).await?;
        if decision.verdict == Verdict::Manual && context.caller.origin.is_unattended() {
            return Err(CallError::ManualOnly(target.entry.alias.to_string()));
        }
        let needed_approval = decision.verdict == Verdict::Ask;
        let mut reviewed = ReviewedCall {
            arguments,
            decision,
            is_approved: false,
        };
        // Most gateways have no hooks, and their calls must not pay for them.
        if !self.deps.hooks.is_empty() {
            reviewed = Box::pin(self.review(context, &target, reviewed, record)).await?;
        }
        let ReviewedCall {
            mut arguments,
            decision,
            is_approved,
        } = reviewed;
        if needed_approval && !is_approved {
            let request = approval_request(context, &target, &arguments, &decision);
            let approved = Box::pin(self.obtain_approval(context, &target, request, progress));
            if let Some(edited) = approved.await? {
                arguments = edited;
            }
        }
        Ok(AuthorizedCall {
            needed_approval,
            target,
            arguments,
        })
    }

    /// Lets all hooks review a call, each with the arguments as edited by those before it.
    async fn review(
        &self,
        context: &CallContext,
        target: &ResolvedTool,
        mut call: ReviewedCall,
        record: &mut AuditRecord,
    ) -> Result<ReviewedCall, CallError> {
        for hook in self.deps.hooks.iter() {
            let proposal = Proposal {
                tool: &target.entry.tool.id,
                alias: &target.entry.alias,
                arguments: &call.arguments,
                caller: &context.caller,
                request_id: &context.request_id,
                decision: &call.decision,
            };
            match hook.review(proposal).await {
                Review::Proceed => {}
                Review::Approve => call.is_approved = true,
                Review::Edit(edited) => {
                    call.decision = self.accept_edit(context, target, &edited, record).await?;
                    call.arguments = edited;
                    call.is_approved = true;
                }
                Review::Deny { reason } => {
                    record.verdict = Some(Verdict::Deny.as_str().to_owned());
                    return Err(denied_error(target, &call.decision, reason));
                }
            }
        }
        Ok(call)
    }

    /// Validates arguments and decides about them. `deny` is returned as an error with its reason.
    async fn decide(
        &self,
        context: &CallContext,
        target: &ResolvedTool,
        arguments: &Arguments,
        record: &mut AuditRecord,
    ) -> Result<Decision, CallError> {
        let evaluation = Evaluation {
            tool: Arc::clone(&target.entry.tool),
            judgement: target.judgement.clone(),
            scanner: context.rules.scanner,
            arguments: arguments.clone(),
        };
        let Evaluated {
            decision,
            warnings,
            reason,
        } = self
            .evaluations
            .run(&context.caller.key().cloned(), evaluation)
            .await?;
        if !warnings.is_empty() {
            tracing::warn!(
                tool = %target.entry.tool.id,
                request = context.request_id,
                warnings = warnings.join("; "),
                "dangerous arguments in tool call"
            );
        }
        record.warnings = warnings;
        record.verdict = Some(decision.verdict.as_str().to_owned());
        record.rule = Some(decision.decided_by.to_string());
        match decision.verdict {
            Verdict::Deny => Err(denied_error(target, &decision, reason)),
            _ => Ok(decision),
        }
    }

    /// Claims an existing approval or requests one. Returns the arguments edited by the approver, if
    /// any.
    async fn obtain_approval(
        &self,
        context: &CallContext,
        target: &ResolvedTool,
        request: ApprovalRequest,
        progress: &mut CallProgress,
    ) -> Result<Option<Arguments>, CallError> {
        let expiry = context.rules.approvals.expiry;
        let cleared = self.deps.approvals.obtain_clearance(request, expiry).await;
        let record = &mut progress.attempt.record;
        record.approval = match &cleared {
            Ok(Clearance::Ticket(ticket)) => Some(ticket.approval().id.clone()),
            Ok(Clearance::Granted { approval }) => Some(approval.clone()),
            Err(CallError::NeedsApproval { id, .. }) => Some(id.clone()),
            Err(CallError::Denied { approval, .. }) => approval.clone(),
            Err(_) => None,
        };
        let Clearance::Ticket(ticket) = cleared? else {
            return Ok(None);
        };
        let edited = ticket.approval().edited.clone();
        progress.add_ticket(ticket);
        let Some(edited) = edited else {
            return Ok(None);
        };
        let edited = Arguments::parse(edited.get())?;
        self.accept_edit(context, target, &edited, &mut progress.attempt.record)
            .await?;
        Ok(Some(edited))
    }

    /// Validates edited arguments. Editing satisfies an `ask` but cannot override a `deny`.
    async fn accept_edit(
        &self,
        context: &CallContext,
        target: &ResolvedTool,
        edited: &Arguments,
        record: &mut AuditRecord,
    ) -> Result<Decision, CallError> {
        let decided = self.decide(context, target, edited, record).await;
        let is_invalid = matches!(
            decided,
            Err(CallError::BadArguments(_) | CallError::SchemaViolation(_))
        );
        if !is_invalid {
            record.arguments = Some(edited.raw().to_owned());
        }
        decided
    }
}

fn approval_request(
    context: &CallContext,
    target: &ResolvedTool,
    arguments: &Arguments,
    decision: &Decision,
) -> ApprovalRequest {
    let id = &target.entry.tool.id;
    let CallContext {
        caller,
        call,
        request_id,
        ..
    } = context;
    ApprovalRequest {
        tool: id.clone(),
        alias: target.entry.alias.to_string(),
        digest: arguments.digest(),
        arguments: arguments.raw().to_owned(),
        fingerprint: context.rules.tool_fingerprint(&target.entry.tool),
        rule: decision.decided_by.to_string(),
        from: ApprovalOrigin {
            caller: caller.key().map(|key| key.to_string()),
            session: caller.session().map(ToOwned::to_owned),
            origin: caller.origin.as_str().to_owned(),
            request_id: request_id.clone(),
            run_id: call.request.run.clone(),
        },
        approvers: context.rules.approvers(caller, &id.server, decision),
        client_can_approve: call.request.can_approve(),
        conversation: call
            .request
            .conversation
            .as_deref()
            .map(recent_conversation),
    }
}

/// Returns the conversation, or the end of it if it is too long.
fn recent_conversation(conversation: &RawValue) -> Box<RawValue> {
    let text = conversation.get();
    if text.len() <= MAX_CONVERSATION_BYTES {
        return conversation.to_owned();
    }
    let start = text.ceil_char_boundary(text.len() - MAX_CONVERSATION_BYTES);
    let end = format!("… {}", &text[start..]);
    serde_json::value::to_raw_value(&end).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn denied_error(target: &ResolvedTool, decision: &Decision, reason: String) -> CallError {
    CallError::Denied {
        alias: target.entry.alias.to_string(),
        because: decision.decided_by.to_string(),
        reason,
        approval: None,
    }
}

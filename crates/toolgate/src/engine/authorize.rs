//! Decides whether a call may run: evaluates its arguments, asks hooks, and obtains an approval where one
//! is needed.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::policy::{Decision, Verdict};

use super::argument_check::CheckedArguments;
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
    decided: DecidedCall,
    is_approved: bool,
}

/// Arguments as they will be sent, and the decision about them.
struct DecidedCall {
    arguments: Arguments,
    decision: Decision,
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
        let decided = self.decide(context, &target, &arguments, record).await?;
        let verdict = decided.decision.verdict;
        if verdict == Verdict::Manual && context.caller.origin.is_unattended() {
            return Err(CallError::ManualOnly(target.entry.alias.to_string()));
        }
        let needed_approval = verdict == Verdict::Ask;
        let mut reviewed = ReviewedCall {
            decided,
            is_approved: false,
        };
        // Most gateways have no hooks, and their calls must not pay for them.
        if !self.deps.hooks.is_empty() {
            reviewed = Box::pin(self.review(context, &target, reviewed, record)).await?;
        }
        let ReviewedCall {
            decided,
            is_approved,
        } = reviewed;
        let mut arguments = decided.arguments;
        if needed_approval && !is_approved {
            let request = approval_request(context, &target, &arguments, &decided.decision);
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
                arguments: &call.decided.arguments,
                caller: &context.caller,
                request_id: &context.request_id,
                decision: &call.decided.decision,
            };
            match hook.review(proposal).await {
                Review::Proceed => {}
                Review::Approve => call.is_approved = true,
                Review::Edit(edited) => {
                    call.decided = self.accept_edit(context, target, &edited, record).await?;
                    call.is_approved = true;
                }
                Review::Deny { reason } => {
                    record.verdict = Some(Verdict::Deny.as_str().to_owned());
                    return Err(denied_error(target, &call.decided.decision, reason));
                }
            }
        }
        Ok(call)
    }

    /// Checks arguments and decides about them. `deny` is returned as an error with its reason.
    async fn decide(
        &self,
        context: &CallContext,
        target: &ResolvedTool,
        arguments: &Arguments,
        record: &mut AuditRecord,
    ) -> Result<DecidedCall, CallError> {
        let evaluated = self.evaluate(context, target, arguments).await?;
        let CheckedArguments {
            arguments,
            converted,
        } = &evaluated.checked;
        if !converted.is_empty() {
            record.set_arguments(arguments.raw());
            record.add_converted(converted);
        }
        conclude(target, evaluated, record)
    }

    async fn evaluate(
        &self,
        context: &CallContext,
        target: &ResolvedTool,
        arguments: &Arguments,
    ) -> Result<Evaluated, CallError> {
        let tool = &target.entry.tool;
        let evaluation = Evaluation {
            tool: Arc::clone(tool),
            judgement: target.judgement.clone(),
            scanner: context.rules.scanner,
            argument_check: context.rules.argument_check(&tool.id),
            arguments: arguments.clone(),
        };
        let owner = context.caller.share_owner().cloned();
        let evaluated = self.evaluations.run(&owner, evaluation).await?;
        if !evaluated.warnings.is_empty() {
            tracing::warn!(
                tool = %tool.id,
                request = context.request_id,
                warnings = evaluated.warnings.join("; "),
                "dangerous arguments in tool call"
            );
        }
        Ok(evaluated)
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
        let record = &mut progress.attempt.record;
        let decided = self.accept_edit(context, target, &edited, record).await?;
        Ok(Some(decided.arguments))
    }

    /// Checks edited arguments. Editing satisfies an `ask` but cannot override a `deny`.
    async fn accept_edit(
        &self,
        context: &CallContext,
        target: &ResolvedTool,
        edited: &Arguments,
        record: &mut AuditRecord,
    ) -> Result<DecidedCall, CallError> {
        let evaluated = self.evaluate(context, target, edited).await?;
        record.set_arguments(evaluated.checked.arguments.raw());
        // What was converted before belongs to the arguments that were replaced.
        record.detail = None;
        record.add_converted(&evaluated.checked.converted);
        conclude(target, evaluated, record)
    }
}

/// Records the decision about a call. `deny` is returned as an error with its reason.
fn conclude(
    target: &ResolvedTool,
    evaluated: Evaluated,
    record: &mut AuditRecord,
) -> Result<DecidedCall, CallError> {
    let Evaluated {
        checked,
        decision,
        warnings,
        reason,
    } = evaluated;
    record.warnings = warnings;
    record.verdict = Some(decision.verdict.as_str().to_owned());
    record.rule = Some(decision.decided_by.to_string());
    match decision.verdict {
        Verdict::Deny => Err(denied_error(target, &decision, reason)),
        _ => Ok(DecidedCall {
            arguments: checked.arguments,
            decision,
        }),
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

//! Calls of a resumed run that someone has decided about. A call that may have run already is never executed
//! again.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use toolgate_llm::prompt::{PromptPart, RequestedToolCall};

use super::AgentRun;
use super::call_output::{CallOutput, ExecutedCall, answer_items};
use super::resume::{CallDecision, ResumeError, ResumePlan};
use super::sink::{CallHandler, RunSink};
use super::tool_calls::{CallResult, PendingToolCall};
use crate::audit::{AuditKind, AuditRecord};
use crate::call::RequestContext;
use crate::caller::CallOrigin;
use crate::concurrent::run_in_order;
use crate::models::ModelError;
use crate::store::StoreError;

impl AgentRun {
    /// Obtains a result for every call of the last turn and appends them to the conversation.
    pub(super) async fn answer_pending_calls(
        &mut self,
        plan: &ResumePlan,
        sink: &mut RunSink,
    ) -> Result<(), ResumeError> {
        let ResumePlan {
            replay, unanswered, ..
        } = plan;
        self.journal
            .record_resumed(&plan.request.decided_by)
            .await?;
        if replay.calls.is_empty() {
            return Ok(());
        }
        let model_call = self.next_model_call()?;
        let (request, handler) = (self.tool_request(&model_call), sink.call_handler());
        let answers: Vec<Result<ExecutedCall, ResumeError>> = {
            let run = &*self;
            let decisions = unanswered
                .iter()
                .map(|call| Box::pin(run.apply_decision(call, plan, &request, &handler)))
                .collect();
            let work = run_in_order(decisions, run.parallel_calls());
            tokio::pin!(work);
            loop {
                tokio::select! {
                    answers = &mut work => break answers,
                    () = sink.start_or_keep_alive() => {}
                }
            }
        };
        // Keep every executed call even if another one was refused.
        let mut refused = None;
        for answer in answers {
            match answer {
                Ok(executed) => {
                    if executed.counts_as_failure() {
                        self.loop_guard.record_failure(&executed.call);
                    }
                    self.executed.push(executed);
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        let turn = self.turn_count;
        let of_turn = |call: &RequestedToolCall| {
            let found = self
                .executed
                .iter()
                .rfind(|executed| executed.turn == turn && executed.call.id == call.id);
            found.map(ExecutedCall::to_answer_part)
        };
        let parts: Vec<PromptPart> = replay.calls.iter().filter_map(of_turn).collect();
        let items =
            answer_items(self.model_call.request.dialect, parts).map_err(ModelError::from)?;
        self.journal.record_answers(&items).await?;
        self.history.extend(replay.items.clone());
        self.history.extend(items);
        Ok(())
    }

    /// Applies the decision about one call and returns its result.
    async fn apply_decision(
        &self,
        call: &RequestedToolCall,
        plan: &ResumePlan,
        request: &Arc<RequestContext>,
        handler: &CallHandler,
    ) -> Result<ExecutedCall, ResumeError> {
        let replay = &plan.replay;
        let executed = match plan.request.decisions.get(&call.id) {
            Some(CallDecision::Deny { reason }) => {
                let reason = reason.as_deref().unwrap_or("no reason given");
                let calls_made = replay.started_scripts.get(&call.id).map(String::as_str);
                let calls_made = calls_made.unwrap_or_default();
                if !plan.decided_earlier.contains(&call.id) {
                    self.record_denial(call, &plan.request.decided_by, reason)
                        .await?;
                }
                let text = format!("the call was denied: {reason}{calls_made}");
                self.call_with_output(call, CallOutput::error(text))
            }
            Some(CallDecision::Result { text, is_error }) => {
                let output = CallOutput {
                    parts: vec![PromptPart::Text(text.clone())],
                    is_error: *is_error,
                    is_outage: false,
                };
                self.call_with_output(call, output)
            }
            // The call may have run, so it is not executed again even if approved.
            _ if replay.opened.contains(&call.id) => self.call_with_output(
                call,
                CallOutput::error(
                    "the run ended while the call was in progress: its outcome is unknown, it may have run",
                ),
            ),
            Some(CallDecision::Approve {
                arguments: Some(arguments),
            }) if replay.started_scripts.contains_key(&call.id) && *arguments != call.arguments => {
                return Err(ResumeError::ScriptStarted(call.id.clone()));
            }
            Some(CallDecision::Approve { arguments }) => {
                self.run_after_approval(call, arguments.as_deref(), request, handler).await?
            }
            // The call was never started and runs without approval.
            None => {
                return match self.run_call(call.clone(), request, handler.clone()).await? {
                    CallResult::Executed(executed) => Ok(executed),
                    CallResult::Pending(_) => {
                        Err(ResumeError::Undecided(vec![call.id.clone()]))
                    }
                };
            }
        };
        self.journal.record_call_closed(&executed).await?;
        Ok(executed)
    }

    /// Records in the audit trail that a call was denied.
    async fn record_denial(
        &self,
        call: &RequestedToolCall,
        by: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        let caller = &self.model_call.caller;
        let record = AuditRecord {
            request_id: self.model_call.context.id.clone().unwrap_or_default(),
            run_id: Some(self.id.clone()),
            caller: caller.key().map(|key| key.to_string()),
            origin: CallOrigin::Agent.as_str().to_owned(),
            arguments: RawValue::from_string(call.arguments.clone()).ok(),
            bytes_in: i64::try_from(call.arguments.len()).unwrap_or(i64::MAX),
            detail: Some(json!({"by": by, "reason": reason, "call": call.id})),
            ..AuditRecord::event(AuditKind::Approval, &call.name, "denied")
        };
        self.runs.engine().record_event(record).await
    }

    /// Executes an approved call, journaling it first.
    async fn run_after_approval(
        &self,
        call: &RequestedToolCall,
        arguments: Option<&str>,
        request: &Arc<RequestContext>,
        handler: &CallHandler,
    ) -> Result<ExecutedCall, ResumeError> {
        let mut call = call.clone();
        if let Some(arguments) = arguments {
            arguments.clone_into(&mut call.arguments);
        }
        self.journal.record_call_opened(&call).await?;
        match self.run_approved_call(call.clone(), request, handler).await {
            Ok(executed) => Ok(executed),
            Err(error) => {
                let pending = PendingToolCall::for_approver(call.clone()).with_error(&error);
                self.journal.record_call_pending(&pending).await?;
                let Some(approval) = pending.approval else {
                    return Err(ResumeError::Model(ModelError::Refused(error)));
                };
                Err(ResumeError::NeedsApprover {
                    call: call.name,
                    approval,
                })
            }
        }
    }

    fn call_with_output(&self, call: &RequestedToolCall, output: CallOutput) -> ExecutedCall {
        ExecutedCall {
            call: call.clone(),
            turn: self.turn_count,
            parts: output.parts,
            is_error: output.is_error,
            is_outage: output.is_outage,
            ms: 0,
        }
    }
}

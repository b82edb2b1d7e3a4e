//! Resuming a run: after its pending calls were decided, or after a crash. The run's state is rebuilt
//! from its journal; a call that may have run already is never executed again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use serde_json::value::RawValue;
use toolgate_core::policy::Verdict;
use toolgate_llm::prompt::{PromptPart, RequestedToolCall};
use toolgate_llm::tools::CallerTools;
use toolgate_llm::turn::has_pending_caller_call;

use super::call_output::{CallOutput, ExecutedCall, answer_items};
use super::journal::RunJournal;
use super::loop_guard::LoopGuard;
use super::replay::Replay;
use super::sink::{CallHandler, RunSink};
use super::stored_request::model_call_from_record;
use super::task::StartedRun;
use super::tool_calls::{CallResult, PendingToolCall, tool_call};
use super::{AgentRun, RunRecord, Runs};
use crate::audit::{AuditKind, AuditRecord};
use crate::call::RequestContext;
use crate::caller::CallOrigin;
use crate::concurrent::run_in_order;
use crate::engine::Engine;
use crate::models::{ModelCall, ModelError, ModelResponse};
use crate::store::StoreError;

/// Decision about one pending call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallDecision {
    /// Execute the call, optionally with other arguments.
    Approve {
        /// Arguments that replace those of the model, as JSON.
        arguments: Option<String>,
    },
    /// Tell the model that the call was denied.
    Deny {
        /// Reason, told to the model.
        reason: Option<String>,
    },
    /// The caller executed the call itself, with this result.
    Result {
        /// Text of the result.
        text: String,
        /// Whether the call failed.
        is_error: bool,
    },
}

/// Request to resume a run.
#[derive(Clone, Debug, Default)]
pub struct ResumeRequest {
    /// Decisions by call id.
    pub decisions: HashMap<String, CallDecision>,
    /// The person who decided, as recorded in the journal.
    pub decided_by: String,
    /// Whether to stream the response; by default as in the original request.
    pub stream: Option<bool>,
}

/// Reason why a run cannot be resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum ResumeError {
    /// No run has this id.
    #[error("unknown run `{0}`")]
    Unknown(String),
    /// The run is in a state from which it cannot go on.
    #[error("run `{id}` is {state}; only a waiting, failed or interrupted run can be resumed")]
    NotResumable { id: String, state: &'static str },
    /// These calls need a decision.
    #[error("decisions are missing for the calls {}", .0.join(", "))]
    Undecided(Vec<String>),
    /// Only an approver may decide this call.
    #[error("call `{call}` needs an approver; approval `{approval}` is still open")]
    NeedsApprover { call: String, approval: String },
    /// Parts of the script have already run.
    #[error("the script of call `{0}` has already made calls; approve it unchanged or deny it")]
    ScriptStarted(String),
    /// The caller must execute a call itself.
    #[error(
        "run `{0}` is waiting for a call that only its caller can answer; send the conversation with that result instead"
    )]
    AwaitsCaller(String),
    /// The run has used up a limit, or its calls keep failing.
    #[error(
        "run `{id}` cannot be resumed. {limit} Raise the limit, or send the conversation in a new request"
    )]
    LimitReached { id: String, limit: String },
    /// The run may not execute all the approved calls.
    #[error(
        "the run may execute only {0} more tool calls (`max_tool_calls`); approve no more than that and deny the others"
    )]
    TooManyCalls(usize),
    /// The stored request or journal is damaged.
    #[error(
        "run `{0}` cannot be resumed: its stored request or journal cannot be read; start a new run"
    )]
    Unreadable(String),
    /// The model request failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The store failed.
    #[error("the run could not be read or written; try again in a moment")]
    Store(#[from] StoreError),
}

/// Decisions about a run, together with its replayed state.
pub(super) struct ResumePlan {
    replay: Replay,
    /// Calls without a result.
    unanswered: Vec<RequestedToolCall>,
    request: ResumeRequest,
    /// The record before the resume.
    pub(super) record: RunRecord,
}

/// Resumes a run. The work is spawned so that a claimed run always has an owner, even if the caller
/// disconnects.
pub(super) async fn resume(
    runs: &Runs,
    id: &str,
    request: ResumeRequest,
) -> Result<ModelResponse, ResumeError> {
    let (task_runs, run_id) = (runs.clone(), id.to_owned());
    let work = async move { start_resumed(&task_runs, &run_id, request).await };
    let started = runs.tasks().spawn(work).await;
    let started = started.unwrap_or(Err(ResumeError::Model(ModelError::Cancelled)))?;
    started.response(id).await
}

async fn start_resumed(
    runs: &Runs,
    id: &str,
    request: ResumeRequest,
) -> Result<StartedRun, ResumeError> {
    let store = runs.store();
    let read_error = |error: StoreError| match error {
        StoreError::Unreadable => ResumeError::Unreadable(id.to_owned()),
        error => ResumeError::Store(error),
    };
    let found = store.get(id).await.map_err(read_error)?;
    let (record, model_request) = found.ok_or_else(|| ResumeError::Unknown(id.to_owned()))?;
    let steps = store.steps(id).await.map_err(read_error)?;
    let replay = Replay::from_steps(record.started_at, &steps).map_err(read_error)?;
    let mut model_call = model_call_from_record(&record, &model_request)?;
    if has_pending_caller_call(&replay.items.iter().collect::<Vec<_>>()) {
        return Err(ResumeError::AwaitsCaller(id.to_owned()));
    }
    let plan = ResumePlan {
        unanswered: replay.unanswered_calls(),
        replay,
        request,
        record,
    };
    let undecided = plan.undecided_calls(runs.engine(), &model_call);
    if !undecided.is_empty() {
        return Err(ResumeError::Undecided(undecided));
    }
    let ResumePlan { replay, record, .. } = &plan;
    model_call.stream = plan.request.stream.unwrap_or(record.stream);
    let limits = runs.limits(&model_call)?;
    let slot = runs.acquire_slot(&model_call.caller);
    let slot = slot.map_err(ModelError::Refused)?;
    let run = AgentRun {
        id: id.to_owned(),
        runs: runs.clone(),
        caller_tools: CallerTools::from_body(&model_call.body),
        limits,
        started_at: Instant::now(),
        history: replay.history.clone(),
        provider_turns: replay.provider_turns.clone(),
        turn_count: replay.turn_count,
        tool_turn_count: replay.tool_turn_count,
        earlier_time: replay.elapsed,
        turns: replay.turns.clone(),
        loop_guard: LoopGuard::from_executed(&replay.executed),
        executed: replay.executed.clone(),
        usage: replay.usage,
        micro_usd: replay.micro_usd,
        last_output: None,
        journal: RunJournal::new(store, id, replay.next_seq),
        record: RunRecord {
            state: super::RunState::Running,
            ended_at: None,
            stop_reason: None,
            ..record.clone()
        },
        model_call,
        _slot: slot,
    };
    run.check_resume_limits(&plan)?;
    if !store.claim(id).await? {
        return Err(ResumeError::NotResumable {
            id: id.to_owned(),
            state: plan.record.state.as_str(),
        });
    }
    Ok(super::task::start(run, Some(plan)))
}

impl ResumePlan {
    /// Returns the ids of calls that still need a decision. In an interrupted run, calls that were in
    /// progress and calls that run without approval need none.
    fn undecided_calls(&self, engine: &Engine, model_call: &ModelCall) -> Vec<String> {
        let interrupted = self.record.state == super::RunState::Interrupted;
        let caller_tools = CallerTools::from_body(&model_call.body);
        let needs_no_decision = |call: &RequestedToolCall| {
            let tool_call = tool_call(call, &model_call.context);
            let runs_unasked = || engine.preview(&model_call.caller, &tool_call) == Verdict::Allow;
            interrupted
                && !caller_tools.contains(&call.name)
                && (self.replay.opened.contains(&call.id) || runs_unasked())
        };
        let decisions = &self.request.decisions;
        let needs = self
            .unanswered
            .iter()
            .filter(|call| !decisions.contains_key(&call.id) && !needs_no_decision(call));
        needs.map(|call| call.id.clone()).collect()
    }
}

impl AgentRun {
    /// Checks that no limit of the run keeps it from going on: only higher limits let it, not a decision.
    fn check_resume_limits(&self, plan: &ResumePlan) -> Result<(), ResumeError> {
        if let Some(stop) = self.limit_before_calls(&plan.replay.calls) {
            let explanation = self.limit_explanation(stop);
            return Err(ResumeError::LimitReached {
                id: self.id.clone(),
                limit: explanation.unwrap_or_default(),
            });
        }
        let decisions = plan.request.decisions.values();
        let approved =
            decisions.filter(|decision| matches!(decision, CallDecision::Approve { .. }));
        let remaining = self.remaining_calls();
        if approved.count() > remaining {
            return Err(ResumeError::TooManyCalls(remaining));
        }
        Ok(())
    }

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
                self.record_denial(call, &plan.request.decided_by, reason)
                    .await?;
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

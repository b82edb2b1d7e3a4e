//! Resuming a run: after its pending calls were decided, or after a crash. The run's state is rebuilt
//! from its journal; a call that may have run already is never executed again.

use std::collections::HashMap;
use std::time::Instant;

use toolgate_core::policy::Verdict;
use toolgate_llm::prompt::RequestedToolCall;
use toolgate_llm::tools::CallerTools;
use toolgate_llm::turn::has_pending_caller_call;

use super::earlier_decisions::EarlierDecision;
use super::journal::RunJournal;
use super::loop_guard::LoopGuard;
use super::replay::Replay;
use super::stored_request::model_call_from_record;
use super::task::StartedRun;
use super::tool_calls::tool_call;
use super::{AgentRun, RunRecord, Runs};
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

/// What a run is resumed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumeTrigger {
    Request,
    /// An approver's decision, if the settings of the run allow that.
    Decision,
}

/// Decisions about a run, together with its replayed state.
pub(super) struct ResumePlan {
    pub(super) replay: Replay,
    /// Calls without a result.
    pub(super) unanswered: Vec<RequestedToolCall>,
    pub(super) request: ResumeRequest,
    /// Calls that approvers decided apart from the request. Their decisions are recorded already.
    pub(super) decided_earlier: Vec<String>,
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
    let trigger = ResumeTrigger::Request;
    let work = async move { start_resumed(&task_runs, &run_id, request, trigger).await };
    let started = runs.tasks().spawn(work).await;
    let started = started.unwrap_or(Err(ResumeError::Model(ModelError::Cancelled)))?;
    started.response(id).await
}

pub(super) async fn start_resumed(
    runs: &Runs,
    id: &str,
    request: ResumeRequest,
    trigger: ResumeTrigger,
) -> Result<StartedRun, ResumeError> {
    let store = runs.store();
    let read_error = |error: StoreError| match error {
        StoreError::Unreadable => ResumeError::Unreadable(id.to_owned()),
        error => ResumeError::Store(error),
    };
    let found = store.get(id).await.map_err(read_error)?;
    let (record, model_request) = found.ok_or_else(|| ResumeError::Unknown(id.to_owned()))?;
    let not_resumable = |record: &RunRecord| ResumeError::NotResumable {
        id: id.to_owned(),
        state: record.state.as_str(),
    };
    let mut model_call = model_call_from_record(&record, &model_request)?;
    let limits = runs.limits(&model_call)?;
    if trigger == ResumeTrigger::Decision
        && (!record.awaits_approval() || limits.resume_on_approval != Some(true))
    {
        return Err(not_resumable(&record));
    }
    let steps = store.steps(id).await.map_err(read_error)?;
    let replay = Replay::from_steps(record.started_at, &steps).map_err(read_error)?;
    if has_pending_caller_call(&replay.items.iter().collect::<Vec<_>>()) {
        return Err(ResumeError::AwaitsCaller(id.to_owned()));
    }
    let mut plan = ResumePlan {
        unanswered: replay.unanswered_calls(),
        replay,
        request,
        decided_earlier: Vec::new(),
        record,
    };
    plan.add_earlier_decisions(runs).await?;
    let undecided = plan.undecided_calls(runs.engine(), &model_call);
    if !undecided.is_empty() {
        return Err(ResumeError::Undecided(undecided));
    }
    let ResumePlan { replay, record, .. } = &plan;
    model_call.stream = plan.request.stream.unwrap_or(record.stream);
    let slot = runs.acquire_slot(&model_call.caller);
    let slot = slot.map_err(ModelError::Refused)?;
    let run = AgentRun {
        id: id.to_owned(),
        runs: runs.clone(),
        caller_tools: CallerTools::from_body(&model_call.body),
        limits,
        started_at: Instant::now(),
        missing_servers: Vec::new(),
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
        return Err(not_resumable(&plan.record));
    }
    Ok(super::task::start(run, Some(plan)))
}

impl ResumePlan {
    /// Adds the decisions that approvers have made about calls that the request does not decide. Fails if one of
    /// the calls still waits for an approver.
    async fn add_earlier_decisions(&mut self, runs: &Runs) -> Result<(), ResumeError> {
        for call in &self.unanswered {
            if self.request.decisions.contains_key(&call.id) {
                continue;
            }
            match runs.earlier_decision(call, &self.replay).await? {
                EarlierDecision::Made(decision) => {
                    self.request.decisions.insert(call.id.clone(), decision);
                    self.decided_earlier.push(call.id.clone());
                }
                EarlierDecision::Open(approval) => {
                    return Err(ResumeError::NeedsApprover {
                        call: call.name.clone(),
                        approval,
                    });
                }
                EarlierDecision::None => {}
            }
        }
        Ok(())
    }

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

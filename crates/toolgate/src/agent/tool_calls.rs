//! Tool calls of one turn: executes those that run without approval and leaves the rest pending for
//! the caller or an approver. Every call is journaled before and after it runs.

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::policy::Verdict;
use toolgate_llm::history;
use toolgate_llm::prompt::RequestedToolCall;

use super::call_output::{CallOutput, ExecutedCall, answer_items};
use super::sink::{CallHandler, RunSink};
use super::{AgentRun, before_deadline};
use crate::call::{CallError, PendingCall, RequestContext, ToolCall};
use crate::caller::CallOrigin;
use crate::concurrent::run_numbered;
use crate::models::{ModelCall, ModelError};
use crate::store::StoreError;

/// Calls of one turn that run concurrently, unless configured.
const DEFAULT_PARALLEL_CALLS: u32 = 8;

/// A call left for the caller or an approver.
#[derive(Clone, Debug)]
pub(super) struct PendingToolCall {
    pub(super) call: RequestedToolCall,
    /// Whether the tool was defined by the caller.
    pub(super) is_caller_tool: bool,
    /// Id of the approval the call is waiting for.
    pub(super) approval: Option<String>,
    /// Calls before which a script was suspended.
    pub(super) script_calls: Vec<PendingCall>,
    /// Text listing the calls a suspended script has already made.
    pub(super) calls_made: String,
}

/// Results of the calls of one turn.
pub(super) struct TurnCallResults {
    pub(super) pending: Vec<PendingToolCall>,
    /// Tool results as conversation items.
    pub(super) items: Vec<Value>,
}

/// Result of one call.
pub(super) enum CallResult {
    Executed(ExecutedCall),
    Pending(PendingToolCall),
}

/// Waits for the next completed call, sending keep-alives meanwhile.
async fn next_or_keep_alive<S: futures_util::Stream + Unpin>(
    running: &mut S,
    sink: &RunSink,
) -> Option<S::Item> {
    loop {
        tokio::select! {
            next = running.next() => return next,
            () = sink.keep_alive() => {}
        }
    }
}

impl AgentRun {
    /// Runs the calls of a turn concurrently; results keep the order of the calls.
    pub(super) async fn run_calls(
        &mut self,
        calls: Vec<RequestedToolCall>,
        model_call: &ModelCall,
        sink: &mut RunSink,
    ) -> Result<TurnCallResults, ModelError> {
        let request = self.tool_request(model_call);
        let deadline = self.deadline();
        // Calls that have not ended at the deadline have no result.
        let mut results: Vec<Option<Result<CallResult, StoreError>>> = Vec::new();
        results.resize_with(calls.len(), || None);
        {
            let run = &*self;
            let work = calls
                .iter()
                .map(|call| Box::pin(run.run_call(call.clone(), &request, sink.call_handler())))
                .collect();
            let mut running = run_numbered(work, self.parallel_calls());
            while let Some(Some((number, result))) =
                before_deadline(deadline, next_or_keep_alive(&mut running, sink)).await
            {
                results[number] = Some(result);
            }
        }
        // Keep every executed call even if journaling one of them failed.
        let mut pending = Vec::new();
        let mut executed = Vec::new();
        let mut store_error = None;
        for (call, result) in calls.iter().zip(results) {
            match result {
                Some(Ok(CallResult::Executed(call))) => executed.push(call),
                Some(Ok(CallResult::Pending(call))) => pending.push(call),
                Some(Err(error)) => {
                    executed.push(self.call_with_unknown_outcome(call));
                    store_error = Some(error);
                }
                None => executed.push(self.call_with_unknown_outcome(call)),
            }
        }
        for failed in executed.iter().filter(|call| call.counts_as_failure()) {
            self.loop_guard.record_failure(&failed.call);
        }
        if let Some(error) = store_error {
            self.executed.extend(executed);
            return Err(error.into());
        }
        let answers = executed.iter().map(ExecutedCall::to_answer_part).collect();
        self.executed.extend(executed);
        let items = answer_items(model_call.request.dialect, answers)?;
        Ok(TurnCallResults { pending, items })
    }

    /// Returns how many calls run at the same time.
    pub(super) fn parallel_calls(&self) -> usize {
        let configured = self.limits.parallel_tools;
        configured.unwrap_or(DEFAULT_PARALLEL_CALLS) as usize
    }

    /// Request context for the tool calls of a turn, including the conversation so far.
    pub(super) fn tool_request(&self, model_call: &ModelCall) -> Arc<RequestContext> {
        let field = history::conversation_field(model_call.request.dialect);
        let conversation = model_call.body.get(field).map(str::to_owned);
        Arc::new(RequestContext {
            // Cannot fail: the members of a parsed body are valid JSON.
            conversation: conversation
                .and_then(|text| RawValue::from_string(text).ok())
                .map(Arc::from),
            // The model decides how many calls there are, so each is counted when it is made.
            rate_admission: None,
            ..(*model_call.context).clone()
        })
    }

    /// Runs one call if its verdict allows that without asking, else leaves it pending.
    pub(super) async fn run_call(
        &self,
        call: RequestedToolCall,
        request: &Arc<RequestContext>,
        handler: CallHandler,
    ) -> Result<CallResult, StoreError> {
        if self.caller_tools.contains(&call.name) {
            return self.mark_pending(PendingToolCall::for_caller(call)).await;
        }
        let started_at = Instant::now();
        if let Some(refusal) = self.loop_guard.refusal(&call) {
            let refused = self.executed_call(call, CallOutput::error(refusal), started_at);
            self.journal.record_call_closed(&refused).await?;
            return Ok(CallResult::Executed(refused));
        }
        let caller = self
            .model_call
            .caller
            .clone()
            .with_origin(CallOrigin::Agent);
        let tool_call = tool_call(&call, request);
        let engine = self.runs.engine();
        if engine.preview(&caller, &tool_call) == Verdict::Manual {
            return self.mark_pending(PendingToolCall::for_approver(call)).await;
        }
        self.journal.record_call_opened(&call).await?;
        handler.on_call_started(&call);
        let answer = engine.call(&caller, tool_call).await;
        handler.on_call_ended(&call, &answer);
        if let Err(error) = answer.as_ref()
            && error.is_unrecorded()
        {
            // Going on would ask the model about a failure that is not its own.
            return Err(StoreError::NotWritable(error.to_string().into()));
        }
        if let Some(error) = answer.as_ref().err().filter(|error| error.is_undecided()) {
            return self
                .mark_pending(PendingToolCall::for_approver(call).with_error(error))
                .await;
        }
        let executed = self.executed_call(call, CallOutput::from_answer(&answer), started_at);
        self.journal.record_call_closed(&executed).await?;
        Ok(CallResult::Executed(executed))
    }

    /// Runs a call that was approved explicitly, as the caller rather than as the agent.
    pub(super) async fn run_approved_call(
        &self,
        call: RequestedToolCall,
        request: &Arc<RequestContext>,
        handler: &CallHandler,
    ) -> Result<ExecutedCall, CallError> {
        let started_at = Instant::now();
        handler.on_call_started(&call);
        let tool_call = tool_call(&call, request);
        let answer = self
            .runs
            .engine()
            .call(&self.model_call.caller, tool_call)
            .await;
        handler.on_call_ended(&call, &answer);
        match answer {
            Err(error) if error.is_undecided() => Err(error),
            answer => Ok(self.executed_call(call, CallOutput::from_answer(&answer), started_at)),
        }
    }

    /// Creates the result of a call whose outcome is unknown because the run ended meanwhile.
    pub(super) fn call_with_unknown_outcome(&self, call: &RequestedToolCall) -> ExecutedCall {
        let text = "the run had to end while the call was in progress: its outcome is unknown, it may have run";
        self.executed_call(call.clone(), CallOutput::error(text), Instant::now())
    }

    async fn mark_pending(&self, pending: PendingToolCall) -> Result<CallResult, StoreError> {
        self.journal.record_call_pending(&pending).await?;
        Ok(CallResult::Pending(pending))
    }

    fn executed_call(
        &self,
        call: RequestedToolCall,
        output: CallOutput,
        started_at: Instant,
    ) -> ExecutedCall {
        ExecutedCall {
            call,
            turn: self.turn_count,
            parts: output.parts,
            is_error: output.is_error,
            is_outage: output.is_outage,
            ms: u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Converts a model's call into an engine call.
pub(super) fn tool_call(call: &RequestedToolCall, request: &Arc<RequestContext>) -> ToolCall {
    ToolCall::parse(&call.name, &call.arguments)
        .with_id(&call.id)
        .with_request(request)
}

impl PendingToolCall {
    /// Creates a pending call of a tool that the caller defined.
    pub(super) fn for_caller(call: RequestedToolCall) -> Self {
        Self {
            is_caller_tool: true,
            ..Self::for_approver(call)
        }
    }

    /// Creates a pending call that someone must approve.
    pub(super) fn for_approver(call: RequestedToolCall) -> Self {
        Self {
            call,
            is_caller_tool: false,
            approval: None,
            script_calls: Vec::new(),
            calls_made: String::new(),
        }
    }

    pub(super) fn with_error(self, error: &CallError) -> Self {
        Self {
            approval: error
                .required_approval()
                .map(|required| required.id.to_owned()),
            ..match error {
                CallError::ScriptSuspended(suspended) => Self {
                    script_calls: suspended.calls.clone(),
                    calls_made: suspended.made.clone(),
                    ..self
                },
                _ => self,
            }
        }
    }

    pub(super) fn to_value(&self) -> Value {
        let mut value = json!({
            "id": self.call.id,
            "name": self.call.name,
            "arguments": self.call.arguments,
        });
        if let Some(approval) = &self.approval {
            value["approval_id"] = json!(approval);
        }
        if let Some(inner) = self.script_calls_value() {
            value["inner"] = inner;
        }
        value
    }

    /// Calls before which a script was suspended, as JSON.
    pub(super) fn script_calls_value(&self) -> Option<Value> {
        let inner = self.script_calls.iter();
        (!self.script_calls.is_empty()).then(|| inner.map(waiting_call_value).collect())
    }
}

fn waiting_call_value(call: &PendingCall) -> Value {
    let mut value = json!({
        "tool": call.tool.to_string(),
        "arguments": call.arguments.get(),
        "line": call.line,
    });
    if let Some(approval) = &call.approval {
        value["approval_id"] = json!(approval);
    }
    value
}

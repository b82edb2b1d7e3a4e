//! The agent loop: lets a model call tools that run without approval until it has an answer.
//!
//! Each run is a separate task. It ends with the model's answer, with calls that someone else must
//! approve or execute, or when a limit is reached; the response always reports every call that was
//! executed. The conversation grows in the caller's dialect, using the provider's own items where the
//! provider speaks that dialect.
//!
//! An embedding program calls a model the way an HTTP caller would, and observes or reviews what
//! happens through a [`crate::Hook`]:
//!
//! ```
//! use serde_json::{Value, json};
//! use toolgate::agent::{RunEvent, RunEventKind};
//! use toolgate::config::{ConfigFormat, Document};
//! use toolgate::local::{LocalServer, LocalTool, NoArguments, ToolContext};
//! use toolgate::{Caller, Config, Dialect, Gateway, Hook, ModelRequest, ServerName};
//!
//! #[derive(Debug)]
//! struct Narrator;
//!
//! impl Hook for Narrator {
//!     fn on_run_event(&self, event: RunEvent<'_>) {
//!         match event.kind {
//!             RunEventKind::Text(text) => print!("{text}"),
//!             RunEventKind::CallStarted { name, arguments, .. } => println!("[{name} {arguments}]"),
//!             _ => {}
//!         }
//!     }
//! }
//!
//! # use toolgate_testkit::model::{Reply, ScriptedModel};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let call = ("c1", "clock_time", json!({}));
//! # let model = ScriptedModel::start(vec![Reply::calls([call]), Reply::text("It is noon.")]);
//! # let base_url = format!("{}/v1", model.url());
//! let time = LocalTool::new("time", |_: ToolContext, _: NoArguments| async { Ok("12:00") });
//! let clock = LocalServer::new(ServerName::parse("clock")?).tool(time.description("Returns the time"));
//! let text = format!(
//!     "[providers.models]
//!      base_url = {base_url:?}
//!      [[permissions.rules]]
//!      tool = \"clock.time\"
//!      action = \"allow\"
//!     "
//! );
//! let (config, _) = Config::load(&[Document::parse("agent.toml", ConfigFormat::Toml, &text)])?;
//! let gateway = Gateway::builder(config).local(clock).hook(Narrator).start().await?;
//! gateway.wait_until_settled().await;
//!
//! let body = json!({"model": "models/any", "messages": [{"role": "user", "content": "What time is it?"}]});
//! let request = ModelRequest::new(Dialect::Chat, &body);
//! let response = gateway.complete(&Caller::library(), request).await?;
//! let answer: Value = serde_json::from_slice(&response.bytes().await)?;
//! assert_eq!(answer["choices"][0]["message"]["content"], "It is noon.");
//! assert_eq!(answer["toolgate"]["executed"][0]["result"], "12:00");
//! # gateway.stop(std::time::Duration::ZERO).await;
//! # Ok(()) }
//! ```

mod call_output;
mod decided_calls;
mod earlier_decisions;
mod event_sender;
mod journal;
mod loop_guard;
mod replay;
mod report;
mod resume;
mod run_limits;
mod runs;
mod sink;
mod store;
mod stored_request;
mod task;
mod tool_calls;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use call_output::ExecutedCall;
use journal::{RunJournal, TurnRecord};
pub use journal::{RunRecord, RunState};
use loop_guard::LoopGuard;
use report::RunStopReason;
pub use resume::{CallDecision, ResumeError, ResumeRequest};
pub use runs::{RunDetails, RunQuery, Runs};
use serde_json::Value;
use sink::RunSink;
pub use store::RunStep;
pub(crate) use store::RunStore;
use tool_calls::PendingToolCall;
use toolgate_core::config::RunLimits;
use toolgate_llm::history;
use toolgate_llm::prompt::RequestedToolCall;
use toolgate_llm::provider_turn::ProviderTurn;
use toolgate_llm::tools::CallerTools;
use toolgate_llm::turn::ModelTurn;
use toolgate_llm::{RequestBody, TokenUsage};
use turn::{TurnError, TurnOutput};

pub use crate::hook::{RunEvent, RunEventKind};
use crate::models::{ModelCall, ModelError};
use crate::store::{StoreError, unix_millis};
use toolgate_mcp::fair_queue::Slot;

/// State of a run in progress.
struct AgentRun {
    id: String,
    runs: Runs,
    /// The original request from the caller.
    model_call: ModelCall,
    /// Tools defined in the caller's request, which only the caller can execute.
    caller_tools: CallerTools,
    limits: RunLimits,
    started_at: Instant,
    /// Time that the run took before it was resumed.
    earlier_time: Duration,
    /// Servers whose tools are missing because they have never been connected.
    missing_servers: Vec<String>,
    /// Conversation items added since the original request.
    history: Vec<Value>,
    /// Original form of the turns with tool calls among them that the provider wrote in another dialect.
    provider_turns: Vec<Option<Arc<ProviderTurn>>>,
    /// Number of model turns so far, including the current one.
    turn_count: u32,
    /// Number of turns that requested tool calls.
    tool_turn_count: u32,
    /// The text of each turn.
    turns: Vec<String>,
    executed: Vec<ExecutedCall>,
    loop_guard: LoopGuard,
    usage: TokenUsage,
    micro_usd: u64,
    /// Output of the most recent turn.
    last_output: Option<TurnOutput>,
    journal: RunJournal,
    record: RunRecord,
    _slot: Slot,
}

/// Result of a run: why it stopped and what is left to do.
struct RunEnd {
    stop: RunStopReason,
    pending: Vec<PendingToolCall>,
    /// The model failure that ended the run.
    error: Option<TurnError>,
}

impl RunEnd {
    /// Returns whether the last turn is part of the answer, rather than one whose calls were executed.
    fn answers_with_last_turn(&self) -> bool {
        let ended = matches!(self.stop, RunStopReason::Done | RunStopReason::CallerTool);
        self.error.is_none() && (ended || !self.pending.is_empty())
    }
}

impl AgentRun {
    /// Persists the final state of the run.
    async fn record_end(&mut self, end: &RunEnd) {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let iterations = self.iterations();
        let record = &mut self.record;
        record.state = match end.stop {
            RunStopReason::Done => RunState::Done,
            RunStopReason::Error => RunState::Failed,
            RunStopReason::Interrupted(state) => state,
            _ => RunState::Waiting,
        };
        record.stop_reason = Some(end.stop.as_str().to_owned());
        record.iterations = i64::from(iterations);
        record.input_tokens = count(self.usage.input);
        record.output_tokens = count(self.usage.output);
        record.cost_micro_usd = count(self.micro_usd);
        record.ended_at = Some(unix_millis(SystemTime::now()));
        self.journal.record_ended(&self.record).await;
        self.report_end(end);
    }

    /// Alternates model turns and tool calls until the run ends.
    async fn run_turns(&mut self, sink: &mut RunSink) -> RunEnd {
        loop {
            match self.exhausted_limit() {
                Some(what) if self.turn_count == 0 => {
                    return self.end_with_error(TurnError::Error(ModelError::LimitExhausted(what)));
                }
                Some(what) => return self.end_with(RunStopReason::Budget(what)),
                None => {}
            }
            self.turn_count += 1;
            let model_call = match self.next_model_call() {
                Ok(model_call) => model_call,
                Err(error) => return self.end_with_error(TurnError::Error(error)),
            };
            let output =
                match before_deadline(self.deadline(), self.run_turn(&model_call, sink)).await {
                    Some(Ok(output)) => output,
                    Some(Err(error)) => return self.end_with_error(error),
                    None => return self.end_with(RunStopReason::Budget("time")),
                };
            let calls: Vec<_> = output.turn.tool_calls().cloned().collect();
            let (awaits_caller, paused) =
                (output.turn.has_pending_caller_call(), output.is_paused());
            let (text, items) = (output.turn.text(), output.items.clone());
            let provider_turn = output.provider_turn.clone();
            if let Err(error) = self.record_turn(&output, &calls, &text).await {
                return self.end_with_error(TurnError::Error(error.into()));
            }
            self.turns.push(text);
            self.tool_turn_count += u32::from(!calls.is_empty());
            self.last_output = Some(output);
            if calls.is_empty() && !paused {
                return self.end_with(if awaits_caller {
                    RunStopReason::CallerTool
                } else {
                    RunStopReason::Done
                });
            }
            if let Some(stop) = self.limit_before_calls(&calls) {
                return self.end_with_pending(stop, calls);
            }
            if calls.is_empty() {
                if let Err(error) = self.journal.record_answers(&[]).await {
                    return self.end_with_error(TurnError::Error(error.into()));
                }
                self.history.extend(items);
                continue;
            }
            // Calls beyond the limit are returned to the caller unexecuted.
            let mut calls = calls;
            let excess = calls.split_off(self.remaining_calls().min(calls.len()));
            let mut results = match self.run_calls(calls, &model_call, sink).await {
                Ok(results) => results,
                Err(error) => return self.end_with_error(TurnError::Error(error)),
            };
            if !excess.is_empty() {
                let mut end = self.end_with_pending(RunStopReason::Budget("tool_calls"), excess);
                end.pending.splice(..0, results.pending.drain(..));
                return end;
            }
            if !results.pending.is_empty() || awaits_caller {
                let is_callers = |pending: &PendingToolCall| pending.is_caller_tool;
                let stop = if awaits_caller || results.pending.iter().any(is_callers) {
                    RunStopReason::CallerTool
                } else {
                    RunStopReason::NeedsApproval
                };
                return RunEnd {
                    pending: results.pending,
                    ..self.end_with(stop)
                };
            }
            if let Err(error) = self.journal.record_answers(&results.items).await {
                return self.end_with_error(TurnError::Error(error.into()));
            }
            self.history.extend(items);
            self.history.extend(results.items);
            self.provider_turns.push(provider_turn);
        }
    }

    async fn record_turn(
        &self,
        output: &TurnOutput,
        calls: &[RequestedToolCall],
        text: &str,
    ) -> Result<(), StoreError> {
        let turn = TurnRecord {
            items: &output.items,
            calls,
            text,
            provider_turn: output.provider_turn.as_deref(),
            usage: output.turn.usage.unwrap_or_default(),
            micro_usd: output.micro_usd,
        };
        self.journal.record_turn(turn).await
    }

    /// Runs one turn and reports its start and end to the hook.
    async fn run_turn(
        &mut self,
        model_call: &ModelCall,
        sink: &mut RunSink,
    ) -> Result<TurnOutput, TurnError> {
        let turn = self.turn_count;
        let request_id = model_call.context.id.as_deref().unwrap_or_default();
        sink.send_event(RunEventKind::TurnStarted { turn, request_id });
        let output = self.request_turn(model_call, sink).await?;
        let usage = output.turn.usage.unwrap_or_default();
        sink.send_event(RunEventKind::TurnEnded { turn, usage });
        Ok(output)
    }

    /// Builds the model request for the next turn.
    fn next_model_call(&self) -> Result<ModelCall, ModelError> {
        let id = self.model_call.context.id.as_deref().unwrap_or(&self.id);
        let mut model_call = self.model_call.clone();
        let mut context = (*model_call.context).clone();
        let hooks = self.runs.engine().hooks();
        context.id = Some(hooks.turn_id(id, self.turn_count));
        context.parent = Some(id.to_owned());
        context.run = Some(self.id.clone());
        model_call.context = Arc::new(context);
        model_call.needs_usage = true;
        model_call.has_cost_limit = self.limits.micro_usd.is_some();
        if self.history.is_empty() {
            return Ok(model_call);
        }
        model_call.provider_turns.clone_from(&self.provider_turns);
        let (dialect, body) = (model_call.request.dialect, &self.model_call.body);
        let conversation = history::append_items(dialect, body, &self.history);
        let mut edit = body
            .edit()
            .set(history::conversation_field(dialect), &conversation);
        if let Some(choice) = history::relax_tool_choice(dialect, body) {
            edit = edit.set("tool_choice", &choice);
        }
        model_call.body = RequestBody::parse(edit.finish())?;
        Ok(model_call)
    }

    fn end_with(&self, stop: RunStopReason) -> RunEnd {
        RunEnd {
            stop,
            pending: Vec::new(),
            error: None,
        }
    }

    fn end_with_pending(&self, stop: RunStopReason, calls: Vec<RequestedToolCall>) -> RunEnd {
        let pending = calls.into_iter().map(|call| {
            if self.caller_tools.contains(&call.name) {
                PendingToolCall::for_caller(call)
            } else {
                PendingToolCall::for_approver(call)
            }
        });
        RunEnd {
            stop,
            pending: pending.collect(),
            error: None,
        }
    }

    fn end_with_error(&self, error: TurnError) -> RunEnd {
        RunEnd {
            stop: RunStopReason::Error,
            pending: Vec::new(),
            error: Some(error),
        }
    }

    fn last_turn(&self) -> ModelTurn {
        let last = self.last_output.as_ref();
        last.map(|output| output.turn.clone()).unwrap_or_default()
    }
}

/// Awaits `work` and returns `None` if the deadline passes first.
async fn before_deadline<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), work).await.ok(),
    }
}

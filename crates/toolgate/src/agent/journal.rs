//! The journal of a run. Each step is stored before it is taken, so that a run can be resumed after a
//! crash and no call is ever executed twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use serde_json::{Value, json};
use toolgate_llm::TokenUsage;
use toolgate_llm::prompt::{MediaSource, PromptPart, RequestedToolCall};
use toolgate_llm::provider_turn::ProviderTurn;

use super::call_output::ExecutedCall;
use super::store::RunStore;
use super::tool_calls::PendingToolCall;
use crate::store::{StoreError, unix_millis};

/// Summary of a run, as stored and listed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunRecord {
    /// Id of the run.
    pub id: String,
    /// Name of the caller's key.
    pub caller: Option<String>,
    /// Id of the request that started it.
    pub request_id: String,
    /// API of the request.
    pub dialect: String,
    /// Model name from the request.
    pub model: String,
    /// Whether the response is streamed.
    pub stream: bool,
    /// Current state.
    pub state: RunState,
    /// Reason why it stopped.
    pub stop_reason: Option<String>,
    /// Model responses whose tool calls were dealt with.
    pub iterations: i64,
    /// Prompt tokens of all model requests.
    pub input_tokens: i64,
    /// Tokens that the model produced.
    pub output_tokens: i64,
    /// Cost in millionths of a dollar.
    pub cost_micro_usd: i64,
    /// Milliseconds since the Unix epoch.
    pub started_at: i64,
    /// Milliseconds since the Unix epoch.
    pub ended_at: Option<i64>,
}

/// Lifecycle state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// The run is in progress.
    Running,
    /// The model gave its final answer.
    Done,
    /// The run stopped at a limit or with calls that someone must approve or execute.
    Waiting,
    /// The model or the gateway failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// The gateway stopped during the run.
    Interrupted,
}

/// What the journal keeps of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnRecord<'a> {
    /// Items that extend the conversation.
    pub(super) items: &'a [Value],
    pub(super) calls: &'a [RequestedToolCall],
    pub(super) text: &'a str,
    pub(super) provider_turn: Option<&'a ProviderTurn>,
    pub(super) usage: TokenUsage,
    pub(super) micro_usd: u64,
}

/// Appends the steps of one run to the store; clones share the sequence number.
#[derive(Clone, Debug)]
pub(super) struct RunJournal {
    store: RunStore,
    run_id: Arc<str>,
    next_seq: Arc<AtomicI64>,
}

impl RunState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Running,
        Self::Done,
        Self::Waiting,
        Self::Failed,
        Self::Cancelled,
        Self::Interrupted,
    ];

    /// Returns the name used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// Returns the state with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl RunJournal {
    /// Creates a journal whose next step gets sequence number `next`.
    pub(super) fn new(store: &RunStore, run: &str, next: i64) -> Self {
        Self {
            store: store.clone(),
            run_id: run.into(),
            next_seq: Arc::new(AtomicI64::new(next)),
        }
    }

    pub(super) async fn record_turn(&self, turn: TurnRecord<'_>) -> Result<(), StoreError> {
        let TurnRecord {
            items,
            text,
            provider_turn,
            usage,
            micro_usd,
            ..
        } = turn;
        let calls: Vec<Value> = turn.calls.iter().map(call_to_value).collect();
        let mut step = json!({"kind": "turn", "items": items, "calls": calls, "text": text,
            "input_tokens": usage.input, "output_tokens": usage.output, "cached_tokens": usage.cached,
            "reasoning_tokens": usage.reasoning, "cost_micro_usd": micro_usd});
        if let Some(ProviderTurn { dialect, items, .. }) = provider_turn {
            step["provider"] = json!({"dialect": dialect.as_str(), "items": items});
        }
        self.append(step).await
    }

    /// Records that a call is about to run.
    pub(super) async fn record_call_opened(
        &self,
        call: &RequestedToolCall,
    ) -> Result<(), StoreError> {
        self.append(json!({"kind": "call_opened", "id": call.id, "name": call.name, "arguments": call.arguments}))
            .await
    }

    pub(super) async fn record_call_closed(
        &self,
        executed: &ExecutedCall,
    ) -> Result<(), StoreError> {
        let parts: Vec<Value> = executed.parts.iter().map(part_to_value).collect();
        self.append(
            json!({"kind": "call_closed", "id": executed.call.id, "name": executed.call.name,
            "arguments": executed.call.arguments, "result": parts, "is_error": executed.is_error,
            "is_outage": executed.is_outage, "turn": executed.turn, "ms": executed.ms}),
        )
        .await
    }

    /// Records that a call is left for the caller or an approver.
    pub(super) async fn record_call_pending(
        &self,
        pending: &PendingToolCall,
    ) -> Result<(), StoreError> {
        self.append(
            json!({"kind": "call_waits", "id": pending.call.id, "name": pending.call.name,
            "own": pending.is_caller_tool, "approval_id": pending.approval, "inner": pending.script_calls_value(), "made": pending.calls_made}),
        )
        .await
    }

    /// Records that every call of a turn has a result; `items` extend the conversation.
    pub(super) async fn record_answers(&self, items: &[Value]) -> Result<(), StoreError> {
        self.append(json!({"kind": "answered", "items": items}))
            .await
    }

    pub(super) async fn record_resumed(&self, by: &str) -> Result<(), StoreError> {
        self.append(json!({"kind": "resumed", "by": by})).await
    }

    /// Records that the run ended, possibly to be resumed later.
    pub(super) async fn record_ended(&self, record: &RunRecord) {
        let step = json!({"kind": "ended", "state": record.state.as_str(), "stop_reason": record.stop_reason});
        let written = match self.append(step).await {
            Ok(()) => self.store.update(record).await,
            error => error,
        };
        if let Err(error) = written {
            tracing::error!(%error, run = %self.run_id, "failed to record the end of a run");
        }
    }

    async fn append(&self, step: Value) -> Result<(), StoreError> {
        let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
        let now = unix_millis(SystemTime::now());
        self.store.put_step(&self.run_id, seq, &step, now).await
    }
}

fn call_to_value(call: &RequestedToolCall) -> Value {
    json!({"id": call.id, "name": call.name, "arguments": call.arguments})
}

/// Reads a call; `None` if a part of it is missing.
pub(super) fn call_from_value(value: &Value) -> Option<RequestedToolCall> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(RequestedToolCall {
        id: text("id")?,
        name: text("name")?,
        arguments: text("arguments")?,
    })
}

/// Encodes a part of a tool result, which is text or an image.
fn part_to_value(part: &PromptPart) -> Value {
    match part {
        PromptPart::Image {
            source: MediaSource::Data { media_type, data },
            ..
        } => json!({"media_type": media_type, "data": data}),
        PromptPart::Text(text) => json!({"text": text}),
        _ => json!({"text": ""}),
    }
}

/// Reads a part of a tool result; `None` if it is neither text nor an image.
pub(super) fn part_from_value(value: &Value) -> Option<PromptPart> {
    if let Some(text) = value["text"].as_str() {
        return Some(PromptPart::Text(text.to_owned()));
    }
    Some(PromptPart::Image {
        source: MediaSource::Data {
            media_type: value["media_type"].as_str()?.to_owned(),
            data: value["data"].as_str()?.to_owned(),
        },
        detail: None,
    })
}

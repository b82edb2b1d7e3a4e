//! The journal of a run: each step is on disk before it is taken, so that a run can be gone on with
//! after a crash, and no call ever runs twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use serde_json::{Value, json};
use toolgate_llm::Usage;
use toolgate_llm::prompt::{Call, Part, Source};

use super::act::{Executed, Pending};
use crate::call::CallError;
use crate::models::ModelError;
use crate::store::{Store, StoreError, millis};

/// A run, as it may be listed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    pub id: String,
    pub caller: Option<String>,
    pub request_id: String,
    pub dialect: String,
    /// As the caller named it.
    pub model: String,
    pub stream: bool,
    pub state: RunState,
    pub stop_reason: Option<String>,
    pub iterations: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub cost_micro_usd: i64,
    /// Milliseconds since 1970.
    pub started_at: i64,
    pub ended_at: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Running,
    /// The model has its answer.
    Done,
    /// It ended with calls that somebody must decide about or run, or with a bound.
    Waiting,
    Failed,
    Cancelled,
    /// The gateway ended while it ran.
    Interrupted,
}

/// Where the steps of one run go; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    store: Store,
    run: Arc<str>,
    next: Arc<AtomicI64>,
}

impl RunState {
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

    pub fn named(name: &str) -> Option<Self> {
        [
            Self::Running,
            Self::Done,
            Self::Waiting,
            Self::Failed,
            Self::Cancelled,
            Self::Interrupted,
        ]
        .into_iter()
        .find(|state| state.as_str() == name)
    }
}

impl From<StoreError> for ModelError {
    fn from(error: StoreError) -> Self {
        Self::Refused(CallError::Store(error))
    }
}

impl Journal {
    /// A journal whose next step has a number.
    pub(super) fn new(store: &Store, run: &str, next: i64) -> Self {
        Self {
            store: store.clone(),
            run: run.into(),
            next: Arc::new(AtomicI64::new(next)),
        }
    }

    pub(super) async fn turn(
        &self,
        items: &[Value],
        calls: &[Call],
        text: &str,
        (usage, micro_usd): (Usage, u64),
    ) -> Result<(), StoreError> {
        let calls: Vec<Value> = calls.iter().map(call_value).collect();
        self.put(json!({"kind": "turn", "items": items, "calls": calls, "text": text,
            "input_tokens": usage.input, "output_tokens": usage.output, "cached_tokens": usage.cached,
            "reasoning_tokens": usage.reasoning, "cost_micro_usd": micro_usd}))
            .await
    }

    /// A call is about to run.
    pub(super) async fn opened(&self, call: &Call) -> Result<(), StoreError> {
        self.put(json!({"kind": "call_opened", "id": call.id, "name": call.name, "arguments": call.arguments}))
            .await
    }

    pub(super) async fn closed(&self, executed: &Executed) -> Result<(), StoreError> {
        let parts: Vec<Value> = executed.parts.iter().map(part_value).collect();
        self.put(
            json!({"kind": "call_closed", "id": executed.call.id, "name": executed.call.name,
            "arguments": executed.call.arguments, "result": parts, "is_error": executed.is_error,
            "turn": executed.turn, "ms": executed.ms}),
        )
        .await
    }

    /// A call is left to somebody else.
    pub(super) async fn waits(&self, pending: &Pending) -> Result<(), StoreError> {
        self.put(
            json!({"kind": "call_waits", "id": pending.call.id, "name": pending.call.name,
            "own": pending.is_own, "approval_id": pending.approval, "inner": pending.inner_value(), "made": pending.made}),
        )
        .await
    }

    /// All calls of a turn have been answered, and the conversation goes on with this.
    pub(super) async fn answered(&self, items: &[Value]) -> Result<(), StoreError> {
        self.put(json!({"kind": "answered", "items": items})).await
    }

    pub(super) async fn resumed(&self, by: &str) -> Result<(), StoreError> {
        self.put(json!({"kind": "resumed", "by": by})).await
    }

    /// The run has ended, for now or for good.
    pub(super) async fn ended(&self, record: &RunRecord) {
        let step = json!({"kind": "ended", "state": record.state.as_str(), "stop_reason": record.stop_reason});
        let written = match self.put(step).await {
            Ok(()) => self.store.update_run(record).await,
            failed => failed,
        };
        if let Err(error) = written {
            tracing::error!(%error, run = %self.run, "the end of a run could not be written");
        }
    }

    async fn put(&self, step: Value) -> Result<(), StoreError> {
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        let now = millis(SystemTime::now());
        self.store.put_step(&self.run, seq, &step, now).await
    }
}

fn call_value(call: &Call) -> Value {
    json!({"id": call.id, "name": call.name, "arguments": call.arguments})
}

pub(super) fn call_of(value: &Value) -> Call {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    Call {
        id: text("id"),
        name: text("name"),
        arguments: text("arguments"),
    }
}

/// A part of a tool's answer; there are texts and images.
fn part_value(part: &Part) -> Value {
    match part {
        Part::Image {
            source: Source::Data { media_type, data },
            ..
        } => json!({"media_type": media_type, "data": data}),
        Part::Text(text) => json!({"text": text}),
        _ => json!({"text": ""}),
    }
}

pub(super) fn part_of(value: &Value) -> Part {
    match (value["media_type"].as_str(), value["data"].as_str()) {
        (Some(media_type), Some(data)) => Part::Image {
            source: Source::Data {
                media_type: media_type.to_owned(),
                data: data.to_owned(),
            },
            detail: None,
        },
        _ => Part::Text(value["text"].as_str().unwrap_or_default().to_owned()),
    }
}

//! Recorded calls of a suspended script. To resume, the script runs again from its first line and its
//! earlier calls are answered from here. Scripts have no clock and no randomness, so they reach the same
//! point again.

use std::time::SystemTime;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::hash::sha256_hex;
use toolgate_script::protocol::{ScriptCall, ScriptCallResult};
use uuid::Uuid;

use super::ExecuteRequest;
use crate::store::unix_millis;

/// A call and its result.
#[derive(Clone, Debug)]
pub(super) struct ScriptStep {
    server: String,
    tool: String,
    arguments: Box<RawValue>,
    answer: ScriptCallResult,
}

/// Identifies a suspended script when the same call is made again.
#[derive(Clone, Debug)]
pub(super) struct ScriptKey {
    pub(super) caller: String,
    pub(super) session: String,
    /// Id the model gave the call; empty if there is none.
    pub(super) call: String,
    /// Hash of the code.
    pub(super) digest: String,
    /// Agent run the call belongs to; empty if there is none.
    pub(super) run: String,
    /// Hash of the request's filters and forwarded headers, which are constant within a run.
    pub(super) context: String,
}

/// Stored state of a script that was suspended.
#[derive(Clone, Debug)]
pub(super) struct StoredScript {
    pub(super) id: String,
    pub(super) state: ScriptState,
    /// Recorded calls; `None` for calls not made yet.
    pub(super) steps: Vec<Option<ScriptStep>>,
    /// Expiry in milliseconds since the Unix epoch.
    pub(super) expires_at: i64,
}

/// State of a stored script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptState {
    Waiting,
    /// Being resumed, or was when the gateway stopped.
    Running,
    Done,
}

impl ScriptState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Waiting, Self::Running, Self::Done];
        all.into_iter().find(|state| state.as_str() == name)
    }
}

impl ScriptKey {
    pub(super) fn new(request: &ExecuteRequest<'_>) -> Self {
        let ExecuteRequest {
            caller,
            filters,
            forwarded_headers: headers,
            ..
        } = request;
        Self {
            caller: caller.key().map(ToString::to_string).unwrap_or_default(),
            session: caller.session().unwrap_or_default().to_owned(),
            call: request.call.unwrap_or_default().to_owned(),
            digest: sha256_hex(request.code),
            run: request.run.unwrap_or_default().to_owned(),
            context: sha256_hex(format!("{filters:?} {headers:?}")),
        }
    }

    /// Returns whether the script belongs to an agent run, in which each call is made only once.
    pub(super) fn belongs_to_run(&self) -> bool {
        !self.run.is_empty()
    }
}

impl StoredScript {
    /// Creates the state of a newly suspended script.
    pub(super) fn new(steps: Vec<Option<ScriptStep>>, expires_at: Option<SystemTime>) -> Self {
        Self {
            id: Uuid::now_v7().to_string(),
            state: ScriptState::Waiting,
            steps,
            expires_at: expires_at.map_or(i64::MAX, unix_millis),
        }
    }
}

impl ScriptStep {
    pub(super) fn new(call: &ScriptCall, answer: &ScriptCallResult) -> Self {
        Self {
            server: call.server.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            answer: answer.clone(),
        }
    }

    pub(super) fn is_same_call(&self, call: &ScriptCall) -> bool {
        self.server == call.server
            && self.tool == call.tool
            && self.arguments.get() == call.arguments.get()
    }

    pub(super) fn answer(&self) -> ScriptCallResult {
        self.answer.clone()
    }

    fn to_value(&self) -> Value {
        let (value, error) = match &self.answer {
            ScriptCallResult::Value(value) => (Some(value), None),
            ScriptCallResult::Error(error) => (None, Some(error)),
        };
        json!({"server": self.server, "tool": self.tool, "arguments": self.arguments.get(),
            "value": value.map(|value| value.get()), "error": error})
    }

    fn from_value(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let raw = |name: &str| RawValue::from_string(text(name)?).ok();
        Some(Self {
            server: text("server")?,
            tool: text("tool")?,
            arguments: raw("arguments")?,
            answer: match text("error") {
                Some(error) => ScriptCallResult::Error(error),
                None => ScriptCallResult::Value(raw("value")?),
            },
        })
    }
}

/// Encodes steps for storage, preserving the exact text of JSON values.
pub(super) fn steps_to_value(steps: &[Option<ScriptStep>]) -> Value {
    let steps = steps.iter();
    steps
        .map(|step| step.as_ref().map_or(Value::Null, ScriptStep::to_value))
        .collect()
}

/// Decodes stored steps. Returns `None` if any step is unreadable, since a made call must not be lost.
pub(super) fn steps_from_value(value: &Value) -> Option<Vec<Option<ScriptStep>>> {
    let steps = value.as_array()?.iter();
    steps
        .map(|step| match step {
            Value::Null => Some(None),
            step => ScriptStep::from_value(step).map(Some),
        })
        .collect()
}

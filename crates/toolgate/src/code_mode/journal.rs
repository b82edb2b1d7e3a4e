//! What a script has called, so that it can be gone on with: run again from its first line, it is
//! answered from here as far as it had come. Scripts have no clock and no chance, so they come to the
//! same place.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use toolgate_script::protocol::{Answer, Call};

use crate::caller::Caller;

/// One call and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    server: String,
    tool: String,
    arguments: Box<RawValue>,
    answer: Answer,
}

/// By what a script that waits is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptKey {
    pub(crate) caller: String,
    /// The id that the model gave its call; empty where there is none.
    pub(crate) call: String,
    /// SHA-256 of the code, in hex.
    pub(crate) digest: String,
}

/// A script that waits, or has waited.
#[derive(Clone, Debug)]
pub(crate) struct KeptScript {
    pub(crate) state: ScriptState,
    /// Calls that have not been made are none.
    pub(crate) steps: Vec<Option<Step>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptState {
    Waiting,
    /// Somebody goes on with it, or did when the gateway ended.
    Running,
    Done,
}

impl ScriptState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Waiting, Self::Running, Self::Done];
        all.into_iter().find(|state| state.as_str() == name)
    }
}

impl ScriptKey {
    pub(super) fn new(caller: &Caller, call: Option<&str>, code: &str) -> Self {
        let hash = Sha256::digest(code.as_bytes());
        Self {
            caller: caller.key().map(ToString::to_string).unwrap_or_default(),
            call: call.unwrap_or_default().to_owned(),
            digest: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

impl Step {
    pub(super) fn new(call: &Call, answer: &Answer) -> Self {
        Self {
            server: call.server.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            answer: answer.clone(),
        }
    }

    pub(super) fn is_of(&self, call: &Call) -> bool {
        self.server == call.server
            && self.tool == call.tool
            && self.arguments.get() == call.arguments.get()
    }

    pub(super) fn answer(&self) -> Answer {
        self.answer.clone()
    }

    fn value(&self) -> Value {
        let (value, error) = match &self.answer {
            Answer::Value(value) => (Some(value), None),
            Answer::Error(error) => (None, Some(error)),
        };
        json!({"server": self.server, "tool": self.tool, "arguments": self.arguments.get(),
            "value": value.map(|value| value.get()), "error": error})
    }

    fn of(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let raw = |name: &str| RawValue::from_string(text(name)?).ok();
        Some(Self {
            server: text("server")?,
            tool: text("tool")?,
            arguments: raw("arguments")?,
            answer: match text("error") {
                Some(error) => Answer::Error(error),
                None => Answer::Value(raw("value")?),
            },
        })
    }
}

/// Steps as they are kept; JSON in them keeps its text.
pub(crate) fn steps_value(steps: &[Option<Step>]) -> Value {
    let steps = steps.iter();
    steps
        .map(|step| step.as_ref().map_or(Value::Null, Step::value))
        .collect()
}

pub(crate) fn steps_of(value: &Value) -> Vec<Option<Step>> {
    let steps = value.as_array().map(Vec::as_slice).unwrap_or_default();
    steps.iter().map(Step::of).collect()
}

//! What a script has called, so that it can be gone on with: run again from its first line, it is
//! answered from here as far as it had come. Scripts have no clock and no chance, so they come to the
//! same place.

use std::time::SystemTime;

use http::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::hash::sha256;
use toolgate_core::scope::Filters;
use toolgate_script::protocol::{Answer, Call};
use uuid::Uuid;

use crate::caller::Caller;
use crate::store::millis;

/// One call and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    server: String,
    tool: String,
    arguments: Box<RawValue>,
    answer: Answer,
}

/// By what a script that waits is known again.
#[derive(Clone, Debug)]
pub(crate) struct ScriptKey {
    pub(crate) caller: String,
    pub(crate) session: String,
    /// The id that the model gave its call; empty where there is none.
    pub(crate) call: String,
    /// Of the code.
    pub(crate) digest: String,
    /// The agent's run that it belongs to; empty where there is none.
    pub(crate) run: String,
    /// Of what the request may see, and of what servers were told of it. Within a run that does not
    /// change.
    pub(crate) context: String,
}

/// A script that waits, or has waited.
#[derive(Clone, Debug)]
pub(crate) struct KeptScript {
    pub(crate) id: String,
    pub(crate) state: ScriptState,
    /// Calls that have not been made are none.
    pub(crate) steps: Vec<Option<Step>>,
    /// From when on it counts no more, in milliseconds since 1970.
    pub(crate) expires_at: i64,
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
    pub(super) fn new(
        caller: &Caller,
        (call, run): (Option<&str>, Option<&str>),
        code: &str,
        (filters, told): (&Filters, &[HeaderMap]),
    ) -> Self {
        Self {
            caller: caller.key().map(ToString::to_string).unwrap_or_default(),
            session: caller.session().unwrap_or_default().to_owned(),
            call: call.unwrap_or_default().to_owned(),
            digest: sha256(code),
            run: run.unwrap_or_default().to_owned(),
            context: sha256(format!("{filters:?} {told:?}")),
        }
    }

    /// Whether a script by this key is that of one call only, which is not made again once it is done.
    pub(super) fn is_unique(&self) -> bool {
        !self.run.is_empty()
    }
}

impl KeptScript {
    /// A script that begins to wait.
    pub(super) fn new(steps: Vec<Option<Step>>, expires_at: Option<SystemTime>) -> Self {
        Self {
            id: Uuid::now_v7().to_string(),
            state: ScriptState::Waiting,
            steps,
            expires_at: expires_at.map_or(i64::MAX, millis),
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

/// Steps as they were kept; none if one of them cannot be read, since what was made must be known.
pub(crate) fn steps_of(value: &Value) -> Option<Vec<Option<Step>>> {
    let steps = value.as_array()?.iter();
    steps
        .map(|step| match step {
            Value::Null => Some(None),
            step => Step::of(step).map(Some),
        })
        .collect()
}

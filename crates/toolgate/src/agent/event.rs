//! Run events, delivered to an embedding program through its [`crate::Hook`].

use std::sync::Arc;

use toolgate_llm::TokenUsage;

use crate::hook::Hook;

/// An event of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunEvent<'a> {
    /// Id of the run.
    pub run: &'a str,
    pub kind: RunEventKind<'a>,
}

/// Kind of a [`RunEvent`], with its details.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RunEventKind<'a> {
    /// A model request is about to be sent under its own request id. Turns count from one.
    TurnStarted { turn: u32, request_id: &'a str },
    /// Text produced by the model; the full text at once if the response is not streamed.
    Text(&'a str),
    /// The model has finished its response.
    TurnEnded { turn: u32, usage: TokenUsage },
    /// A tool call is about to run.
    CallStarted {
        id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    /// A tool call has ended; `outcome` is `ok`, `tool_error`, or the code of the call error.
    CallEnded {
        id: &'a str,
        name: &'a str,
        outcome: &'a str,
    },
    /// The run has ended or is waiting for a decision.
    Ended { stop_reason: &'a str },
}

/// Sends the events of one run to the hook; clones belong to the same run.
#[derive(Clone, Debug)]
pub(super) struct EventSender {
    hook: Arc<dyn Hook>,
    run: Arc<str>,
}

impl EventSender {
    pub(super) fn new(hook: &Arc<dyn Hook>, run: &str) -> Self {
        Self {
            hook: Arc::clone(hook),
            run: run.into(),
        }
    }

    pub(super) fn send(&self, kind: RunEventKind<'_>) {
        self.hook.on_run_event(RunEvent {
            run: &self.run,
            kind,
        });
    }
}

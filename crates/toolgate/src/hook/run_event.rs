//! Events of agent runs, which an embedding program observes through its [`Hook`](super::Hook).

use toolgate_llm::TokenUsage;

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

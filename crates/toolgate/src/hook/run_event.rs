//! Events of agent runs, which an embedding program observes through its [`Hook`](super::Hook).

use toolgate_llm::TokenUsage;

/// An event of one run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunEvent<'a> {
    /// Id of the run.
    pub run: &'a str,
    /// What happened.
    pub kind: RunEventKind<'a>,
}

/// Kind of a [`RunEvent`], with its details.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RunEventKind<'a> {
    /// A model request is about to be sent under its own request id. Turns count from one.
    TurnStarted {
        /// Number of the turn.
        turn: u32,
        /// Request id of the turn.
        request_id: &'a str,
    },
    /// Text produced by the model; the full text at once if the response is not streamed.
    Text(&'a str),
    /// The model has finished its response.
    TurnEnded {
        /// Number of the turn.
        turn: u32,
        /// Tokens used by the turn.
        usage: TokenUsage,
    },
    /// A tool call is about to run.
    CallStarted {
        /// Id that the model gave the call.
        id: &'a str,
        /// Name of the tool as the model sees it.
        name: &'a str,
        /// Arguments as JSON.
        arguments: &'a str,
    },
    /// A tool call has ended.
    CallEnded {
        /// Id that the model gave the call.
        id: &'a str,
        /// Name of the tool as the model sees it.
        name: &'a str,
        /// `ok`, `tool_error`, or the code of the call error.
        outcome: &'a str,
    },
    /// The run has ended or is waiting for a decision.
    Ended {
        /// Reason why it stopped.
        stop_reason: &'a str,
    },
}

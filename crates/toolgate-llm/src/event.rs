//! What happens in one turn of a model, in the words of no dialect.

use serde_json::Value;

/// One thing that happens while a model answers. Parts are told in the order in which the model
/// makes them; only the deltas of tool calls may be interleaved.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first: under which id the provider knows the answer, and which model it is.
    Start {
        id: String,
        model: String,
    },
    Text(String),
    /// What the model says when it will not answer.
    Refusal(String),
    /// Reasoning begins, under an id by which its provider wants to see it again.
    ReasoningStart(String),
    Reasoning(String),
    /// A part of reasoning is complete, with what its provider wants to see again.
    ReasoningEnd(Option<Proof>),
    CallStart {
        index: usize,
        id: String,
        name: String,
    },
    CallDelta {
        index: usize,
        arguments: String,
    },
    CallEnd {
        index: usize,
    },
    /// Something that only its own dialect can say, whole and as it came: an item of a response, or
    /// a block of a message.
    Raw(Value),
    /// What belongs to the text that is being told and is as raw: where it was found.
    Annotation(Value),
    Usage(Usage),
    /// The turn is complete.
    Finish(Finish),
    /// The provider reports an error in the middle of its answer.
    Failed(Failure),
}

/// What proves to a provider that reasoning is its own: a signature, or the reasoning encrypted.
/// It means nothing to any other provider.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// Of Anthropic: the signature of a thinking block.
    Signature(String),
    /// Of Anthropic: a thinking block that nobody may read.
    Redacted(String),
    /// Of OpenAI: the id of a reasoning item, and its encrypted content.
    Encrypted { id: String, content: Option<String> },
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model has said what it wants to say.
    Stop,
    /// One of the caller's stop sequences came.
    Sequence(Option<String>),
    /// The bound on its length, or on the context, was reached.
    Length,
    /// It wants tools to be called.
    Calls,
    /// The provider's filter cut it off, or the model refused.
    Filter,
    /// A reason that only its dialect knows.
    Other(String),
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of the prompt, those from and into a cache included.
    pub input: u64,
    pub output: u64,
    /// Of the input, read from a cache.
    pub cached: u64,
    /// Of the input, written into a cache.
    pub cache_written: u64,
    /// Of the output, spent on reasoning.
    pub reasoning: u64,
}

/// An error in the words of a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// As the provider calls it, such as `overloaded_error`.
    pub kind: Option<String>,
    pub message: String,
    pub code: Option<Value>,
}

/// An answer that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's answer is not understood: {0}")]
pub struct BadAnswer(pub String);

impl BadAnswer {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<serde_json::Error> for BadAnswer {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// More tokens than any answer has; a provider that tells of more is not believed.
const MOST_TOKENS: u64 = 1 << 40;

/// A number of tokens, as a provider tells it.
pub(crate) fn tokens(value: &serde_json::Value) -> Option<u64> {
    value.as_u64().map(|tokens| tokens.min(MOST_TOKENS))
}

impl Usage {
    /// The sum of two requests.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

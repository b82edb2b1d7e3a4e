//! Dialect-neutral events of one model turn, its token usage and its errors.

use serde_json::Value;

/// An event in a model's response. Parts arrive in the order in which the model produces them; only
/// the deltas of tool calls may be interleaved.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// First event, with the provider's response id and model name.
    Start {
        id: String,
        model: String,
    },
    Text(String),
    /// Text of a refusal.
    Refusal(String),
    /// Start of reasoning, with the id that the provider expects when it is sent back.
    ReasoningStart(String),
    Reasoning(String),
    /// End of a reasoning part, with the proof that the provider expects when it is sent back.
    ReasoningEnd(Option<ReasoningProof>),
    CallStart {
        index: usize,
        /// Empty if the provider sends no ids.
        id: String,
        /// Never empty.
        name: String,
    },
    CallDelta {
        index: usize,
        arguments: String,
    },
    CallEnd {
        index: usize,
    },
    /// Dialect-specific content, complete and unmodified: a response item or a message block.
    Raw(Value),
    /// Raw annotation (citation) of the current text.
    Annotation(Value),
    Usage(TokenUsage),
    /// End of the turn.
    Finish(FinishReason),
    /// Error that the provider reports in the middle of its response.
    Error(ProviderError),
}

/// Proof by which a provider recognises reasoning as its own: a signature, or the encrypted
/// reasoning. It is meaningless to any other provider.
#[derive(Clone, Debug, PartialEq)]
pub enum ReasoningProof {
    /// Anthropic: signature of a thinking block.
    Signature(String),
    /// Anthropic: encrypted content of a redacted thinking block.
    Redacted(String),
    /// OpenAI: id of a reasoning item, and its encrypted content.
    Encrypted { id: String, content: Option<String> },
}

/// Reason a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model finished its response.
    Stop,
    /// The model produced one of the caller's stop sequences.
    StopSequence(Option<String>),
    /// The token limit or the context window was reached.
    Length,
    /// The model requested tool calls.
    ToolCalls,
    /// The provider's content filter intervened, or the model refused.
    ContentFilter,
    /// A dialect-specific reason.
    Other(String),
}

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// All prompt tokens, including cache reads and writes.
    pub input: u64,
    pub output: u64,
    /// Input tokens read from a cache.
    pub cached: u64,
    /// Input tokens written to a cache.
    pub cache_written: u64,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
}

/// Error as reported by a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderError {
    /// The provider's error type, such as `overloaded_error`.
    pub kind: Option<String>,
    pub message: String,
    pub code: Option<Value>,
}

/// Error returned when a provider response cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode the model's response: {0}")]
pub struct ResponseDecodeError(pub String);

impl ResponseDecodeError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }
}

/// Creates the error for a tool call without a name, which cannot be executed.
pub(crate) fn nameless_call_error() -> ResponseDecodeError {
    ResponseDecodeError::new("a tool call has no name")
}

impl From<serde_json::Error> for ResponseDecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// Upper bound for reported token counts, far above any real response; keeps sums from
/// overflowing when a provider reports nonsense.
const MAX_TOKEN_COUNT: u64 = 1 << 40;

/// Parses a token count reported by a provider, clamped to [`MAX_TOKEN_COUNT`].
pub(crate) fn parse_token_count(value: &serde_json::Value) -> Option<u64> {
    value.as_u64().map(|tokens| tokens.min(MAX_TOKEN_COUNT))
}

impl TokenUsage {
    /// Adds the counts of two requests.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
            cache_written: self.cache_written.saturating_add(other.cache_written),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

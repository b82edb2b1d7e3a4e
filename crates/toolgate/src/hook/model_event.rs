//! Model requests and responses, as hooks see them.

use std::time::Duration;

use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_llm::TokenUsage;
use toolgate_llm::endpoint::Endpoint;

use crate::caller::Caller;

/// A model request under review, before a provider is chosen.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ModelProposal<'a> {
    /// Who makes the request.
    pub caller: &'a Caller,
    /// Id of the request, or of the turn of a run; empty if it has none.
    pub request_id: &'a str,
    /// API in which the body is written.
    pub dialect: Dialect,
    /// Endpoint that the request is forwarded to, such as that of embeddings; `None` for the one of the
    /// dialect.
    pub endpoint: Option<Endpoint>,
    /// The body as JSON text, as edited by earlier hooks. Tools of the gateway are added later. Of a form,
    /// which hooks cannot edit, it has the fields `model` and `stream`.
    pub body: &'a str,
}

/// Result of the review of a model request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ModelReview {
    /// Send the request.
    Proceed,
    /// Send another body, which later hooks review in turn. It must keep the value of `stream`.
    Edit(Value),
    /// Refuse the request; later hooks are not asked.
    Refuse {
        /// Reason, told to the caller.
        reason: String,
    },
}

/// The end of a request to one provider.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ModelResponseEvent<'a> {
    /// Who made the request.
    pub caller: &'a Caller,
    /// Id of the request, or of the turn of a run; empty if it has none.
    pub request_id: &'a str,
    /// Name of the provider.
    pub provider: &'a str,
    /// Name of the model at the provider.
    pub model: &'a str,
    /// HTTP status of the response; 0 without a response.
    pub status: u16,
    /// `ok`, `error`, `broken` or `cancelled`.
    pub outcome: &'a str,
    /// Whether the caller asked for a stream.
    pub stream: bool,
    /// Tokens used, if the provider reported them.
    pub usage: Option<TokenUsage>,
    /// Cost in millionths of a dollar, if the price is known.
    pub cost_micro_usd: Option<u64>,
    /// Time from the request to the end of the response.
    pub elapsed: Duration,
}

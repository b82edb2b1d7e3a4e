//! Why a model request has no answer.

use http::StatusCode;
use toolgate_core::sse::DecodeError;
use toolgate_llm::BadField;
use toolgate_llm::body::BodyError;
use toolgate_llm::event::{BadAnswer, Failure};
use toolgate_llm::upstream::SendError;

use crate::call::CallError;

/// Why a model request has no answer. Errors that a provider answers with are answers.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("`model` is missing; write it as `provider/model`")]
    NoModelNamed,
    #[error(transparent)]
    Field(#[from] BadField),
    #[error("there is no model `{name}`; {hint}")]
    UnknownModel { name: String, hint: String },
    #[error("provider `{0}` does not count tokens")]
    CannotCount(String),
    #[error(transparent)]
    Refused(#[from] CallError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Answer(#[from] BadAnswer),
    #[error("the model's answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the model's answer broke off")]
    BrokeOff,
    /// The provider said so in the middle of its answer.
    #[error("the model failed: {}", .0.message)]
    Failed(Failure),
    #[error(transparent)]
    Event(#[from] DecodeError),
    #[error(
        "nobody knows what `{0}` costs, and something is bounded in dollars; add it to `[prices]`"
    )]
    NoPrice(String),
    #[error("the run may use no {0}")]
    NothingLeft(&'static str),
    #[error("the run was cancelled")]
    Cancelled,
}

impl ModelError {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Body(_) | Self::NoModelNamed | Self::Field(_) => StatusCode::BAD_REQUEST,
            Self::UnknownModel { .. } | Self::CannotCount(_) => StatusCode::NOT_FOUND,
            Self::NoPrice(_) => StatusCode::FORBIDDEN,
            Self::NothingLeft(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Refused(CallError::KeyGone(_)) => StatusCode::UNAUTHORIZED,
            Self::Refused(CallError::Limited { .. }) => StatusCode::TOO_MANY_REQUESTS,
            Self::Refused(CallError::Stopping) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused(_) => StatusCode::BAD_REQUEST,
            Self::Send(SendError::Timeout { .. }) => StatusCode::GATEWAY_TIMEOUT,
            Self::Send(SendError::NoKey { .. }) => StatusCode::SERVICE_UNAVAILABLE,
            // No SDK repeats a request that is answered with this.
            Self::Cancelled => StatusCode::FAILED_DEPENDENCY,
            Self::Send(_)
            | Self::Answer(_)
            | Self::TooLarge(_)
            | Self::BrokeOff
            | Self::Failed(_)
            | Self::Event(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// A word for machines.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Body(_) | Self::NoModelNamed | Self::Field(_) => "bad_request",
            Self::UnknownModel { .. } | Self::CannotCount(_) => "unknown",
            Self::Refused(error) => error.code(),
            Self::Send(SendError::NoKey { .. }) => "no_key",
            Self::Send(SendError::Timeout { .. }) => "timeout",
            Self::Send(SendError::Unreachable { .. }) => "unreachable",
            Self::Answer(_) => "bad_answer",
            Self::TooLarge(_) => "too_large",
            Self::BrokeOff => "broken",
            Self::Failed(_) => "failed",
            Self::Event(_) => "bad_answer",
            Self::NoPrice(_) => "no_price",
            Self::NothingLeft(_) => "limited",
            Self::Cancelled => "cancelled",
        }
    }

    /// In the words that the model APIs share.
    pub fn failure(&self) -> Failure {
        let kind = match self.status().as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let code = match self {
            Self::UnknownModel { .. } => Some("model_not_found"),
            Self::Refused(CallError::Limited { .. }) => Some("rate_limited"),
            Self::Send(_) => Some("provider_unavailable"),
            _ => None,
        };
        Failure {
            kind: Some(kind.to_owned()),
            message: self.to_string(),
            code: code.map(serde_json::Value::from),
        }
    }
}

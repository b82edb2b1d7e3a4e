//! Errors of model requests.

use http::StatusCode;
use toolgate_core::sse::SseDecodeError;
use toolgate_llm::FieldError;
use toolgate_llm::body::BodyError;
use toolgate_llm::event::{ProviderError, ResponseDecodeError};
use toolgate_llm::messages::{LOST_THREAD_CODE, LOST_THREAD_FIELD};
use toolgate_llm::upstream::SendError;

use crate::call::CallError;
use crate::store::StoreError;

/// Reason why a model request has no response. Error statuses from providers count as responses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum ModelError {
    /// The body is no valid JSON object.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body names no model.
    #[error("`model` is missing; write it as `provider/model`")]
    MissingModel,
    /// A field of the body is invalid.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// No provider has the model.
    #[error("unknown model `{name}`; {hint}")]
    UnknownModel { name: String, hint: String },
    /// The provider does not offer the endpoint.
    #[error("provider `{provider}` has no endpoint `{endpoint}`; name a model of another provider")]
    NoEndpoint {
        provider: String,
        endpoint: &'static str,
    },
    /// The response is not stored, or not for this caller.
    #[error("no response with id `{0}`")]
    UnknownResponse(String),
    /// The stored response does not allow the operation.
    #[error("the response is complete; only one that runs in the background can be cancelled")]
    NotCancellable,
    /// The gateway refused the request.
    #[error(transparent)]
    Refused(#[from] CallError),
    /// The caller may not use tools that the provider runs.
    #[error(
        "this key may not use tools that the provider runs ({0}); an administrator can set `provider_tools = true` for it"
    )]
    ProviderTools(String),
    /// A hook of the embedding program refused the request.
    #[error("the request was refused: {0}")]
    RefusedByHook(String),
    /// The provider could not be reached.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The provider's response could not be read.
    #[error(transparent)]
    Answer(#[from] ResponseDecodeError),
    /// The response exceeds this number of bytes.
    #[error("the model's response is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection ended before the response did.
    #[error("the model's response was interrupted")]
    Incomplete,
    /// The provider reported the error in the middle of its response.
    #[error("the model failed: {}", .0.message)]
    Failed(ProviderError),
    /// The provider's stream could not be read.
    #[error(transparent)]
    Event(#[from] SseDecodeError),
    /// A limit in dollars applies, but the model has no price.
    #[error("the price of `{0}` is unknown, but a limit in dollars applies; add it to `[prices]`")]
    NoPrice(String),
    /// A limit of the run is used up.
    #[error("the run's limit on {0} allows no model call")]
    LimitExhausted(&'static str),
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
}

impl From<StoreError> for ModelError {
    fn from(error: StoreError) -> Self {
        Self::Refused(CallError::Store(error))
    }
}

impl ModelError {
    /// Returns the HTTP status that fits the error.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Body(_) | Self::MissingModel | Self::Field(_) | Self::NotCancellable => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownModel { .. } | Self::NoEndpoint { .. } | Self::UnknownResponse(_) => {
                StatusCode::NOT_FOUND
            }
            Self::NoPrice(_) | Self::RefusedByHook(_) | Self::ProviderTools(_) => {
                StatusCode::FORBIDDEN
            }
            Self::LimitExhausted(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Refused(CallError::InvalidKey(_)) => StatusCode::UNAUTHORIZED,
            Self::Refused(CallError::Limited { .. }) => StatusCode::TOO_MANY_REQUESTS,
            Self::Refused(
                CallError::Stopping
                | CallError::Unrecorded
                | CallError::Store(_)
                | CallError::Overloaded { .. },
            ) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Refused(_) => StatusCode::BAD_REQUEST,
            Self::Send(SendError::Timeout { .. }) => StatusCode::GATEWAY_TIMEOUT,
            Self::Send(SendError::NoKey { .. }) => StatusCode::SERVICE_UNAVAILABLE,
            // SDKs do not retry a request that fails with this status.
            Self::Cancelled => StatusCode::FAILED_DEPENDENCY,
            Self::Send(_)
            | Self::Answer(_)
            | Self::TooLarge(_)
            | Self::Incomplete
            | Self::Failed(_)
            | Self::Event(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Machine-readable error code.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Body(_) | Self::MissingModel | Self::Field(_) | Self::NotCancellable => {
                "bad_request"
            }
            Self::UnknownModel { .. } | Self::NoEndpoint { .. } | Self::UnknownResponse(_) => {
                "unknown"
            }
            Self::Refused(error) => error.code(),
            Self::Send(SendError::NoKey { .. }) => "no_key",
            Self::Send(SendError::Timeout { .. }) => "timeout",
            Self::Send(SendError::Unreachable { .. }) => "unreachable",
            Self::Answer(_) => "bad_answer",
            Self::TooLarge(_) => "too_large",
            Self::Incomplete => "broken",
            Self::Failed(_) => "failed",
            Self::Event(_) => "bad_answer",
            Self::NoPrice(_) => "no_price",
            Self::RefusedByHook(_) => "refused",
            Self::ProviderTools(_) => "denied",
            Self::LimitExhausted(_) => "limited",
            Self::Cancelled => "cancelled",
        }
    }

    /// Converts the error into the form shared by the model APIs.
    pub fn to_provider_error(&self) -> ProviderError {
        let kind = match self.status().as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let code = match self {
            Self::UnknownModel { .. } => Some("model_not_found"),
            Self::Field(error) if error.field == LOST_THREAD_FIELD => Some(LOST_THREAD_CODE),
            Self::Refused(CallError::Limited { .. }) => Some("rate_limited"),
            Self::Send(_) => Some("provider_unavailable"),
            _ => None,
        };
        ProviderError {
            kind: Some(kind.to_owned()),
            message: self.to_string(),
            code: code.map(serde_json::Value::from),
        }
    }
}

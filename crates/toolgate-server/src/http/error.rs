//! API errors in the format of the model APIs: `{"error": {"message", "type", "code"}}`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use toolgate::CallError;
use toolgate::models::ProviderError;
use toolgate::store::StoreError;
use utoipa::ToSchema;

use super::connections::{BodyRefused, BodyTimeout};

/// Time after which a store that cannot be written is worth another try.
pub(crate) const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// An error response: status, stable code and message.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Time after which the request can be repeated.
    retry_after: Option<Duration>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
struct ErrorDetail {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    code: &'static str,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Creates a 429 error. If the time to wait is known, the response has the header `Retry-After`.
    pub(crate) fn too_many_requests(
        message: impl Into<String>,
        retry_after: Option<Duration>,
    ) -> Self {
        Self {
            retry_after,
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message)
        }
    }

    /// The store cannot be written.
    pub(crate) fn store_unavailable(message: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "store_unavailable", message).with_retry_after(STORE_RETRY_AFTER)
    }

    /// Converts an error of the store, whose cause is for the operator and not shown to clients.
    pub(crate) fn from_store(error: &StoreError) -> Self {
        match error {
            StoreError::Unreadable
            | StoreError::UnreadableSetting(_)
            | StoreError::UnreadableServer(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "store",
                "stored data cannot be read; see the gateway's log",
            ),
            _ => Self::store_unavailable(
                "the gateway's store cannot be used and nothing was changed; try again in a moment, or see the gateway's log",
            ),
        }
    }

    /// Tells the client when to try again.
    pub(crate) fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    pub(crate) fn overloaded(message: impl Into<String>, retry_after: Duration) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "overloaded", message).with_retry_after(retry_after)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Converts the error to the provider-independent form that each model API's format is written from.
    pub(crate) fn to_failure(&self) -> ProviderError {
        ProviderError {
            kind: Some(self.error_type().to_owned()),
            message: self.message.clone(),
            code: Some(self.code.into()),
        }
    }

    fn error_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 | 403 => "authentication_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = ErrorDetail {
            message: self.message.clone(),
            kind: self.error_type(),
            code: self.code,
        };
        let mut response = (self.status, Json(ErrorBody { error })).into_response();
        if let Some(after) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, retry_after_value(after));
        }
        // `request_layer` rewrites the body for clients that expect another format.
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// Returns the value of the header `Retry-After`.
pub(super) fn retry_after_value(after: Duration) -> HeaderValue {
    // Rounded up: a client that is too early by a fraction of a second would be refused again.
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    HeaderValue::from(seconds)
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        if find_cause::<BodyTimeout>(&rejection).is_some() {
            let status = StatusCode::REQUEST_TIMEOUT;
            return Self::new(status, "request_timeout", BodyTimeout.to_string());
        }
        if let Some(refused) = find_cause::<BodyRefused>(&rejection) {
            return refused.to_error();
        }
        Self::new(rejection.status(), "invalid_request", rejection.body_text())
    }
}

/// Returns the cause of an error that has a certain type.
fn find_cause<T: std::error::Error + Copy + 'static>(error: &BytesRejection) -> Option<T> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(*found);
        }
        cause = error.source();
    }
    None
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), "invalid_request", rejection.body_text())
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::InvalidKey(_) => {
                Self::new(StatusCode::UNAUTHORIZED, "unauthorized", error.to_string())
            }
            CallError::Stopping => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "stopping", error.to_string())
            }
            CallError::Overloaded { retry_after } => {
                Self::overloaded(error.to_string(), retry_after)
            }
            error if error.is_unrecorded() => Self::store_unavailable(error.to_string()),
            error => match error.key_limit() {
                Some((_, retry_after)) => Self::too_many_requests(error.to_string(), retry_after),
                None => Self::bad_request(error.to_string()),
            },
        }
    }
}

pub(crate) async fn route_not_found(uri: Uri) -> ApiError {
    let path = uri.path();
    ApiError::not_found(format!(
        "unknown path `{path}`; /api/openapi.json lists all routes"
    ))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!(
        "`{}` does not support {method}; see /api/openapi.json",
        uri.path()
    );
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        message,
    )
}

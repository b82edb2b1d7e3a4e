//! A request that HTTP turns away before anything runs.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::rpc::{INVALID_REQUEST, RpcError};

/// The status, and a JSON-RPC error as the body.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    body: String,
}

impl Refusal {
    /// A refusal that the protocol gives no error code for.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let error = RpcError::new(INVALID_REQUEST, message);
        Self::with_body(status, error.answer("null"))
    }

    pub(crate) fn with_body(status: StatusCode, body: String) -> Self {
        Self { status, body }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json(self.status, self.body)
    }
}

/// A JSON body with this status.
pub(crate) fn json(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

//! Rejection of an HTTP request before anything runs.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::rpc::{INVALID_REQUEST, ZooError};

/// A status, with a JSON-RPC error as the body.
#[derive(Debug)]
pub(crate) struct Rejection {
    status: StatusCode,
    body: String,
}

impl Rejection {
    /// Creates a rejection for which the protocol defines no error code.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let error = ZooError::new(INVALID_REQUEST, message);
        Self::with_body(status, error.response("null"))
    }

    pub(crate) fn with_body(status: StatusCode, body: String) -> Self {
        Self { status, body }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        json(self.status, self.body)
    }
}

/// Builds a response with this status and JSON body.
pub(crate) fn json(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

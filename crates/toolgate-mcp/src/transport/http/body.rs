//! Bodies of responses.

use http::header::CONTENT_TYPE;
use reqwest::Response;

use super::errors::{lost_error, root_cause};
use crate::MAX_MESSAGE_BYTES;
use crate::jsonrpc::{self, Incoming, RpcError};
use crate::transport::RequestError;

/// Maximum number of characters quoted from an error body.
const MAX_EXCERPT_CHARS: usize = 300;

pub(in crate::transport) fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    content_type
        .is_some_and(|content_type| content_type.as_bytes().starts_with(b"text/event-stream"))
}

/// Reads a whole body, up to the maximum size of a message.
pub(in crate::transport) async fn read_body(
    mut response: Response,
) -> Result<String, RequestError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| lost_error(&root_cause(&error)))?
    {
        if bytes.len() + chunk.len() > MAX_MESSAGE_BYTES {
            return Err(RequestError::TooLarge(MAX_MESSAGE_BYTES));
        }
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes)
        .map_err(|_| RequestError::Malformed("body is not valid UTF-8".to_owned()))
}

/// Returns the JSON-RPC error that a body consists of.
pub(super) fn parse_rpc_error(body: &str) -> Option<RpcError> {
    match jsonrpc::parse(body).ok()?.pop()? {
        Incoming::Response {
            result: Err(error), ..
        } => Some(error),
        _ => None,
    }
}

/// Returns the start of a body, without control characters, to quote in an error.
pub(in crate::transport) fn excerpt(body: &str) -> String {
    let text: String = body
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_EXCERPT_CHARS)
        .collect();
    text.trim().to_owned()
}

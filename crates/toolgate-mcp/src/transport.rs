//! Transports to a server: stdio of a child process, streamable HTTP, SSE, or in-process calls.
//!
//! A transport only matches responses to requests; [`crate::handshake`] and [`crate::lane`]
//! interpret the messages. Dropping a request's future cancels the request.

pub mod http;
pub mod sse;
pub mod stdio;

mod close_signal;
mod failure_line;
mod message_router;
mod pending;
mod server_requests;
mod stderr_tail;

use std::borrow::Cow;
use std::sync::Arc;

use http::StreamableHttp;
use serde_json::Value;
use serde_json::value::RawValue;
use sse::SseTransport;
use stdio::StdioTransport;
use tokio::sync::mpsc;
use toolgate_core::json::{MAX_DEPTH, exceeds_depth};
use toolgate_core::secret::Masker;

use crate::client_handler::ClientHandler;
use crate::jsonrpc::{self, Object, RpcError, RpcResult};
use crate::local::{CallIdentity, LocalServer};

pub use stderr_tail::StderrTail;

/// A connection to a server.
#[derive(Debug)]
pub enum Transport {
    Stdio(StdioTransport),
    Http(Box<StreamableHttp>),
    Sse(Box<SseTransport>),
    Local(LocalServer),
}

/// A request to be sent on a transport.
#[derive(Clone, Debug, Default)]
pub struct OutgoingRequest {
    pub method: &'static str,
    pub params: Object,
    /// The request's `_meta`.
    pub meta: Object,
    /// Headers of this request; ignored by transports other than HTTP.
    pub headers: ::http::HeaderMap,
    /// Receives progress and answers server requests while the request is in flight.
    pub handler: Option<Arc<dyn ClientHandler>>,
    /// Who calls a tool; ignored by transports other than in-process calls.
    pub identity: Option<Arc<CallIdentity>>,
}

impl OutgoingRequest {
    /// Encodes the message; the id doubles as the progress token.
    fn message(&self, id: u64) -> String {
        match self.handler {
            None => jsonrpc::request(id, self.method, &self.params, &self.meta),
            Some(_) => {
                let meta = self.meta.clone().raw("progressToken", &id.to_string());
                jsonrpc::request(id, self.method, &self.params, &meta)
            }
        }
    }
}

/// An event that makes the supervisor check the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportEvent {
    /// The server announced that one of its lists changed.
    ListChanged,
    /// A request got no response; the server may be gone.
    ConnectionSuspect,
}

pub type TransportEvents = mpsc::Receiver<TransportEvent>;

/// Reasons why a request has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    /// The server responded with an error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The server could not be reached, so the request was not executed.
    #[error("{0}")]
    NotSent(String),
    /// The connection ended before the response; the request may have been executed.
    #[error("{0}")]
    Lost(String),
    #[error("HTTP status {status}{}", status_detail(.text))]
    Status {
        status: u16,
        text: String,
        /// The JSON-RPC error in the body, if there is one.
        rpc: Option<RpcError>,
    },
    /// The server no longer knows our session.
    #[error("the session has expired on the server")]
    SessionGone,
    #[error("response is larger than {0} bytes")]
    TooLarge(usize),
    #[error("response is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// The server does not read its input, so the request was not sent.
    #[error(
        "the server does not read its input: {messages} messages with {} MB wait for it (`capacity.max_queued_mb`)",
        .bytes / 1_000_000
    )]
    QueueFull { bytes: usize, messages: usize },
    #[error("invalid response from server: {0}")]
    Malformed(String),
}

impl RequestError {
    /// Converts the outcome that a server reports.
    pub(crate) fn from_response(result: RpcResult) -> Result<Box<RawValue>, Self> {
        let result = result?;
        if exceeds_depth(result.get(), MAX_DEPTH) {
            return Err(Self::TooDeep);
        }
        Ok(result)
    }

    /// Masks the server's configured secrets in the error, including the JSON it carries.
    pub(crate) fn mask_secrets(self, masker: &Masker) -> Self {
        let mask = |text: String| masker.mask(&text);
        match self {
            Self::Rpc(error) => Self::Rpc(mask_rpc_error(error, masker)),
            Self::NotSent(text) => Self::NotSent(mask(text)),
            Self::Lost(text) => Self::Lost(mask(text)),
            Self::Malformed(text) => Self::Malformed(mask(text)),
            Self::Status { status, text, rpc } => Self::Status {
                status,
                text: mask(text),
                rpc: rpc.map(|error| mask_rpc_error(error, masker)),
            },
            Self::SessionGone | Self::TooLarge(_) | Self::TooDeep | Self::QueueFull { .. } => self,
        }
    }
}

impl Transport {
    pub async fn request(&self, outgoing: OutgoingRequest) -> Result<Box<RawValue>, RequestError> {
        match self {
            Self::Stdio(stdio) => stdio.request(outgoing).await,
            Self::Http(http) => http.request(outgoing).await,
            Self::Sse(sse) => sse.request(outgoing).await,
            Self::Local(local) => local.request(&outgoing).await.map_err(RequestError::Rpc),
        }
    }

    pub async fn notify(&self, method: &'static str) -> Result<(), RequestError> {
        match self {
            Self::Stdio(stdio) => stdio.notify(method),
            Self::Http(http) => http.notify(method).await,
            Self::Sse(sse) => sse.notify(method).await,
            Self::Local(_) => Ok(()),
        }
    }

    /// Waits until the connection has closed and returns the reason.
    pub async fn wait_closed(&self) -> String {
        match self {
            Self::Stdio(stdio) => stdio.wait_closed().await,
            Self::Http(http) => http.wait_closed().await,
            Self::Sse(sse) => sse.wait_closed().await,
            Self::Local(_) => std::future::pending().await,
        }
    }

    /// Closes the connection and everything that belongs to it.
    pub async fn close(&self) {
        match self {
            Self::Stdio(stdio) => stdio.close().await,
            Self::Http(http) => http.close().await,
            Self::Sse(sse) => sse.close().await,
            Self::Local(_) => {}
        }
    }
}

fn mask_rpc_error(error: RpcError, masker: &Masker) -> RpcError {
    RpcError {
        code: error.code,
        message: masker.mask(&error.message),
        data: error.data.and_then(|data| mask_json(data, masker)),
    }
}

/// Masks secrets in JSON. Returns `None` if the JSON cannot be searched or cannot be masked, because
/// losing the details of an error is better than revealing a secret.
fn mask_json(raw: Box<RawValue>, masker: &Masker) -> Option<Box<RawValue>> {
    // Strings are searched decoded: a secret can be escaped in JSON in more than one way.
    let original: Value = serde_json::from_str(raw.get()).ok()?;
    let mut value = original.clone();
    mask_strings(&mut value, masker);
    // Numbers, and secrets that are JSON themselves, are found in the text.
    let text = value.to_string();
    let masked = masker.mask_cow(&text);
    if value == original && matches!(masked, Cow::Borrowed(_)) {
        return Some(raw); // keeps the server's formatting
    }
    RawValue::from_string(masked.into_owned()).ok()
}

fn mask_strings(value: &mut Value, masker: &Masker) {
    match value {
        Value::String(text) => *text = masker.mask(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_strings(item, masker)),
        Value::Object(members) => {
            *members = std::mem::take(members)
                .into_iter()
                .map(|(key, mut member)| {
                    mask_strings(&mut member, masker);
                    (masker.mask(&key), member)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn status_detail(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

/// Forwards a `list_changed` notification to the supervisor; returns whether it was one.
fn forward_list_changed(method: &str, events: &mpsc::Sender<TransportEvent>) -> bool {
    let is_list_changed = method.starts_with("notifications/") && method.ends_with("/list_changed");
    if is_list_changed {
        // A full queue already contains an event that triggers the same refresh.
        let _ = events.try_send(TransportEvent::ListChanged);
    }
    is_list_changed
}

/// Returns the id of the request that a progress notification belongs to.
fn progress_request_id(params: Option<&RawValue>) -> Option<u64> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: u64,
    }
    let progress: Progress = serde_json::from_str(params?.get()).ok()?;
    Some(progress.progress_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rpc_error(data: &str) -> RpcError {
        RpcError {
            code: -1,
            message: "denied for tok/en-123".to_owned(),
            data: Some(RawValue::from_string(data.to_owned()).unwrap()),
        }
    }

    #[test]
    fn secrets_are_masked_in_error_data() {
        let masker = Masker::new(["tok/en-123".to_owned(), "424242424242".to_owned()]);
        for (data, expected) in [
            (
                r#"{"sent": "Bearer tok/en-123"}"#,
                Some(r#"{"sent":"Bearer ***"}"#),
            ),
            // The same text, escaped differently.
            (
                r#"["tok\/en-123", "tok\u002fen-123"]"#,
                Some(r#"["***","***"]"#),
            ),
            (
                r#"{"tok/en-123": {"n": 1.0}}"#,
                Some(r#"{"***":{"n":1.0}}"#),
            ),
            (r#"{"account": 424242424242}"#, None),
            (r#"{ "retry":  1e400 }"#, Some(r#"{ "retry":  1e400 }"#)),
        ] {
            for error in [
                RequestError::Rpc(rpc_error(data)),
                RequestError::Status {
                    status: 400,
                    text: "denied for tok/en-123".to_owned(),
                    rpc: Some(rpc_error(data)),
                },
            ] {
                let masked = error.mask_secrets(&masker);
                let debug = format!("{masked:?}");
                let (RequestError::Rpc(rpc) | RequestError::Status { rpc: Some(rpc), .. }) = masked
                else {
                    panic!("{debug}");
                };
                assert_eq!(rpc.data.as_deref().map(RawValue::get), expected);
                assert!(
                    !debug.contains("en-123") && !debug.contains("4242"),
                    "{debug}"
                );
                assert_eq!(rpc.message, "denied for ***");
            }
        }
    }
}

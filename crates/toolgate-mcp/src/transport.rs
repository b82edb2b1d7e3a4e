//! Transports to a server: stdio of a child process, streamable HTTP, SSE, or in-process calls.
//!
//! A transport only matches responses to requests; [`crate::handshake`] and [`crate::lane`]
//! interpret the messages. Dropping a request's future cancels the request.

pub mod http;
pub mod sse;
pub mod stdio;

mod close_signal;
mod message_router;
mod pending;
mod server_requests;
mod stderr_tail;

use std::sync::Arc;

use http::StreamableHttp;
use serde_json::value::RawValue;
use sse::SseTransport;
use stdio::StdioTransport;
use tokio::sync::mpsc;
use toolgate_core::secret::Masker;

use crate::client_handler::ClientHandler;
use crate::jsonrpc::{self, Object, RpcError, RpcResult};
use crate::local::LocalServer;

pub use stderr_tail::StderrTail;

/// A connection to a server.
#[derive(Debug)]
pub enum Transport {
    Stdio(StdioTransport),
    Http(Box<StreamableHttp>),
    Sse(Box<SseTransport>),
    Local(Arc<LocalServer>),
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
    #[error("invalid response from server: {0}")]
    Malformed(String),
}

impl RequestError {
    /// Masks the server's configured secrets in the error text.
    pub(crate) fn mask_secrets(self, masker: &Masker) -> Self {
        let mask = |text: String| masker.mask(&text);
        match self {
            Self::Rpc(error) => Self::Rpc(RpcError {
                message: mask(error.message),
                ..error
            }),
            Self::NotSent(text) => Self::NotSent(mask(text)),
            Self::Lost(text) => Self::Lost(mask(text)),
            Self::Malformed(text) => Self::Malformed(mask(text)),
            Self::Status { status, text, rpc } => Self::Status {
                status,
                text: mask(text),
                rpc,
            },
            Self::SessionGone | Self::TooLarge(_) => self,
        }
    }
}

impl Transport {
    pub async fn request(&self, outgoing: OutgoingRequest) -> Result<RpcResult, RequestError> {
        match self {
            Self::Stdio(stdio) => stdio.request(outgoing).await,
            Self::Http(http) => http.request(outgoing).await,
            Self::Sse(sse) => sse.request(outgoing).await,
            Self::Local(local) => local.request(&outgoing).await,
        }
    }

    pub async fn notify(&self, method: &'static str) -> Result<(), RequestError> {
        match self {
            Self::Stdio(stdio) => stdio.notify(method).await,
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

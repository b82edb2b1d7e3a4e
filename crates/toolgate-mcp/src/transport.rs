//! How messages reach a server and answers come back: a child's pipes, HTTP in its two flavours, or
//! a function call.
//!
//! A transport matches answers to requests and nothing more; what the messages mean is the
//! business of [`crate::handshake`] and [`crate::lane`]. Dropping a request's future cancels it.

pub mod http;
pub mod sse;
pub mod stdio;

mod asking;
mod closing;
mod inbox;
mod pending;
mod tail;

use std::sync::Arc;

use http::Http;
use serde_json::value::RawValue;
use sse::Sse;
use stdio::Stdio;
use tokio::sync::mpsc;
use toolgate_core::secret::Masker;

use crate::ear::Ear;
use crate::jsonrpc::{self, Answer, Object, RpcError};
use crate::local::LocalServer;

pub use tail::Tail;

/// A connection to a server.
#[derive(Debug)]
pub enum Transport {
    Stdio(Stdio),
    Http(Box<Http>),
    Sse(Box<Sse>),
    Local(Arc<LocalServer>),
}

/// A request to be sent.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    pub method: &'static str,
    pub params: Object,
    /// The request's `_meta`.
    pub meta: Object,
    /// Headers for this request alone; only HTTP has them.
    pub headers: ::http::HeaderMap,
    /// Who hears of its progress, and may be asked while it is under way.
    pub ear: Option<Arc<dyn Ear>>,
}

impl Outgoing {
    /// The message, under the id by which progress is told too.
    fn message(&self, id: u64) -> String {
        match self.ear {
            None => jsonrpc::request(id, self.method, &self.params, &self.meta),
            Some(_) => {
                let meta = self.meta.clone().raw("progressToken", &id.to_string());
                jsonrpc::request(id, self.method, &self.params, &meta)
            }
        }
    }
}

/// What makes another look at a server worth while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server says that a list of its has changed.
    ListChanged,
    /// A request got no answer; the server may be gone.
    Doubt,
}

pub type Events = mpsc::Receiver<Event>;

/// Why a request has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    /// The server answered with an error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The server could not be reached, so the request did not run.
    #[error("{0}")]
    NotSent(String),
    /// The connection ended before the answer; the request may have run.
    #[error("{0}")]
    Lost(String),
    #[error("HTTP status {status}{}", explain(.text))]
    Status {
        status: u16,
        text: String,
        /// The JSON-RPC error in the body, if there is one.
        rpc: Option<RpcError>,
    },
    /// The server forgot our session.
    #[error("the server has forgotten the session")]
    SessionGone,
    #[error("the server's answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the server's answer is not understood: {0}")]
    Malformed(String),
}

impl RequestError {
    /// The same error without the secrets that the server was given.
    pub(crate) fn masked(self, masker: &Masker) -> Self {
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
    pub async fn request(&self, outgoing: Outgoing) -> Result<Answer, RequestError> {
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

    /// Waits until the connection is of no more use, and says why.
    pub async fn closed(&self) -> String {
        match self {
            Self::Stdio(stdio) => stdio.closed().await,
            Self::Http(http) => http.closed().await,
            Self::Sse(sse) => sse.closed().await,
            Self::Local(_) => std::future::pending().await,
        }
    }

    /// Ends the connection and everything that belongs to it.
    pub async fn close(&self) {
        match self {
            Self::Stdio(stdio) => stdio.close().await,
            Self::Http(http) => http.close().await,
            Self::Sse(sse) => sse.close().await,
            Self::Local(_) => {}
        }
    }
}

fn explain(text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => format!(": {text}"),
    }
}

/// Passes on what a notification means for us; true if that was all.
fn announce(method: &str, events: &mpsc::Sender<Event>) -> bool {
    let changed = method.starts_with("notifications/") && method.ends_with("/list_changed");
    if changed {
        // A full queue holds the same news already.
        let _ = events.try_send(Event::ListChanged);
    }
    changed
}

/// The request whose progress a notification tells of, by its id.
fn progress_of(params: Option<&RawValue>) -> Option<u64> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: u64,
    }
    let progress: Progress = serde_json::from_str(params?.get()).ok()?;
    Some(progress.progress_token)
}

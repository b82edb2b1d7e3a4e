//! The client side of an upstream connection: receives the server's notifications and answers its
//! requests.
//!
//! Implementations live in the `toolgate` crate; transports and lanes only call them.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_core::clean::json::clean_json;

use crate::fair_queue::Owner;
use crate::jsonrpc::{Object, RpcResult};
pub use crate::lane::UpstreamRequest;

/// Handles messages that a server sends on its own, for one request or a whole connection.
pub trait ClientHandler: fmt::Debug + Send + Sync {
    /// Handles a notification: progress, a log message, a changed resource.
    fn on_notification(&self, method: &str, params: Option<&RawValue>);

    /// Handles a request from the server, such as `elicitation/create`.
    fn on_request(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, RpcResult>;

    /// Returns whether a client is present that can answer requests.
    fn can_answer_requests(&self) -> bool {
        true
    }

    /// Returns whether a request of the server waits for the client's answer.
    fn is_asking(&self) -> bool {
        false
    }
}

/// Passes a notification of a server on, cleaned, since people and models may read it.
pub(crate) fn notify(handler: &dyn ClientHandler, method: &str, params: Option<&RawValue>) {
    let params = params.map(clean_json);
    handler.on_notification(method, params.as_deref());
}

/// A modern client that can supply input. It receives the server's input requests as a result and
/// repeats the call with its responses.
#[derive(Clone, Debug)]
pub struct ModernClient {
    /// The capabilities it declares, as JSON.
    pub capabilities: Arc<str>,
    /// Its responses to earlier input requests, and the server's request state.
    pub input: Object,
    /// Whether the input includes a request state.
    pub has_state: bool,
}

/// Severity of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

/// The client for which a connection is opened.
#[derive(Clone, Debug)]
pub struct SessionClient {
    /// The name of its key.
    pub owner: Owner,
    /// The capabilities it declares, as JSON.
    pub capabilities: Arc<str>,
    pub handler: Arc<dyn ClientHandler>,
    /// Minimum level of the log messages it receives.
    pub log_level: Option<LogLevel>,
    /// Whether it can answer requests of servers.
    pub can_answer_requests: bool,
    /// Whether it speaks the modern era, in which only legacy servers need a connection of its own to
    /// send it requests.
    pub is_modern: bool,
    /// Cancelled when it disconnects: no further connection is opened for it, and its calls end.
    pub disconnected: CancellationToken,
}

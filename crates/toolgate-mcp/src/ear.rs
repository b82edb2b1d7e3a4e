//! Who hears what a server says beside its answers, and can be asked by it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::jsonrpc::{Answer, Object};
pub use crate::lane::Ask;

/// Listens on behalf of whoever caused a request, or of a whole connection.
pub trait Ear: fmt::Debug + Send + Sync {
    /// A notification: progress, a log message, a resource that changed.
    fn hear(&self, method: &str, params: Option<&RawValue>);

    /// A request of the server, such as `elicitation/create`.
    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer>;

    /// Whether there is somebody behind it who answers.
    fn can_be_asked(&self) -> bool {
        true
    }
}

/// A client that speaks the modern way and may be asked: what a server wants to know comes back as
/// a result, and the client calls again with the answers.
#[derive(Clone, Debug)]
pub struct Guest {
    /// What it says it can do, as JSON.
    pub capabilities: Arc<str>,
    /// Its answers to what was asked before, and the server's state.
    pub input: Object,
}

/// How much a log message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
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

/// The client on whose behalf a connection is opened.
#[derive(Clone, Debug)]
pub struct Client {
    /// What it says it can do, as JSON.
    pub capabilities: Arc<str>,
    pub ear: Arc<dyn Ear>,
    /// The level from which on it wants to hear log messages.
    pub log_level: Option<Level>,
    /// Is cancelled when it leaves: no connection is opened for it then, and its calls end.
    pub ended: CancellationToken,
}

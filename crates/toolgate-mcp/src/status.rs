//! Connection state of a server, and the reason for it.

use std::time::SystemTime;

use serde::Serialize;

use crate::handshake::UpstreamSession;

/// Connection state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Being started or connected to.
    Connecting,
    Healthy,
    /// Connected, but it missed a ping or one of its lists could not be fetched.
    Degraded,
    /// Not connected; will be retried.
    Unavailable,
    /// Stopped because it was idle; the next call starts it.
    Asleep,
    /// Requires credentials that are not configured.
    NeedsAuth,
    /// Excluded by the configuration.
    Disabled,
    /// Cannot be retried until the configuration changes.
    Error,
}

/// A server's state with its reason and the last known session.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    pub state: ServerState,
    pub reason: Option<String>,
    pub since: SystemTime,
    pub next_try_at: Option<SystemTime>,
    pub last_error: Option<String>,
    /// The session of the last successful connection.
    pub session: Option<UpstreamSession>,
    /// Connections that replaced a lost one.
    pub reconnects: u64,
}

impl ServerState {
    pub const ALL: [Self; 8] = [
        Self::Connecting,
        Self::Healthy,
        Self::Degraded,
        Self::Unavailable,
        Self::Asleep,
        Self::NeedsAuth,
        Self::Disabled,
        Self::Error,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
            Self::Asleep => "asleep",
            Self::NeedsAuth => "needs_auth",
            Self::Disabled => "disabled",
            Self::Error => "error",
        }
    }

    /// Returns whether the first connection attempt has finished, so that callers can stop waiting.
    pub fn is_settled(self) -> bool {
        self != Self::Connecting
    }
}

impl ServerStatus {
    pub(crate) fn new(state: ServerState, reason: Option<String>) -> Self {
        Self {
            state,
            reason,
            since: SystemTime::now(),
            next_try_at: None,
            last_error: None,
            session: None,
            reconnects: 0,
        }
    }
}

//! How a server is, and why.

use std::time::SystemTime;

use serde::Serialize;

use crate::handshake::Session;

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being started or reached.
    Connecting,
    Healthy,
    /// It is connected, and one of its lists could not be had.
    Degraded,
    /// It is away, and will be tried again.
    Unavailable,
    /// It was stopped for want of use, and wakes at the next call.
    Asleep,
    /// It wants credentials that it was not given.
    NeedsAuth,
    /// The configuration keeps it from being connected.
    Disabled,
    /// The configuration must change before it can be tried again.
    Error,
}

/// A server's state and what is known of it.
#[derive(Clone, Debug)]
pub struct Status {
    pub state: State,
    pub reason: Option<String>,
    pub since: SystemTime,
    pub next_try_at: Option<SystemTime>,
    pub last_error: Option<String>,
    /// What the server said of itself when it was last connected.
    pub session: Option<Session>,
}

impl State {
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

    /// Whether this is more than a moment's state: something a caller may wait for.
    pub fn is_settled(self) -> bool {
        self != Self::Connecting
    }
}

impl Status {
    pub(crate) fn new(state: State, reason: Option<String>) -> Self {
        Self {
            state,
            reason,
            since: SystemTime::now(),
            next_try_at: None,
            last_error: None,
            session: None,
        }
    }
}

//! The identity on whose behalf tools are listed and called.

use std::sync::Arc;

/// A caller of the gateway.
///
/// A caller with a key has the roles, grants and limits configured for that key. A caller without a
/// key has no roles and no restrictions.
#[derive(Clone, Debug)]
pub struct Caller {
    pub origin: CallOrigin,
    key: Option<Arc<str>>,
    session: Option<Arc<str>>,
}

/// The interface through which a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOrigin {
    Http,
    /// A client of the gateway's MCP endpoint.
    Mcp,
    Cli,
    Library,
    /// The agent loop, which runs a model's tool calls automatically.
    Agent,
    /// A script. It is unattended if the agent loop started it, rather than the caller.
    Script {
        unattended: bool,
    },
}

impl Caller {
    pub fn http() -> Self {
        Self::from(CallOrigin::Http)
    }

    pub fn cli() -> Self {
        Self::from(CallOrigin::Cli)
    }

    pub fn library() -> Self {
        Self::from(CallOrigin::Library)
    }

    /// Sets the caller's key, by name.
    #[must_use]
    pub fn with_key(mut self, name: &str) -> Self {
        self.key = Some(name.into());
        self
    }

    /// Sets the caller's session, to which approvals can be scoped.
    #[must_use]
    pub fn with_session(mut self, id: &str) -> Self {
        self.session = Some(id.into());
        self
    }

    /// Replaces the caller's origin.
    #[must_use]
    pub fn with_origin(mut self, origin: CallOrigin) -> Self {
        self.origin = origin;
        self
    }

    /// Returns the name of the caller's key.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.key.as_ref()
    }

    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }
}

impl From<CallOrigin> for Caller {
    fn from(origin: CallOrigin) -> Self {
        Self {
            origin,
            key: None,
            session: None,
        }
    }
}

impl CallOrigin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::Cli => "cli",
            Self::Library => "library",
            Self::Agent => "agent",
            Self::Script { .. } => "script",
        }
    }

    /// Returns whether calls are made automatically, without the caller requesting each one.
    pub fn is_unattended(self) -> bool {
        matches!(self, Self::Agent | Self::Script { unattended: true })
    }
}

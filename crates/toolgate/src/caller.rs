//! Who asks.

use std::sync::Arc;

/// The one on whose behalf something is listed or called.
///
/// A caller with a key has the roles, grants and limits that the configuration gives to that key;
/// one without has none, and is not restricted by any.
#[derive(Clone, Debug)]
pub struct Caller {
    pub origin: Origin,
    key: Option<Arc<str>>,
    session: Option<Arc<str>>,
}

/// The door through which a caller came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Http,
    /// A client of the gateway's own MCP server.
    Mcp,
    Cli,
    Library,
    /// A model whose tools run unasked, on behalf of the caller.
    Agent,
    /// A script, which somebody has started or, if it is unattended, a model whose tools run unasked.
    Script {
        unattended: bool,
    },
}

impl Caller {
    pub fn http() -> Self {
        Self::from(Origin::Http)
    }

    pub fn cli() -> Self {
        Self::from(Origin::Cli)
    }

    pub fn library() -> Self {
        Self::from(Origin::Library)
    }

    /// The same caller with a key, by the key's name.
    #[must_use]
    pub fn with_key(mut self, name: &str) -> Self {
        self.key = Some(name.into());
        self
    }

    /// The same caller in a session, within which approvals may hold.
    #[must_use]
    pub fn in_session(mut self, id: &str) -> Self {
        self.session = Some(id.into());
        self
    }

    /// The same caller at another door.
    #[must_use]
    pub fn through(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// The name of the caller's key.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.key.as_ref()
    }

    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }
}

impl From<Origin> for Caller {
    fn from(origin: Origin) -> Self {
        Self {
            origin,
            key: None,
            session: None,
        }
    }
}

impl Origin {
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

    /// Whether nobody has asked for the very call.
    pub(crate) fn is_unattended(self) -> bool {
        matches!(self, Self::Agent | Self::Script { unattended: true })
    }
}

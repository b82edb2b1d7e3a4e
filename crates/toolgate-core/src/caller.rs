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
    share_owner: Option<Arc<str>>,
    session: Option<Arc<str>>,
}

/// Owner of the share of callers without a key beside others that have one. No key can have this name.
const WITHOUT_KEY: &str = "(without a key)";

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
        let name: Arc<str> = name.into();
        self.share_owner = Some(Arc::clone(&name));
        self.key = Some(name);
        self
    }

    /// Gives the caller, which has no key, the share of one: others have keys, and it is not the
    /// administrator.
    #[must_use]
    pub fn beside_keys(mut self) -> Self {
        self.share_owner.get_or_insert_with(|| WITHOUT_KEY.into());
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

    /// Returns the name under which the caller's use of shared resources is counted and bounded: that of its
    /// key. `None` for the administrator, and for callers without a key where no keys exist.
    pub fn share_owner(&self) -> Option<&Arc<str>> {
        self.share_owner.as_ref()
    }

    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }
}

/// Describes the owner of a share in a message.
pub fn describe_share_owner(owner: Option<&str>) -> String {
    match owner {
        None | Some(WITHOUT_KEY) => "all callers without a key".to_owned(),
        Some(key) => format!("key `{key}`"),
    }
}

impl From<CallOrigin> for Caller {
    fn from(origin: CallOrigin) -> Self {
        Self {
            origin,
            key: None,
            share_owner: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_administrator_and_gateways_without_keys_have_no_share() {
        let owner = |caller: &Caller| caller.share_owner().map(ToString::to_string);
        let describe = |caller: &Caller| describe_share_owner(owner(caller).as_deref());
        let alice = Caller::http().with_key("alice").beside_keys();
        assert_eq!(owner(&alice).as_deref(), Some("alice"));
        assert_eq!(describe(&alice), "key `alice`");
        assert_eq!(owner(&Caller::http()), None);
        let keyless = Caller::http().beside_keys();
        assert!(keyless.key().is_none() && owner(&keyless).is_some());
        assert_eq!(describe(&keyless), "all callers without a key");
    }
}

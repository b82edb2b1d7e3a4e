//! The session that a message belongs to, and the opening of sessions.

use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::scope::Filters;
use toolgate_mcp::jsonrpc::{INVALID_REQUEST, RpcError};

use super::{Connection, Delivery};
use crate::call::CallError;
use crate::mcp_server::meta::VERSION_HEADER;
use crate::mcp_server::method::InitializeRequest;
use crate::mcp_server::reply::Reply;
use crate::mcp_server::session::{Session, SessionChannel, SessionOwner};
use crate::mcp_server::sessions::SessionError;

impl Connection {
    /// Counts a new session against the rate limit of the caller's key.
    pub(super) fn admit_session(&self) -> Result<(), CallError> {
        let gateway = self.server.gateway();
        gateway.check_load()?;
        gateway.keys().admit_calls(&self.caller, 1).map(drop)
    }

    /// Opens a session for a legacy client.
    pub(super) fn open_session(
        &self,
        id: &RawValue,
        initialize: InitializeRequest,
        mut filters: Filters,
    ) -> Reply {
        filters.client = initialize.capabilities.profile.clone();
        let owner = SessionOwner {
            endpoint: self.endpoint.clone(),
            caller: self.caller.clone(),
            filters,
        };
        let gateway = self.server.gateway();
        let result = self
            .endpoint
            .initialize_result(gateway, &self.caller, initialize.version);
        let session = match &self.dedicated {
            Some(client) => {
                let channel = client.channel.clone();
                let open = || Arc::new(Session::new(gateway, owner, initialize, channel));
                // A repeated `initialize` keeps the existing session.
                Arc::clone(client.session.get_or_init(open))
            }
            None => {
                let channel = SessionChannel::new(self.server.memory_of(&self.caller));
                let session = Session::new(gateway, owner, initialize, channel);
                let session = Arc::new(session);
                self.server.sessions().add(&session);
                session
            }
        };
        Reply::open_session(id, result, session.client.id())
    }

    /// Returns the session that a message names, or the one of a dedicated client.
    pub(super) fn find_session(&self, delivery: &Delivery) -> Result<Arc<Session>, SessionError> {
        if let Some(client) = &self.dedicated {
            let session = client.session.get();
            return session.cloned().ok_or(SessionError::Missing);
        }
        let headers = delivery.headers.as_ref().ok_or(SessionError::Missing)?;
        self.server.sessions().find(headers, &self.caller)
    }

    /// Returns the session that a request belongs to.
    pub(super) fn require_session(
        &self,
        id: &RawValue,
        delivery: &Delivery,
    ) -> Result<Arc<Session>, Reply> {
        let invalid = |message: String| {
            let error = RpcError::new(INVALID_REQUEST, message);
            Err(Reply::error(400, id, error))
        };
        let headers = delivery.headers.as_ref();
        match self.find_session(delivery) {
            Ok(session) if session.owner.endpoint == self.endpoint => {
                let version = session.client.version();
                match headers.and_then(|headers| headers.get(VERSION_HEADER)) {
                    Some(sent) if sent.as_bytes() != version.as_bytes() => invalid(format!(
                        "`{VERSION_HEADER}` must be `{version}`, the negotiated version"
                    )),
                    _ => Ok(session),
                }
            }
            Ok(_) | Err(SessionError::Unknown) => Err(Reply::unknown_session()),
            Err(SessionError::Missing) if headers.is_some() => invalid(
                "send `initialize` first, then `Mcp-Session-Id` with every request; or use protocol version 2026-07-28, which needs neither".to_owned(),
            ),
            Err(SessionError::Missing) => invalid(
                "send `initialize` first, or use protocol version 2026-07-28".to_owned(),
            ),
        }
    }
}

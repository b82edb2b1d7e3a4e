//! Legacy sessions: creation, validation and expiry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::flags;
use super::rejection::Rejection;

/// All sessions of the server, if sessions are enabled.
#[derive(Debug)]
pub(crate) struct LegacySessions {
    enabled: bool,
    expire_after: Option<u64>,
    next: AtomicU64,
    open: Mutex<HashMap<String, LegacySession>>,
}

#[derive(Debug)]
struct LegacySession {
    version: &'static str,
    requests: u64,
}

/// Kind of traffic within a session: only requests count towards its expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    Request,
    Other,
}

impl LegacySessions {
    pub(crate) fn new(flags: &flags::SessionFlags) -> Self {
        Self {
            enabled: flags.sessions || flags.expire_after.is_some(),
            expire_after: flags.expire_after,
            next: AtomicU64::new(1),
            open: Mutex::default(),
        }
    }

    /// Creates a session with the negotiated version; `None` if sessions are disabled.
    pub(crate) fn create(&self, version: &'static str) -> Option<String> {
        if !self.enabled {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // The process id distinguishes the sessions of a restarted server from earlier ones.
        let id = format!("zoo-{}-{number}", std::process::id());
        let session = LegacySession {
            version,
            requests: 0,
        };
        self.open.lock().insert(id.clone(), session);
        Some(id)
    }

    /// Validates the session that the headers name; an empty id if sessions are disabled.
    pub(crate) fn check(&self, headers: &HeaderMap, traffic: Traffic) -> Result<String, Rejection> {
        if !self.enabled {
            return Ok(String::new());
        }
        let id = session_id(headers)?;
        let mut open = self.open.lock();
        let session = open.get_mut(id).ok_or_else(|| unknown_session(id))?;
        check_version(headers, session.version)?;
        if traffic == Traffic::Request {
            session.requests += 1;
            if self.expire_after.is_some_and(|max| session.requests > max) {
                open.remove(id);
                return Err(unknown_session(id));
            }
        }
        Ok(id.to_owned())
    }

    /// Deletes the session that the headers name and returns its id.
    pub(crate) fn end(&self, headers: &HeaderMap) -> Result<String, Rejection> {
        if !self.enabled {
            return Err(Rejection::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "sessions are disabled",
            ));
        }
        let id = session_id(headers)?;
        let removed = self.open.lock().remove(id);
        removed.ok_or_else(|| unknown_session(id))?;
        Ok(id.to_owned())
    }
}

fn session_id(headers: &HeaderMap) -> Result<&str, Rejection> {
    header_text(headers, "mcp-session-id")
        .ok_or_else(|| Rejection::new(StatusCode::BAD_REQUEST, "`Mcp-Session-Id` is missing"))
}

/// Checks the version header, which clients must repeat on every request since 2025-06-18.
fn check_version(headers: &HeaderMap, negotiated: &str) -> Result<(), Rejection> {
    let header = header_text(headers, "mcp-protocol-version");
    let optional = negotiated < "2025-06-18";
    if header == Some(negotiated) || (header.is_none() && optional) {
        return Ok(());
    }
    let problem =
        format!("`MCP-Protocol-Version` is {header:?}, but `{negotiated}` was negotiated");
    Err(Rejection::new(StatusCode::BAD_REQUEST, problem))
}

fn unknown_session(id: &str) -> Rejection {
    Rejection::new(StatusCode::NOT_FOUND, format!("unknown session `{id}`"))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

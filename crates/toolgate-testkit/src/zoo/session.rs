//! The sessions of the legacy era: handed out, insisted on, forgotten.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, StatusCode};

use super::flags;
use super::refusal::Refusal;

/// All sessions of the server, if it has any.
#[derive(Debug)]
pub(crate) struct Sessions {
    enabled: bool,
    expire_after: Option<u64>,
    next: AtomicU64,
    open: Mutex<HashMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    version: &'static str,
    requests: u64,
}

/// What is sent within a session: only requests wear it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    Request,
    Other,
}

impl Sessions {
    pub(crate) fn new(flags: &flags::Sessions) -> Self {
        Self {
            enabled: flags.sessions || flags.expire_after.is_some(),
            expire_after: flags.expire_after,
            next: AtomicU64::new(1),
            open: Mutex::default(),
        }
    }

    /// A new session that negotiated this version, unless there are no sessions here.
    pub(crate) fn begin(&self, version: &'static str) -> Option<String> {
        if !self.enabled {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // The process id tells the sessions of a restarted server from those of its predecessor.
        let id = format!("zoo-{}-{number}", std::process::id());
        let session = Session {
            version,
            requests: 0,
        };
        self.open.lock().unwrap().insert(id.clone(), session);
        Some(id)
    }

    /// The session that these headers name, or an empty one where there are none.
    pub(crate) fn check(&self, headers: &HeaderMap, traffic: Traffic) -> Result<String, Refusal> {
        if !self.enabled {
            return Ok(String::new());
        }
        let id = session_id(headers)?;
        let mut open = self.open.lock().unwrap();
        let session = open.get_mut(id).ok_or_else(|| unknown(id))?;
        check_version(headers, session.version)?;
        if traffic == Traffic::Request {
            session.requests += 1;
            if self
                .expire_after
                .is_some_and(|most| session.requests > most)
            {
                open.remove(id);
                return Err(unknown(id));
            }
        }
        Ok(id.to_owned())
    }

    /// Forgets the session that these headers name, and tells which it was.
    pub(crate) fn end(&self, headers: &HeaderMap) -> Result<String, Refusal> {
        if !self.enabled {
            return Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "there are no sessions here",
            ));
        }
        let id = session_id(headers)?;
        let forgotten = self.open.lock().unwrap().remove(id);
        forgotten.ok_or_else(|| unknown(id))?;
        Ok(id.to_owned())
    }
}

fn session_id(headers: &HeaderMap) -> Result<&str, Refusal> {
    text(headers, "mcp-session-id")
        .ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "`Mcp-Session-Id` is missing"))
}

/// Since 2025-06-18 a client has to repeat the negotiated version on everything it sends.
fn check_version(headers: &HeaderMap, negotiated: &str) -> Result<(), Refusal> {
    let header = text(headers, "mcp-protocol-version");
    let optional = negotiated < "2025-06-18";
    if header == Some(negotiated) || (header.is_none() && optional) {
        return Ok(());
    }
    let problem =
        format!("`MCP-Protocol-Version` is {header:?}, but `{negotiated}` was negotiated");
    Err(Refusal::new(StatusCode::BAD_REQUEST, problem))
}

fn unknown(id: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("unknown session `{id}`"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

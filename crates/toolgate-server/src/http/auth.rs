//! Authentication. `/api` requires the admin key, or a loopback connection if the admin key is off;
//! caller routes require a caller key, or a loopback connection while keys are not required: until the
//! first one is defined, or once the administrator has made them optional again. [`failures`] counts
//! and reports requests that fail.

mod admin_key;
mod content_type;
mod failures;
mod sign_ins;

use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) use admin_key::{AdminAccess, AdminKey, read_generated_key};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
pub(crate) use failures::AuthFailures;
use failures::Credential;
pub(crate) use sign_ins::SignIns;
use toolgate::Caller;
use toolgate::approval::Decider;
use toolgate::engine::KeyError;
use toolgate::metrics::AuthKind;

use super::App;
use super::admin::runs::RunAccess;
use super::connections::Connection;
use super::error::ApiError;
use super::request::RequestId;
use crate::actor::with_actor;

/// Whether callers need a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeylessCallers {
    /// Callers on this machine need none until keys are required.
    UntilKeysAreRequired,
    /// Callers need none: only the socket in the data directory accepts connections, and only of the user whose
    /// client runs this process. A key that is sent still restricts its caller.
    Always,
}

/// Prefix of generated keys.
pub(crate) const KEY_PREFIX: &str = "tg-";
/// Number of random characters after the prefix; 43 alphanumeric characters carry 256 bits.
pub(crate) const KEY_LENGTH: usize = 43;

/// Admits only the administrator: to `/api`, and to `/metrics`, which names every server and tool.
pub(crate) async fn require_admin(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check_admin(&app, peer, request.headers())?;
    content_type::check(&request)?;
    Ok(with_actor(admin_actor(peer), next.run(request)).await)
}

/// Names the administrator in the audit trail.
fn admin_actor(peer: SocketAddr) -> String {
    format!("admin at {}", peer.ip())
}

/// Admits the administrator and caller keys with the role `approver` to `/api/approvals`.
pub(crate) async fn require_approver(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    // A request with a caller key acts as that caller, even from loopback.
    let decider = match authenticate(&app, request.headers()) {
        PresentedKey::Valid(key) if app.gateway().keys().is_approver(&key) => {
            admit_connection(&request, Some(&key))?;
            Decider::Key(key.to_string())
        }
        PresentedKey::Invalid(error @ (KeyError::Disabled | KeyError::Expired)) => {
            return Err(reject(
                &app,
                peer,
                AuthKind::Caller,
                Credential::Wrong,
                &error.to_string(),
            ));
        }
        PresentedKey::Valid(_) => {
            let message = "this requires the admin key or a key with the role `approver`";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
        }
        _ if is_admin(&app, peer, request.headers()) => Decider::Admin,
        presented => {
            let message = "this requires the admin key or a key with the role `approver`; send it as `Authorization: Bearer KEY`";
            return Err(reject_admin(&app, peer, &presented, message));
        }
    };
    content_type::check(&request)?;
    request.extensions_mut().insert(decider);
    Ok(next.run(request).await)
}

/// Admits the administrator to all of `/api/runs`, and caller keys to their own runs.
pub(crate) async fn require_run_access(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let access = match authenticate(&app, request.headers()) {
        PresentedKey::Valid(key) => {
            admit_connection(&request, Some(&key))?;
            RunAccess::Key(key.to_string())
        }
        _ => {
            check_admin(&app, peer, request.headers())?;
            RunAccess::Admin
        }
    };
    content_type::check(&request)?;
    let actor = match &access {
        RunAccess::Admin => admin_actor(peer),
        RunAccess::Key(key) => format!("key {key}"),
    };
    request.extensions_mut().insert(access);
    Ok(with_actor(actor, next.run(request)).await)
}

/// Admits callers with a key, and any loopback connection while keys are not required.
pub(crate) async fn require_caller(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let headers = request.headers();
    let keys = app.gateway().keys();
    let is_local = || app.0.guard.is_local(peer, headers);
    let key_optional = match app.0.keyless {
        KeylessCallers::Always => true,
        KeylessCallers::UntilKeysAreRequired => !keys.are_required() && is_local(),
    };
    // Beside callers with keys, those without have a share, too.
    let without_key = || {
        if keys.has_any() {
            Caller::http().beside_keys()
        } else {
            Caller::http()
        }
    };
    let hint = || {
        if keys.are_required() && !keys.has_any() && is_local() {
            HOW_TO_GET_KEY
        } else {
            HOW_TO_SEND_KEY
        }
    };
    let caller = match authenticate(&app, headers) {
        PresentedKey::Valid(key) => Caller::http().with_key(&key),
        _ if has_admin_key(&app, headers) => Caller::http(),
        // Some SDKs insist on sending a key, so an unknown one is ignored. A key with our prefix that
        // is no longer valid was revoked and must not gain anonymous access.
        PresentedKey::Invalid(_)
            if key_optional && !presented_keys(headers).any(|key| key.starts_with(KEY_PREFIX)) =>
        {
            without_key()
        }
        PresentedKey::Invalid(error) => {
            let message = format!("{error}; {}", hint());
            return Err(reject(
                &app,
                peer,
                AuthKind::Caller,
                Credential::Wrong,
                &message,
            ));
        }
        PresentedKey::None if key_optional => without_key(),
        PresentedKey::None => {
            let message = format!("a key is required; {}", hint());
            return Err(reject(
                &app,
                peer,
                AuthKind::Caller,
                Credential::Missing,
                &message,
            ));
        }
    };
    admit_connection(&request, caller.share_owner())?;
    if is_counted(&request) {
        let id = request.extensions().get::<RequestId>();
        let id = id.map_or("", |RequestId(id)| id);
        app.gateway().keys().check_exhausted(&caller, id)?;
    }
    let caller = match session_id(request.headers())? {
        Some(session) => caller.with_session(session),
        None => caller,
    };
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Counts the connection of a request towards the key that it uses. Returns an error if the key has too many
/// connections, or if this one is reserved for the administrator.
fn admit_connection(request: &Request, key: Option<&Arc<str>>) -> Result<(), ApiError> {
    match request.extensions().get::<Arc<Connection>>() {
        Some(connection) => connection.admit_caller(key),
        None => Ok(()),
    }
}

/// Returns whether the headers of a request say that it will be counted against the rate limit of its
/// key. A message of an MCP client may be of any kind, but only a call needs a large body.
fn is_counted(request: &Request) -> bool {
    let headers = request.headers();
    if request.method() != Method::POST {
        return false;
    }
    let path = request.uri().path();
    if !path.starts_with("/mcp") && path != "/messages" {
        return !COUNT_TOKENS_PATHS.contains(&path);
    }
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let length: Option<usize> = length.and_then(|value| value.parse().ok());
    let is_call = headers
        .get("mcp-method")
        .is_some_and(|method| method == "tools/call");
    is_call || length.is_none_or(|length| length > MAX_UNCOUNTED_BYTES)
}

/// They count tokens without a request to a model.
const COUNT_TOKENS_PATHS: [&str; 2] = ["/v1/messages/count_tokens", "/v1/responses/input_tokens"];
/// Bytes of a message to `/mcp` that is read even if the rate limit of its key is used up.
const MAX_UNCOUNTED_BYTES: usize = 64 * 1024;
const HOW_TO_SEND_KEY: &str = "send one as `Authorization: Bearer KEY`, `x-api-key` or `x-bf-vk`";
/// For callers on this machine, who once needed no key.
const HOW_TO_GET_KEY: &str = "no key is defined, but keys stay required once one has existed: create one with `toolgate keys create NAME`, or let callers on this machine do without with `toolgate keys make-optional`";
const SESSION_HEADER: &str = "x-bf-mcp-session-id";
const MAX_SESSION_ID_CHARS: usize = 255;

/// Returns an error unless the request comes from the administrator.
fn check_admin(app: &App, peer: SocketAddr, headers: &HeaderMap) -> Result<(), ApiError> {
    let message = "this requires the admin key; send it as `Authorization: Bearer KEY`";
    if is_admin(app, peer, headers) {
        return Ok(());
    }
    Err(match authenticate(app, headers) {
        PresentedKey::Valid(_) => ApiError::new(StatusCode::FORBIDDEN, "forbidden", message),
        presented => reject_admin(app, peer, &presented, message),
    })
}

/// Returns the answer to a request that the administrator could have made, but did not.
fn reject_admin(app: &App, peer: SocketAddr, presented: &PresentedKey, message: &str) -> ApiError {
    match presented {
        // The page asks without a key before it shows its sign-in form; that is no failure.
        PresentedKey::None => unauthorized_error(message),
        PresentedKey::Valid(_) | PresentedKey::Invalid(_) => {
            reject(app, peer, AuthKind::Admin, Credential::Wrong, message)
        }
    }
}

/// Records a failed authentication and returns its answer: 401, or 429 if the peer has sent too many
/// wrong keys.
fn reject(
    app: &App,
    peer: SocketAddr,
    kind: AuthKind,
    credential: Credential,
    message: &str,
) -> ApiError {
    app.gateway().keys().count_failure(kind);
    match app.0.auth_failures.record(peer.ip(), kind, credential) {
        None => unauthorized_error(message),
        retry_after => ApiError::too_many_requests(
            "too many requests with a wrong key from this address; a valid key is still accepted",
            retry_after,
        ),
    }
}

/// Returns whether the request comes from the administrator. If the admin key is off, that is any
/// loopback request that presents no caller key.
fn is_admin(app: &App, peer: SocketAddr, headers: &HeaderMap) -> bool {
    let has_key = has_admin_key(app, headers);
    if has_key && app.0.sign_ins.record(peer.ip()) {
        let audit = app.gateway().audit();
        audit.record_auth(&peer.ip().to_string(), "admin", "signed_in", 1);
    }
    let needs_no_key = || {
        matches!(app.0.admin, AdminAccess::Loopback(_))
            && app.0.guard.is_local(peer, headers)
            && presented_keys(headers).next().is_none()
    };
    has_key || needs_no_key()
}

fn has_admin_key(app: &App, headers: &HeaderMap) -> bool {
    presented_keys(headers).any(|given| app.0.admin.matches(given))
}

/// The caller key that a request presents.
enum PresentedKey {
    None,
    /// Name of the first valid key.
    Valid(Arc<str>),
    /// Why the first key is invalid; no other one is valid either.
    Invalid(KeyError),
}

fn authenticate(app: &App, headers: &HeaderMap) -> PresentedKey {
    let attempts = presented_keys(headers).map(|given| app.gateway().keys().authenticate(given));
    let mut first_error = None;
    for result in attempts {
        match result {
            Ok(key) => return PresentedKey::Valid(key),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    first_error.map_or(PresentedKey::None, PresentedKey::Invalid)
}

/// Returns every key in the request, from all headers that clients use for keys.
fn presented_keys(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let plain = ["x-api-key", "x-bf-vk"]
        .into_iter()
        .flat_map(|name| headers.get_all(name))
        .filter_map(|value| value.to_str().ok());
    bearer.chain(plain).filter(|key| !key.is_empty())
}

fn session_id(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get(SESSION_HEADER) else {
        return Ok(None);
    };
    let session = value
        .to_str()
        .ok()
        .filter(|id| id.len() <= MAX_SESSION_ID_CHARS);
    let session = session.map(|id| Some(id).filter(|id| !id.is_empty()));
    session.ok_or_else(|| {
        ApiError::bad_request(format!(
            "`{SESSION_HEADER}` must be ASCII text of at most {MAX_SESSION_ID_CHARS} characters"
        ))
    })
}

fn unauthorized_error(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

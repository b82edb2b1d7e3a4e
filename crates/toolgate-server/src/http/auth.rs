//! Who may come in: `/api` needs the admin key, or loopback if there is none; the doors for
//! callers need a caller's key, or loopback as long as no key is defined.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use rand::distr::{Alphanumeric, SampleString as _};
use sha2::{Digest as _, Sha256};
use toolgate::Caller;
use toolgate::approval::Decider;
use toolgate::engine::KeyError;
use url::form_urlencoded::byte_serialize;

use super::App;
use super::admin::runs::Runner;
use super::error::ApiError;

const KEY_FILE: &str = "admin.key";
/// What the keys that we make begin with.
pub(crate) const PREFIX: &str = "tg-";
/// Characters of a key after its prefix.
pub(crate) const KEY_LENGTH: usize = 43;

/// The admin key, as a digest: it is compared, never shown.
#[derive(Debug)]
pub(crate) struct AdminKey([u8; 32]);

impl AdminKey {
    fn new(key: &str) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Compares digests, so that time tells nothing about the key.
    fn is(&self, key: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(key).into();
        given == self.0
    }
}

/// The admin key as it was given, for as long as the start takes.
pub(crate) enum GivenKey {
    /// By whoever started the gateway.
    Chosen(String),
    /// Made by the gateway, or kept by it since an earlier start.
    Kept(String),
}

impl GivenKey {
    /// The key kept in the data directory; makes one if there is none yet.
    pub(crate) fn kept_in(data_dir: &Path) -> anyhow::Result<Self> {
        let file = data_dir.join(KEY_FILE);
        let shown = file.display();
        let key = match fs::read_to_string(&file) {
            Ok(key) if !key.trim().is_empty() => key.trim().to_owned(),
            Ok(_) => anyhow::bail!("`{shown}` is empty; delete it to get a new admin key"),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let key = format!(
                    "tg-admin-{}",
                    Alphanumeric.sample_string(&mut rand::rng(), KEY_LENGTH)
                );
                let opened = fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&file);
                opened
                    .and_then(|mut file| writeln!(file, "{key}"))
                    .with_context(|| format!("cannot write the admin key to `{shown}`"))?;
                key
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read `{shown}`")),
        };
        tracing::info!(
            "the admin key is in {shown}; for the CLI: export TOOLGATE_KEY=$(cat {shown})"
        );
        Ok(Self::Kept(key))
    }

    pub(crate) fn digest(&self) -> AdminKey {
        match self {
            Self::Chosen(key) | Self::Kept(key) => AdminKey::new(key),
        }
    }

    /// Opens the page with the key, for a key that nobody has typed. It is behind the `#`, which
    /// browsers do not send.
    pub(crate) fn login_link(&self, page: &str) -> Option<String> {
        match self {
            Self::Chosen(_) => None,
            Self::Kept(key) => {
                let key: String = byte_serialize(key.as_bytes()).collect();
                Some(format!("{}/#key={key}", page.trim_end_matches('/')))
            }
        }
    }
}

/// `/api`, and `/metrics`, which names every server and tool: the administrator alone.
pub(crate) async fn admin(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    admit(&app, peer, request.headers())?;
    Ok(next.run(request).await)
}

/// `/api/approvals`: the administrator, or a key with the role `approver`.
pub(crate) async fn approver(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    // Whoever shows a caller's key speaks as that caller, from loopback too.
    let decider = match key_of(&app, request.headers()) {
        Some(Ok(key)) if app.gateway().is_approver(&key) => Decider::Key(key.to_string()),
        Some(Err(error @ (KeyError::Disabled | KeyError::Expired))) => {
            return Err(refused(&error.to_string()));
        }
        Some(Ok(_)) => {
            let message = "this needs the admin key, or a key with the role `approver`";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
        }
        _ if is_admin(&app, peer, request.headers()) => Decider::Admin,
        _ => {
            return Err(refused(
                "this needs the admin key, or a key with the role `approver`, as `Authorization: Bearer KEY`",
            ));
        }
    };
    request.extensions_mut().insert(decider);
    Ok(next.run(request).await)
}

/// `/api/runs`: the administrator, or a caller's key for its own.
pub(crate) async fn runner(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let runner = match key_of(&app, request.headers()) {
        Some(Ok(key)) => Runner::Key(key.to_string()),
        _ => {
            admit(&app, peer, request.headers())?;
            Runner::Admin
        }
    };
    request.extensions_mut().insert(runner);
    Ok(next.run(request).await)
}

/// The doors for callers: with a key, or from loopback as long as there are no keys.
pub(crate) async fn caller(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let headers = request.headers();
    let open = !app.gateway().has_keys() && app.0.guard.is_local(peer, headers);
    let caller = match key_of(&app, headers) {
        Some(Ok(key)) => Caller::http().with_key(&key),
        _ if has_admin_key(&app, headers) => Caller::http(),
        // Clients that must send some key send one that means nothing to us. One of ours that
        // no longer opens means something.
        Some(Err(_)) if open && !presented(headers).any(|key| key.starts_with(PREFIX)) => {
            Caller::http()
        }
        Some(Err(error)) => return Err(refused(&format!("{error}; {HOW}"))),
        None if open => Caller::http(),
        None => return Err(refused(&format!("a key is needed; {HOW}"))),
    };
    let caller = match session(headers)? {
        Some(session) => caller.in_session(session),
        None => caller,
    };
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

const HOW: &str = "send one as `Authorization: Bearer KEY`, `x-api-key` or `x-bf-vk`";
const SESSION: &str = "x-bf-mcp-session-id";
const LONGEST_SESSION: usize = 255;

/// Lets the administrator in, and tells others why not.
fn admit(app: &App, peer: SocketAddr, headers: &HeaderMap) -> Result<(), ApiError> {
    let needs = "this needs the admin key, as `Authorization: Bearer KEY`";
    if is_admin(app, peer, headers) {
        return Ok(());
    }
    Err(match key_of(app, headers) {
        Some(Ok(_)) => ApiError::new(StatusCode::FORBIDDEN, "forbidden", needs),
        _ => refused(needs),
    })
}

/// Without an admin key, whoever is on this machine is the administrator, unless they come as
/// somebody else: with a key.
fn is_admin(app: &App, peer: SocketAddr, headers: &HeaderMap) -> bool {
    match app.0.admin_key {
        Some(_) => has_admin_key(app, headers),
        None => app.0.guard.is_local(peer, headers) && presented(headers).next().is_none(),
    }
}

fn has_admin_key(app: &App, headers: &HeaderMap) -> bool {
    let admin = app.0.admin_key.as_ref();
    admin.is_some_and(|admin| presented(headers).any(|given| admin.is(given)))
}

/// The name of the first caller's key that is presented and opens; else why the first does not.
fn key_of(app: &App, headers: &HeaderMap) -> Option<Result<Arc<str>, KeyError>> {
    let tried = presented(headers).map(|given| app.gateway().authenticate(given));
    let mut first = None;
    for result in tried {
        match result {
            Ok(key) => return Some(Ok(key)),
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    first.map(Err)
}

/// Every key that a request shows, in all the places where clients put them.
fn presented(headers: &HeaderMap) -> impl Iterator<Item = &str> {
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

fn session(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get(SESSION) else {
        return Ok(None);
    };
    let session = value.to_str().ok().filter(|id| id.len() <= LONGEST_SESSION);
    let session = session.map(|id| Some(id).filter(|id| !id.is_empty()));
    session.ok_or_else(|| {
        ApiError::bad_request(format!(
            "`{SESSION}` must be plain text of at most {LONGEST_SESSION} characters"
        ))
    })
}

fn refused(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

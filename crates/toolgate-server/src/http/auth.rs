//! Who may come in: `/api` needs the admin key, or loopback if there is none; the doors for
//! callers are open to loopback, and to others with a key.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use rand::distr::{Alphanumeric, SampleString as _};
use sha2::{Digest as _, Sha256};

use super::App;
use super::error::ApiError;

const KEY_FILE: &str = "admin.key";
const KEY_LENGTH: usize = 43;

/// The admin key, as a digest: it is compared, never shown.
#[derive(Debug)]
pub(crate) struct AdminKey([u8; 32]);

impl AdminKey {
    pub(crate) fn new(key: &str) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The key kept in the data directory; makes one if there is none yet.
    pub(crate) fn kept_in(data_dir: &Path) -> anyhow::Result<Self> {
        let path = data_dir.join(KEY_FILE);
        let shown = path.display();
        let key = match fs::read_to_string(&path) {
            Ok(key) if !key.trim().is_empty() => key.trim().to_owned(),
            Ok(_) => anyhow::bail!("`{shown}` is empty; delete it to get a new admin key"),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let key = format!(
                    "tg-admin-{}",
                    Alphanumeric.sample_string(&mut rand::rng(), KEY_LENGTH)
                );
                let file = fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path);
                file.and_then(|mut file| writeln!(file, "{key}"))
                    .with_context(|| format!("cannot write the admin key to `{shown}`"))?;
                key
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read `{shown}`")),
        };
        tracing::info!(
            "the admin key is in {shown}; for the CLI: export TOOLGATE_KEY=$(cat {shown})"
        );
        Ok(Self::new(&key))
    }

    /// Compares digests, so that time tells nothing about the key.
    fn is(&self, key: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(key).into();
        given == self.0
    }
}

pub(crate) async fn admin(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let allowed = match &app.0.admin_key {
        Some(key) => presented(request.headers()).is_some_and(|given| key.is(given)),
        None => app.0.guard.is_local(peer, request.headers()),
    };
    if !allowed {
        return Err(refused(
            "this needs the admin key, as `Authorization: Bearer KEY`",
        ));
    }
    Ok(next.run(request).await)
}

pub(crate) async fn caller(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let has_key = match (&app.0.admin_key, presented(request.headers())) {
        (Some(key), Some(given)) => key.is(given),
        _ => false,
    };
    if !has_key && !app.0.guard.is_local(peer, request.headers()) {
        return Err(refused(
            "calls from other machines need a key, as `Authorization: Bearer KEY`",
        ));
    }
    Ok(next.run(request).await)
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(AUTHORIZATION.as_str()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer
        .or_else(|| text("x-api-key"))
        .or_else(|| text("x-bf-vk"))
}

fn refused(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

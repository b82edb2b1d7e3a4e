//! The HTTP client of a server: its TLS settings, its headers, and no more trust than needed.
//!
//! A client takes some 160 KB, most of it for TLS, so servers with the same settings share one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Certificate, Client, redirect};
use toolgate_core::config::Http as Config;
use toolgate_core::secret::Unset;
use url::Url;

use super::direct::Direct;
use crate::environment::Environment;

const AGENT: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));
const CONNECT: Duration = Duration::from_secs(10);

/// An HTTP server with its secrets resolved.
#[derive(Clone)]
pub struct Endpoint {
    pub url: Url,
    pub headers: HeaderMap,
    settings: Settings,
    clients: Clients,
}

/// What tells one client from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Settings {
    is_loopback: bool,
    /// Without TLS no certificates are needed, which takes a while to read.
    is_plain: bool,
    insecure_skip_verify: bool,
    ca_cert_pem: Option<String>,
}

/// Clients that servers share; clones share them too.
#[derive(Clone, Default)]
pub(crate) struct Clients(Arc<Shared>);

#[derive(Default)]
struct Shared {
    by_settings: Mutex<HashMap<Settings, Client>>,
    /// The proxies that the environment names.
    proxies: OnceLock<Matcher>,
}

impl Clients {
    fn get(&self, settings: &Settings) -> Result<Client, ClientError> {
        let clients = &self.0.by_settings;
        let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(settings) {
            return Ok(client.clone());
        }
        let client = settings.client()?;
        clients.insert(settings.clone(), client.clone());
        Ok(client)
    }

    fn is_proxied(&self, uri: &Uri) -> bool {
        let proxies = self.0.proxies.get_or_init(Matcher::from_env);
        proxies.intercept(uri).is_some()
    }
}

/// Why an endpoint cannot be used; only a change of the configuration helps.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Unset(#[from] Unset),
    #[error("the URL is not valid: {0}")]
    Url(url::ParseError),
    #[error("header `{0}` has a value that HTTP does not allow")]
    Header(String),
    #[error("`ca_cert_pem` holds no certificate in PEM form")]
    Certificate,
    #[error("the HTTP client cannot be set up: {0}")]
    Client(reqwest::Error),
}

impl Endpoint {
    pub(crate) fn resolve(
        config: &Config,
        environment: &Environment,
        clients: &Clients,
    ) -> Result<Self, ClientError> {
        let env = |name: &str| environment.get(name);
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        for (name, value) in &config.headers {
            let invalid = || ClientError::Header(name.clone());
            let mut value = HeaderValue::from_str(&value.resolve(&env)?).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name).map_err(|_| invalid())?, value);
        }
        let ca_cert_pem = config.tls.ca_cert_pem.as_ref();
        let url = Url::parse(&config.url.resolve(&env)?).map_err(ClientError::Url)?;
        Ok(Self {
            settings: Settings {
                is_loopback: is_loopback(&url),
                is_plain: url.scheme() == "http",
                insecure_skip_verify: config.tls.insecure_skip_verify,
                ca_cert_pem: ca_cert_pem.map(|pem| pem.resolve(&env)).transpose()?,
            },
            url,
            headers,
            clients: clients.clone(),
        })
    }

    pub(in crate::transport) fn client(&self) -> Result<Client, ClientError> {
        self.clients.get(&self.settings)
    }

    /// The way to it, if neither TLS nor a proxy nor a password is needed.
    pub(super) fn direct(&self) -> Option<Direct> {
        let is_bare = self.url.username().is_empty() && self.url.password().is_none();
        if !self.settings.is_plain || !is_bare {
            return None;
        }
        let uri: Uri = self.url.as_str().parse().ok()?;
        let is_near = self.settings.is_loopback || !self.clients.is_proxied(&uri);
        Direct::new(&self.url, CONNECT).filter(|_| is_near)
    }
}

impl Settings {
    fn client(&self) -> Result<Client, ClientError> {
        // Fails only if one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .redirect(same_origin())
            .tls_danger_accept_invalid_certs(self.insecure_skip_verify);
        if self.is_loopback {
            builder = builder.no_proxy();
            if self.is_plain {
                builder = builder.tls_certs_only([]);
            }
        }
        if let Some(pem) = &self.ca_cert_pem {
            let certificates = Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default();
            if certificates.is_empty() {
                return Err(ClientError::Certificate);
            }
            builder = builder.tls_certs_merge(certificates);
        }
        builder.build().map_err(ClientError::Client)
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Credentials and arguments stay with the server they were meant for.
fn same_origin() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let from = attempt.previous().last().map(Url::origin);
        match from == Some(attempt.url().origin()) && attempt.previous().len() <= 3 {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    })
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

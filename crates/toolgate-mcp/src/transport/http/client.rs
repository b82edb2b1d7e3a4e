//! HTTP clients for upstream servers: TLS settings, headers, redirect policy.
//!
//! A client takes about 160 KB, mostly for TLS, so servers with the same settings share one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use parking_lot::Mutex;
use reqwest::{Certificate, Client, redirect};
use toolgate_core::config::HttpConnection as Config;
use toolgate_core::secret::UnsetVariable;
use url::Url;

use super::direct::DirectClient;
use super::errors::root_cause;
use crate::environment::Environment;

const USER_AGENT_VALUE: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));
/// Maximum time to establish a TCP and TLS connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The endpoint of an HTTP server with its secrets resolved.
#[derive(Clone)]
pub struct ResolvedEndpoint {
    pub url: Url,
    pub headers: HeaderMap,
    settings: ClientSettings,
    clients: HttpClients,
}

/// Settings that distinguish one client from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClientSettings {
    is_loopback: bool,
    /// Plain HTTP needs no root certificates, which are slow to load.
    is_plain: bool,
    insecure_skip_verify: bool,
    ca_cert_pem: Option<String>,
}

/// HTTP clients shared between servers; clones share them too.
#[derive(Clone, Default)]
pub(crate) struct HttpClients(Arc<SharedClients>);

#[derive(Default)]
struct SharedClients {
    by_settings: Mutex<HashMap<ClientSettings, Client>>,
    /// Proxies configured in the environment.
    proxies: OnceLock<Matcher>,
}

impl HttpClients {
    fn get(&self, settings: &ClientSettings) -> Result<Client, ClientError> {
        let mut clients = self.0.by_settings.lock();
        if let Some(client) = clients.get(settings) {
            return Ok(client.clone());
        }
        let client = settings.build_client()?;
        clients.insert(settings.clone(), client.clone());
        Ok(client)
    }

    fn is_proxied(&self, uri: &Uri) -> bool {
        let proxies = self.0.proxies.get_or_init(Matcher::from_env);
        proxies.intercept(uri).is_some()
    }
}

/// Reasons why an endpoint cannot be used; all of them require a configuration change.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Unset(#[from] UnsetVariable),
    #[error("invalid URL: {0}")]
    Url(url::ParseError),
    #[error("header `{0}` has an invalid name or value")]
    Header(String),
    #[error("`ca_cert_pem` contains no PEM certificate")]
    NoCertificate,
    #[error("`ca_cert_pem` is invalid: {0}")]
    InvalidCertificate(String),
    #[error("failed to build HTTP client: {0}")]
    Client(reqwest::Error),
}

impl ResolvedEndpoint {
    pub(crate) fn resolve(
        config: &Config,
        environment: &Environment,
        clients: &HttpClients,
    ) -> Result<Self, ClientError> {
        let env = |name: &str| environment.get(name);
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        for (name, value) in &config.headers {
            let invalid = || ClientError::Header(name.clone());
            let mut value = HeaderValue::from_str(&value.resolve(&env)?).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name).map_err(|_| invalid())?, value);
        }
        let ca_cert_pem = config.tls.ca_cert_pem.as_ref();
        let url = Url::parse(&config.url.resolve(&env)?).map_err(ClientError::Url)?;
        Ok(Self {
            settings: ClientSettings {
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

    /// Returns a direct client if neither TLS, a proxy nor URL credentials are involved.
    pub(super) fn direct(&self) -> Option<DirectClient> {
        let has_no_credentials = self.url.username().is_empty() && self.url.password().is_none();
        if !self.settings.is_plain || !has_no_credentials {
            return None;
        }
        let uri: Uri = self.url.as_str().parse().ok()?;
        let is_direct = self.settings.is_loopback || !self.clients.is_proxied(&uri);
        DirectClient::new(&self.url, CONNECT_TIMEOUT).filter(|_| is_direct)
    }
}

impl ClientSettings {
    fn build_client(&self) -> Result<Client, ClientError> {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .redirect(same_origin_policy())
            .tls_danger_accept_invalid_certs(self.insecure_skip_verify);
        if self.is_loopback {
            builder = builder.no_proxy();
            if self.is_plain {
                builder = builder.tls_certs_only([]);
            }
        }
        if let Some(pem) = &self.ca_cert_pem {
            let certificates = Certificate::from_pem_bundle(pem.as_bytes())
                .map_err(|error| ClientError::InvalidCertificate(root_cause(&error)))?;
            if certificates.is_empty() {
                return Err(ClientError::NoCertificate);
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

/// Follows redirects only within the origin, so that credentials and arguments stay there.
fn same_origin_policy() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let from = attempt.previous().last().map(Url::origin);
        if from == Some(attempt.url().origin()) && attempt.previous().len() <= 3 {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

impl fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpClients")
    }
}

impl fmt::Debug for ResolvedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedEndpoint").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificate_is_reported_with_its_cause() {
        let error = |pem: &str| {
            let settings = ClientSettings {
                is_loopback: true,
                is_plain: false,
                insecure_skip_verify: false,
                ca_cert_pem: Some(pem.to_owned()),
            };
            settings.build_client().unwrap_err()
        };
        assert!(matches!(error("nonsense"), ClientError::NoCertificate));
        let broken = "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n";
        let error = error(broken);
        assert!(
            matches!(error, ClientError::InvalidCertificate(_)),
            "{error}"
        );
        assert!(!error.to_string().contains("unknown cause"), "{error}");
    }
}

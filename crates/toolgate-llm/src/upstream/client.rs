//! HTTP clients of providers.
//!
//! Building a client is slow, since it reads the system's certificates, and each client pools its
//! connections. Providers with equal settings therefore share one, across configuration changes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Certificate, Client, Proxy as HttpProxy, redirect};
use toolgate_core::config::provider::{ProviderConfig, Proxy};
use toolgate_core::secret::{Secret, UnsetVariable};
use url::{Host, Url};

use super::SetupError;

/// HTTP clients by settings; clones share the same clients.
#[derive(Clone, Default)]
pub struct ProviderClients(Arc<Mutex<HashMap<ClientSettings, Client>>>);

/// Settings that require a separate client.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientSettings {
    timeout: Duration,
    proxy: ProxyMode,
    roots: TrustRoots,
    insecure_skip_verify: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum ProxyMode {
    Direct,
    /// Uses the proxy variables of the environment.
    Environment,
    Proxy {
        proxy: String,
        user: Option<(String, String)>,
    },
}

/// Certificate authorities to trust.
#[derive(Clone, PartialEq, Eq, Hash)]
enum TrustRoots {
    /// None, since the connection uses no TLS.
    None,
    System,
    /// The system's, plus these in PEM format.
    SystemAnd(String),
}

impl ProviderClients {
    pub(super) fn get(
        &self,
        provider: &ProviderConfig,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Client, SetupError> {
        let settings = ClientSettings::from_provider(provider, env)?;
        let mut clients = self.0.lock();
        if let Some(client) = clients.get(&settings) {
            return Ok(client.clone());
        }
        let client = settings.build_client()?;
        clients.insert(settings, client.clone());
        Ok(client)
    }
}

impl ClientSettings {
    fn from_provider(
        provider: &ProviderConfig,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, UnsetVariable> {
        let network = &provider.network;
        let is_loopback = is_loopback(&provider.base_url);
        let proxy = match &network.proxy {
            Proxy::None => ProxyMode::Direct,
            Proxy::Environment if is_loopback => ProxyMode::Direct,
            Proxy::Environment => ProxyMode::Environment,
            Proxy::Url { url, user } => ProxyMode::Proxy {
                proxy: url.resolve(env)?,
                user: match user {
                    Some((name, password)) => Some((name.resolve(env)?, password.resolve(env)?)),
                    None => None,
                },
            },
        };
        let pem = network.tls.ca_cert_pem.as_ref();
        let pem = pem.map(|pem: &Secret| pem.resolve(env)).transpose()?;
        Ok(Self {
            timeout: network.timeout,
            roots: match pem {
                Some(pem) => TrustRoots::SystemAnd(pem),
                None if provider.base_url.scheme() == "http" && proxy == ProxyMode::Direct => {
                    TrustRoots::None
                }
                None => TrustRoots::System,
            },
            proxy,
            insecure_skip_verify: network.tls.insecure_skip_verify,
        })
    }

    fn build_client(&self) -> Result<Client, SetupError> {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10).min(self.timeout))
            // Limits the time between reads, so that long streams stay open.
            .read_timeout(self.timeout)
            .tcp_nodelay(true)
            .redirect(redirect::Policy::none())
            .tls_danger_accept_invalid_certs(self.insecure_skip_verify);
        builder = match &self.proxy {
            ProxyMode::Direct => builder.no_proxy(),
            ProxyMode::Environment => builder,
            ProxyMode::Proxy { proxy, user } => {
                let mut proxy = HttpProxy::all(proxy)?;
                if let Some((name, password)) = user {
                    proxy = proxy.basic_auth(name, password);
                }
                builder.proxy(proxy)
            }
        };
        builder = match &self.roots {
            TrustRoots::None => builder.tls_certs_only([]),
            TrustRoots::System => builder,
            TrustRoots::SystemAnd(pem) => {
                let certificates = Certificate::from_pem_bundle(pem.as_bytes())
                    .map_err(SetupError::InvalidCertificate)?;
                if certificates.is_empty() {
                    return Err(SetupError::NoCertificate);
                }
                builder.tls_certs_merge(certificates)
            }
        };
        Ok(builder.build()?)
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

impl fmt::Debug for ProviderClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderClients")
    }
}

//! The HTTP clients of providers.
//!
//! One takes a while to make, since it reads the machine's certificates, and it keeps connections.
//! So providers with the same settings share one, over changes of the configuration too.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Certificate, Client, Proxy as HttpProxy, redirect};
use toolgate_core::config::provider::{Provider, Proxy};
use toolgate_core::secret::{Secret, Unset};
use url::{Host, Url};

use super::SetupError;

/// Clients by their settings; clones share them.
#[derive(Clone, Default)]
pub struct Clients(Arc<Mutex<HashMap<Settings, Client>>>);

/// What tells one client from another.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Settings {
    timeout: Duration,
    way: Way,
    roots: Roots,
    insecure_skip_verify: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Way {
    Directly,
    /// As the environment says.
    Environment,
    Through {
        proxy: String,
        user: Option<(String, String)>,
    },
}

/// Whom to trust.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Roots {
    /// Nobody: there is no TLS.
    None,
    Machine,
    /// These in PEM form too.
    And(String),
}

impl Clients {
    pub(super) fn get(
        &self,
        provider: &Provider,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Client, SetupError> {
        let settings = Settings::of(provider, env)?;
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&settings) {
            return Ok(client.clone());
        }
        let client = settings.client()?;
        clients.insert(settings, client.clone());
        Ok(client)
    }
}

impl Settings {
    fn of(provider: &Provider, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Unset> {
        let network = &provider.network;
        let is_loopback = is_loopback(&provider.base_url);
        let way = match &network.proxy {
            Proxy::None => Way::Directly,
            Proxy::Environment if is_loopback => Way::Directly,
            Proxy::Environment => Way::Environment,
            Proxy::Url { url, user } => Way::Through {
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
                Some(pem) => Roots::And(pem),
                None if provider.base_url.scheme() == "http" && way == Way::Directly => Roots::None,
                None => Roots::Machine,
            },
            way,
            insecure_skip_verify: network.tls.insecure_skip_verify,
        })
    }

    fn client(&self) -> Result<Client, SetupError> {
        // Fails only if one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10).min(self.timeout))
            // A stream lives as long as something comes.
            .read_timeout(self.timeout)
            .tcp_nodelay(true)
            .redirect(redirect::Policy::none())
            .tls_danger_accept_invalid_certs(self.insecure_skip_verify);
        builder = match &self.way {
            Way::Directly => builder.no_proxy(),
            Way::Environment => builder,
            Way::Through { proxy, user } => {
                let mut proxy = HttpProxy::all(proxy)?;
                if let Some((name, password)) = user {
                    proxy = proxy.basic_auth(name, password);
                }
                builder.proxy(proxy)
            }
        };
        builder = match &self.roots {
            Roots::None => builder.tls_certs_only([]),
            Roots::Machine => builder,
            Roots::And(pem) => {
                let certificates = Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default();
                if certificates.is_empty() {
                    return Err(SetupError::Certificate);
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

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

//! HTTP requests to URLs that other parties name: metadata, keys and token endpoints.
//!
//! Addresses are checked after DNS resolution and on every redirect, answers are bounded in size and
//! time, and plain HTTP is limited to the local machine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, Request, redirect};
use serde::de::DeserializeOwned;
use url::{Host, Url};

/// Maximum time of a request, including all redirects.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of an answer.
const MAX_BODY: usize = 512 * 1024;
const MAX_REDIRECTS: usize = 3;
const USER_AGENT: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));

/// Addresses that requests may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressPolicy {
    /// Whether every address is allowed.
    pub allow_private: bool,
    /// Private addresses that are allowed nevertheless.
    pub allowed_ranges: Vec<IpNet>,
    /// Hosts whose addresses are not checked.
    pub allowed_hosts: Vec<String>,
}

/// An HTTP client for metadata, keys and tokens.
#[derive(Clone, Debug)]
pub struct Fetcher {
    /// Follows redirects to addresses that are allowed.
    following: Client,
    /// Follows none: what it sends contains credentials.
    direct: Client,
    policy: Arc<AddressPolicy>,
}

/// An answer, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    #[error("`{0}` is not a valid URL")]
    InvalidUrl(String),
    #[error("{0} must use https; plain http is limited to the local machine")]
    Insecure(String),
    #[error("{host} is {kind}, which servers and metadata may not point to; {ADVICE}")]
    PrivateAddress { host: String, kind: &'static str },
    #[error("{host} is unreachable: {reason}")]
    Unreachable { host: String, reason: String },
    #[error("{host} answered with more than {} KiB", MAX_BODY / 1024)]
    TooLarge { host: String },
    #[error("{url} answered HTTP {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url} did not answer with valid JSON: {reason}")]
    InvalidJson { url: String, reason: String },
}

const ADVICE: &str = "list it in `private_hosts` if that is intended";

impl AddressPolicy {
    /// Allows what a URL given by the administrator reaches: loopback and private addresses are then
    /// intended for that host, and for loopback as a whole.
    pub fn trusting(url: &str) -> Self {
        let mut policy = Self::default();
        let Some(host) = Url::parse(url)
            .ok()
            .and_then(|url| url.host_str().map(str::to_owned))
        else {
            return policy;
        };
        if is_local_name(&host) {
            policy.allowed_ranges = loopback_ranges();
        }
        policy.allowed_hosts.push(host);
        policy
    }

    fn check(&self, host: &str, address: IpAddr) -> Result<(), FetchError> {
        let Some(kind) = toolgate_core::scan::describe_address(address) else {
            return Ok(());
        };
        let is_allowed = self.allow_private
            || self
                .allowed_ranges
                .iter()
                .any(|range| range.contains(&address))
            || self.allows_host(host);
        if is_allowed {
            return Ok(());
        }
        let host = host.to_owned();
        Err(FetchError::PrivateAddress { host, kind })
    }

    fn allows_host(&self, host: &str) -> bool {
        self.allowed_hosts
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// Checks everything that is known without a look-up.
    fn check_url(&self, url: &Url) -> Result<(), FetchError> {
        let Some(host) = url.host() else {
            return Err(FetchError::InvalidUrl(url.to_string()));
        };
        let text = host.to_string();
        let is_loopback = match host {
            Host::Domain(name) => is_local_name(name),
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let may_be_plain = is_loopback || self.allows_host(&text);
        if url.scheme() != "https" && !(url.scheme() == "http" && may_be_plain) {
            return Err(FetchError::Insecure(url.to_string()));
        }
        match host {
            Host::Domain(_) => Ok(()),
            Host::Ipv4(address) => self.check(&text, address.into()),
            Host::Ipv6(address) => self.check(&text, address.into()),
        }
    }
}

impl Fetcher {
    /// Trusts the given CA certificates (PEM) in addition to those of the system.
    pub fn new(policy: AddressPolicy, ca_cert_pem: Option<&str>) -> Result<Self, reqwest::Error> {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let policy = Arc::new(policy);
        let certificates = match ca_cert_pem {
            Some(pem) => Certificate::from_pem_bundle(pem.as_bytes())?,
            None => Vec::new(),
        };
        let client = |redirects: redirect::Policy| {
            Client::builder()
                .timeout(TIMEOUT)
                .user_agent(USER_AGENT)
                .redirect(redirects)
                .dns_resolver(Arc::new(CheckedResolver(Arc::clone(&policy))))
                .tls_certs_merge(certificates.clone())
                .build()
        };
        Ok(Self {
            following: client(redirect_policy(Arc::clone(&policy)))?,
            direct: client(redirect::Policy::none())?,
            policy,
        })
    }

    /// Follows redirects as long as each of them is allowed.
    pub async fn get(&self, url: &str) -> Result<Answer, FetchError> {
        let request = self.request(Method::GET, url)?;
        Self::execute(&self.following, request).await
    }

    pub async fn get_json<T: DeserializeOwned>(&self, url: &str) -> Result<T, FetchError> {
        let answer = self.get(url).await?;
        if !answer.status.is_success() {
            return Err(FetchError::Status {
                url: url.to_owned(),
                status: answer.status,
            });
        }
        answer.json(url)
    }

    /// Sends a request that may contain credentials; a redirect is an answer like any other.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answer, FetchError> {
        let mut request = self.request(method, url)?;
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        Self::execute(&self.direct, request).await
    }

    fn request(&self, method: Method, url: &str) -> Result<Request, FetchError> {
        let parsed = Url::parse(url).map_err(|_| FetchError::InvalidUrl(url.to_owned()))?;
        self.policy.check_url(&parsed)?;
        Ok(Request::new(method, parsed))
    }

    async fn execute(client: &Client, request: Request) -> Result<Answer, FetchError> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let response = client.execute(request).await;
        let response = response.map_err(|error| FetchError::of_request(&host, &error))?;
        Answer::read(response, &host).await
    }
}

impl Answer {
    async fn read(mut response: reqwest::Response, host: &str) -> Result<Self, FetchError> {
        let status = response.status();
        let headers = response.headers().clone();
        let mut body = Vec::new();
        loop {
            let chunk = response.chunk().await;
            let chunk = chunk.map_err(|error| FetchError::of_request(host, &error))?;
            let Some(chunk) = chunk else { break };
            if body.len() + chunk.len() > MAX_BODY {
                return Err(FetchError::TooLarge {
                    host: host.to_owned(),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Self {
            status,
            headers,
            body,
        })
    }

    pub fn json<T: DeserializeOwned>(&self, url: &str) -> Result<T, FetchError> {
        serde_json::from_slice(&self.body).map_err(|error| FetchError::InvalidJson {
            url: url.to_owned(),
            reason: error.to_string(),
        })
    }
}

impl FetchError {
    /// Recovers a refusal of the policy, which reqwest wraps.
    fn of_request(host: &str, error: &reqwest::Error) -> Self {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let mut reason = error.to_string();
        while let Some(error) = source {
            if let Some(refused) = error.downcast_ref::<Self>() {
                return refused.clone();
            }
            reason = error.to_string();
            source = error.source();
        }
        Self::Unreachable {
            host: host.to_owned(),
            reason,
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Status { status, .. } => status.is_server_error() || *status == 429,
            _ => false,
        }
    }
}

/// Resolves names with the system's resolver and refuses addresses that the policy forbids, so that
/// the address that was checked is the one that is connected to.
#[derive(Debug)]
struct CheckedResolver(Arc<AddressPolicy>);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            for address in &found {
                policy.check(host, address.ip())?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn redirect_policy(policy: Arc<AddressPolicy>) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.stop();
        }
        match policy.check_url(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(error) => attempt.error(error),
        }
    })
}

fn is_local_name(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost")
}

fn loopback_ranges() -> Vec<IpNet> {
    let v4 = IpNet::from(IpAddr::from([127, 0, 0, 0]));
    let v6 = IpNet::from(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
    let v4 = IpNet::new(v4.addr(), 8).unwrap_or(v4);
    vec![v4, v6]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &AddressPolicy, url: &str) -> Result<(), FetchError> {
        policy.check_url(&Url::parse(url).unwrap())
    }

    #[test]
    fn private_addresses_need_permission() {
        let policy = AddressPolicy::default();
        check(&policy, "https://93.184.216.34/").unwrap();
        for private in [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "[::1]",
            "[fd00::1]",
            "0x7f.1",
        ] {
            let url = format!("https://{private}/");
            let error = check(&policy, &url).unwrap_err();
            assert!(
                matches!(error, FetchError::PrivateAddress { .. }),
                "{url}: {error}"
            );
            check(&AddressPolicy::trusting(&url), &url).unwrap();
        }
    }

    #[test]
    fn plain_http_is_limited_to_the_local_machine() {
        let policy = AddressPolicy::trusting("http://localhost:3000/mcp");
        check(&policy, "http://localhost:9/").unwrap();
        check(&policy, "http://127.0.0.1:9/").unwrap();
        let error = check(&policy, "http://example.com/").unwrap_err();
        assert!(matches!(error, FetchError::Insecure(_)), "{error}");
    }

    #[tokio::test]
    async fn names_are_checked_after_resolution() {
        let fetcher = Fetcher::new(AddressPolicy::default(), None).unwrap();
        let error = fetcher.get("http://localhost:9/").await.unwrap_err();
        assert!(
            matches!(error, FetchError::PrivateAddress { .. }),
            "{error}"
        );
    }
}

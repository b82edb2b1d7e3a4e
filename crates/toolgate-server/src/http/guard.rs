//! Checks `Host` and `Origin` of every request, against DNS rebinding and cross-site requests.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use toolgate_core::config::ListenSettings;
use url::Url;

use super::error::ApiError;

/// Hosts and origins that the gateway accepts.
#[derive(Debug)]
pub(crate) struct HostGuard {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// Accept any IP address as `Host`: set unless bound to loopback. DNS rebinding needs a name, so
    /// an address is safe.
    accepts_any_ip: bool,
    /// `public_url` is set, so a local proxy may forward remote clients over loopback.
    behind_proxy: bool,
}

impl HostGuard {
    pub(crate) fn new(listen: &ListenSettings, address: SocketAddr) -> Self {
        let public = listen.public_url.as_ref();
        let mut hosts: Vec<String> = listen
            .allowed_hosts
            .iter()
            .map(|host| host.to_ascii_lowercase())
            .collect();
        hosts.extend(public.and_then(Url::host_str).map(str::to_owned));
        let mut origins = listen.allowed_origins.clone();
        origins.extend(public.map(|url| url.origin().ascii_serialization()));
        Self {
            hosts,
            origins,
            accepts_any_ip: !address.ip().is_loopback(),
            behind_proxy: public.is_some(),
        }
    }

    /// Returns whether the request comes from this machine, not from a proxy on behalf of a remote client.
    pub(super) fn is_local(&self, peer: SocketAddr, headers: &HeaderMap) -> bool {
        let forwarded = ["forwarded", "x-forwarded-for", "x-real-ip"];
        !self.behind_proxy
            && peer.ip().to_canonical().is_loopback()
            && !forwarded.iter().any(|name| headers.contains_key(*name))
    }

    fn allows_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        let address: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
        match address {
            Some(ip) if ip.is_loopback() || self.accepts_any_ip => true,
            _ => {
                name == "localhost"
                    || self
                        .hosts
                        .iter()
                        .any(|allowed| *allowed == name || *allowed == host)
            }
        }
    }

    /// Returns whether an origin is accepted for requests to a host. Pages on other ports of this machine
    /// are other origins.
    fn allows_origin(&self, origin: &str, host: &str) -> bool {
        is_same_origin(origin, host) || self.origins.iter().any(|allowed| allowed == origin)
    }

    /// Returns an error if the `Host` or `Origin` of a request is not accepted.
    pub(super) fn check(&self, request: &Request) -> Result<(), ApiError> {
        let headers = request.headers();
        let target = request.uri().authority().map(Authority::as_str);
        let host = match (single_header(headers, &HOST)?, target) {
            // A proxy may have checked the other one.
            (Some(host), Some(target))
                if !host.as_bytes().eq_ignore_ascii_case(target.as_bytes()) =>
            {
                return Err(ApiError::bad_request(
                    "the request names two hosts, in its target and as `Host`; send one",
                ));
            }
            (Some(host), _) => host.to_str().unwrap_or_default(),
            (None, target) => target.unwrap_or_default(),
        };
        if !self.allows_host(host) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "host_not_allowed",
                format!(
                    "host `{host}` is not allowed; add it to `allowed_hosts` in the configuration"
                ),
            ));
        }
        let origin = single_header(headers, &ORIGIN)?;
        match origin.map(|origin| origin.to_str().unwrap_or_default()) {
            Some(origin) if !self.allows_origin(origin, host) => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "origin_not_allowed",
                format!(
                    "origin `{origin}` is not allowed; add it to `allowed_origins` in the configuration"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Returns whether the origin is the requested host, that is, whether our own page sent the request.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| !host.is_empty() && authority.eq_ignore_ascii_case(host))
}

/// Returns the value of a header that a request may have only once: with two, a proxy could have
/// checked the other one.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        let message = format!("the request has more than one header `{name}`; send one");
        return Err(ApiError::bad_request(message));
    }
    Ok(value)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(bound: &str) -> HostGuard {
        let listen = ListenSettings {
            allowed_hosts: vec!["Gate.example".to_owned(), "other.example:81".to_owned()],
            allowed_origins: vec!["https://app.example".to_owned()],
            public_url: Some(Url::parse("https://public.example/x").unwrap()),
            ..ListenSettings::default()
        };
        HostGuard::new(&listen, bound.parse().unwrap())
    }

    #[test]
    fn allowed_hosts() {
        let guard = guard("127.0.0.1:1");
        for good in [
            "localhost",
            "localhost:8080",
            "LOCALHOST",
            "127.0.0.1:8080",
            "[::1]:80",
            "[::1]",
            "gate.example:443",
            "gate.example",
            "other.example:81",
            "public.example",
        ] {
            assert!(guard.allows_host(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "other.example",
            "10.0.0.1",
            "127.0.0.1.evil.example",
            "[::2]",
        ] {
            assert!(!guard.allows_host(bad), "{bad}");
        }
    }

    #[test]
    fn ip_address_as_host_requires_non_loopback_bind() {
        assert!(guard("0.0.0.0:1").allows_host("10.0.0.1:8080"));
        assert!(!guard("0.0.0.0:1").allows_host("evil.example"));
    }

    #[test]
    fn allowed_origins() {
        let guard = guard("127.0.0.1:1");
        let host = "127.0.0.1:8080";
        for good in [
            "http://127.0.0.1:8080",
            "https://app.example",
            "https://public.example",
        ] {
            assert!(guard.allows_origin(good, host), "{good}");
        }
        for bad in [
            "null",
            "",
            "https://evil.example",
            "http://app.example",
            "https://app.example:444",
            "https://app.example/",
            "https://user@app.example",
            "http://127.0.0.1",
            "http://127.0.0.1:3000",
            "http://localhost:8080",
            "http://localhost:3000",
            "http://[::1]:8080",
            "http://localhost.evil.example",
            "http://user@127.0.0.1:8080",
            "http://127.0.0.1:8080/",
            "http://127.0.0.1:8080, https://app.example",
        ] {
            assert!(!guard.allows_origin(bad, host), "{bad}");
        }
    }

    #[test]
    fn same_origin_compares_scheme_host_and_port() {
        for (origin, host) in [
            ("http://10.0.0.1:8080", "10.0.0.1:8080"),
            ("http://gate.example", "Gate.example"),
            ("https://gate.example", "gate.example"),
            ("http://[fd00::1]:8080", "[fd00::1]:8080"),
        ] {
            assert!(is_same_origin(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("http://10.0.0.1:81", "10.0.0.1:8080"),
            ("http://10.0.0.2:8080", "10.0.0.1:8080"),
            ("http://evil.example", "gate.example"),
            ("http://gate.example.evil.example", "gate.example"),
            ("null", ""),
            ("", ""),
            ("file:///", ""),
        ] {
            assert!(!is_same_origin(origin, host), "{origin} {host}");
        }
    }
}

//! Detects URLs and hosts that point to the machine itself, its private network, or the cloud's
//! metadata service.
//!
//! Hosts are parsed as browsers do, so `0x7f.1` and `2130706433` are recognized as loopback. Names
//! are not resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

const SCHEMES: [&str; 7] = [
    "http:", "https:", "ftp:", "ws:", "wss:", "gopher:", "file:/",
];
const INTERNAL_DOMAINS: [&str; 4] = ["localhost", "localdomain", "internal", "local"];
/// Maximum nesting of schemes, as in `jdbc:postgresql://…` and `view-source:http://…`.
const MAX_NESTED_SCHEMES: usize = 3;

/// Describes the private address in a value that looks like a URL.
pub(super) fn check_url(value: &str) -> Option<String> {
    let head: String = value
        .chars()
        .filter(|&c| c > ' ')
        .take(7)
        .collect::<String>()
        .to_ascii_lowercase();
    SCHEMES
        .iter()
        .any(|scheme| head.starts_with(scheme))
        .then(|| describe_url(value))
        .flatten()
}

/// Describes the private address in a value used as a URL or host.
pub(super) fn check_host(value: &str) -> Option<String> {
    let mut rest = value;
    for _ in 0..MAX_NESTED_SCHEMES {
        if let Some(what) = describe_url(rest) {
            return Some(what);
        }
        match Url::parse(rest) {
            Ok(url) if url.has_host() => return None,
            Ok(url) if url.path().contains("://") => {
                rest = rest.split_once(':').map_or("", |(_, after)| after);
            }
            _ => break,
        }
    }
    describe_bare_host(value)
}

fn describe_url(text: &str) -> Option<String> {
    // Parsers disagree on whether `\` ends the host: `http://example.com\@127.0.0.1`.
    let without = text.contains('\\').then(|| text.replace('\\', ""));
    [Some(text), without.as_deref()]
        .into_iter()
        .flatten()
        .find_map(|text| {
            let url = Url::parse(text).ok()?;
            match url.scheme() {
                "file" => Some("a `file:` URL".to_owned()),
                _ => describe_host(&Host::parse(url.host_str()?).ok()?),
            }
        })
}

/// Handles a bare host as in an argument `host`, possibly with a port or path.
fn describe_bare_host(value: &str) -> Option<String> {
    let value = value.trim();
    let unbracketed = value.trim_start_matches('[').trim_end_matches(']');
    let unzoned = unbracketed.split('%').next().unwrap_or(unbracketed);
    if let Ok(address) = unzoned.parse::<Ipv6Addr>() {
        return describe_host(&Host::Ipv6(address));
    }
    let value = value.trim_start_matches(['/', '\\']);
    let url = Url::parse(&format!("http://{value}")).ok()?;
    let host = Host::parse(url.host_str()?).ok()?;
    let doubtful = match &host {
        // `bob@corp.internal` is an email address.
        Host::Domain(_) => !url.username().is_empty(),
        Host::Ipv4(address) => is_short_number(value) && !is_local(*address),
        Host::Ipv6(_) => false,
    };
    if doubtful { None } else { describe_host(&host) }
}

/// `10`, `10.2`, `172.16.1`: as likely a house number or a version as an address.
fn is_short_number(value: &str) -> bool {
    let authority = value.split(['/', '\\', '?', '#']).next().unwrap_or(value);
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let host = host.split(':').next().unwrap_or(host);
    host.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
        && host.trim_end_matches('.').matches('.').count() < 3
}

fn is_local(address: Ipv4Addr) -> bool {
    address.is_loopback() || address.is_link_local()
}

fn describe_host(host: &Host<String>) -> Option<String> {
    let what = match host {
        Host::Domain(name) => describe_name(name),
        Host::Ipv4(address) => describe_ipv4(*address),
        Host::Ipv6(address) => describe_ipv6(*address),
    }?;
    let shown = match host {
        Host::Ipv6(address) => IpAddr::V6(*address).to_string(),
        _ => host.to_string(),
    };
    Some(format!("`{shown}`, {what}"))
}

fn describe_name(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let (before, last) = name.rsplit_once('.').unwrap_or(("", &name));
    match name.as_str() {
        "metadata.google.internal" => Some("a cloud metadata service"),
        "localhost" => Some("the local machine"),
        _ if !before.is_empty() && INTERNAL_DOMAINS.contains(&last) => {
            Some("an internal host name")
        }
        _ => None,
    }
}

/// What makes an address private, if anything does.
pub fn describe_address(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => describe_ipv4(address),
        IpAddr::V6(address) => describe_ipv6(address),
    }
}

fn describe_ipv4(address: Ipv4Addr) -> Option<&'static str> {
    let [first, second, ..] = address.octets();
    match (first, second) {
        _ if address == Ipv4Addr::new(169, 254, 169, 254) => Some("a cloud metadata service"),
        _ if address.is_loopback() => Some("the local machine"),
        (0, _) => Some("an unspecified address"),
        _ if address.is_private() => Some("a private address"),
        (100, 64..128) => Some("a private address"),
        _ if address.is_link_local() => Some("a link-local address"),
        _ if address.is_multicast() || address.is_broadcast() => Some("a multicast address"),
        _ => None,
    }
}

fn describe_ipv6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        _ if address.is_loopback() => Some("the local machine"),
        _ if address.is_unspecified() => Some("an unspecified address"),
        _ if address.is_unique_local() => Some("a private address"),
        [0xfec0..0xff00, ..] => Some("a private address"),
        _ if address.is_unicast_link_local() => Some("a link-local address"),
        _ if address.is_multicast() => Some("a multicast address"),
        segments => describe_ipv4(embedded_ipv4(segments)?),
    }
}

/// Extracts an embedded IPv4 address: mapped, compatible, translated (NAT64) or tunnelled (6to4).
fn embedded_ipv4(segments: [u16; 8]) -> Option<Ipv4Addr> {
    let (high, low) = match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => (high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => (high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => (high, low),
        [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_urls_are_detected() {
        for url in [
            "http://localhost:3000/x",
            "http://LOCALHOST./",
            "https://app.localhost",
            "http://127.0.0.1",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0x7f000001",
            "http://0177.0.0.1",
            "http://0/",
            "http://0.0.0.0:80",
            "http://10.0.0.1",
            "http://172.31.255.255",
            "http://192.168.1.1",
            "http://169.254.169.254/latest/meta-data",
            "http://100.64.0.1",
            "http://224.0.0.1",
            "http://255.255.255.255",
            "http://[::1]/",
            "http://[::]/",
            "http://[fd00:ec2::254]/",
            "http://[fe80::1]",
            "http://[ff02::1]",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:a9fe:a9fe]",
            "http://[::127.0.0.1]",
            "http://[64:ff9b::10.0.0.1]",
            "http://[2002:7f00:1::]",
            "http://metadata.google.internal/",
            "http://db.internal",
            "http://printer.local",
            "ftp://10.0.0.1",
            "ws://127.0.0.1",
            "wss://localhost",
            "gopher://2130706433/",
            "gopher://127.0.0.1:6379/_x",
            "http://example.com@127.0.0.1/",
            "http://me:pw@10.0.0.1",
            "http://example.com\\@127.0.0.1/",
            "http://127.0.0.1\\@example.com/",
            "http:127.0.0.1",
            "http:\\\\127.0.0.1",
            " HTTP://127.0.0.1",
            "ht\ntp://127.0.0.1",
            "http://%31%32%37.0.0.1",
            "http://①②⑦.0.0.1",
            "file:///etc/passwd",
            "FILE:/etc/passwd",
        ] {
            assert!(check_url(url).is_some(), "{url}");
            assert!(check_host(url).is_some(), "{url}");
        }
    }

    #[test]
    fn private_hosts_are_detected() {
        for host in [
            "localhost",
            "localhost:8080",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.1",
            "0x7f.1",
            "2130706433",
            "10.0.0.1",
            "::1",
            "[::1]:80",
            "fe80::1%eth0",
            "db.internal:5432",
            "printer.local",
            "//127.0.0.1/x",
            "\\\\10.0.0.1\\share",
            "example.com@127.0.0.1",
            "redis://127.0.0.1:6379",
            "postgres://u:p@10.0.0.1/db",
            "jdbc:postgresql://127.0.0.1/db",
            "view-source:http://localhost/",
            "localhost:80/?next=http://example.com/",
            "file:x",
        ] {
            assert!(check_host(host).is_some(), "{host}");
        }
    }

    #[test]
    fn public_and_unrelated_values_are_not_detected() {
        for value in [
            "",
            "https://example.com/",
            "https://localhost.example.com",
            "http://8.8.8.8:53",
            "http://172.32.0.1",
            "http://100.128.0.1",
            "http://192.0.2.1",
            "http://[2606:4700::1111]/",
            "http://[::ffff:8.8.8.8]",
            "https://example.com/?next=http://localhost/",
            "https://example.com/?next=a:http://localhost/",
            "https://internal.example.com",
            "http://local",
            "https://127.0.0.1.example.com",
            "http://",
            "http: the protocol",
            "example.com",
            "example.com:443",
            "internal",
            "api",
            "1",
            "10",
            "10.2",
            "172.16.1",
            "192.168",
            "10 Downing Street",
            "12:30",
            "bob@corp.internal",
            "mailto:bob@corp.internal",
            "00:11:22:33:44:55",
            "urn:isbn:0451450523",
            "0x52908400098527886E0F7030069857D2E4169EE7",
            "redis://cache.example.com:6379",
            "handleClick",
        ] {
            assert_eq!(check_url(value), None, "{value}");
            assert_eq!(check_host(value), None, "{value}");
        }
    }
}

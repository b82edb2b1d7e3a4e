//! Checked settings of HTTP connections.

use std::net::IpAddr;
use std::time::Duration;

use super::duration::ConfigDuration;
use super::file::HttpTable;
use super::ip_range::IpRange;

/// Bounds and timeouts of the connections to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Number of those that are kept for probes and the administrator.
    pub reserved_connections: usize,
    /// Maximum number of connections from one remote address.
    pub max_connections_per_peer: usize,
    /// Proxies, whose connections are those of many clients.
    pub trusted_proxies: Vec<IpRange>,
    /// Maximum number of connections that use one key.
    pub max_connections_per_key: usize,
    /// Maximum time to receive the headers of a request.
    pub header_timeout: Duration,
    /// Maximum time without progress while a body is received.
    pub body_timeout: Duration,
    /// Maximum time between two requests on a connection.
    pub idle_timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            max_connections: 8192,
            reserved_connections: 32,
            max_connections_per_peer: 1024,
            trusted_proxies: Vec::new(),
            max_connections_per_key: 256,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
        }
    }
}

impl HttpSettings {
    /// Returns whether many clients share an address: all local ones have the same, and so do those
    /// behind a proxy.
    pub fn is_shared(&self, peer: IpAddr) -> bool {
        let mut proxies = self.trusted_proxies.iter();
        peer.is_loopback() || proxies.any(|range| range.contains(peer))
    }

    /// Returns the number of connections that callers may use.
    pub fn regular_connections(&self) -> usize {
        self.max_connections
            .saturating_sub(self.reserved_connections)
    }
}

impl HttpTable {
    /// Returns the settings with the values that the table has.
    pub(super) fn apply_to(&self, settings: HttpSettings) -> HttpSettings {
        let count = |given: Option<u32>, before: usize| given.map_or(before, |n| n as usize);
        let time = |given: Option<ConfigDuration>, before: Duration| match given {
            Some(ConfigDuration(time)) if !time.is_zero() => time,
            _ => before,
        };
        HttpSettings {
            max_connections: count(self.max_connections, settings.max_connections),
            reserved_connections: count(self.reserved_connections, settings.reserved_connections),
            max_connections_per_peer: count(
                self.max_connections_per_peer,
                settings.max_connections_per_peer,
            ),
            trusted_proxies: self
                .trusted_proxies
                .clone()
                .unwrap_or(settings.trusted_proxies),
            max_connections_per_key: count(
                self.max_connections_per_key,
                settings.max_connections_per_key,
            ),
            header_timeout: time(self.header_timeout, settings.header_timeout),
            body_timeout: time(self.body_timeout, settings.body_timeout),
            idle_timeout: time(self.idle_timeout, settings.idle_timeout),
        }
    }
}

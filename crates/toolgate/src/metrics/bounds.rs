//! Bounds that protect the gateway: how often each one refused something.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry as Prometheus;

/// Interval at which a bound that is reached again and again is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A bound on what callers and servers may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// Open connections.
    Connections,
    /// Open connections from one address.
    ConnectionsPerPeer,
    /// Open connections that use one key.
    ConnectionsPerKey,
    /// Time to receive the headers of a request.
    HeaderTime,
    /// Time without progress while a body is received.
    BodyTime,
    /// Size of a request's body.
    BodySize,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BoundLabels {
    bound: &'static str,
}

#[derive(Debug)]
pub(super) struct BoundMetrics {
    reached: Family<BoundLabels, Counter>,
    logged: Mutex<HashMap<Bound, LoggedBound>>,
}

/// When a bound was last logged, and how often it was reached since.
#[derive(Debug)]
struct LoggedBound {
    at: Instant,
    since: u64,
}

impl Bound {
    const ALL: [Self; 6] = [
        Self::Connections,
        Self::ConnectionsPerPeer,
        Self::ConnectionsPerKey,
        Self::HeaderTime,
        Self::BodyTime,
        Self::BodySize,
    ];

    /// Returns the name of the bound in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ConnectionsPerPeer => "connections_per_peer",
            Self::ConnectionsPerKey => "connections_per_key",
            Self::HeaderTime => "header_time",
            Self::BodyTime => "body_time",
            Self::BodySize => "body_size",
        }
    }

    /// Returns the config key that sets the bound.
    pub fn config_key(self) -> Option<&'static str> {
        match self {
            Self::Connections => Some("http.max_connections"),
            Self::ConnectionsPerPeer => Some("http.max_connections_per_peer"),
            Self::ConnectionsPerKey => Some("http.max_connections_per_key"),
            Self::HeaderTime => Some("http.header_timeout"),
            Self::BodyTime => Some("http.body_timeout"),
            Self::BodySize => None,
        }
    }
}

impl BoundMetrics {
    pub(super) fn new(prometheus: &mut Prometheus) -> Self {
        let metrics = Self {
            reached: Family::default(),
            logged: Mutex::default(),
        };
        for bound in Bound::ALL {
            drop(metrics.reached.get_or_create(&BoundLabels::new(bound)));
        }
        prometheus.register(
            "bounds_reached",
            "Requests, connections and other work that a bound refused or ended",
            metrics.reached.clone(),
        );
        metrics
    }

    /// Counts that a bound was reached, and logs it the first time and then once a minute.
    pub(super) fn report(&self, bound: Bound, who: &str) {
        self.reached.get_or_create(&BoundLabels::new(bound)).inc();
        let mut logged = self.logged.lock();
        let now = Instant::now();
        let times = match logged.get_mut(&bound) {
            Some(last) if now.duration_since(last.at) < LOG_INTERVAL => {
                last.since += 1;
                return;
            }
            Some(last) => last.since + 1,
            None => 1,
        };
        logged.insert(bound, LoggedBound { at: now, since: 0 });
        drop(logged);
        tracing::warn!(
            bound = bound.as_str(),
            setting = bound.config_key(),
            who,
            times,
            "a bound was reached"
        );
    }
}

impl BoundLabels {
    fn new(bound: Bound) -> Self {
        Self {
            bound: bound.as_str(),
        }
    }
}

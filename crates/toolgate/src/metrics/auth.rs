//! Metrics of failed authentications.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry as Prometheus;

/// The kind of access that a request failed to authenticate for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthKind {
    /// Access of a caller, with a caller key.
    Caller,
    /// Access of the administrator, with the admin key.
    Admin,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AuthLabels {
    kind: &'static str,
}

#[derive(Debug)]
pub(super) struct AuthMetrics {
    failures: Family<AuthLabels, Counter>,
}

impl AuthKind {
    const ALL: [Self; 2] = [Self::Caller, Self::Admin];

    /// Returns the name of the kind in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Admin => "admin",
        }
    }
}

impl AuthMetrics {
    pub(super) fn new(prometheus: &mut Prometheus) -> Self {
        let metrics = Self {
            failures: Family::default(),
        };
        // Create the counters at once: a counter that appears with its first failure hides that failure
        // from `rate()`.
        for kind in AuthKind::ALL {
            drop(metrics.failures.get_or_create(&AuthLabels::new(kind)));
        }
        prometheus.register(
            "auth_failures",
            "Requests that failed to authenticate",
            metrics.failures.clone(),
        );
        metrics
    }

    pub(super) fn count_failure(&self, kind: AuthKind) {
        self.failures.get_or_create(&AuthLabels::new(kind)).inc();
    }
}

impl AuthLabels {
    fn new(kind: AuthKind) -> Self {
        Self {
            kind: kind.as_str(),
        }
    }
}

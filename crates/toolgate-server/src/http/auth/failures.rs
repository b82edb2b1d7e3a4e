//! Failed authentications: who sends wrong keys, how often, and what is reported about it.
//!
//! A peer that has sent many wrong keys is answered 429 until its window ends. Keys are compared all
//! the same: a valid one always passes, so that one client with a wrong key cannot lock out the others
//! behind the same address or proxy. Successful requests never come here. All state is bounded.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use toolgate::audit::AuditLog;
use toolgate::metrics::AuthKind;

/// Wrong keys that a peer may send within [`WINDOW`] before it is answered 429.
const MAX_WRONG_KEYS: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// Peers whose wrong keys are counted; beyond that, the least recently seen are forgotten.
const MAX_PEERS: u64 = 10_000;
/// Interval between reports about the same peer.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Peers and kinds reported one by one per interval; further ones are reported together.
const MAX_PENDING_SUMMARIES: usize = 1000;

/// The credential of a request that failed to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    Missing,
    Wrong,
}

/// The network that counts as one peer: an IPv4 address, or an IPv6 /64, which a single host can use
/// up at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerNetwork(IpAddr);

/// Failed authentications of one peer since the previous report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthFailureSummary {
    /// `None` for several peers together, when there are too many to report one by one.
    pub(crate) peer: Option<PeerNetwork>,
    pub(crate) kind: AuthKind,
    pub(crate) count: u64,
    /// Time of the first failure.
    pub(crate) since: SystemTime,
}

/// Counts failed authentications by peer and collects them for reports.
#[derive(Debug)]
pub(crate) struct AuthFailures {
    windows: Cache<PeerNetwork, Arc<Mutex<FailureWindow>>>,
    pending: Mutex<HashMap<(Option<PeerNetwork>, AuthKind), PendingSummary>>,
}

/// Wrong keys of one peer in its current window.
#[derive(Debug)]
struct FailureWindow {
    started: Instant,
    wrong_keys: u32,
}

#[derive(Debug)]
struct PendingSummary {
    count: u64,
    since: SystemTime,
}

impl AuthFailures {
    pub(crate) fn new() -> Self {
        Self {
            windows: Cache::builder()
                .max_capacity(MAX_PEERS)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_idle(WINDOW)
                .build(),
            pending: Mutex::default(),
        }
    }

    /// Records a failed authentication. Returns the time until the end of the window if the peer has
    /// already sent too many wrong keys.
    pub(super) fn record(
        &self,
        peer: IpAddr,
        kind: AuthKind,
        credential: Credential,
    ) -> Option<Duration> {
        let peer = PeerNetwork::new(peer);
        self.add_to_summary(peer, kind);
        match credential {
            Credential::Wrong => self.count_wrong_key(peer, Instant::now()),
            // Clients often try without a key first.
            Credential::Missing => None,
        }
    }

    fn count_wrong_key(&self, peer: PeerNetwork, now: Instant) -> Option<Duration> {
        let window = self.windows.get_with(peer, || {
            Arc::new(Mutex::new(FailureWindow {
                started: now,
                wrong_keys: 0,
            }))
        });
        let mut window = window.lock();
        if now.duration_since(window.started) >= WINDOW {
            *window = FailureWindow {
                started: now,
                wrong_keys: 0,
            };
        }
        if window.wrong_keys < MAX_WRONG_KEYS {
            window.wrong_keys += 1;
            return None;
        }
        Some(WINDOW.saturating_sub(now.duration_since(window.started)))
    }

    fn add_to_summary(&self, peer: PeerNetwork, kind: AuthKind) {
        let mut pending = self.pending.lock();
        let key = (Some(peer), kind);
        let has_room = pending.len() < MAX_PENDING_SUMMARIES || pending.contains_key(&key);
        let key = if has_room { key } else { (None, kind) };
        let summary = pending.entry(key).or_insert_with(|| PendingSummary {
            count: 0,
            since: SystemTime::now(),
        });
        summary.count += 1;
    }

    /// Returns the failures since the last call, one summary per peer and kind.
    fn take_summaries(&self) -> Vec<AuthFailureSummary> {
        let pending = std::mem::take(&mut *self.pending.lock());
        let summaries = pending.into_iter();
        let summaries =
            summaries.map(
                |((peer, kind), PendingSummary { count, since })| AuthFailureSummary {
                    peer,
                    kind,
                    count,
                    since,
                },
            );
        summaries.collect()
    }

    /// Reports failures at regular intervals until `stop` is cancelled, and then once more.
    pub(crate) async fn run_reporter(&self, audit: &AuditLog, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !stop.is_cancelled() {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => {}
            }
            for summary in self.take_summaries() {
                report(&summary, audit);
            }
        }
    }
}

/// Logs failures and records them in the audit trail.
fn report(summary: &AuthFailureSummary, audit: &AuditLog) {
    let AuthFailureSummary {
        peer,
        kind,
        count,
        since,
    } = summary;
    let peer = peer.map_or_else(|| "others".to_owned(), |peer| peer.to_string());
    let since = humantime::format_rfc3339_millis(*since);
    tracing::warn!(peer, kind = kind.as_str(), count, %since, "authentication failures");
    let occurrences = i64::try_from(*count).unwrap_or(i64::MAX);
    audit.record_auth(&peer, kind.as_str(), "unauthorized", occurrences);
}

impl PeerNetwork {
    fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        })
    }
}

impl fmt::Display for PeerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> PeerNetwork {
        PeerNetwork::new(text.parse().unwrap())
    }

    #[test]
    fn peers_are_ipv4_addresses_and_ipv6_networks() {
        assert_eq!(peer("10.0.0.1"), peer("::ffff:10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("2001:db8:1:2::3"), peer("2001:db8:1:2:ffff::4"));
        assert_ne!(peer("2001:db8:1:2::3"), peer("2001:db8:1:3::3"));
        assert_eq!(peer("::ffff:10.0.0.1").to_string(), "10.0.0.1");
        assert_eq!(peer("2001:db8:1:2::3").to_string(), "2001:db8:1:2::/64");
    }

    #[test]
    fn peer_is_locked_out_for_the_rest_of_its_window_only() {
        let failures = AuthFailures::new();
        let (bad, other) = (peer("10.0.0.1"), peer("10.0.0.2"));
        let start = Instant::now();
        for _ in 0..MAX_WRONG_KEYS {
            assert_eq!(failures.count_wrong_key(bad, start), None);
        }
        let later = start + Duration::from_secs(45);
        for _ in 0..3 {
            let wait = failures.count_wrong_key(bad, later);
            assert_eq!(wait, Some(Duration::from_secs(15)));
        }
        assert_eq!(failures.count_wrong_key(other, later), None);
        assert_eq!(failures.count_wrong_key(bad, start + WINDOW), None);
    }

    #[test]
    fn missing_keys_are_reported_but_lock_nobody_out() {
        let failures = AuthFailures::new();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        for _ in 0..3 * MAX_WRONG_KEYS {
            let wait = failures.record(address, AuthKind::Caller, Credential::Missing);
            assert_eq!(wait, None);
        }
        let wait = failures.record(address, AuthKind::Caller, Credential::Wrong);
        assert_eq!(wait, None);
        let [summary] = &failures.take_summaries()[..] else {
            panic!("one summary");
        };
        assert_eq!(summary.count, u64::from(3 * MAX_WRONG_KEYS + 1));
        assert_eq!(summary.peer, Some(PeerNetwork::new(address)));
        assert!(failures.take_summaries().is_empty());
    }

    #[test]
    fn summaries_are_bounded_and_lose_no_failure() {
        let failures = AuthFailures::new();
        let kinds = [AuthKind::Caller, AuthKind::Admin];
        for n in 0..5000_u32 {
            for kind in kinds {
                let address = IpAddr::V4(n.into());
                failures.record(address, kind, Credential::Wrong);
            }
        }
        let summaries = failures.take_summaries();
        assert_eq!(summaries.len(), MAX_PENDING_SUMMARIES + kinds.len());
        let total: u64 = summaries.iter().map(|summary| summary.count).sum();
        assert_eq!(total, 10_000);
        failures.windows.run_pending_tasks();
        assert!(failures.windows.entry_count() <= MAX_PEERS);
    }
}

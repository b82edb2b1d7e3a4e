//! Sign-ins of the administrator. The admin key comes with every request; what is recorded is its first use
//! by a peer, and the first after a long time without.

use std::net::IpAddr;
use std::time::Duration;

use moka::sync::Cache;

/// Time without a request after which the next one counts as a sign-in.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
const MAX_PEERS: u64 = 1000;

/// Peers that have used the admin key lately.
#[derive(Debug)]
pub(crate) struct SignIns(Cache<IpAddr, ()>);

impl SignIns {
    pub(crate) fn new() -> Self {
        let cache = Cache::builder()
            .max_capacity(MAX_PEERS)
            .time_to_idle(IDLE_TIMEOUT);
        Self(cache.build())
    }

    /// Takes note of a request with the admin key. Returns whether it is a sign-in.
    pub(super) fn record(&self, peer: IpAddr) -> bool {
        self.0.entry(peer).or_insert(()).is_fresh()
    }
}

//! A bounded in-memory cache in which every entry has its own time to live.

use std::hash::Hash;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

/// A cache bounded by total size, with a TTL per entry.
#[derive(Debug)]
pub(crate) struct TtlCache<K, V>(Cache<K, Timed<V>>)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static;

#[derive(Clone, Debug)]
struct Timed<V> {
    value: V,
    bytes: u32,
    ttl: Duration,
}

struct PerEntryTtl;

impl<K, V> Expiry<K, Timed<V>> for PerEntryTtl {
    fn expire_after_create(&self, _: &K, timed: &Timed<V>, _: Instant) -> Option<Duration> {
        Some(timed.ttl)
    }

    fn expire_after_update(
        &self,
        _: &K,
        timed: &Timed<V>,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(timed.ttl)
    }
}

impl<K, V> TtlCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self(
            Cache::builder()
                .max_capacity(max_bytes)
                // The default TinyLFU policy may reject new entries in favor of popular old ones;
                // a result that was just produced must be readable.
                .eviction_policy(EvictionPolicy::lru())
                .weigher(|_, timed: &Timed<V>| timed.bytes)
                .expire_after(PerEntryTtl)
                .build(),
        )
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).map(|timed| timed.value)
    }

    pub(crate) fn insert(&self, key: K, value: V, bytes: usize, ttl: Duration) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.0.insert(key, Timed { value, bytes, ttl });
    }
}

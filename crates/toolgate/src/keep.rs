//! Values that are kept for a while, each as long as it says itself.

use std::hash::Hash;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

/// A bounded store of values that forget themselves.
#[derive(Debug)]
pub(crate) struct Keep<K, V>(Cache<K, Timed<V>>)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static;

#[derive(Clone, Debug)]
struct Timed<V> {
    value: V,
    bytes: u32,
    ttl: Duration,
}

struct OwnTime;

impl<K, V> Expiry<K, Timed<V>> for OwnTime {
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

impl<K, V> Keep<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self(
            Cache::builder()
                .max_capacity(most_bytes)
                // What is new must find a place, however often the old is asked for.
                .eviction_policy(EvictionPolicy::lru())
                .weigher(|_, timed: &Timed<V>| timed.bytes)
                .expire_after(OwnTime)
                .build(),
        )
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).map(|timed| timed.value)
    }

    pub(crate) fn put(&self, key: K, value: V, bytes: usize, ttl: Duration) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.0.insert(key, Timed { value, bytes, ttl });
    }
}

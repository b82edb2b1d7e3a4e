//! The memory that large request bodies, and responses that are being sent, take in all and per key.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use toolgate::metrics::Bound;
use toolgate_core::config::Share;

use super::RETRY_AFTER;
use crate::http::error::ApiError;

/// Bytes of the bodies of requests in progress.
#[derive(Debug, Default)]
pub(super) struct HeldBodies(Mutex<HeldBytes>);

#[derive(Debug, Default)]
struct HeldBytes {
    all: usize,
    /// By key; callers without one count as one.
    per_key: HashMap<Option<Arc<str>>, usize>,
}

/// Reasons why a body is not received to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BodyRefused {
    #[error(
        "the gateway holds too many large request bodies (`capacity.max_bodies_mb`); try again in a moment"
    )]
    All,
    #[error(
        "too many large requests and unread responses of this key are in progress (`capacity.max_bodies_mb_per_key`); send fewer at a time, and read the responses"
    )]
    Key,
    #[error("the gateway is overloaded and takes no large request bodies; try again in a moment")]
    Overloaded(Bound),
}

impl HeldBodies {
    pub(super) fn hold(
        &self,
        key: Option<&Arc<str>>,
        bytes: usize,
        share: Share,
    ) -> Result<(), BodyRefused> {
        let mut held = self.0.lock();
        let key = key.cloned();
        let of_key = held.per_key.get(&key).copied().unwrap_or(0);
        if of_key + bytes > share.max_per_key {
            return Err(BodyRefused::Key);
        }
        if held.all + bytes > share.max {
            return Err(BodyRefused::All);
        }
        held.all += bytes;
        held.per_key.insert(key, of_key + bytes);
        Ok(())
    }

    /// Fails if a key has its share already.
    pub(super) fn check(&self, key: Option<&Arc<str>>, share: Share) -> Result<(), BodyRefused> {
        let held = self.0.lock();
        let of_key = held.per_key.get(&key.cloned()).copied().unwrap_or(0);
        if of_key > share.max_per_key {
            return Err(BodyRefused::Key);
        }
        Ok(())
    }

    /// Counts bytes beyond any limit.
    pub(super) fn add(&self, key: Option<&Arc<str>>, bytes: usize) {
        let mut held = self.0.lock();
        held.all += bytes;
        *held.per_key.entry(key.cloned()).or_default() += bytes;
    }

    pub(super) fn release(&self, key: Option<&Arc<str>>, bytes: usize) {
        let mut held = self.0.lock();
        held.all = held.all.saturating_sub(bytes);
        let key = key.cloned();
        if let Some(of_key) = held.per_key.get_mut(&key) {
            *of_key = of_key.saturating_sub(bytes);
            if *of_key == 0 {
                held.per_key.remove(&key);
            }
        }
    }
}

impl BodyRefused {
    pub(super) fn bound(self) -> Bound {
        match self {
            Self::All => Bound::Bodies,
            Self::Key => Bound::BodiesPerKey,
            Self::Overloaded(bound) => bound,
        }
    }

    pub(in crate::http) fn to_error(self) -> ApiError {
        match self {
            Self::Key => ApiError::too_many_requests(self.to_string(), Some(RETRY_AFTER)),
            Self::All | Self::Overloaded(_) => ApiError::overloaded(self.to_string(), RETRY_AFTER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_bounded_per_key_and_in_all() {
        let bodies = HeldBodies::default();
        let share = Share {
            max: 100,
            max_per_key: 60,
        };
        let (alice, bob) = (Arc::from("alice"), Arc::from("bob"));
        assert_eq!(bodies.hold(Some(&alice), 60, share), Ok(()));
        assert_eq!(bodies.hold(Some(&alice), 1, share), Err(BodyRefused::Key));
        assert_eq!(bodies.hold(Some(&bob), 41, share), Err(BodyRefused::All));
        assert_eq!(bodies.hold(Some(&bob), 40, share), Ok(()));
        bodies.release(Some(&alice), 60);
        assert_eq!(bodies.hold(None, 60, share), Ok(()));
    }
}

//! Calls that were counted against the rate limit of their caller's key before the first of them runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number of calls that were already counted against the rate limit of one key.
///
/// [`Keys::admit_calls`](crate::engine::Keys::admit_calls) counts several calls at once, all or none.
/// In the [`RequestContext`](crate::RequestContext) of those calls, the admission keeps the engine
/// from counting them a second time. It covers exactly the calls that were counted, of that key only;
/// any further call is counted by itself. Clones share the count.
#[derive(Clone, Debug)]
pub struct RateAdmission(Arc<AdmittedCalls>);

#[derive(Debug)]
struct AdmittedCalls {
    /// Name of the key; `None` for callers without one, which have no rate limit.
    key: Option<Arc<str>>,
    remaining: AtomicU32,
}

impl RateAdmission {
    pub(crate) fn new(key: Option<Arc<str>>, calls: u32) -> Self {
        Self(Arc::new(AdmittedCalls {
            key,
            remaining: AtomicU32::new(calls),
        }))
    }

    /// Takes one call of this key out of the admission. Returns false if none is left.
    pub(crate) fn take(&self, key: &str) -> bool {
        let AdmittedCalls {
            key: admitted,
            remaining,
        } = &*self.0;
        let take_one = |left: u32| left.checked_sub(1);
        admitted.as_deref() == Some(key)
            && remaining
                .try_update(Ordering::Relaxed, Ordering::Relaxed, take_one)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_covers_the_counted_calls_of_its_key_only() {
        let admission = RateAdmission::new(Some("alice".into()), 2);
        let clone = admission.clone();
        assert!(!admission.take("bob"));
        assert!(admission.take("alice"));
        assert!(clone.take("alice"));
        assert!(!admission.take("alice") && !clone.take("alice"));
        assert!(!RateAdmission::new(None, 1).take("alice"));
    }
}

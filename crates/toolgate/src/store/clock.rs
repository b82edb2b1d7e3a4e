//! The wall clock, which never moves back.
//!
//! Budgets count within windows of time. If the system clock is set back, a window that was used up
//! would start again; so the latest time seen is kept, in memory and in the store.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::SystemTime;

use uuid::{ContextV7, Timestamp, Uuid};

use super::unix_millis;

/// Entry of the table `meta` that holds the latest time seen.
pub(super) const LATEST_TIME_KEY: &str = "latest_time";
/// Difference at which the system clock counts as set back, not just adjusted.
const SET_BACK_MILLIS: i64 = 60_000;

static CONTEXT: Mutex<ContextV7> = Mutex::new(ContextV7::new());
static LATEST: AtomicI64 = AtomicI64::new(0);
static IS_BEHIND: AtomicBool = AtomicBool::new(false);

/// Returns the time in milliseconds since the Unix epoch; never less than an earlier result.
pub(crate) fn now() -> i64 {
    let system = unix_millis(SystemTime::now());
    let latest = LATEST.fetch_max(system, Ordering::Relaxed).max(system);
    let is_behind = latest - system > SET_BACK_MILLIS;
    if is_behind != IS_BEHIND.load(Ordering::Relaxed) {
        IS_BEHIND.store(is_behind, Ordering::Relaxed);
        if is_behind {
            tracing::warn!(
                seconds = (latest - system) / 1000,
                "the system clock was set back; the windows of budgets stand still until it catches up"
            );
        }
    }
    latest
}

/// Returns a new version 7 id, with the time of [`now`].
pub(crate) fn new_id() -> Uuid {
    let millis = now().unsigned_abs();
    let nanos = u32::try_from(millis % 1000 * 1_000_000).unwrap_or(0);
    // The context counts within a millisecond, so that ids sort in the order of their creation.
    Uuid::new_v7(Timestamp::from_unix(&CONTEXT, millis / 1000, nanos))
}

/// Takes note of a time that an earlier process has seen.
pub(super) fn advance_to(millis: i64) {
    LATEST.fetch_max(millis, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_moves_back() {
        let before = now();
        // A little ahead of the system clock, as if that had been set back.
        advance_to(before + 50);
        assert!(now() >= before + 50);
        let ids: Vec<String> = (0..100).map(|_| new_id().to_string()).collect();
        assert!(ids.is_sorted(), "{ids:?}");
    }
}

//! Waiting for a condition instead of a fixed amount of time.

use std::time::{Duration, Instant};

/// Upper bound for a wait; far more than any condition needs, for busy machines.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `probe` until it returns a value, and returns that value.
///
/// # Panics
/// If `timeout` passes first; the message names `what` was awaited.
pub async fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    let mut polls = 0_u32;
    loop {
        polls += 1;
        if let Some(value) = probe().await {
            return value;
        }
        assert!(
            start.elapsed() < timeout,
            "timed out after {:.1?} ({polls} polls) waiting for: {what}",
            start.elapsed()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

//! Waiting for a condition, instead of for an amount of time.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Asks `probe` again and again until it gives something, and gives that.
///
/// # Panics
/// If `timeout` passed first; the message names `what` was waited for.
pub async fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    let mut polls = 0_u32;
    loop {
        polls += 1;
        if let Some(found) = probe().await {
            return found;
        }
        assert!(
            start.elapsed() < timeout,
            "waited {:.1?} in vain ({polls} polls) for: {what}",
            start.elapsed()
        );
        tokio::time::sleep(POLL).await;
    }
}

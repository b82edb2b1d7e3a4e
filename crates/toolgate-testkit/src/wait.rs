//! Waiting for a condition instead of a fixed amount of time.

use std::fmt::Debug;
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

/// Waits until a server is in a state and returns the reason for that state. `read_status` returns the
/// current state and the reason for it.
///
/// # Panics
/// If [`WAIT_TIMEOUT`] passes first.
pub async fn wait_for_state<S: Debug + PartialEq>(
    server: &str,
    state: S,
    mut read_status: impl FnMut() -> (S, Option<String>),
) -> String {
    eventually(
        &format!("{server} is {state:?}"),
        WAIT_TIMEOUT,
        async || {
            let (current, reason) = read_status();
            (current == state).then(|| reason.unwrap_or_default())
        },
    )
    .await
}

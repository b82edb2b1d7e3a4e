//! Delay between attempts to connect to a server.

use std::time::Duration;

const INITIAL_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Exponential backoff with jitter: no delay after a stable connection, then 0.5 s doubling to 30 s.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Forgets earlier failures; the next attempt is immediate.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts a failed attempt.
    pub(crate) fn record_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn delay(&self) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let doubled = INITIAL_DELAY.saturating_mul(1 << (self.failures - 1).min(10));
        // Jitter between half and the full delay, so that many servers do not reconnect in step.
        doubled
            .min(MAX_DELAY)
            .mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.delay(), Duration::ZERO);
        for expected in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            backoff.record_failure();
            let millis = backoff.delay().as_millis();
            assert!(
                (expected / 2..=expected).contains(&millis),
                "{millis} for {expected}"
            );
        }
        backoff.reset();
        assert_eq!(backoff.delay(), Duration::ZERO);
    }
}

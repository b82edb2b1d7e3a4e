//! How long to wait before the next try.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// At once after a connection that lasted, then 0.5 s doubling to 30 s, with jitter.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Forgets earlier failures, and tries at once the next time.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure to connect.
    pub(crate) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn delay(&self) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let doubled = FIRST.saturating_mul(1 << (self.failures - 1).min(10));
        // Half to whole, so that many servers do not come back in step.
        doubled.min(LONGEST).mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.delay(), Duration::ZERO);
        for expected in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            backoff.fail();
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

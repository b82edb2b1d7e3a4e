//! How long an agent takes from the last result of a tool to the next request to the model, as the
//! upstreams see it. Only good for one run at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Most gaps that are remembered.
const MOST: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Gaps(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// When a tool was answered last.
    answered: Option<Instant>,
    micros: Vec<f64>,
}

/// What was seen, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Gaps {
    /// A tool is answered.
    pub(super) fn answered(&self) {
        self.with(|gaps| gaps.answered = Some(Instant::now()));
    }

    /// The model is asked.
    pub(super) fn asked(&self) {
        self.with(|gaps| {
            if let Some(answered) = gaps.answered.take()
                && gaps.micros.len() < MOST
            {
                gaps.micros.push(answered.elapsed().as_secs_f64() * 1e6);
            }
        });
    }

    /// What was seen since the last time.
    pub(super) fn take(&self) -> Seen {
        let mut micros = self.with(|gaps| std::mem::take(&mut gaps.micros));
        micros.sort_by(f64::total_cmp);
        let at = |of: usize| micros.get(micros.len() * of / 100).copied();
        Seen {
            count: micros.len(),
            p50: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_a_result_is_a_gap() {
        let gaps = Gaps::default();
        gaps.asked();
        gaps.answered();
        gaps.answered();
        gaps.asked();
        gaps.asked();
        assert_eq!(gaps.take().count, 1);
        assert_eq!(gaps.take().count, 0);
    }
}

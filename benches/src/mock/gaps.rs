//! Measures the time an agent takes from the last tool result to the next model request, as seen by
//! the upstreams. Valid only with one run at a time.

use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Maximum number of recorded gaps.
const MAX_GAPS: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Gaps(Mutex<GapState>);

#[derive(Debug, Default)]
struct GapState {
    /// Time of the last tool response.
    tool_response: Option<Instant>,
    micros: Vec<f64>,
}

/// Statistics in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GapStats {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Gaps {
    /// Records a tool response.
    pub(super) fn record_tool_response(&self) {
        self.with(|gaps| gaps.tool_response = Some(Instant::now()));
    }

    /// Records a model request, which ends the gap since the last tool response.
    pub(super) fn record_model_request(&self) {
        self.with(|gaps| {
            if let Some(responded) = gaps.tool_response.take()
                && gaps.micros.len() < MAX_GAPS
            {
                gaps.micros.push(responded.elapsed().as_secs_f64() * 1e6);
            }
        });
    }

    /// Returns the statistics since the last call.
    pub(super) fn take_stats(&self) -> GapStats {
        let mut micros = self.with(|gaps| std::mem::take(&mut gaps.micros));
        micros.sort_by(f64::total_cmp);
        let percentile = |percent: usize| micros.get(micros.len() * percent / 100).copied();
        GapStats {
            count: micros.len(),
            // Zero without a single gap, which `count` tells.
            p50: percentile(50).unwrap_or(0.0),
            p99: percentile(99).unwrap_or(0.0),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut GapState) -> T) -> T {
        work(&mut self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_model_request_after_tool_response_is_a_gap() {
        let gaps = Gaps::default();
        gaps.record_model_request();
        gaps.record_tool_response();
        gaps.record_tool_response();
        gaps.record_model_request();
        gaps.record_model_request();
        assert_eq!(gaps.take_stats().count, 1);
        assert_eq!(gaps.take_stats().count, 0);
    }
}

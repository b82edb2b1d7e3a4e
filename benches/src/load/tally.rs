//! Collects latencies and errors of responses.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::client::TimedResponse;
use crate::process::ProcessTree;

/// One minute; longer latencies are recorded as this.
const MAX_LATENCY_NANOS: u64 = 60_000_000_000;
/// Maximum number of distinct error messages to keep.
const MAX_ERROR_SAMPLES: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Nanoseconds from the intended start to the end of the response.
    latency: LatencyHistogram,
    /// Nanoseconds from the intended start to the first byte of the body.
    first: LatencyHistogram,
    bytes: u64,
    errors: u64,
    /// The first distinct error messages.
    error_samples: Vec<String>,
}

/// Result of a load, as reported to the parent process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadResult {
    pub(crate) answered: u64,
    pub(crate) errors: u64,
    pub(crate) error_samples: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    /// CPU seconds of the load generator itself.
    pub(crate) cpu: f64,
    /// Milliseconds.
    pub(crate) latency: Percentiles,
    pub(crate) first: Percentiles,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

#[derive(Debug)]
struct LatencyHistogram(Histogram<u64>);

impl Default for LatencyHistogram {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(MAX_LATENCY_NANOS, 3);
        Self(histogram.unwrap_or_else(|_| unreachable!("three significant digits are valid")))
    }
}

impl Tally {
    pub(super) fn record_success(
        &mut self,
        intended_start: Instant,
        response: &TimedResponse,
        bytes: usize,
    ) {
        self.latency.record(response.finished - intended_start);
        self.first.record(response.first_byte - intended_start);
        self.bytes += bytes as u64;
    }

    pub(super) fn record_error(&mut self, problem: &str) {
        self.errors += 1;
        self.add_error_sample(problem);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        // Cannot fail, since the histograms have the same bounds.
        let _ = self.latency.0.add(&other.latency.0);
        let _ = self.first.0.add(&other.first.0);
        self.bytes += other.bytes;
        self.errors += other.errors;
        for problem in &other.error_samples {
            self.add_error_sample(problem);
        }
    }

    fn add_error_sample(&mut self, problem: &str) {
        let samples = &mut self.error_samples;
        if samples.len() < MAX_ERROR_SAMPLES && !samples.iter().any(|sample| sample == problem) {
            samples.push(problem.to_owned());
        }
    }

    pub(super) fn to_result(&self, elapsed: Duration) -> LoadResult {
        LoadResult {
            answered: self.latency.0.len(),
            errors: self.errors,
            error_samples: self.error_samples.clone(),
            seconds: elapsed.as_secs_f64(),
            bytes: self.bytes,
            cpu: ProcessTree::single(std::process::id()).cpu().as_secs_f64(),
            latency: self.latency.percentiles(),
            first: self.first.percentiles(),
        }
    }
}

impl LatencyHistogram {
    fn record(&mut self, time: Duration) {
        self.0
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    fn percentiles(&self) -> Percentiles {
        #[allow(clippy::cast_precision_loss, reason = "latencies are below a minute")]
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1e6;
        Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

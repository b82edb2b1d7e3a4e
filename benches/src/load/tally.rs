//! What was seen of the answers.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::client::Answer;
use crate::process::Tree;

/// A minute; what takes longer counts as one.
const LONGEST: u64 = 60_000_000_000;
/// Kinds of errors that are told.
const TOLD: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Nanoseconds from the intended start to the end of the answer.
    latency: Times,
    /// And to the first byte of its body.
    first: Times,
    bytes: u64,
    errors: u64,
    told: Vec<String>,
}

/// The same for whoever asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) answered: u64,
    pub(crate) errors: u64,
    pub(crate) told: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    /// Processor seconds of the load generator itself.
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
struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LONGEST, 3);
        Self(histogram.unwrap_or_else(|_| unreachable!("three digits are allowed")))
    }
}

impl Tally {
    pub(super) fn answered(&mut self, meant: Instant, answer: &Answer, bytes: usize) {
        self.latency.put(answer.ended - meant);
        self.first.put(answer.began - meant);
        self.bytes += bytes as u64;
    }

    pub(super) fn failed(&mut self, why: String) {
        self.errors += 1;
        if self.told.len() < TOLD && !self.told.contains(&why) {
            self.told.push(why);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        // They have the same bounds.
        let _ = self.latency.0.add(&other.latency.0);
        let _ = self.first.0.add(&other.first.0);
        self.bytes += other.bytes;
        self.errors += other.errors;
        for why in &other.told {
            if self.told.len() < TOLD && !self.told.contains(why) {
                self.told.push(why.clone());
            }
        }
    }

    pub(super) fn seen(&self, within: Duration) -> Seen {
        Seen {
            answered: self.latency.0.len(),
            errors: self.errors,
            told: self.told.clone(),
            seconds: within.as_secs_f64(),
            bytes: self.bytes,
            cpu: Tree::only(std::process::id()).cpu().as_secs_f64(),
            latency: self.latency.percentiles(),
            first: self.first.percentiles(),
        }
    }
}

impl Times {
    fn put(&mut self, time: Duration) {
        self.0
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    fn percentiles(&self) -> Percentiles {
        #[allow(clippy::cast_precision_loss, reason = "hours fit")]
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1e6;
        Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

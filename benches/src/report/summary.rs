//! Summary figures over all rounds of a case.

use serde::Serialize;

use crate::measure::{LoadMode, Measurement};
use crate::run::{CPU_CONNECTIONS, CaseResult, LATENCY_RATE};

/// Summary of a case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) goal: Option<f64>,
    /// CPU µs per request at 64 connections.
    pub(crate) cpu: Option<Spread>,
    pub(crate) bare_cpu: Option<Spread>,
    /// CPU µs per request at a low rate.
    pub(crate) slow_cpu: Option<Spread>,
    /// Best throughput at each number of connections, for gateway and bare upstream.
    pub(crate) throughput: Vec<Throughput>,
    /// Latency that the gateway adds at a low rate, in milliseconds; median of the rounds.
    pub(crate) added: Option<AddedLatency>,
    pub(crate) errors: u64,
    pub(crate) error_samples: Vec<String>,
    /// Median share of the machine used by other processes.
    pub(crate) foreign: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Throughput {
    pub(crate) connections: usize,
    pub(crate) gate: f64,
    pub(crate) bare: Option<f64>,
    pub(crate) cpu: Option<f64>,
    /// Milliseconds.
    pub(crate) p99: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AddedLatency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Latency to the first byte of the body.
    pub(crate) first_p50: f64,
    pub(crate) first_p99: f64,
}

impl Spread {
    pub(crate) fn from_values(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Self { median, min, max })
    }
}

impl Summary {
    pub(crate) fn from_case(case: &CaseResult) -> Self {
        let full = LoadMode::Connections(CPU_CONNECTIONS);
        let all = || case.bare.iter().chain(&case.gate);
        let mut error_samples: Vec<String> = all()
            .flat_map(|measurement| measurement.seen.error_samples.clone())
            .collect();
        error_samples.dedup();
        Self {
            name: case.name.clone(),
            goal: case.goal,
            cpu: cpu_spread(&case.gate, full),
            bare_cpu: cpu_spread(&case.bare, full),
            slow_cpu: cpu_spread(&case.gate, LoadMode::Rate(LATENCY_RATE)),
            throughput: throughput_by_connections(case),
            added: added_latency(case),
            errors: all().map(|measurement| measurement.seen.errors).sum(),
            error_samples,
            foreign: Spread::from_values(case.gate.iter().map(|measurement| measurement.foreign))
                .map_or(0.0, |spread| spread.median),
        }
    }
}

fn with_mode(all: &[Measurement], mode: LoadMode) -> impl Iterator<Item = &Measurement> {
    all.iter()
        .filter(move |measurement| measurement.mode == mode)
}

fn cpu_spread(all: &[Measurement], mode: LoadMode) -> Option<Spread> {
    Spread::from_values(with_mode(all, mode).filter_map(|measurement| measurement.cpu))
}

fn throughput_by_connections(case: &CaseResult) -> Vec<Throughput> {
    let mut sizes: Vec<usize> = case
        .gate
        .iter()
        .filter_map(|measurement| match measurement.mode {
            LoadMode::Connections(connections) => Some(connections),
            LoadMode::Rate(_) => None,
        })
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let best =
        |all: &[Measurement], mode| with_mode(all, mode).map(Measurement::rate).reduce(f64::max);
    let line = |connections: usize| {
        let mode = LoadMode::Connections(connections);
        let p99 = with_mode(&case.gate, mode).map(|measurement| measurement.seen.latency.p99);
        Some(Throughput {
            connections,
            gate: best(&case.gate, mode)?,
            bare: best(&case.bare, mode),
            cpu: cpu_spread(&case.gate, mode).map(|spread| spread.median),
            p99: p99.reduce(f64::min)?,
        })
    };
    sizes.into_iter().filter_map(line).collect()
}

/// Compares gateway and bare upstream within each round, so that disturbances affect both.
fn added_latency(case: &CaseResult) -> Option<AddedLatency> {
    let mode = LoadMode::Rate(LATENCY_RATE);
    let pairs: Vec<(&Measurement, &Measurement)> = with_mode(&case.gate, mode)
        .zip(with_mode(&case.bare, mode))
        .collect();
    let median = |of: fn(&Measurement) -> f64| {
        let differences = pairs.iter().map(|(gate, bare)| of(gate) - of(bare));
        Spread::from_values(differences).map(|spread| spread.median)
    };
    Some(AddedLatency {
        p50: median(|measurement| measurement.seen.latency.p50)?,
        p99: median(|measurement| measurement.seen.latency.p99)?,
        first_p50: median(|measurement| measurement.seen.first.p50)?,
        first_p99: median(|measurement| measurement.seen.first.p99)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_count_is_midpoint() {
        let spread = Spread::from_values([4.0, 1.0, 3.0, 2.0].into_iter()).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert!(Spread::from_values(std::iter::empty()).is_none());
    }
}

//! The few figures that many rounds come down to.

use serde::Serialize;

use crate::measure::{Drive, Measured};
use crate::run::{CONNECTIONS, CaseResult, RATE};

/// A case in one line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) goal: Option<f64>,
    /// CPU µs a request at 64 connections.
    pub(crate) cpu: Option<Spread>,
    pub(crate) bare_cpu: Option<Spread>,
    /// And at a low rate.
    pub(crate) slow_cpu: Option<Spread>,
    /// Best throughput at each number of connections: gateway and bare.
    pub(crate) throughput: Vec<Throughput>,
    /// What the gateway adds at a low rate, in milliseconds; the median of the rounds.
    pub(crate) added: Option<Added>,
    pub(crate) errors: u64,
    pub(crate) told: Vec<String>,
    /// The median share that others took of the machine.
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
pub(crate) struct Added {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// To the first byte of the body.
    pub(crate) first_p50: f64,
    pub(crate) first_p99: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
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
    pub(crate) fn of(case: &CaseResult) -> Self {
        let full = Drive::Connections(CONNECTIONS);
        let all = || case.bare.iter().chain(&case.gate);
        let mut told: Vec<String> = all().flat_map(|one| one.seen.told.clone()).collect();
        told.dedup();
        Self {
            name: case.name.clone(),
            goal: case.goal,
            cpu: cpu(&case.gate, full),
            bare_cpu: cpu(&case.bare, full),
            slow_cpu: cpu(&case.gate, Drive::Rate(RATE)),
            throughput: throughput(case),
            added: added(case),
            errors: all().map(|one| one.seen.errors).sum(),
            told,
            foreign: Spread::of(case.gate.iter().map(|one| one.foreign))
                .map_or(0.0, |spread| spread.median),
        }
    }
}

fn with(all: &[Measured], drive: Drive) -> impl Iterator<Item = &Measured> {
    all.iter().filter(move |one| one.drive == drive)
}

fn cpu(all: &[Measured], drive: Drive) -> Option<Spread> {
    Spread::of(with(all, drive).filter_map(|one| one.cpu))
}

fn throughput(case: &CaseResult) -> Vec<Throughput> {
    let mut sizes: Vec<usize> = case
        .gate
        .iter()
        .filter_map(|one| match one.drive {
            Drive::Connections(connections) => Some(connections),
            Drive::Rate(_) => None,
        })
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let best = |all: &[Measured], drive| with(all, drive).map(Measured::rate).reduce(f64::max);
    let line = |connections: usize| {
        let drive = Drive::Connections(connections);
        let p99 = with(&case.gate, drive).map(|one| one.seen.latency.p99);
        Some(Throughput {
            connections,
            gate: best(&case.gate, drive)?,
            bare: best(&case.bare, drive),
            cpu: cpu(&case.gate, drive).map(|spread| spread.median),
            p99: p99.reduce(f64::min)?,
        })
    };
    sizes.into_iter().filter_map(line).collect()
}

/// Rounds are compared with themselves, so that what disturbs one disturbs both sides.
fn added(case: &CaseResult) -> Option<Added> {
    let drive = Drive::Rate(RATE);
    let pairs: Vec<(&Measured, &Measured)> = with(&case.gate, drive)
        .zip(with(&case.bare, drive))
        .collect();
    let median = |of: fn(&Measured) -> f64| {
        let differences = pairs.iter().map(|(gate, bare)| of(gate) - of(bare));
        Spread::of(differences).map(|spread| spread.median)
    };
    Some(Added {
        p50: median(|one| one.seen.latency.p50)?,
        p99: median(|one| one.seen.latency.p99)?,
        first_p50: median(|one| one.seen.first.p50)?,
        first_p99: median(|one| one.seen.first.p99)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0].into_iter()).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert!(Spread::of(std::iter::empty()).is_none());
    }
}

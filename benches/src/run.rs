//! The whole benchmark: bare upstream and gateway in turn, in several rounds.

pub(crate) mod beside;
pub(crate) mod growth;
pub(crate) mod rounds;
pub(crate) mod start;
pub(crate) mod target;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::case::{self, At, Case, Depth};
use crate::flags::Flags;
use crate::gateway::{self, Gateway};
use crate::load::{Exchange, client};
use crate::measure::{Drive, Measured, Mock, Subject, measure, settled};
use crate::process::Tree;
use crate::report;
use crate::request::{self, Form};
use crate::tell;

/// The number of connections at which CPU is compared.
pub(crate) const CONNECTIONS: usize = 64;
/// Requests a second at which latency is compared.
pub(crate) const RATE: u32 = 200;
const OTHER_CONNECTIONS: [usize; 3] = [1, 16, 256];
/// How long the short form may take.
const SHORT: Duration = Duration::from_secs(285);

/// How long and how often things are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) rounds: usize,
    pub(crate) closed: f64,
    pub(crate) open: f64,
    /// After which nothing new is begun.
    pub(crate) until: Option<Instant>,
}

/// All that came of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) cases: Vec<CaseResult>,
    pub(crate) start: Vec<start::Started>,
    pub(crate) memory: Option<Memory>,
    pub(crate) growth: Vec<growth::Point>,
    pub(crate) gaps: Vec<rounds::Gap>,
    pub(crate) beside: Vec<beside::Beside>,
    /// MiB.
    pub(crate) binary: Option<f64>,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult {
    pub(crate) name: String,
    pub(crate) goal: Option<f64>,
    pub(crate) bare: Vec<Measured>,
    pub(crate) gate: Vec<Measured>,
}

/// Resident memory of the gateway with ten servers, in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) idle: f64,
    /// Of the processes for scripts, idle.
    pub(crate) workers: f64,
    /// At 256 connections.
    pub(crate) loaded: f64,
    pub(crate) after: f64,
}

/// One measurement to be made.
struct Job<'a> {
    at: usize,
    subject: &'a Subject,
    exchange: &'a Exchange,
    drive: Drive,
    is_bare: bool,
}

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut results = match flags.get("target") {
        Some(url) => target::run(url, flags).await?,
        None => own(flags).await?,
    };
    let took = began.elapsed().as_secs();
    results.notes.push(format!("it took {took} s"));
    let folder = PathBuf::from(flags.get("out").unwrap_or("target/bench"));
    report::write(&results, &folder)
}

/// Our own gateway, all of it.
async fn own(flags: &Flags) -> anyhow::Result<Results> {
    let binary = gateway::binary(flags.get("binary"))?;
    let times = Times::of(flags);
    let mock = Mock::start(0).await?;
    let mut results = Results {
        binary: Some(mib(std::fs::metadata(&binary)?.len())),
        ..Results::default()
    };
    if flags.get("only").is_none() {
        results.start = start::measured(&binary, &mock).await?;
    }
    let injecting = Gateway::start(&binary, &case::setup(At::Injecting), &mock.address).await?;
    let plain = Gateway::start(&binary, &case::setup(At::Plain), &mock.address).await?;
    for gateway in [&injecting, &plain] {
        gateway.connected(case::servers().len()).await?;
    }
    let (injecting_is, plain_is) = (subject(&injecting), subject(&plain));
    for tree in [&injecting_is, &plain_is]
        .into_iter()
        .filter_map(|one| one.tree.as_ref())
    {
        settled(tree, Duration::from_secs(1), Duration::from_secs(20)).await;
    }
    let idle = plain_is.tree.map(Tree::memory);
    let workers = plain_is.tree.map_or(0.0, Tree::memory_of_children);
    same_bytes(&injecting, &mock).await?;
    let subjects = |at: At| match at {
        At::Injecting => &injecting_is,
        At::Plain => &plain_is,
    };
    let cases = chosen(case::all(), flags);
    results.cases = in_rounds(&cases, &mock, subjects, times, &mut results.notes).await?;
    let loaded = results.cases.iter().flat_map(|case| &case.gate);
    let loaded = loaded.filter(|measured| measured.drive == Drive::Connections(256));
    let loaded = loaded
        .filter_map(|measured| measured.memory)
        .reduce(f64::max);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = plain_is.tree.map(Tree::memory);
    results.memory = idle
        .zip(loaded)
        .zip(after)
        .map(|((idle, loaded), after)| Memory {
            idle,
            workers,
            loaded,
            after,
        });
    warned(&plain, &mut results.notes);
    drop((injecting, plain));
    if flags.get("only").is_none_or(|only| "agent".contains(only)) {
        results.gaps = rounds::measured(&binary, &mock, times).await?;
    }
    if flags.get("only").is_none_or(|only| "beside".contains(only)) {
        results.beside = beside::measured(&binary, &mock, times).await?;
    }
    if flags.get("only").is_none() {
        results.growth = growth::measured(&binary, &mock, times, &mut results.notes).await?;
    }
    Ok(results)
}

/// Measures every case in every round: the bare upstream and the gateway in turn, and all of it
/// backwards in every second round.
pub(crate) async fn in_rounds<'a>(
    cases: &'a [Case],
    mock: &Mock,
    subjects: impl Fn(At) -> &'a Subject,
    times: Times,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<CaseResult>> {
    let bare = mock.subject();
    let mut jobs = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for drive in drives(case.depth) {
            let job = |subject, exchange, is_bare| Job {
                at,
                subject,
                exchange,
                drive,
                is_bare,
            };
            jobs.extend(
                case.bare
                    .as_ref()
                    .map(|exchange| job(&bare, exchange, true)),
            );
            jobs.push(job(subjects(case.at), &case.gate, false));
        }
    }
    let mut results: Vec<CaseResult> = cases
        .iter()
        .map(|case| CaseResult {
            name: case.name.clone(),
            goal: case.goal,
            bare: Vec::new(),
            gate: Vec::new(),
        })
        .collect();
    for case in cases {
        let asked = client::once(&subjects(case.at).address, &case.gate).await;
        asked.with_context(|| format!("`{}` is not answered rightly", case.name))?;
    }
    let mut left = 0;
    for round in 0..times.rounds {
        for job in &jobs {
            if times.until.is_some_and(|until| Instant::now() > until) {
                left += 1;
                continue;
            }
            let result = &mut results[job.at];
            tell(&format!(
                "round {}  {}  {:?}",
                round + 1,
                result.name,
                job.drive
            ));
            let seconds = match job.drive {
                Drive::Connections(_) => times.closed,
                Drive::Rate(_) => times.open,
            };
            let others: Vec<&Tree> = [&bare, job.subject]
                .into_iter()
                .take(if job.is_bare { 1 } else { 2 })
                .filter_map(|subject| subject.tree.as_ref())
                .collect();
            let measured = measure(job.subject, &others, job.exchange, (job.drive, seconds)).await;
            let measured = measured.with_context(|| result.name.clone())?;
            match job.is_bare {
                true => result.bare.push(measured),
                false => result.gate.push(measured),
            }
        }
        jobs.reverse();
    }
    if left > 0 {
        notes.push(format!(
            "{left} measurements were left out for lack of time"
        ));
    }
    Ok(results)
}

fn drives(depth: Depth) -> Vec<Drive> {
    let mut drives = vec![Drive::Connections(CONNECTIONS)];
    if depth >= Depth::Latency {
        drives.push(Drive::Rate(RATE));
    }
    if depth >= Depth::Scale {
        drives.extend(OTHER_CONNECTIONS.map(Drive::Connections));
    }
    drives
}

impl Times {
    pub(crate) fn of(flags: &Flags) -> Self {
        match flags.has("quick") {
            true => Self {
                rounds: 2,
                closed: 0.6,
                open: 1.2,
                until: Some(Instant::now() + SHORT),
            },
            false => Self {
                rounds: 3,
                closed: 3.0,
                open: 5.0,
                until: None,
            },
        }
    }
}

/// The cases whose names contain what `--only` says.
pub(crate) fn chosen(cases: Vec<Case>, flags: &Flags) -> Vec<Case> {
    let only = flags.get("only").unwrap_or_default();
    let chosen = cases.into_iter().filter(|case| case.name.contains(only));
    chosen.collect()
}

pub(crate) fn subject(gateway: &Gateway) -> Subject {
    Subject {
        address: gateway.address.clone(),
        tree: Some(Tree::of(gateway.id())),
    }
}

/// What the gateway splices in must be what the cases of the caller's own tools send.
async fn same_bytes(gateway: &Gateway, mock: &Mock) -> anyhow::Result<()> {
    let asked = request::model(
        crate::mock::model::Dialect::Chat,
        "mock/keep",
        Form::Whole,
        "",
    );
    client::once(&gateway.address, &asked.with_key(&gateway::key("fifteen"))).await?;
    let kept = Exchange {
        path: "/kept".to_owned(),
        ..Exchange::default()
    };
    let kept = String::from_utf8(client::once(&mock.address, &kept).await?)?;
    let own: Vec<String> = (0..15)
        .map(|number| crate::mock::tools::function("fifteen", number))
        .collect();
    match kept.contains(&own.join(",")) {
        true => Ok(()),
        false => bail!(
            "the gateway writes tools in another way than the cases do:\n{kept}\n{}",
            own[0]
        ),
    }
}

/// Notes what the gateway complained about.
fn warned(gateway: &Gateway, notes: &mut Vec<String>) {
    let log = gateway.log();
    let is_warning = |line: &&str| ["\"WARN\"", "\"ERROR\""].iter().any(|l| line.contains(l));
    let warnings: Vec<&str> = log.lines().filter(is_warning).collect();
    if let Some(first) = warnings.first() {
        let lines = warnings.len();
        notes.push(format!(
            "the gateway logged {lines} warnings, the first: {first}"
        ));
    }
}

#[allow(clippy::cast_precision_loss, reason = "files are small")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

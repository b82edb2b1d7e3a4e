//! The full benchmark: bare upstream and gateway alternately, in several rounds.

pub(crate) mod agent_gaps;
pub(crate) mod external_target;
pub(crate) mod growth;
pub(crate) mod script_interference;
pub(crate) mod startup;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::case::{self, Case, Depth, GatewayVariant};
use crate::flags::Flags;
use crate::gateway::{self, Gateway};
use crate::load::{Exchange, client};
use crate::measure::{Load, LoadMode, LoadTarget, Measurement, MockProcess, measure, wait_settled};
use crate::print_progress;
use crate::process::ProcessTree;
use crate::report;
use crate::request::{self, ResponseMode};

/// Connections at which CPU is compared.
pub(crate) const CPU_CONNECTIONS: usize = 64;
/// Requests per second at which latency is compared.
pub(crate) const LATENCY_RATE: u32 = 200;
const OTHER_CONNECTIONS: [usize; 3] = [1, 16, 256];
/// Time limit of `--quick`.
const QUICK_TIME_LIMIT: Duration = Duration::from_secs(285);

/// Number of rounds, and durations in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) rounds: usize,
    pub(crate) closed: f64,
    pub(crate) open: f64,
    /// Deadline after which no new measurement starts.
    pub(crate) until: Option<Instant>,
}

/// Results of a benchmark run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) cases: Vec<CaseResult>,
    pub(crate) start: Vec<startup::Startup>,
    pub(crate) memory: Option<Memory>,
    pub(crate) growth: Vec<growth::GrowthPoint>,
    pub(crate) gaps: Vec<agent_gaps::AgentGap>,
    pub(crate) beside: Vec<script_interference::ScriptInterference>,
    /// Binary size in MiB.
    pub(crate) binary: Option<f64>,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult {
    pub(crate) name: String,
    pub(crate) goal: Option<f64>,
    pub(crate) bare: Vec<Measurement>,
    pub(crate) gate: Vec<Measurement>,
}

/// Resident memory of the gateway with ten servers, in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) idle: f64,
    /// Script workers, idle.
    pub(crate) workers: f64,
    /// At 256 connections.
    pub(crate) loaded: f64,
    pub(crate) after: f64,
}

/// One pending measurement.
struct MeasureJob<'a> {
    at: usize,
    target: &'a LoadTarget,
    exchange: &'a Exchange,
    mode: LoadMode,
    is_bare: bool,
}

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut results = match flags.get("target") {
        Some(url) => external_target::run(url, flags).await?,
        None => run_toolgate(flags).await?,
    };
    let took = started.elapsed().as_secs();
    results.notes.push(format!("the run took {took} s"));
    let folder = PathBuf::from(flags.get("out").unwrap_or("target/bench"));
    report::write(&results, &folder)
}

/// Benchmarks Toolgate itself, with all parts.
async fn run_toolgate(flags: &Flags) -> anyhow::Result<Results> {
    let binary = gateway::find_binary(flags.get("binary"))?;
    let schedule = Schedule::from_flags(flags);
    let mock = MockProcess::start(0).await?;
    let mut results = Results {
        binary: Some(mib(std::fs::metadata(&binary)?.len())),
        ..Results::default()
    };
    if flags.get("only").is_none() {
        results.start = startup::measure_startup(&binary, &mock).await?;
    }
    let injecting = Gateway::start(
        &binary,
        &case::setup(GatewayVariant::Injecting),
        &mock.address,
    )
    .await?;
    let plain = Gateway::start(&binary, &case::setup(GatewayVariant::Plain), &mock.address).await?;
    for gateway in [&injecting, &plain] {
        gateway.wait_connected(case::servers().len()).await?;
    }
    let (injecting_target, plain_target) = (gateway_target(&injecting), gateway_target(&plain));
    for tree in [&injecting_target, &plain_target]
        .into_iter()
        .filter_map(|one| one.tree.as_ref())
    {
        wait_settled(tree, Duration::from_secs(1), Duration::from_secs(20)).await;
    }
    let idle = plain_target.tree.map(ProcessTree::memory);
    let workers = plain_target
        .tree
        .map_or(0.0, ProcessTree::memory_of_children);
    check_spliced_bytes(&injecting, &mock).await?;
    let targets = |variant: GatewayVariant| match variant {
        GatewayVariant::Injecting => &injecting_target,
        GatewayVariant::Plain => &plain_target,
    };
    let cases = filter_cases(case::all_cases(), flags);
    results.cases = measure_in_rounds(&cases, &mock, targets, schedule, &mut results.notes).await?;
    let loaded = results.cases.iter().flat_map(|case| &case.gate);
    let loaded = loaded.filter(|measured| measured.mode == LoadMode::Connections(256));
    let loaded = loaded
        .filter_map(|measured| measured.memory)
        .reduce(f64::max);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = plain_target.tree.map(ProcessTree::memory);
    results.memory = idle
        .zip(loaded)
        .zip(after)
        .map(|((idle, loaded), after)| Memory {
            idle,
            workers,
            loaded,
            after,
        });
    note_warnings(&plain, &mut results.notes);
    drop((injecting, plain));
    if flags.get("only").is_none_or(|only| "agent".contains(only)) {
        results.gaps = agent_gaps::measure_agent_gaps(&binary, &mock, schedule).await?;
    }
    if flags.get("only").is_none_or(|only| "beside".contains(only)) {
        results.beside =
            script_interference::measure_interference(&binary, &mock, schedule).await?;
    }
    if flags.get("only").is_none() {
        results.growth =
            growth::measure_growth(&binary, &mock, schedule, &mut results.notes).await?;
    }
    Ok(results)
}

/// Measures every case in every round, alternating between bare upstream and gateway, and reversing
/// the order in every second round.
pub(crate) async fn measure_in_rounds<'a>(
    cases: &'a [Case],
    mock: &MockProcess,
    targets: impl Fn(GatewayVariant) -> &'a LoadTarget,
    schedule: Schedule,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<CaseResult>> {
    let bare = mock.load_target();
    let mut jobs = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for mode in load_modes(case.depth) {
            let job = |target, exchange, is_bare| MeasureJob {
                at,
                target,
                exchange,
                mode,
                is_bare,
            };
            jobs.extend(
                case.bare
                    .as_ref()
                    .map(|exchange| job(&bare, exchange, true)),
            );
            jobs.push(job(targets(case.variant), &case.gate, false));
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
        let response = client::send_once(&targets(case.variant).address, &case.gate).await;
        response.with_context(|| format!("`{}` gets a wrong response", case.name))?;
    }
    let mut skipped = 0;
    for round in 0..schedule.rounds {
        for job in &jobs {
            if schedule.until.is_some_and(|until| Instant::now() > until) {
                skipped += 1;
                continue;
            }
            let result = &mut results[job.at];
            print_progress(&format!(
                "round {}  {}  {:?}",
                round + 1,
                result.name,
                job.mode
            ));
            let seconds = match job.mode {
                LoadMode::Connections(_) => schedule.closed,
                LoadMode::Rate(_) => schedule.open,
            };
            let others: Vec<&ProcessTree> = [&bare, job.target]
                .into_iter()
                .take(if job.is_bare { 1 } else { 2 })
                .filter_map(|target| target.tree.as_ref())
                .collect();
            let load = Load {
                mode: job.mode,
                seconds,
            };
            let measured = measure(job.target, &others, job.exchange, load).await;
            let measured = measured.with_context(|| result.name.clone())?;
            if job.is_bare {
                result.bare.push(measured);
            } else {
                result.gate.push(measured);
            }
        }
        jobs.reverse();
    }
    if skipped > 0 {
        notes.push(format!("skipped {skipped} measurements for lack of time"));
    }
    Ok(results)
}

fn load_modes(depth: Depth) -> Vec<LoadMode> {
    let mut modes = vec![LoadMode::Connections(CPU_CONNECTIONS)];
    if depth >= Depth::Latency {
        modes.push(LoadMode::Rate(LATENCY_RATE));
    }
    if depth >= Depth::Scale {
        modes.extend(OTHER_CONNECTIONS.map(LoadMode::Connections));
    }
    modes
}

impl Schedule {
    pub(crate) fn from_flags(flags: &Flags) -> Self {
        if flags.has("quick") {
            Self {
                rounds: 2,
                closed: 0.6,
                open: 1.2,
                until: Some(Instant::now() + QUICK_TIME_LIMIT),
            }
        } else {
            Self {
                rounds: 3,
                closed: 3.0,
                open: 5.0,
                until: None,
            }
        }
    }
}

/// Returns the cases whose names contain the value of `--only`.
pub(crate) fn filter_cases(cases: Vec<Case>, flags: &Flags) -> Vec<Case> {
    let only = flags.get("only").unwrap_or_default();
    let chosen = cases.into_iter().filter(|case| case.name.contains(only));
    chosen.collect()
}

pub(crate) fn gateway_target(gateway: &Gateway) -> LoadTarget {
    LoadTarget {
        address: gateway.address.clone(),
        tree: Some(ProcessTree::with_children(gateway.pid())),
    }
}

/// Checks that the gateway splices in the same bytes that the caller-tools cases send.
async fn check_spliced_bytes(gateway: &Gateway, mock: &MockProcess) -> anyhow::Result<()> {
    let exchange = request::model_request(
        crate::mock::model::Dialect::Chat,
        "mock/keep",
        ResponseMode::Whole,
        "",
    );
    client::send_once(
        &gateway.address,
        &exchange.with_key(&gateway::caller_key("fifteen")),
    )
    .await?;
    let exchange = Exchange {
        path: "/remembered".to_owned(),
        ..Exchange::default()
    };
    let remembered = String::from_utf8(client::send_once(&mock.address, &exchange).await?)?;
    let expected: Vec<String> = (0..15)
        .map(|number| crate::mock::tools::function_definition("fifteen", number))
        .collect();
    if !remembered.contains(&expected.join(",")) {
        bail!(
            "the gateway encodes tools differently from the cases:\n{remembered}\n{}",
            expected[0]
        );
    }
    Ok(())
}

/// Notes warnings and errors in the gateway's log.
fn note_warnings(gateway: &Gateway, notes: &mut Vec<String>) {
    let log = gateway.read_log();
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

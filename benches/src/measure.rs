//! A single measurement: load against one target, and its cost.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::load::{Exchange, LoadPlan, LoadResult, Pace};
use crate::process::{CpuTimes, ProcessTree};

/// Maximum number of requests in one measurement.
const MAX_REQUESTS: u64 = 500_000;
/// Connections used for requests at a fixed rate.
const RATE_CONNECTIONS: usize = 32;

/// The mock upstreams, in a separate process.
#[derive(Debug)]
pub(crate) struct MockProcess {
    pub(crate) address: String,
    pub(crate) id: u32,
    _child: Option<Child>,
    _input: Option<ChildStdin>,
}

/// A server to put load on.
#[derive(Clone, Debug)]
pub(crate) struct LoadTarget {
    pub(crate) address: String,
    /// Processes whose CPU time and memory are measured, if known.
    pub(crate) tree: Option<ProcessTree>,
}

/// Load pattern.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) enum LoadMode {
    /// As fast as this many connections allow.
    Connections(usize),
    /// Fixed number of requests per second.
    Rate(u32),
}

/// A load pattern and its duration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) mode: LoadMode,
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) mode: LoadMode,
    pub(crate) seen: LoadResult,
    /// CPU µs per request.
    pub(crate) cpu: Option<f64>,
    /// Peak memory, in MiB.
    pub(crate) memory: Option<f64>,
    /// Share of the machine used by other processes.
    pub(crate) foreign: f64,
}

impl MockProcess {
    pub(crate) async fn start(port: u16) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["mock", "--port", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("stdout is not piped")?;
        BufReader::new(stdout).read_line(&mut line).await?;
        let address = line.trim().strip_prefix("listening on http://");
        Ok(Self {
            address: address.context("mock did not start")?.to_owned(),
            id: child.id().unwrap_or_default(),
            _input: child.stdin.take(),
            _child: Some(child),
        })
    }

    /// Refers to a mock that is already running elsewhere.
    pub(crate) fn external(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            id: 0,
            _child: None,
            _input: None,
        }
    }

    pub(crate) fn load_target(&self) -> LoadTarget {
        LoadTarget {
            address: self.address.clone(),
            tree: (self.id != 0).then(|| ProcessTree::single(self.id)),
        }
    }
}

impl Measurement {
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    pub(crate) fn rate(&self) -> f64 {
        self.seen.answered as f64 / self.seen.seconds.max(1e-9)
    }
}

/// Puts load on a target and measures it.
pub(crate) async fn measure(
    target: &LoadTarget,
    others: &[&ProcessTree],
    exchange: &Exchange,
    load: Load,
) -> anyhow::Result<Measurement> {
    let (pace, connections) = match load.mode {
        LoadMode::Connections(connections) => (Pace::Closed, connections),
        LoadMode::Rate(rate) => (Pace::Open(rate), RATE_CONNECTIONS),
    };
    let plan = LoadPlan {
        address: target.address.clone(),
        exchange: exchange.clone(),
        pace,
        connections,
        seconds: load.seconds,
        max_requests: MAX_REQUESTS,
    };
    let this_process = ProcessTree::single(std::process::id());
    let used = |trees: &[&ProcessTree]| -> Duration { trees.iter().map(|tree| tree.cpu()).sum() };
    let ours: Vec<&ProcessTree> = others.iter().copied().chain([&this_process]).collect();
    wait_idle(target).await;
    let before = target.tree.map(ProcessTree::cpu);
    let (machine, ours_before) = (CpuTimes::now(), used(&ours));
    let (seen, memory) = run_load(&plan, target).await?;
    let spent = used(&ours).saturating_sub(ours_before) + Duration::from_secs_f64(seen.cpu);
    let foreign = CpuTimes::now().share_of_others(machine, spent);
    // Work done after responding belongs to the requests.
    wait_idle(target).await;
    let after = target.tree.map(ProcessTree::cpu);
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    let answered = seen.answered.max(1) as f64;
    let cpu = after
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    Ok(Measurement {
        mode: load.mode,
        cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / answered),
        memory,
        foreign,
        seen,
    })
}

/// Waits until a target is idle, for a few seconds at most.
async fn wait_idle(target: &LoadTarget) {
    if let Some(tree) = &target.tree {
        wait_settled(tree, Duration::from_millis(80), Duration::from_secs(4)).await;
    }
}

/// Waits until processes have been nearly idle for `window`, at most `timeout`.
pub(crate) async fn wait_settled(tree: &ProcessTree, window: Duration, timeout: Duration) {
    let started = Instant::now();
    let mut before = tree.cpu();
    while started.elapsed() < timeout {
        tokio::time::sleep(window).await;
        let now = tree.cpu();
        if now.saturating_sub(before) <= window / 8 {
            return;
        }
        before = now;
    }
}

/// Runs the load generator while sampling the target's memory.
pub(crate) async fn run_load(
    plan: &LoadPlan,
    target: &LoadTarget,
) -> anyhow::Result<(LoadResult, Option<f64>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("load")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().context("stdin is not piped")?;
    input
        .write_all(serde_json::to_string(plan)?.as_bytes())
        .await?;
    drop(input);
    let finished = child.wait_with_output();
    let timeout = tokio::time::sleep(Duration::from_secs_f64(plan.seconds + 60.0));
    tokio::pin!(finished, timeout);
    let mut memory: Option<f64> = None;
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let output = loop {
        tokio::select! {
            output = &mut finished => break output?,
            _ = tick.tick() => {
                let now = target.tree.map(ProcessTree::memory);
                memory = [memory, now].into_iter().flatten().reduce(f64::max);
            }
            () = &mut timeout => bail!("load generator did not finish in time"),
        }
    };
    let seen = serde_json::from_slice(&output.stdout).context("load generator failed")?;
    Ok((seen, memory))
}

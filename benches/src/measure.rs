//! One measurement: a load against one target, and what it cost.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::load::{Exchange, Pace, Plan, Seen};
use crate::process::{Machine, Tree};

/// Most requests of one measurement.
const MOST: u64 = 500_000;
/// Connections among which requests at a fixed rate are spread.
const SPREAD: usize = 32;

/// The upstreams, as a process of their own.
#[derive(Debug)]
pub(crate) struct Mock {
    pub(crate) address: String,
    pub(crate) id: u32,
    _child: Option<Child>,
    _input: Option<ChildStdin>,
}

/// Somebody who can be asked.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) address: String,
    /// The processes whose time and memory count, where they are known.
    pub(crate) tree: Option<Tree>,
}

/// How a subject is asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) enum Drive {
    /// As fast as so many connections can.
    Connections(usize),
    /// So many requests a second.
    Rate(u32),
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) drive: Drive,
    pub(crate) seen: Seen,
    /// Microseconds of processor time a request.
    pub(crate) cpu: Option<f64>,
    /// Most memory that was seen, in MiB.
    pub(crate) memory: Option<f64>,
    /// The share of the machine that others took meanwhile.
    pub(crate) foreign: f64,
}

impl Mock {
    pub(crate) async fn start(port: u16) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["mock", "--port", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("a pipe")?;
        BufReader::new(stdout).read_line(&mut line).await?;
        let address = line.trim().strip_prefix("listening on http://");
        Ok(Self {
            address: address.context("the mock did not start")?.to_owned(),
            id: child.id().unwrap_or_default(),
            _input: child.stdin.take(),
            _child: Some(child),
        })
    }

    /// One that somebody else has started.
    pub(crate) fn elsewhere(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            id: 0,
            _child: None,
            _input: None,
        }
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject {
            address: self.address.clone(),
            tree: (self.id != 0).then(|| Tree::only(self.id)),
        }
    }
}

impl Measured {
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    pub(crate) fn rate(&self) -> f64 {
        self.seen.answered as f64 / self.seen.seconds.max(1e-9)
    }
}

/// Measures a subject while it is asked.
pub(crate) async fn measure(
    subject: &Subject,
    others: &[&Tree],
    exchange: &Exchange,
    (drive, seconds): (Drive, f64),
) -> anyhow::Result<Measured> {
    let (pace, connections) = match drive {
        Drive::Connections(connections) => (Pace::Closed, connections),
        Drive::Rate(rate) => (Pace::Open(rate), SPREAD),
    };
    let plan = Plan {
        address: subject.address.clone(),
        exchange: exchange.clone(),
        pace,
        connections,
        seconds,
        most: MOST,
    };
    let own = Tree::only(std::process::id());
    let used = |trees: &[&Tree]| -> Duration { trees.iter().map(|tree| tree.cpu()).sum() };
    let ours: Vec<&Tree> = others.iter().copied().chain([&own]).collect();
    quiet(subject).await;
    let before = subject.tree.map(Tree::cpu);
    let (machine, ours_before) = (Machine::now(), used(&ours));
    let (seen, memory) = load(&plan, subject).await?;
    let spent = used(&ours).saturating_sub(ours_before) + Duration::from_secs_f64(seen.cpu);
    let foreign = Machine::now().foreign(machine, spent);
    // What is written behind the answers belongs to them.
    quiet(subject).await;
    let after = subject.tree.map(Tree::cpu);
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    let answered = seen.answered.max(1) as f64;
    let cpu = after
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    Ok(Measured {
        drive,
        cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / answered),
        memory,
        foreign,
        seen,
    })
}

/// Waits until a subject has nothing left to do, a few seconds at most.
async fn quiet(subject: &Subject) {
    if let Some(tree) = &subject.tree {
        settled(tree, Duration::from_millis(80), Duration::from_secs(4)).await;
    }
}

/// Waits until processes have done next to nothing for a while.
pub(crate) async fn settled(tree: &Tree, a_while: Duration, most: Duration) {
    let began = Instant::now();
    let mut before = tree.cpu();
    while began.elapsed() < most {
        tokio::time::sleep(a_while).await;
        let now = tree.cpu();
        if now.saturating_sub(before) <= a_while / 8 {
            return;
        }
        before = now;
    }
}

/// Runs the load generator, and looks at the subject's memory meanwhile.
pub(crate) async fn load(plan: &Plan, subject: &Subject) -> anyhow::Result<(Seen, Option<f64>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("load")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    input
        .write_all(serde_json::to_string(plan)?.as_bytes())
        .await?;
    drop(input);
    let ended = child.wait_with_output();
    let most = tokio::time::sleep(Duration::from_secs_f64(plan.seconds + 60.0));
    tokio::pin!(ended, most);
    let mut memory: Option<f64> = None;
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let output = loop {
        tokio::select! {
            output = &mut ended => break output?,
            _ = tick.tick() => {
                let now = subject.tree.map(Tree::memory);
                memory = [memory, now].into_iter().flatten().reduce(f64::max);
            }
            () = &mut most => bail!("the load generator does not come to its end"),
        }
    };
    let seen = serde_json::from_slice(&output.stdout).context("the load generator failed")?;
    Ok((seen, memory))
}

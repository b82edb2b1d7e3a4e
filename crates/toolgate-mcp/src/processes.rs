//! What the processes of stdio servers use: CPU time, memory, open files.
//!
//! A server consists of the processes that the gateway started for its connections, and of their
//! descendants. They are sampled at an interval, and on request if the last sample is not recent.

mod procfs;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolgate_core::name::ServerName;

use crate::fair_queue::{FairQueue, QueueLimits, Slot};
use crate::lane::LaneId;
use tree::TreeSample;
pub(crate) use tree::{ProcessTree, Supervisors};

/// Interval between samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Age from which a sample is not recent. CPU times are exact to 10 ms, so shorter intervals would make
/// the share of CPU inexact.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(1);

/// Maximum number of processes of a server, and of one key, that are started for single clients without its
/// configuration asking for them, and of clients that wait for one.
pub(crate) const CLIENT_PLACES: QueueLimits = QueueLimits::shared(8, 64);

/// What the processes of a server use. Fields are `None` if the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// CPU time of all processes since the gateway's start, including those that have ended.
    pub cpu_time: Option<Duration>,
    /// Recent use of CPU in percent of one core; also `None` until there are two samples.
    pub cpu_percent: Option<f64>,
    /// Sum of the resident memory of the processes.
    pub memory_bytes: Option<u64>,
    /// Number of running processes.
    pub processes: Option<u64>,
    /// Sum of the files that the processes have open.
    pub open_files: Option<u64>,
    /// Number of times that the server was started again after it had failed.
    pub restarts: u64,
    /// Number of times that a process was stopped because the server exceeded its memory limit.
    pub memory_limit_exceeded: u64,
}

/// Returns whether this system tells which processes belong to a server.
pub(crate) fn is_supported() -> bool {
    procfs::is_supported()
}

/// Returns the children of this process, which must have a single thread.
#[cfg(target_os = "linux")]
pub(crate) fn list_children() -> Vec<rustix::process::Pid> {
    let own = procfs::read_relations(std::process::id());
    let children = own.iter().flat_map(procfs::read_children);
    children
        .filter_map(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
        .collect()
}

/// Samples the processes of all servers. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessMonitor {
    servers: Arc<Mutex<BTreeMap<ServerName, Arc<ServerProcesses>>>>,
    /// Whether the figures were ever requested.
    is_requested: Arc<AtomicBool>,
}

/// The processes of one server.
#[derive(Debug)]
pub(crate) struct ServerProcesses {
    server: ServerName,
    restarts: AtomicU64,
    memory_limit_exceeded: AtomicU64,
    state: Mutex<UsageState>,
    /// Places of processes that are started for single clients without the server's configuration asking for
    /// them. One that is replaced keeps its place until it has exited, so that clients who come and go do not
    /// start any number of them.
    pub(crate) client_places: FairQueue,
}

#[derive(Debug, Default)]
struct UsageState {
    trees: Vec<Arc<ProcessTree>>,
    /// CPU time of trees that have ended.
    ended_cpu_time: Duration,
    latest: Option<UsageSample>,
    start: StartState,
}

/// Whether the next start of a server is a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StartState {
    #[default]
    NeverStarted,
    Started,
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct UsageSample {
    at: Instant,
    cpu_time: Duration,
    cpu_percent: Option<f64>,
    sum: TreeSample,
}

/// Processes that belong to a server until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningProcesses {
    owner: Arc<ServerProcesses>,
    pub(crate) tree: Arc<ProcessTree>,
    _place: Option<Arc<Slot>>,
}

/// A process that has just been started for a connection.
#[derive(Debug)]
pub(crate) struct ProcessStart<'a> {
    pub(crate) supervisors: Supervisors,
    pub(crate) lane: &'a LaneId,
    /// Its place among the processes for single clients, which it keeps until it has exited.
    pub(crate) place: Option<Arc<Slot>>,
}

impl ProcessMonitor {
    /// Returns the processes of a server.
    pub(crate) fn server(&self, name: &ServerName) -> Arc<ServerProcesses> {
        let mut servers = self.servers.lock();
        let processes = servers
            .entry(name.clone())
            .or_insert_with(|| Arc::new(ServerProcesses::new(name.clone())));
        Arc::clone(processes)
    }

    /// Forgets all servers but these.
    pub(crate) fn retain(&self, is_kept: impl Fn(&ServerName) -> bool) {
        self.servers.lock().retain(|name, _| is_kept(name));
    }

    /// Samples all servers at an interval, after the first request.
    pub(crate) async fn run(&self) {
        if !is_supported() {
            return;
        }
        let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            // Sampling takes CPU time, which is wasted if the figures are never read.
            if self.is_requested.load(Ordering::Relaxed) {
                self.sample_due().await;
            }
        }
    }

    /// Samples the servers whose last sample is not recent, from now on also at an interval.
    pub(crate) async fn refresh(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
        self.sample_due().await;
    }

    async fn sample_due(&self) {
        let servers: Vec<_> = self.servers.lock().values().map(Arc::clone).collect();
        let due: Vec<_> = servers
            .into_iter()
            .filter(|server| server.is_due())
            .collect();
        if !due.is_empty() && is_supported() {
            let sample_all = move || due.iter().for_each(|server| server.sample());
            // Fails only if it panics, or while the runtime stops.
            let _ = tokio::task::spawn_blocking(sample_all).await;
        }
    }

    /// Returns what a server used at its last sample.
    pub(crate) fn usage(&self, name: &ServerName) -> ProcessUsage {
        let server = self.servers.lock().get(name).map(Arc::clone);
        server.map_or_else(ProcessUsage::default, |server| server.usage())
    }
}

impl ServerProcesses {
    pub(crate) fn new(server: ServerName) -> Self {
        Self {
            server,
            restarts: AtomicU64::new(0),
            memory_limit_exceeded: AtomicU64::new(0),
            state: Mutex::default(),
            client_places: FairQueue::new(CLIENT_PLACES),
        }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    /// Adds a process that has just been started for a connection.
    pub(crate) fn add(self: &Arc<Self>, pid: u32, start: ProcessStart<'_>) -> RunningProcesses {
        let ProcessStart {
            supervisors,
            lane,
            place,
        } = start;
        let tree = Arc::new(ProcessTree::new(pid, supervisors));
        let mut state = self.state.lock();
        state.trees.push(Arc::clone(&tree));
        if *lane == LaneId::Shared {
            if state.start == StartState::Failed {
                self.restarts.fetch_add(1, Ordering::Relaxed);
            }
            state.start = StartState::Started;
        }
        drop(state);
        RunningProcesses {
            owner: Arc::clone(self),
            tree,
            _place: place,
        }
    }

    /// Makes the next start of the server count as a restart.
    pub(crate) fn note_failure(&self) {
        let mut state = self.state.lock();
        if state.start == StartState::Started {
            state.start = StartState::Failed;
        }
    }

    pub(crate) fn count_memory_limit_exceeded(&self) {
        self.memory_limit_exceeded.fetch_add(1, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        !self.state.lock().has_recent_sample()
    }

    fn sample(&self) {
        let trees = self.state.lock().trees.clone();
        // Without the lock, which starting and ending connections need.
        let samples: Vec<TreeSample> = trees.iter().map(|tree| tree.sample()).collect();
        let mut state = self.state.lock();
        // Over a few milliseconds since a concurrent sample, the share of CPU would mean nothing.
        if state.has_recent_sample() {
            return;
        }
        let running: Duration = state.trees.iter().map(|tree| tree.cpu_time()).sum();
        let (at, cpu_time) = (Instant::now(), state.ended_cpu_time + running);
        let cpu_percent = state.latest.map(|latest| {
            let used = cpu_time.saturating_sub(latest.cpu_time);
            let elapsed = at.duration_since(latest.at).as_secs_f64();
            100.0 * used.as_secs_f64() / elapsed.max(f64::EPSILON)
        });
        state.latest = Some(UsageSample {
            at,
            cpu_time,
            cpu_percent,
            sum: TreeSample {
                resident_bytes: samples.iter().map(|sample| sample.resident_bytes).sum(),
                processes: samples.iter().map(|sample| sample.processes).sum(),
                open_files: samples.iter().map(|sample| sample.open_files).sum(),
            },
        });
    }

    fn usage(&self) -> ProcessUsage {
        let latest = self.state.lock().latest;
        ProcessUsage {
            cpu_time: latest.map(|latest| latest.cpu_time),
            cpu_percent: latest.and_then(|latest| latest.cpu_percent),
            memory_bytes: latest.map(|latest| latest.sum.resident_bytes),
            processes: latest.map(|latest| latest.sum.processes),
            open_files: latest.and_then(|latest| latest.sum.open_files),
            restarts: self.restarts.load(Ordering::Relaxed),
            memory_limit_exceeded: self.memory_limit_exceeded.load(Ordering::Relaxed),
        }
    }
}

impl UsageState {
    fn has_recent_sample(&self) -> bool {
        let latest = self.latest.as_ref();
        latest.is_some_and(|latest| latest.at.elapsed() < MAX_SAMPLE_AGE)
    }
}

impl RunningProcesses {
    /// Measures the CPU time once more, as long as the processes exist.
    pub(crate) fn sample_last(&self) {
        self.tree.sample();
    }

    pub(crate) fn owner(&self) -> &ServerProcesses {
        &self.owner
    }
}

impl Drop for RunningProcesses {
    fn drop(&mut self) {
        let mut state = self.owner.state.lock();
        state.trees.retain(|tree| !Arc::ptr_eq(tree, &self.tree));
        state.ended_cpu_time += self.tree.cpu_time();
    }
}

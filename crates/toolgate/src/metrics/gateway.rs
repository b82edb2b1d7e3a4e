//! Metrics of the gateway as a whole: load, sessions, runs, approvals, memory and uptime.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry as Prometheus;

/// Reasons for which runs end, as in their records. Each is counted from 0, so that rates can be computed.
const STOP_REASONS: [&str; 8] = [
    "done",
    "needs_approval",
    "own_tool",
    "max_agent_depth",
    "budget",
    "loop_guard",
    "cancelled",
    "error",
];

#[derive(Debug)]
pub(super) struct GatewayMetrics {
    pub(super) load_level: Gauge,
    pub(super) sessions: Gauge,
    pub(super) approvals_waiting: Gauge,
    runs: Family<RunLabels, Counter>,
    memory: Gauge,
    uptime: Gauge<f64, AtomicU64>,
    started: Instant,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RunLabels {
    stop_reason: &'static str,
}

impl GatewayMetrics {
    pub(super) fn new(prometheus: &mut Prometheus) -> Self {
        let metrics = Self {
            load_level: Gauge::default(),
            sessions: Gauge::default(),
            approvals_waiting: Gauge::default(),
            runs: Family::default(),
            memory: Gauge::default(),
            uptime: Gauge::default(),
            started: Instant::now(),
        };
        for stop_reason in STOP_REASONS {
            drop(metrics.runs.get_or_create(&RunLabels { stop_reason }));
        }
        prometheus.register(
            "load_level",
            "Load of the gateway: 0 is normal, 1 refuses new sessions, streams, runs and large bodies, 2 everything but probes and the administrator",
            metrics.load_level.clone(),
        );
        prometheus.register(
            "mcp_sessions",
            "Open sessions of MCP clients",
            metrics.sessions.clone(),
        );
        prometheus.register(
            "approvals_waiting",
            "Calls that wait for an approver's decision",
            metrics.approvals_waiting.clone(),
        );
        prometheus.register(
            "runs",
            "Agent runs that ended or wait for a decision, by the reason why they stopped",
            metrics.runs.clone(),
        );
        prometheus.register(
            "memory_bytes",
            "Resident memory of the gateway in bytes",
            metrics.memory.clone(),
        );
        prometheus.register(
            "uptime_seconds",
            "Time since the gateway started in seconds",
            metrics.uptime.clone(),
        );
        metrics
    }

    pub(super) fn count_run(&self, stop_reason: &'static str) {
        let labels = RunLabels { stop_reason };
        self.runs.get_or_create(&labels).inc();
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Measures memory and uptime.
    pub(super) fn update(&self) {
        if let Some(bytes) = resident_memory() {
            self.memory.set(bytes.try_into().unwrap_or(i64::MAX));
        }
        self.uptime.set(self.uptime().as_secs_f64());
    }
}

/// Returns the resident memory of this process in bytes, where the system tells.
pub fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

//! Metrics of servers: their states, and what their processes use.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry as Prometheus;
use toolgate_mcp::registry::Registry;
use toolgate_mcp::{ProcessUsage, ServerState};

use super::ServerLabels;

#[derive(Debug, Default)]
pub(super) struct ServerMetrics {
    states: Family<StateLabels, Gauge>,
    cpu_seconds: Family<ServerLabels, Counter<f64, AtomicU64>>,
    memory_bytes: Family<ServerLabels, Gauge>,
    processes: Family<ServerLabels, Gauge>,
    open_files: Family<ServerLabels, Gauge>,
    restarts: Family<ServerLabels, Counter>,
    reconnects: Family<ServerLabels, Counter>,
    memory_limit_exceeded: Family<ServerLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    server: String,
    state: &'static str,
}

impl ServerMetrics {
    pub(super) fn new(prometheus: &mut Prometheus) -> Self {
        let metrics = Self::default();
        prometheus.register(
            "server_state",
            "1 for the current state of a server",
            metrics.states.clone(),
        );
        prometheus.register(
            "server_cpu_seconds",
            "CPU time of the processes of a stdio server in seconds",
            metrics.cpu_seconds.clone(),
        );
        prometheus.register(
            "server_memory_bytes",
            "Resident memory of the processes of a stdio server in bytes",
            metrics.memory_bytes.clone(),
        );
        prometheus.register(
            "server_processes",
            "Running processes of a stdio server",
            metrics.processes.clone(),
        );
        prometheus.register(
            "server_open_files",
            "Files that the processes of a stdio server have open",
            metrics.open_files.clone(),
        );
        prometheus.register(
            "server_restarts",
            "Starts of a stdio server after it had failed",
            metrics.restarts.clone(),
        );
        prometheus.register(
            "server_reconnects",
            "Connections to a server that replaced a lost one",
            metrics.reconnects.clone(),
        );
        prometheus.register(
            "server_memory_limit_exceeded",
            "Times that a stdio server was stopped because it exceeded its memory limit",
            metrics.memory_limit_exceeded.clone(),
        );
        metrics
    }

    /// Replaces all values by those of the registry, which removes servers that are gone.
    pub(super) fn update(&self, registry: &Registry) {
        self.clear();
        for entry in registry.entries() {
            let server = entry.server.name.as_str();
            let status = entry.status();
            self.set_state(server, status.state);
            let labels = ServerLabels {
                server: server.to_owned(),
            };
            let reconnects = self.reconnects.get_or_create(&labels);
            reconnects.inc_by(status.reconnects);
            if let Some(usage) = registry.process_usage(&entry.server) {
                self.set_usage(server, &usage);
            }
        }
    }

    fn clear(&self) {
        self.states.clear();
        self.cpu_seconds.clear();
        self.memory_bytes.clear();
        self.processes.clear();
        self.open_files.clear();
        self.restarts.clear();
        self.reconnects.clear();
        self.memory_limit_exceeded.clear();
    }

    fn set_state(&self, server: &str, now: ServerState) {
        for state in ServerState::ALL {
            let labels = StateLabels {
                server: server.to_owned(),
                state: state.as_str(),
            };
            let gauge = self.states.get_or_create(&labels);
            gauge.set(i64::from(state == now));
        }
    }

    /// Sets what is known; an unknown value is absent, because 0 would be wrong.
    fn set_usage(&self, server: &str, usage: &ProcessUsage) {
        let labels = ServerLabels {
            server: server.to_owned(),
        };
        if let Some(cpu_time) = usage.cpu_time {
            let counter = self.cpu_seconds.get_or_create(&labels);
            counter.inc_by(cpu_time.as_secs_f64());
        }
        for (family, value) in [
            (&self.memory_bytes, usage.memory_bytes),
            (&self.processes, usage.processes),
            (&self.open_files, usage.open_files),
        ] {
            if let Some(value) = value {
                let gauge = family.get_or_create(&labels);
                gauge.set(value.try_into().unwrap_or(i64::MAX));
            }
        }
        let restarts = self.restarts.get_or_create(&labels);
        restarts.inc_by(usage.restarts);
        let exceeded = self.memory_limit_exceeded.get_or_create(&labels);
        exceeded.inc_by(usage.memory_limit_exceeded);
    }
}

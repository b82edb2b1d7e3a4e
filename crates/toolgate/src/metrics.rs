//! Metrics: counters and histograms for Prometheus, and call statistics with percentiles for the API.

mod auth;
mod bounds;
mod gateway;
mod models;
mod servers;

use std::collections::BTreeMap;
use std::time::Duration;

pub use auth::AuthKind;
use auth::AuthMetrics;
pub use bounds::Bound;
use bounds::BoundMetrics;
use gateway::GatewayMetrics;
pub use gateway::resident_memory;
use hdrhistogram::Histogram as Percentiles;
use models::ModelMetrics;
pub(crate) use models::{ModelRequestSample, ModelRequestTiming};
pub use models::{ModelStats, micro_usd_to_dollars};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Prometheus;
use servers::ServerMetrics;
use toolgate_core::ToolId;
use toolgate_mcp::registry::Registry;

/// Metrics of one gateway.
#[derive(Debug)]
pub struct Metrics {
    prometheus: Prometheus,
    families: Families,
    models: ModelMetrics,
    auth: AuthMetrics,
    bounds: BoundMetrics,
    gateway: GatewayMetrics,
    /// Locked by scrapes, since each one rebuilds the metrics of servers.
    servers: Mutex<ServerMetrics>,
    tools: Mutex<BTreeMap<ToolId, ToolTally>>,
}

#[derive(Clone, Debug)]
struct Families {
    calls: Family<CallLabels, Counter>,
    seconds: Family<ToolLabels, Histogram, fn() -> Histogram>,
    bytes_sent: Family<ToolLabels, Counter>,
    bytes_received: Family<ToolLabels, Counter>,
    in_flight: Family<ServerLabels, Gauge>,
    tools: Gauge,
    /// Prompt tokens saved by code mode.
    saved_tokens: Counter,
    generation: Gauge,
}

/// Call statistics of one tool, or of several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallStats {
    /// Number of calls.
    pub calls: u64,
    /// Number of failed calls. A call that waits for an approval, or that the caller must execute, has
    /// not failed.
    pub errors: u64,
    /// Size of all arguments.
    pub bytes_sent: u64,
    /// Size of all results.
    pub bytes_received: u64,
    /// Median latency in milliseconds.
    pub p50_ms: f64,
    /// 90th percentile of the latency in milliseconds.
    pub p90_ms: f64,
    /// 99th percentile of the latency in milliseconds.
    pub p99_ms: f64,
}

/// Statistics of all servers, tools, models and callers.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Statistics by server.
    pub servers: BTreeMap<String, CallStats>,
    /// Statistics by tool.
    pub tools: BTreeMap<ToolId, CallStats>,
    /// Statistics by provider and model.
    pub models: BTreeMap<(String, String), ModelStats>,
    /// Model usage by the caller's key.
    pub callers: BTreeMap<String, ModelStats>,
    /// Prompt tokens saved by code mode.
    pub saved_tokens: u64,
}

#[derive(Clone, Debug)]
struct ToolTally {
    calls: u64,
    errors: u64,
    bytes_sent: u64,
    bytes_received: u64,
    /// Latency in microseconds; `None` only if the histogram bounds were invalid.
    micros: Option<Percentiles<u32>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    server: String,
    tool: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ToolLabels {
    server: String,
    tool: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServerLabels {
    server: String,
}

/// Counts a call in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightCall(Gauge);

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut prometheus = Prometheus::with_prefix("toolgate");
        let families = Families {
            calls: Family::default(),
            seconds: Family::new_with_constructor(new_histogram as fn() -> Histogram),
            bytes_sent: Family::default(),
            bytes_received: Family::default(),
            in_flight: Family::default(),
            tools: Gauge::default(),
            generation: Gauge::default(),
            saved_tokens: Counter::default(),
        };
        let f = families.clone();
        prometheus.register("tool_calls", "Tool calls by outcome", f.calls);
        prometheus.register(
            "tool_call_seconds",
            "Duration of dispatched tool calls in seconds",
            f.seconds,
        );
        prometheus.register(
            "tool_call_bytes_sent",
            "Bytes of arguments in dispatched tool calls",
            f.bytes_sent,
        );
        prometheus.register(
            "tool_call_bytes_received",
            "Bytes of tool call results",
            f.bytes_received,
        );
        prometheus.register("tool_calls_in_flight", "Tool calls in flight", f.in_flight);
        prometheus.register("catalog_tools", "Tools in the catalog", f.tools);
        prometheus.register(
            "catalog_generation",
            "Generation of the current catalog",
            f.generation,
        );
        prometheus.register(
            "code_mode_saved_tokens",
            "Prompt tokens saved by code mode",
            f.saved_tokens,
        );
        Self {
            models: ModelMetrics::new(&mut prometheus),
            auth: AuthMetrics::new(&mut prometheus),
            bounds: BoundMetrics::new(&mut prometheus),
            gateway: GatewayMetrics::new(&mut prometheus),
            servers: Mutex::new(ServerMetrics::new(&mut prometheus)),
            prometheus,
            families,
            tools: Mutex::default(),
        }
    }

    /// Counts a call by outcome. `tool` is `None` for unknown tools.
    pub(crate) fn count_call(&self, tool: Option<&ToolId>, outcome: &'static str) {
        let labels = ToolLabels::new(tool);
        let labels = CallLabels {
            server: labels.server,
            tool: labels.tool,
            outcome,
        };
        self.families.calls.get_or_create(&labels).inc();
        if let Some(tool) = tool {
            self.update_tally(tool, |tally| {
                tally.calls += 1;
                tally.errors += u64::from(is_failure(outcome));
            });
        }
    }

    /// Records duration and sizes of a dispatched call.
    pub(crate) fn record_dispatch(
        &self,
        tool: &ToolId,
        elapsed: Duration,
        sent: usize,
        received: usize,
    ) {
        let labels = ToolLabels::new(Some(tool));
        let (sent, received) = (sent as u64, received as u64);
        self.families
            .seconds
            .get_or_create(&labels)
            .observe(elapsed.as_secs_f64());
        self.families.bytes_sent.get_or_create(&labels).inc_by(sent);
        self.families
            .bytes_received
            .get_or_create(&labels)
            .inc_by(received);
        self.update_tally(tool, |tally| {
            tally.bytes_sent += sent;
            tally.bytes_received += received;
            if let Some(micros) = &mut tally.micros {
                micros.saturating_record(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
            }
        });
    }

    /// Counts a call as in flight until the returned guard is dropped.
    pub(crate) fn start_call(&self, server: &str) -> InFlightCall {
        let labels = ServerLabels {
            server: server.to_owned(),
        };
        let gauge = self.families.in_flight.get_or_create(&labels).clone();
        gauge.inc();
        InFlightCall(gauge)
    }

    /// Adds prompt tokens saved by code mode.
    pub(crate) fn add_saved_tokens(&self, tokens: u64) {
        self.families.saved_tokens.inc_by(tokens);
    }

    /// Counts a model request.
    pub(crate) fn record_model_request(&self, sample: &ModelRequestSample<'_>) {
        self.models.record(sample);
    }

    /// Counts that a bound was reached, and logs it now and then.
    pub(crate) fn report_bound(&self, bound: Bound, who: &str) {
        self.bounds.report(bound, who);
    }

    /// Sets the load level: 0 is normal, 1 high, 2 critical.
    pub(crate) fn set_load_level(&self, level: i64) {
        self.gateway.load_level.set(level);
    }

    pub(crate) fn set_session_count(&self, sessions: usize) {
        let sessions = i64::try_from(sessions).unwrap_or(i64::MAX);
        self.gateway.sessions.set(sessions);
    }

    pub(crate) fn set_waiting_approvals(&self, approvals: i64) {
        self.gateway.approvals_waiting.set(approvals);
    }

    /// Returns the number of open sessions of MCP clients.
    pub(crate) fn session_count(&self) -> usize {
        usize::try_from(self.gateway.sessions.get()).unwrap_or(0)
    }

    /// Returns the time since the gateway started.
    pub(crate) fn uptime(&self) -> Duration {
        self.gateway.uptime()
    }

    /// Counts a run that stopped.
    pub(crate) fn count_run(&self, stop_reason: &'static str) {
        self.gateway.count_run(stop_reason);
    }

    /// Counts a request that failed to authenticate.
    pub(crate) fn count_auth_failure(&self, kind: AuthKind) {
        self.auth.count_failure(kind);
    }

    /// Returns the statistics of all called tools, their servers, models and callers.
    pub(crate) fn stats(&self) -> Stats {
        let tallies = self.tools.lock().clone();
        let mut servers: BTreeMap<String, ToolTally> = BTreeMap::new();
        for (tool, tally) in &tallies {
            servers
                .entry(tool.server.to_string())
                .or_default()
                .add(tally);
        }
        let model_tallies = self.models.tallies();
        Stats {
            models: model_tallies.models,
            callers: model_tallies.callers,
            saved_tokens: self.families.saved_tokens.get(),
            servers: servers
                .into_iter()
                .map(|(name, tally)| (name, tally.to_stats()))
                .collect(),
            tools: tallies
                .into_iter()
                .map(|(tool, tally)| (tool, tally.to_stats()))
                .collect(),
        }
    }

    /// Renders the metrics in the OpenMetrics text format.
    pub(crate) fn render(&self, registry: &Registry) -> String {
        let servers = self.servers.lock();
        servers.update(registry);
        self.gateway.update();
        let catalog = registry.catalog();
        self.families
            .tools
            .set(catalog.tools().len().try_into().unwrap_or(i64::MAX));
        self.families
            .generation
            .set(catalog.generation().try_into().unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.prometheus);
        text
    }

    fn update_tally(&self, tool: &ToolId, change: impl FnOnce(&mut ToolTally)) {
        let mut tools = self.tools.lock();
        match tools.get_mut(tool) {
            Some(tally) => change(tally),
            None => change(tools.entry(tool.clone()).or_default()),
        }
    }
}

impl ToolTally {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        if let (Some(own), Some(other)) = (&mut self.micros, &other.micros) {
            // Both histograms have the same bounds, so this cannot fail.
            let _ = own.add(other);
        }
    }

    fn to_stats(&self) -> CallStats {
        let millis = |quantile| {
            let micros = self
                .micros
                .as_ref()
                .map_or(0, |micros| micros.value_at_quantile(quantile));
            Duration::from_micros(micros).as_secs_f64() * 1e3
        };
        CallStats {
            calls: self.calls,
            errors: self.errors,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            p50_ms: millis(0.5),
            p90_ms: millis(0.9),
            p99_ms: millis(0.99),
        }
    }
}

impl Default for ToolTally {
    fn default() -> Self {
        Self {
            calls: 0,
            errors: 0,
            bytes_sent: 0,
            bytes_received: 0,
            // Two significant digits up to ten minutes; slower calls are clamped.
            micros: Percentiles::new_with_bounds(1, 600_000_000, 2).ok(),
        }
    }
}

impl ToolLabels {
    fn new(tool: Option<&ToolId>) -> Self {
        match tool {
            Some(tool) => Self {
                server: tool.server.to_string(),
                tool: tool.tool.to_string(),
            },
            None => Self {
                server: String::new(),
                tool: String::new(),
            },
        }
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Returns whether a call with this outcome has failed. One that waits for an approval, or that the
/// caller must execute, has not.
pub(crate) fn is_failure(outcome: &str) -> bool {
    !matches!(outcome, "ok" | "ask" | "manual")
}

fn new_histogram() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0,
    ])
}

#[cfg(test)]
mod tests {
    use toolgate_core::name::{ServerName, ToolName};

    use super::*;

    #[test]
    fn undecided_calls_are_counted_but_are_no_errors() {
        let metrics = Metrics::new();
        let tool = ToolId {
            server: ServerName::parse("s").unwrap(),
            tool: ToolName::new("t"),
        };
        for outcome in ["ok", "ask", "manual", "denied", "tool_error"] {
            metrics.count_call(Some(&tool), outcome);
        }
        let stats = &metrics.stats().tools[&tool];
        assert_eq!((stats.calls, stats.errors), (5, 2));
    }
}

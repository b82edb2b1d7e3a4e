//! Figures for Prometheus. Names of tools are not labels: there may be thousands.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Prometheus;
use toolgate_mcp::State;

use toolgate_mcp::registry::Registry;

/// The figures of one gateway.
#[derive(Debug)]
pub struct Metrics {
    prometheus: Prometheus,
    calls: Family<CallLabels, Counter>,
    seconds: Family<ServerLabels, Histogram>,
    in_flight: Family<ServerLabels, Gauge>,
    states: Family<StateLabels, Gauge>,
    tools: Gauge,
    generation: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    server: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServerLabels {
    server: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    server: String,
    state: &'static str,
}

/// Counts a call in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Gauge);

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut prometheus = Prometheus::with_prefix("toolgate");
        let calls = Family::default();
        let seconds = Family::new_with_constructor(new_histogram as fn() -> Histogram);
        let in_flight = Family::default();
        let states = Family::default();
        let (tools, generation) = (Gauge::default(), Gauge::default());
        prometheus.register(
            "tool_calls",
            "Tool calls by server and outcome",
            calls.clone(),
        );
        prometheus.register(
            "tool_call_seconds",
            "Time of dispatched tool calls",
            seconds.clone(),
        );
        prometheus.register(
            "tool_calls_in_flight",
            "Tool calls under way",
            in_flight.clone(),
        );
        prometheus.register(
            "server_state",
            "1 for the state a server is in",
            states.clone(),
        );
        prometheus.register("catalog_tools", "Tools in the catalog", tools.clone());
        prometheus.register(
            "catalog_generation",
            "Number of the current catalog",
            generation.clone(),
        );
        Self {
            prometheus,
            calls,
            seconds,
            in_flight,
            states,
            tools,
            generation,
        }
    }

    /// Counts a call; `server` is empty where the tool was not found.
    pub(crate) fn count(&self, server: &str, outcome: &'static str) {
        let server = server.to_owned();
        self.calls
            .get_or_create(&CallLabels { server, outcome })
            .inc();
    }

    pub(crate) fn took(&self, server: &str, elapsed: Duration) {
        let labels = ServerLabels {
            server: server.to_owned(),
        };
        self.seconds
            .get_or_create(&labels)
            .observe(elapsed.as_secs_f64());
    }

    pub(crate) fn enter(&self, server: &str) -> InFlight {
        let labels = ServerLabels {
            server: server.to_owned(),
        };
        let gauge = self.in_flight.get_or_create(&labels).clone();
        gauge.inc();
        InFlight(gauge)
    }

    /// The figures in the OpenMetrics text format.
    pub(crate) fn text(&self, registry: &Registry) -> String {
        for entry in registry.entries() {
            let now = entry.status().state;
            for state in State::ALL {
                let labels = StateLabels {
                    server: entry.server.name.to_string(),
                    state: state.as_str(),
                };
                self.states
                    .get_or_create(&labels)
                    .set(i64::from(state == now));
            }
        }
        let catalog = registry.catalog();
        self.tools
            .set(catalog.tools().len().try_into().unwrap_or(i64::MAX));
        self.generation
            .set(catalog.generation().try_into().unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.prometheus);
        text
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn new_histogram() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0,
    ])
}

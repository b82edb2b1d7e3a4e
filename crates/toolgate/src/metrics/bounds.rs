//! Bounds that protect the gateway: how often each one refused something.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry as Prometheus;

/// Interval at which a bound that is reached again and again is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A bound on what callers and servers may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// Open connections.
    Connections,
    /// Open connections from one address.
    ConnectionsPerPeer,
    /// Open connections that use one key.
    ConnectionsPerKey,
    /// Time to receive the headers of a request.
    HeaderTime,
    /// Time without progress while a body is received.
    BodyTime,
    /// Time without progress while a response is sent.
    WriteTime,
    /// Size of a request's body.
    BodySize,
    /// Size of all request bodies that are held.
    Bodies,
    /// Size of the request bodies of one key that are held.
    BodiesPerKey,
    /// Sessions of MCP clients.
    Sessions,
    /// Sessions of one key.
    SessionsPerKey,
    /// Connections to servers that belong to single sessions.
    SessionConnections,
    /// Such connections of one key.
    SessionConnectionsPerKey,
    /// Subscriptions to resources, in all and of one key.
    Subscriptions,
    /// Size of the capabilities that a client declares.
    Capabilities,
    /// Sets of capabilities of clients for which servers are asked what they list, in all and of one key.
    ClientLists,
    /// Concurrent agent runs.
    Runs,
    /// Concurrent agent runs of one key.
    RunsPerKey,
    /// Tasks of MCP clients.
    Tasks,
    /// Tasks of one key.
    TasksPerKey,
    /// Size of the result of a task.
    TaskResult,
    /// Scripts of one key that wait for a worker.
    ScriptsPerKey,
    /// Calls of one key that wait for the evaluation of their large arguments.
    LargeArguments,
    /// Calls in flight and queued at one server.
    ServerCalls,
    /// Such calls of one key.
    ServerCallsPerKey,
    /// Size of a model's response in a run.
    TurnSize,
    /// Size of the messages that wait for a server to read them.
    QueuedBytes,
    /// Nesting of a server's message.
    JsonDepth,
    /// Notifications that wait for a client to read them.
    Notifications,
    /// Questions of servers that wait for modern clients.
    Questions,
    /// Memory of the gateway.
    Memory,
    /// Requests in progress.
    Load,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BoundLabels {
    bound: &'static str,
}

#[derive(Debug)]
pub(super) struct BoundMetrics {
    reached: Family<BoundLabels, Counter>,
    logged: Mutex<HashMap<Bound, LoggedBound>>,
}

/// When a bound was last logged, and how often it was reached since.
#[derive(Debug)]
struct LoggedBound {
    at: Instant,
    since: u64,
}

impl Bound {
    const ALL: [Self; 32] = [
        Self::Connections,
        Self::ConnectionsPerPeer,
        Self::ConnectionsPerKey,
        Self::HeaderTime,
        Self::BodyTime,
        Self::WriteTime,
        Self::BodySize,
        Self::Bodies,
        Self::BodiesPerKey,
        Self::Sessions,
        Self::SessionsPerKey,
        Self::SessionConnections,
        Self::SessionConnectionsPerKey,
        Self::Subscriptions,
        Self::Capabilities,
        Self::ClientLists,
        Self::Runs,
        Self::RunsPerKey,
        Self::Tasks,
        Self::TasksPerKey,
        Self::TaskResult,
        Self::ScriptsPerKey,
        Self::LargeArguments,
        Self::ServerCalls,
        Self::ServerCallsPerKey,
        Self::TurnSize,
        Self::QueuedBytes,
        Self::JsonDepth,
        Self::Notifications,
        Self::Questions,
        Self::Memory,
        Self::Load,
    ];

    /// Returns the name of the bound in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ConnectionsPerPeer => "connections_per_peer",
            Self::ConnectionsPerKey => "connections_per_key",
            Self::HeaderTime => "header_time",
            Self::BodyTime => "body_time",
            Self::WriteTime => "write_time",
            Self::BodySize => "body_size",
            Self::Bodies => "bodies",
            Self::BodiesPerKey => "bodies_per_key",
            Self::Sessions => "sessions",
            Self::SessionsPerKey => "sessions_per_key",
            Self::SessionConnections => "session_connections",
            Self::SessionConnectionsPerKey => "session_connections_per_key",
            Self::Subscriptions => "subscriptions",
            Self::Capabilities => "capabilities",
            Self::ClientLists => "client_lists",
            Self::Runs => "runs",
            Self::RunsPerKey => "runs_per_key",
            Self::Tasks => "tasks",
            Self::TasksPerKey => "tasks_per_key",
            Self::TaskResult => "task_result",
            Self::ScriptsPerKey => "scripts_per_key",
            Self::LargeArguments => "large_arguments",
            Self::ServerCalls => "server_calls",
            Self::ServerCallsPerKey => "server_calls_per_key",
            Self::TurnSize => "turn_size",
            Self::QueuedBytes => "queued_bytes",
            Self::JsonDepth => "json_depth",
            Self::Notifications => "notifications",
            Self::Questions => "questions",
            Self::Memory => "memory",
            Self::Load => "load",
        }
    }

    /// Returns the config key that sets the bound.
    pub fn config_key(self) -> Option<&'static str> {
        Some(match self {
            Self::Connections => "http.max_connections",
            Self::ConnectionsPerPeer => "http.max_connections_per_peer",
            Self::ConnectionsPerKey => "http.max_connections_per_key",
            Self::HeaderTime => "http.header_timeout",
            Self::BodyTime | Self::WriteTime => "http.body_timeout",
            Self::Bodies => "capacity.max_bodies_mb",
            Self::BodiesPerKey => "capacity.max_bodies_mb_per_key",
            Self::Sessions => "capacity.max_sessions",
            Self::SessionsPerKey => "capacity.max_sessions_per_key",
            Self::SessionConnections => "capacity.max_session_connections",
            Self::SessionConnectionsPerKey => "capacity.max_session_connections_per_key",
            Self::Runs => "capacity.max_runs",
            Self::RunsPerKey => "capacity.max_runs_per_key",
            Self::Tasks => "capacity.max_tasks",
            Self::TasksPerKey => "capacity.max_tasks_per_key",
            Self::TaskResult => "capacity.max_task_result_mb",
            Self::ScriptsPerKey => "capacity.max_scripts_per_key",
            Self::ServerCalls => "max_in_flight",
            Self::ServerCallsPerKey => "max_in_flight_per_key",
            Self::TurnSize => "capacity.max_turn_mb",
            Self::QueuedBytes => "capacity.max_queued_mb",
            Self::Memory => "capacity.max_memory_mb",
            Self::Load => "http.max_connections",
            Self::BodySize
            | Self::Subscriptions
            | Self::Capabilities
            | Self::ClientLists
            | Self::LargeArguments
            | Self::JsonDepth
            | Self::Notifications
            | Self::Questions => return None,
        })
    }

    /// Returns what is counted, in the plural.
    fn unit(self) -> &'static str {
        match self {
            Self::Connections | Self::ConnectionsPerPeer | Self::ConnectionsPerKey => {
                "open connections"
            }
            Self::Sessions | Self::SessionsPerKey => "sessions",
            Self::SessionConnections | Self::SessionConnectionsPerKey => {
                "connections to servers for single sessions"
            }
            Self::Subscriptions => "subscriptions to resources",
            Self::Runs | Self::RunsPerKey => "agent runs",
            Self::Tasks | Self::TasksPerKey => "tasks",
            Self::ScriptsPerKey => "scripts waiting",
            Self::LargeArguments => "calls with large arguments waiting",
            other => other.as_str(),
        }
    }

    /// Describes that a caller has as much as it may.
    pub(crate) fn describe(self, owner: &str, max: usize) -> String {
        let unit = self.unit();
        let limit = format!("the limit of {max} {unit} for {owner} is reached");
        match self.config_key() {
            Some(key) => format!("{limit} (`{key}`)"),
            None => limit,
        }
    }
}

impl BoundMetrics {
    pub(super) fn new(prometheus: &mut Prometheus) -> Self {
        let metrics = Self {
            reached: Family::default(),
            logged: Mutex::default(),
        };
        for bound in Bound::ALL {
            drop(metrics.reached.get_or_create(&BoundLabels::new(bound)));
        }
        prometheus.register(
            "bounds_reached",
            "Requests, connections and other work that a bound refused or ended",
            metrics.reached.clone(),
        );
        metrics
    }

    /// Counts that a bound was reached, and logs it the first time and then once a minute.
    pub(super) fn report(&self, bound: Bound, who: &str) {
        self.reached.get_or_create(&BoundLabels::new(bound)).inc();
        let mut logged = self.logged.lock();
        let now = Instant::now();
        let times = match logged.get_mut(&bound) {
            Some(last) if now.duration_since(last.at) < LOG_INTERVAL => {
                last.since += 1;
                return;
            }
            Some(last) => last.since + 1,
            None => 1,
        };
        logged.insert(bound, LoggedBound { at: now, since: 0 });
        drop(logged);
        tracing::warn!(
            bound = bound.as_str(),
            setting = bound.config_key(),
            who,
            times,
            "a bound was reached"
        );
    }
}

impl BoundLabels {
    fn new(bound: Bound) -> Self {
        Self {
            bound: bound.as_str(),
        }
    }
}

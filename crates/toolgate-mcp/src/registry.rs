//! All configured servers: their supervisors, their status, and the lanes to them.
//!
//! The set of servers can change while calls are in flight. A server whose settings change gets a
//! new connection; the old one serves until the new one is up and closes once its calls finish.

mod client_lists;
mod entry;
mod lane_wait;
mod session_lanes;
mod subscriptions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use entry::{SupervisorHandle, SupervisorOptions};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolgate_core::Catalog;
use toolgate_core::catalog::DefinitionReviews;
use toolgate_core::config::{CapacityLimits, ServerConfig, ServerConnection, ServerLists};
use toolgate_core::name::{NameStyle, ServerName};

use crate::Deadline;
use crate::activity::{CallPermit, ServerBusy};
use crate::client_handler::SessionClient;
use crate::environment::Environment;
use crate::fair_queue::Owner;
use crate::lane::{Dependencies, Lane, LaneId, LaneKey, OpenError, sandbox_report};
use crate::local::LocalServer;
use crate::processes::{ProcessMonitor, ProcessUsage, ServerProcesses};
use crate::publisher::{CatalogConfig, Publisher};
use crate::sandbox::{SandboxReport, ServerLauncher};
use crate::share::ShareFull;
use crate::status::{ServerState, ServerStatus};
use crate::supervisor::Intervals;
use crate::transport::StderrTail;
use crate::transport::http::HttpClients;

pub use entry::RegistryEntry;
pub use session_lanes::{LaneNeed, SessionCall, SessionLane};
pub use subscriptions::{
    MAX_SUBSCRIBED_RESOURCES, ResourceSubscription, ServerLog, SubscribeError,
};
use subscriptions::{MAX_UNREAD_LOGS, SharedLaneHandler, UpstreamSubscriptions};

/// Extra time on top of the call timeout before a draining connection is closed.
const DRAIN_SLACK: Duration = Duration::from_secs(5);

/// Everything besides the configuration that a registry needs.
#[derive(Debug)]
pub struct RegistryDependencies {
    pub environment: Environment,
    /// Applies the sandbox of stdio servers; without one, they run without a sandbox.
    pub launcher: Option<ServerLauncher>,
}

/// The configuration of the registry at one point in time.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    pub servers: Vec<ServerConfig>,
    /// The in-process servers among them.
    pub locals: Vec<LocalServer>,
    pub lists: ServerLists,
    pub style: NameStyle,
    pub sync_interval: Option<Duration>,
    pub health_interval: Duration,
    /// Call timeout for servers without their own.
    pub tool_timeout: Duration,
    pub capacity: CapacityLimits,
}

type Entries = Arc<ArcSwap<BTreeMap<ServerName, Arc<RegistryEntry>>>>;

/// The servers of a gateway, and the only way to reach them.
#[derive(Debug)]
pub struct Registry {
    entries: Entries,
    lists: ArcSwap<ServerLists>,
    locals: ArcSwap<Vec<LocalServer>>,
    catalog: watch::Receiver<Arc<Catalog>>,
    publisher: Mutex<Option<Publisher>>,
    dependencies: RegistryDependencies,
    clients: HttpClients,
    processes: ProcessMonitor,
    /// Counts supervisors, so that an older one's listing never replaces a newer one's.
    generation: AtomicU64,
    /// Notified when any server changes state.
    changes: watch::Sender<()>,
    lanes: Arc<session_lanes::SessionLanes>,
    client_lists: Arc<client_lists::ClientLists>,
    capacity: ArcSwap<CapacityLimits>,
    subscriptions: Arc<UpstreamSubscriptions>,
    logs: broadcast::Sender<ServerLog>,
    stop: CancellationToken,
    /// Cancels all tasks if the registry is dropped without being stopped.
    _guard: DropGuard,
    tasks: TaskTracker,
}

/// An open lane and the permit for one call on it.
#[derive(Debug)]
pub struct LaneAccess {
    pub lane: Lane,
    pub permit: CallPermit,
    /// The lane still belongs to the previous configuration of the server.
    pub outdated: bool,
    /// Time in which a stopped server was started, which does not count towards the deadline of the call.
    pub start_wait: Duration,
    /// Set if the lane is a session lane.
    session_call: Option<SessionCall>,
}

impl LaneAccess {
    /// Takes note that the server has answered the call.
    pub fn mark_answered(&mut self) {
        if let Some(call) = &mut self.session_call {
            call.mark_answered();
        }
    }
}

/// How long a call waits for a server.
#[derive(Clone, Copy, Debug)]
pub struct AccessTimeouts {
    /// End of all waiting.
    pub deadline: Deadline,
    /// Maximum time for a lost connection to be re-established.
    pub reconnect: Duration,
}

/// Reasons why a server cannot be called right now.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Unavailable(#[from] ServerUnavailable),
    #[error("server `{server}` is busy: {busy}")]
    Busy {
        server: ServerName,
        busy: ServerBusy,
    },
    /// No further connection can be opened for the client's session.
    #[error("too many connections for single sessions")]
    SessionLanes(ShareFull),
}

/// Error returned when a server has no open lane. The reason is in the status, for operators only.
#[derive(Clone, Debug, thiserror::Error)]
#[error("server `{server}` is {}", .status.state.as_str())]
pub struct ServerUnavailable {
    pub server: ServerName,
    pub status: Arc<ServerStatus>,
}

impl Registry {
    /// Starts a supervisor for each server without waiting for connections.
    pub fn start(dependencies: RegistryDependencies, config: RegistryConfig) -> Self {
        let tasks = TaskTracker::new();
        let (publisher, catalog) = Publisher::start(&tasks);
        let forgetting = publisher.clone();
        let stop = CancellationToken::new();
        let registry = Self {
            _guard: stop.clone().drop_guard(),
            stop,
            entries: Entries::default(),
            lists: ArcSwap::default(),
            locals: ArcSwap::default(),
            catalog,
            publisher: Mutex::new(Some(publisher)),
            dependencies,
            clients: HttpClients::default(),
            processes: ProcessMonitor::default(),
            generation: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            lanes: Arc::default(),
            client_lists: Arc::default(),
            capacity: ArcSwap::default(),
            subscriptions: Arc::default(),
            logs: broadcast::Sender::new(MAX_UNREAD_LOGS),
            tasks,
        };
        let (lanes, stop) = (Arc::clone(&registry.lanes), registry.stop.clone());
        let processes = registry.processes.clone();
        let client_lists = Arc::clone(&registry.client_lists);
        registry.tasks.spawn(async move {
            let sweeping = async {
                let forgetting = client_lists.forget_unused(&forgetting);
                tokio::join!(lanes.sweep_idle(), processes.run(), forgetting);
            };
            tokio::select! {
                () = sweeping => {}
                () = stop.cancelled() => {}
            }
        });
        registry.apply(config);
        registry
    }

    /// Applies a new configuration; unchanged servers keep their connections.
    pub fn apply(&self, config: RegistryConfig) {
        // Held to the end, so that concurrent configurations apply one after the other.
        let publisher = self.publisher.lock();
        let Some(publisher) = publisher.as_ref() else {
            return;
        };
        let RegistryConfig {
            servers,
            locals,
            lists,
            style,
            sync_interval,
            health_interval,
            tool_timeout,
            capacity,
        } = config;
        self.capacity.store(Arc::new(capacity));
        self.lanes.set_capacity(capacity);
        // New supervisors look up their server here.
        self.locals.store(Arc::new(locals));
        let disabled_reason = |server: &ServerConfig| entry::disabled_reason(server, &lists);
        let previous = self.entries.load_full();
        let mut entries = BTreeMap::new();
        for server in servers {
            let name = server.name.clone();
            let disabled_reason = disabled_reason(&server);
            let intervals = Intervals {
                sync: server.tuning.sync_interval.or(sync_interval),
                health: health_interval,
                drain: server.timeout.unwrap_or(tool_timeout) + DRAIN_SLACK,
            };
            let entry = match previous.get(&name) {
                Some(old)
                    if old.can_keep_supervisor(&server, disabled_reason.as_ref(), intervals) =>
                {
                    old.with_settings(server)
                }
                old => {
                    let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
                    let options = SupervisorOptions {
                        disabled_reason,
                        intervals,
                        generation,
                        session: old.and_then(|old| old.status().session.clone()),
                        changes: self.changes.clone(),
                    };
                    let new = self.supervise(server, options, publisher);
                    if let Some(old) = old {
                        new.take_over_from(old, publisher, &self.tasks);
                    }
                    new
                }
            };
            entries.insert(name, Arc::new(entry));
        }
        publisher.configure(CatalogConfig {
            style,
            names: entries.keys().cloned().collect(),
            active: entries
                .iter()
                .filter_map(|(name, entry)| Some((name.clone(), entry.min_generation()?)))
                .collect(),
            max_generation: self.generation.load(Ordering::Relaxed),
        });
        for (name, old) in previous.iter() {
            if !entries.contains_key(name) {
                tracing::info!(server = %name, "server removed");
                old.retire();
            }
        }
        let entries = Arc::new(entries);
        self.entries.store(Arc::clone(&entries));
        self.lists.store(Arc::new(lists));
        self.retire_session_lanes(&entries);
        self.processes.retain(|name| entries.contains_key(name));
        self.changes.send_replace(());
    }

    /// Adds reviews of definitions to the catalog, in place of earlier ones, and waits until a catalog
    /// with them is out.
    pub async fn set_definition_reviews(&self, reviews: Arc<DefinitionReviews>) {
        let publisher = self.publisher.lock().clone();
        if let Some(publisher) = publisher {
            publisher.set_reviews(reviews).await;
        }
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// Subscribes to state changes and removals of servers.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Subscribes to new catalogs.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.clone()
    }

    /// Subscribes to the log messages of servers on their shared lanes.
    pub fn subscribe_logs(&self) -> broadcast::Receiver<ServerLog> {
        self.logs.subscribe()
    }

    /// Returns all servers, ordered by name.
    pub fn entries(&self) -> Vec<Arc<RegistryEntry>> {
        self.entries.load().values().map(Arc::clone).collect()
    }

    /// Returns the limits in effect.
    pub fn capacity(&self) -> CapacityLimits {
        **self.capacity.load()
    }

    pub fn entry(&self, name: &ServerName) -> Option<Arc<RegistryEntry>> {
        self.entries.load().get(name).map(Arc::clone)
    }

    /// Returns the open shared lane and a permit for a call of `owner`, starting an idle server if
    /// needed. Waits for the permit, and for the lane if the server is reconnecting.
    pub async fn access(
        &self,
        server: &ServerName,
        owner: &Owner,
        timeouts: AccessTimeouts,
    ) -> Result<LaneAccess, AccessError> {
        let unavailable = |reason: &str| ServerUnavailable {
            server: server.clone(),
            status: Arc::new(ServerStatus::new(
                ServerState::Disabled,
                Some(reason.to_owned()),
            )),
        };
        loop {
            if let Some(list) = self.lists.load().refusal_key(server) {
                return Err(unavailable(list).into());
            }
            let Some(entry) = self.entry(server) else {
                return Err(unavailable("not configured").into());
            };
            let access = entry.access(owner, timeouts).await;
            // The settings may have changed during the wait; then retry with the new supervisor.
            let replaced = self
                .entry(server)
                .is_none_or(|now| !now.has_same_supervisor(&entry));
            match access {
                Err(AccessError::Unavailable(_)) if replaced => {}
                access => return access,
            }
        }
    }

    /// Returns the lane that replaces `old` if it opens in time.
    pub async fn lane_after(&self, old: &Lane, deadline: Deadline) -> Option<Lane> {
        let entry = self.entry(&old.key().server)?;
        tokio::time::timeout_at(deadline, entry.lane_after(old))
            .await
            .ok()
            .flatten()
    }

    /// Opens a temporary connection to find out what a server provides.
    pub async fn probe(
        &self,
        server: &ServerConfig,
        within: Duration,
    ) -> Result<ProbeResult, String> {
        let mut dependencies = self.lane_dependencies(server, StderrTail::default());
        // Not one of the processes of the configured server with this name, if there is one.
        dependencies.processes = Arc::new(ServerProcesses::new(server.name.clone()));
        let key = LaneKey {
            server: server.name.clone(),
            lane: LaneId::Shared,
        };
        let masker = self.dependencies.environment.masker(server);
        let attempt = async {
            let (lane, _events) = Lane::open(key, server, &dependencies, None).await?;
            let listing = lane.fetch_listing(None).await;
            lane.close().await;
            let listing = listing.map_err(|error| OpenError::Handshake(error.into()))?;
            Ok::<_, OpenError>(ProbeResult {
                version: lane.session().version.clone(),
                tools: listing
                    .tools
                    .iter()
                    .map(|tool| tool.id.tool.to_string())
                    .collect(),
            })
        };
        match tokio::time::timeout(within, attempt).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(masker.mask(&error.to_string())),
            Err(_) => Err(format!(
                "server did not respond within {} s",
                within.as_secs()
            )),
        }
    }

    /// Returns which measures of a server's sandbox are in force; `None` for a server without a process.
    pub async fn sandbox_report(&self, server: &ServerConfig) -> Option<Arc<SandboxReport>> {
        let ServerConnection::Stdio(stdio) = &server.connection else {
            return None;
        };
        let RegistryDependencies {
            environment,
            launcher,
        } = &self.dependencies;
        Some(sandbox_report(stdio, environment, launcher.as_ref()).await)
    }

    /// Returns what the processes of a server used at the last sample; `None` for a server without a
    /// process.
    pub fn process_usage(&self, server: &ServerConfig) -> Option<ProcessUsage> {
        let is_stdio = matches!(server.connection, ServerConnection::Stdio(_));
        is_stdio.then(|| self.processes.usage(&server.name))
    }

    /// Makes sure that the samples of the processes of servers are recent.
    pub async fn refresh_process_usage(&self) {
        self.processes.refresh().await;
    }

    /// Closes all connections and waits until every process and task has ended.
    pub async fn stop(&self) {
        self.stop.cancel();
        // The publisher's task ends once the last sender is dropped.
        self.publisher.lock().take();
        self.lanes.close().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn supervise(
        &self,
        server: ServerConfig,
        options: SupervisorOptions,
        publisher: &Publisher,
    ) -> RegistryEntry {
        let dependencies = self.lane_dependencies(&server, StderrTail::default());
        let stop = self.stop.child_token();
        RegistryEntry::new(
            server,
            SupervisorHandle::start(options, dependencies, publisher, stop),
        )
    }

    fn lane_dependencies(&self, server: &ServerConfig, tail: StderrTail) -> Dependencies {
        let locals = self.locals.load();
        let local = locals.iter().find(|local| *local.name() == server.name);
        Dependencies {
            local: local.cloned(),
            environment: self.dependencies.environment.clone(),
            launcher: self.dependencies.launcher.clone(),
            clients: self.clients.clone(),
            processes: self.processes.server(&server.name),
            place: None,
            tail,
            tasks: self.tasks.clone(),
            max_queued_bytes: self.capacity.load().max_queued_bytes,
            client: SessionClient {
                owner: None,
                capabilities: "{}".into(),
                handler: Arc::new(SharedLaneHandler {
                    logs: self.logs.clone(),
                    server: server.name.clone(),
                    subscriptions: Arc::clone(&self.subscriptions),
                }),
                log_level: None,
                can_answer_requests: false,
                is_modern: false,
                disconnected: self.stop.clone(),
            },
        }
    }
}

/// Outcome of a successful [`Registry::probe`].
#[derive(Clone, Debug)]
pub struct ProbeResult {
    pub version: String,
    pub tools: Vec<String>,
}

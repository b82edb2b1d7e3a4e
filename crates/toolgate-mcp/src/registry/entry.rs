//! One server of the registry: its settings and the handle of the supervisor that keeps it
//! connected.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::config::{ServerConfig, ServerLists};
use toolgate_core::secret::Masker;

use super::{AccessError, AccessTimeouts, LaneAccess};
use crate::activity::Activity;
use crate::fair_queue::Owner;
use crate::handshake::UpstreamSession;
use crate::lane::{Dependencies, Lane};
use crate::publisher::Publisher;
use crate::status::{ServerState, ServerStatus};
use crate::supervisor::{Intervals, Supervisor, SupervisorOutputs, SupervisorSignals};
use crate::transport::StderrTail;

/// One server, either supervised or disabled.
#[derive(Debug)]
pub struct RegistryEntry {
    pub server: Arc<ServerConfig>,
    supervisor: Arc<SupervisorHandle>,
    /// The supervisor under earlier settings, until the new one has settled.
    predecessor: Arc<ArcSwapOption<SupervisorHandle>>,
}

/// Options for starting a supervisor.
#[derive(Debug)]
pub(super) struct SupervisorOptions {
    pub(super) disabled_reason: Option<String>,
    pub(super) intervals: Intervals,
    pub(super) generation: u64,
    /// The last session under earlier settings.
    pub(super) session: Option<UpstreamSession>,
    /// Notified when any server changes state.
    pub(super) changes: watch::Sender<()>,
}

/// Handle to a supervisor: its published state and its signals.
#[derive(Debug)]
pub(super) struct SupervisorHandle {
    pub(super) status: watch::Receiver<Arc<ServerStatus>>,
    pub(super) lane: watch::Receiver<Option<Lane>>,
    pub(super) activity: Arc<Activity>,
    signals: SupervisorSignals,
    tail: StderrTail,
    masker: Masker,
    disabled_reason: Option<String>,
    intervals: Intervals,
    generation: u64,
}

impl RegistryEntry {
    pub(super) fn new(
        server: ServerConfig,
        start: impl FnOnce(Arc<ServerConfig>) -> SupervisorHandle,
    ) -> Self {
        let server = Arc::new(server);
        Self {
            supervisor: Arc::new(start(Arc::clone(&server))),
            server,
            predecessor: Arc::default(),
        }
    }

    pub fn status(&self) -> Arc<ServerStatus> {
        Arc::clone(&self.supervisor.status.borrow())
    }

    /// Waits until the first connection attempt has succeeded or failed.
    pub async fn wait_settled(&self) -> Arc<ServerStatus> {
        self.supervisor.wait_settled().await
    }

    /// Returns the end of the process's stderr with secrets masked.
    pub fn stderr_tail(&self) -> String {
        self.supervisor.masker.mask(&self.supervisor.tail.text())
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.supervisor.activity.in_flight()
    }

    /// Replaces the connection immediately.
    pub fn reconnect(&self) {
        self.supervisor.signals.reconnect.notify_one();
    }

    pub(super) async fn access(
        &self,
        owner: &Owner,
        timeouts: AccessTimeouts,
    ) -> Result<LaneAccess, AccessError> {
        if let Some(predecessor) = self.predecessor.load_full()
            && self.supervisor.lane.borrow().is_none()
            && let Some(access) = predecessor.try_access(owner)
        {
            return Ok(LaneAccess {
                outdated: true,
                ..access
            });
        }
        self.supervisor
            .access(&self.server.name, owner, timeouts)
            .await
    }

    /// Waits for the lane that replaces `old`, waking an idle server.
    pub(super) async fn lane_after(&self, old: &Lane) -> Option<Lane> {
        if self.status().state == ServerState::Asleep {
            self.supervisor.activity.wake.notify_one();
        }
        self.newer_lane(old).await
    }

    /// Waits for the lane that replaces `old`, without waking an idle server.
    pub(super) async fn newer_lane(&self, old: &Lane) -> Option<Lane> {
        let mut lane = self.supervisor.lane.clone();
        let newer = lane
            .wait_for(|lane| {
                lane.as_ref()
                    .is_some_and(|lane| !lane.is_same_connection(old))
            })
            .await;
        newer.ok().and_then(|lane| lane.clone())
    }

    /// Returns whether both entries share one supervisor, possibly under different settings.
    pub(super) fn has_same_supervisor(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.supervisor, &other.supervisor)
    }

    /// Returns the oldest supervisor generation whose listing is current; `None` if disabled.
    pub(super) fn min_generation(&self) -> Option<u64> {
        let predecessor = self.predecessor.load();
        let oldest = predecessor
            .as_ref()
            .map_or(self.supervisor.generation, |predecessor| {
                predecessor.generation
            });
        self.supervisor.disabled_reason.is_none().then_some(oldest)
    }

    /// Returns whether client sessions get their own lane to this server.
    pub(super) fn has_session_lanes(&self) -> bool {
        self.supervisor.disabled_reason.is_none() && self.server.has_own_lanes()
    }

    /// Returns whether the current supervisor can continue under these settings.
    pub(super) fn can_keep_supervisor(
        &self,
        server: &ServerConfig,
        disabled_reason: Option<&String>,
        intervals: Intervals,
    ) -> bool {
        let current = self.supervisor.intervals;
        let same_intervals = (intervals.sync, intervals.health) == (current.sync, current.health);
        !server.needs_reconnect(&self.server)
            && self.supervisor.disabled_reason.as_ref() == disabled_reason
            && same_intervals
    }

    /// Returns an entry with the same supervisor and new settings.
    pub(super) fn with_settings(&self, server: ServerConfig) -> Self {
        Self {
            server: Arc::new(server),
            supervisor: Arc::clone(&self.supervisor),
            predecessor: Arc::clone(&self.predecessor),
        }
    }

    /// Keeps `old` serving until this entry has settled, or the predecessor of `old` if `old` never
    /// connected.
    pub(super) fn take_over_from(&self, old: &Self, publisher: &Publisher, tasks: &TaskTracker) {
        if self.supervisor.disabled_reason.is_some() {
            old.retire();
            return;
        }
        let older = old.predecessor.swap(None);
        let is_old_connected = old.supervisor.lane.borrow().is_some();
        let predecessor = match older {
            Some(older) if !is_old_connected => {
                old.supervisor.retire();
                older
            }
            older => {
                older.iter().for_each(|older| older.retire());
                Arc::clone(&old.supervisor)
            }
        };
        self.predecessor.store(Some(predecessor));
        let (new, predecessor) = (Arc::clone(&self.supervisor), Arc::clone(&self.predecessor));
        let connection_changed = self.server.connection != old.server.connection;
        let (publisher, name) = (publisher.clone(), self.server.name.clone());
        tasks.spawn(async move {
            let settled = tokio::select! {
                biased;
                () = new.signals.stop.cancelled() => false,
                _ = new.wait_settled() => !new.signals.stop.is_cancelled(),
            };
            // A later change may already have taken the predecessor.
            if let Some(predecessor) = predecessor.swap(None) {
                predecessor.retire();
            }
            if connection_changed && settled {
                publisher.expire_before(name, new.generation);
            }
        });
    }

    /// Closes the connection once its calls have finished.
    pub(super) fn retire(&self) {
        if let Some(predecessor) = self.predecessor.swap(None) {
            predecessor.retire();
        }
        self.supervisor.retire();
    }
}

impl SupervisorHandle {
    /// Starts the supervisor unless the server is disabled.
    pub(super) fn start(
        options: SupervisorOptions,
        dependencies: Dependencies,
        publisher: &Publisher,
        stop: CancellationToken,
    ) -> impl FnOnce(Arc<ServerConfig>) -> Self {
        let publisher = publisher.clone();
        let SupervisorOptions {
            disabled_reason,
            intervals,
            generation,
            session,
            changes,
        } = options;
        move |server| {
            let masker = dependencies.environment.masker(&server);
            let (state, reason) = match &disabled_reason {
                Some(reason) => (ServerState::Disabled, reason.clone()),
                None => (
                    ServerState::Connecting,
                    "waiting for the first response".to_owned(),
                ),
            };
            let status = ServerStatus {
                session,
                ..ServerStatus::new(state, Some(reason))
            };
            let (status, status_receiver) = watch::channel(Arc::new(status));
            let (lane, lane_receiver) = watch::channel(None);
            let handle = Self {
                status: status_receiver,
                lane: lane_receiver,
                activity: Arc::new(Activity::new(&server.tuning)),
                signals: SupervisorSignals {
                    stop,
                    ..SupervisorSignals::default()
                },
                tail: dependencies.tail.clone(),
                masker,
                disabled_reason,
                intervals,
                generation,
            };
            if handle.disabled_reason.is_none() {
                let tasks = dependencies.tasks.clone();
                let supervisor = Supervisor {
                    server,
                    dependencies,
                    masker: handle.masker.clone(),
                    publisher,
                    generation,
                    intervals,
                    activity: Arc::clone(&handle.activity),
                    signals: handle.signals.clone(),
                    outputs: SupervisorOutputs {
                        status,
                        lane,
                        changes,
                    },
                };
                tasks.spawn(supervisor.run());
            }
            handle
        }
    }

    async fn wait_settled(&self) -> Arc<ServerStatus> {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.state.is_settled()).await {
            Ok(status) => Arc::clone(&status),
            Err(_) => Arc::clone(&self.status.borrow()),
        }
    }

    fn retire(&self) {
        self.signals.stop.cancel();
    }
}

/// Returns why the configuration excludes a server; `None` if it may be connected.
pub(super) fn disabled_reason(server: &ServerConfig, lists: &ServerLists) -> Option<String> {
    match lists.refusal_key(&server.name) {
        Some(list) => Some(format!("excluded by `{list}`")),
        None if !server.enabled => Some("`disabled`, or `mcp.enabled` is false".to_owned()),
        None => None,
    }
}

//! Events of a gateway: merges the event channels of its components.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_mcp::ServerState;
use toolgate_mcp::registry::Registry;

use crate::approval::Approval;
use crate::audit::AuditRecord;
use crate::event_channel::EventChannel;

/// An event of the gateway.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GatewayEvent {
    /// A server entered a new state.
    Server(ServerEvent),
    /// An approval was created or changed its state.
    Approval(Arc<Approval>),
    /// A call was opened or closed.
    Call(Arc<AuditRecord>),
}

/// A server entered a new state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerEvent {
    /// Name of the server.
    pub server: String,
    /// The new state.
    pub state: ServerState,
    /// Reason for the state.
    pub reason: Option<String>,
}

/// Subscription to the events of a gateway. Events of one kind arrive in the order in which they
/// happened.
#[derive(Debug)]
pub struct GatewayEvents {
    pub(crate) servers: Receiver<ServerEvent>,
    pub(crate) approvals: Receiver<Arc<Approval>>,
    pub(crate) calls: Receiver<Arc<AuditRecord>>,
}

/// Task that publishes state changes of servers.
#[derive(Debug)]
pub(crate) struct ServerWatcher {
    events: EventChannel<ServerEvent>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl GatewayEvent {
    /// Returns the kind of the event: `server`, `approval` or `call`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Server(_) => "server",
            Self::Approval(_) => "approval",
            Self::Call(_) => "call",
        }
    }
}

impl GatewayEvents {
    /// Waits for the next event. A subscriber that is too slow loses the oldest events of a kind and
    /// gets `RecvError::Lagged`. Cancelling the future loses no event.
    pub async fn recv(&mut self) -> Result<GatewayEvent, RecvError> {
        tokio::select! {
            server = self.servers.recv() => server.map(GatewayEvent::Server),
            approval = self.approvals.recv() => approval.map(GatewayEvent::Approval),
            call = self.calls.recv() => call.map(GatewayEvent::Call),
        }
    }
}

impl ServerWatcher {
    pub(crate) fn start(registry: Arc<Registry>) -> Self {
        let events = EventChannel::new();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(watch_servers(registry, events.clone(), stop.clone()));
        tasks.close();
        Self {
            events,
            tasks,
            stop,
        }
    }

    /// Subscribes to state changes of servers.
    pub(crate) fn subscribe(&self) -> Receiver<ServerEvent> {
        self.events.subscribe()
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

async fn watch_servers(
    registry: Arc<Registry>,
    events: EventChannel<ServerEvent>,
    stop: CancellationToken,
) {
    let mut changes = registry.changes();
    let mut previous: BTreeMap<String, ServerState> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let mut current = BTreeMap::new();
        for entry in registry.entries() {
            let status = entry.status();
            let server = entry.server.name.to_string();
            if previous.get(&server) != Some(&status.state) {
                events.publish(|| ServerEvent {
                    server: server.clone(),
                    state: status.state,
                    reason: status.reason.clone(),
                });
            }
            current.insert(server, status.state);
        }
        previous = current;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

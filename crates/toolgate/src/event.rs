//! Events of a gateway, broadcast to subscribers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_mcp::ServerState;
use toolgate_mcp::registry::Registry;

use crate::approval::Approval;
use crate::audit::AuditRecord;

/// Events buffered for a slow subscriber before it loses the oldest.
const MAX_BUFFERED_EVENTS: usize = 1024;

/// An event of the gateway.
#[derive(Clone, Debug)]
pub enum GatewayEvent {
    Server(ServerEvent),
    /// An approval was created or changed its state.
    Approval(Arc<Approval>),
    /// A call was opened or closed.
    Call(Arc<AuditRecord>),
}

/// A server entered a new state.
#[derive(Clone, Debug)]
pub struct ServerEvent {
    pub server: String,
    pub state: ServerState,
    pub reason: Option<String>,
}

/// Broadcasts events to all subscribers; clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct EventBus(broadcast::Sender<GatewayEvent>);

/// Task that publishes state changes of servers.
#[derive(Debug)]
pub(crate) struct ServerWatcher {
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

impl EventBus {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(MAX_BUFFERED_EVENTS).0)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<GatewayEvent> {
        self.0.subscribe()
    }

    /// Publishes an event, which is built only if there are subscribers.
    pub(crate) fn publish(&self, event: impl FnOnce() -> GatewayEvent) {
        if self.0.receiver_count() > 0 {
            // Sending fails if the last subscriber has just left.
            let _ = self.0.send(event());
        }
    }
}

impl ServerWatcher {
    pub(crate) fn start(registry: Arc<Registry>, events: EventBus) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(watch_servers(registry, events, stop.clone()));
        tasks.close();
        Self { tasks, stop }
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

async fn watch_servers(registry: Arc<Registry>, events: EventBus, stop: CancellationToken) {
    let mut changes = registry.changes();
    let mut previous: BTreeMap<String, ServerState> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let mut current = BTreeMap::new();
        for entry in registry.entries() {
            let status = entry.status();
            let server = entry.server.name.to_string();
            if previous.get(&server) != Some(&status.state) {
                events.publish(|| {
                    GatewayEvent::Server(ServerEvent {
                        server: server.clone(),
                        state: status.state,
                        reason: status.reason.clone(),
                    })
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

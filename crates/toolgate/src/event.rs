//! What happens in a gateway, for those who watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_mcp::State;
use toolgate_mcp::registry::Registry;

use crate::approval::Approval;
use crate::audit::Record;

/// Events that a slow watcher may be behind before it misses some.
const BEHIND: usize = 1024;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    Server(ServerEvent),
    /// A new approval, or a new state of one.
    Approval(Arc<Approval>),
    /// A call that was opened or closed.
    Call(Arc<Record>),
}

/// A server in a new state.
#[derive(Clone, Debug)]
pub struct ServerEvent {
    pub server: String,
    pub state: State,
    pub reason: Option<String>,
}

/// Tells everyone who watches.
#[derive(Clone, Debug)]
pub(crate) struct Events(broadcast::Sender<Event>);

/// The task that tells of servers.
#[derive(Debug)]
pub(crate) struct ServerWatch {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Event {
    /// What kind it is: `server`, `approval` or `call`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Server(_) => "server",
            Self::Approval(_) => "approval",
            Self::Call(_) => "call",
        }
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    /// Tells it, if anyone watches.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if self.0.receiver_count() > 0 {
            // The last watcher may have left just now.
            let _ = self.0.send(event());
        }
    }
}

impl ServerWatch {
    pub(crate) fn start(registry: Arc<Registry>, events: Events) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(watch(registry, events, stop.clone()));
        tasks.close();
        Self { tasks, stop }
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

async fn watch(registry: Arc<Registry>, events: Events, stop: CancellationToken) {
    let mut changes = registry.changes();
    let mut known: BTreeMap<String, State> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let mut now = BTreeMap::new();
        for entry in registry.entries() {
            let status = entry.status();
            let server = entry.server.name.to_string();
            if known.get(&server) != Some(&status.state) {
                events.tell(|| {
                    Event::Server(ServerEvent {
                        server: server.clone(),
                        state: status.state,
                        reason: status.reason.clone(),
                    })
                });
            }
            now.insert(server, status.state);
        }
        known = now;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

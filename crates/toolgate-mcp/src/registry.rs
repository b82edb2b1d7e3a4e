//! All configured servers: their supervisors, their status, and the lanes to them.
//!
//! The set of servers can change while calls are under way: a server whose settings change gets a
//! new connection, the old one serves until the new one is up, and is closed when its calls are
//! done.

mod entry;
mod lanes;
mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use entry::{Start, Supervised};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolgate_core::Catalog;
use toolgate_core::config::{Server, ServerLists};
use toolgate_core::name::{NameStyle, ServerName};

use crate::activity::{Busy, Turn};
use crate::ear::Client;
use crate::environment::Environment;
use crate::lane::{Lane, LaneId, LaneKey, OpenError, Surroundings};
use crate::local::LocalServer;
use crate::publisher::{Configured, Publisher};
use crate::status::{State, Status};
use crate::supervisor::Rhythm;
use crate::transport::Tail;
use crate::transport::http::Clients;

pub use entry::Entry;
pub use lanes::{OwnCall, OwnLane};
use watches::{Updates, Watches};
pub use watches::{WatchError, Watching};

/// What a call may take beyond its timeout.
const SLACK: Duration = Duration::from_secs(5);

/// What there is besides the servers.
#[derive(Debug)]
pub struct Setup {
    pub locals: Vec<Arc<LocalServer>>,
    pub environment: Environment,
}

/// What the configuration says, at one time.
#[derive(Clone, Debug)]
pub struct Plan {
    pub servers: Vec<Server>,
    pub lists: ServerLists,
    pub style: NameStyle,
    pub sync_interval: Option<Duration>,
    pub health_interval: Duration,
    /// Bound on a call where a server has none of its own.
    pub tool_timeout: Duration,
}

type Entries = Arc<ArcSwap<BTreeMap<ServerName, Arc<Entry>>>>;

/// The servers of a gateway.
#[derive(Debug)]
pub struct Registry {
    entries: Entries,
    lists: ArcSwap<ServerLists>,
    catalog: watch::Receiver<Arc<Catalog>>,
    publisher: std::sync::Mutex<Option<Publisher>>,
    setup: Setup,
    clients: Clients,
    /// Counts supervisors, so that the offer of an earlier one never replaces a later one's.
    generation: AtomicU64,
    /// Says that some server is in a new state.
    changes: watch::Sender<()>,
    lanes: Arc<lanes::Lanes>,
    watches: Arc<Watches>,
    stop: CancellationToken,
    /// Ends everything if the registry is dropped without being stopped.
    _guard: DropGuard,
    tasks: TaskTracker,
}

/// An open lane and a place among the calls on it.
#[derive(Debug)]
pub struct Access {
    pub lane: Lane,
    pub turn: Turn,
    /// The lane still leads to the program that was configured before.
    pub outdated: bool,
    /// Where the lane is a session's own.
    _own: Option<OwnCall>,
}

/// Why a server cannot be called just now.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoAccess {
    #[error(transparent)]
    Away(#[from] Away),
    #[error("server `{server}` is busy: {busy}")]
    Busy { server: ServerName, busy: Busy },
}

/// There is no lane to a server just now. Why is in the status, for those who run the gateway.
#[derive(Clone, Debug, thiserror::Error)]
#[error("server `{server}` is {}", .status.state.as_str())]
pub struct Away {
    pub server: ServerName,
    pub status: Arc<Status>,
}

impl Registry {
    /// Starts a supervisor for each server and returns at once.
    pub fn start(setup: Setup, plan: Plan) -> Self {
        let tasks = TaskTracker::new();
        let (publisher, catalog) = Publisher::start(&tasks);
        let stop = CancellationToken::new();
        let registry = Self {
            _guard: stop.clone().drop_guard(),
            stop,
            entries: Entries::default(),
            lists: ArcSwap::default(),
            catalog,
            publisher: std::sync::Mutex::new(Some(publisher)),
            setup,
            clients: Clients::default(),
            generation: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            lanes: Arc::default(),
            watches: Arc::default(),
            tasks,
        };
        let (lanes, stop) = (Arc::clone(&registry.lanes), registry.stop.clone());
        registry.tasks.spawn(async move {
            tokio::select! {
                () = lanes.tend() => {}
                () = stop.cancelled() => {}
            }
        });
        registry.apply(plan);
        registry
    }

    /// Takes up a new plan: what did not change goes on untouched.
    pub fn apply(&self, plan: Plan) {
        let publisher = self
            .publisher
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(publisher) = publisher.as_ref() else {
            return;
        };
        let Plan {
            servers,
            lists,
            style,
            sync_interval,
            health_interval,
            tool_timeout,
        } = plan;
        let kept_out = |server: &Server| entry::kept_out(server, &lists);
        let before = self.entries.load_full();
        let mut entries = BTreeMap::new();
        for server in servers {
            let name = server.name.clone();
            let kept_out = kept_out(&server);
            let rhythm = Rhythm {
                sync: server.care.sync_interval.or(sync_interval),
                health: health_interval,
                drain: server.timeout.unwrap_or(tool_timeout) + SLACK,
            };
            let entry = match before.get(&name) {
                Some(old) if old.goes_on_as(&server, kept_out.as_ref(), rhythm) => old.with(server),
                old => {
                    let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
                    let start = Start {
                        kept_out,
                        rhythm,
                        generation,
                        session: old.and_then(|old| old.status().session.clone()),
                        changes: self.changes.clone(),
                    };
                    let new = self.supervise(server, start, publisher);
                    if let Some(old) = old {
                        new.succeed(old, publisher, &self.tasks);
                    }
                    new
                }
            };
            entries.insert(name, Arc::new(entry));
        }
        publisher.configured(Configured {
            style,
            names: entries.keys().cloned().collect(),
            active: entries
                .iter()
                .filter_map(|(name, entry)| Some((name.clone(), entry.since()?)))
                .collect(),
            up_to: self.generation.load(Ordering::Relaxed),
        });
        for (name, old) in before.iter() {
            if !entries.contains_key(name) {
                tracing::info!(server = %name, "removed");
                old.retire();
            }
        }
        let entries = Arc::new(entries);
        self.entries.store(Arc::clone(&entries));
        self.lists.store(Arc::new(lists));
        self.retire_lanes(&entries);
        self.changes.send_replace(());
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// Hears that some server is in a new state, or is no longer there.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Hears of every new catalog.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.clone()
    }

    /// All servers, ordered by name.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.load().values().map(Arc::clone).collect()
    }

    pub fn entry(&self, name: &ServerName) -> Option<Arc<Entry>> {
        self.entries.load().get(name).map(Arc::clone)
    }

    /// The open shared lane, waking the server if it sleeps, or why there is none. Waits at most
    /// `within` for its turn.
    pub async fn access(&self, server: &ServerName, within: Duration) -> Result<Access, NoAccess> {
        let away = |reason: &str| Away {
            server: server.clone(),
            status: Arc::new(Status::new(State::Disabled, Some(reason.to_owned()))),
        };
        loop {
            if let Some(list) = self.lists.load().refuses(server) {
                return Err(away(list).into());
            }
            let Some(entry) = self.entry(server) else {
                return Err(away("it is not configured").into());
            };
            let access = entry.access(within).await;
            // While it waited, its settings may have changed; then the next one is asked.
            let replaced = self.entry(server).is_none_or(|now| !now.continues(&entry));
            match access {
                Err(NoAccess::Away(_)) if replaced => {}
                access => return access,
            }
        }
    }

    /// The lane that comes after `old`, if one is up in time.
    pub async fn after(&self, old: &Lane, within: Duration) -> Option<Lane> {
        let entry = self.entry(&old.key().server)?;
        tokio::time::timeout(within, entry.lane_after(old))
            .await
            .ok()
            .flatten()
    }

    /// Opens a connection that nobody uses, to see what a server would offer.
    pub async fn try_out(&self, server: &Server, within: Duration) -> Result<TriedOut, String> {
        let surroundings = self.surroundings(server, Tail::default());
        let key = LaneKey {
            server: server.name.clone(),
            lane: LaneId::Shared,
        };
        let masker = self.setup.environment.masker(server);
        let attempt = async {
            let (lane, _events) = Lane::open(key, server, &surroundings, None).await?;
            let offer = lane.offer(None).await;
            lane.close().await;
            let offer = offer.map_err(|error| OpenError::Handshake(error.into()))?;
            Ok::<_, OpenError>(TriedOut {
                version: lane.session().version.clone(),
                tools: offer
                    .tools
                    .iter()
                    .map(|tool| tool.id.tool.to_string())
                    .collect(),
            })
        };
        match tokio::time::timeout(within, attempt).await {
            Ok(Ok(tried)) => Ok(tried),
            Ok(Err(error)) => Err(masker.mask(&error.to_string())),
            Err(_) => Err(format!(
                "the server did not answer within {} s",
                within.as_secs()
            )),
        }
    }

    /// Ends all connections and waits until every process and task is gone.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.publisher
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        self.lanes.close().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn supervise(&self, server: Server, start: Start, publisher: &Publisher) -> Entry {
        let surroundings = self.surroundings(&server, Tail::default());
        let stop = self.stop.child_token();
        Entry::new(
            server,
            Supervised::start(start, surroundings, publisher, stop),
        )
    }

    fn surroundings(&self, server: &Server, tail: Tail) -> Surroundings {
        let local = self
            .setup
            .locals
            .iter()
            .find(|local| *local.name() == server.name);
        Surroundings {
            local: local.map(Arc::clone),
            environment: self.setup.environment.clone(),
            clients: self.clients.clone(),
            tail,
            tasks: self.tasks.clone(),
            client: Client {
                capabilities: "{}".into(),
                ear: Arc::new(Updates {
                    server: server.name.clone(),
                    watches: Arc::clone(&self.watches),
                }),
                log_level: None,
                ended: self.stop.clone(),
            },
        }
    }
}

/// What was seen of a server that was tried out.
#[derive(Clone, Debug)]
pub struct TriedOut {
    pub version: String,
    pub tools: Vec<String>,
}

//! All configured servers: their supervisors, their status, and the lanes to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::Catalog;
use toolgate_core::config::{Link, Server, ServerLists};
use toolgate_core::name::{NameStyle, ServerName};
use toolgate_core::secret::{Masker, Secret};

use crate::environment::Environment;
use crate::lane::{Lane, LaneId, LaneKey, Surroundings};
use crate::local::LocalServer;
use crate::publisher::Publisher;
use crate::status::{State, Status};
use crate::supervisor::Supervisor;
use crate::transport::Tail;

/// What the registry is started with.
#[derive(Debug)]
pub struct Setup {
    pub servers: Vec<Server>,
    pub locals: Vec<Arc<LocalServer>>,
    pub lists: ServerLists,
    pub style: NameStyle,
    pub sync_interval: Option<Duration>,
    pub environment: Environment,
}

/// The servers of a gateway.
#[derive(Debug)]
pub struct Registry {
    entries: ArcSwap<BTreeMap<ServerName, Arc<Entry>>>,
    lists: ServerLists,
    catalog: watch::Receiver<Arc<Catalog>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// One server, supervised or kept from being connected.
#[derive(Debug)]
pub struct Entry {
    pub server: Arc<Server>,
    status: watch::Receiver<Arc<Status>>,
    lane: watch::Receiver<Option<Lane>>,
    tail: Tail,
    masker: Masker,
}

/// There is no lane to a server just now.
#[derive(Clone, Debug, thiserror::Error)]
#[error("server `{server}` is {}{}", .status.state.as_str(), because(.status))]
pub struct Away {
    pub server: ServerName,
    pub status: Arc<Status>,
}

impl Registry {
    /// Starts a supervisor for each server and returns at once.
    pub fn start(setup: Setup) -> Self {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let (publisher, catalog) = Publisher::start(setup.style, &tasks);
        publisher.configured(
            setup
                .servers
                .iter()
                .map(|server| server.name.clone())
                .collect(),
        );
        let locals: BTreeMap<&ServerName, &Arc<LocalServer>> = setup
            .locals
            .iter()
            .map(|local| (local.name(), local))
            .collect();
        let mut entries = BTreeMap::new();
        for server in setup.servers {
            let surroundings = Surroundings {
                local: locals.get(&server.name).map(|local| Arc::clone(local)),
                environment: setup.environment.clone(),
                tail: Tail::default(),
                tasks: tasks.clone(),
            };
            let name = server.name.clone();
            let kept_out = kept_out(&server, &setup.lists);
            let sync_interval = server.sync_interval.or(setup.sync_interval);
            let entry = Starter {
                surroundings,
                publisher: &publisher,
                stop: &stop,
                sync_interval,
            };
            entries.insert(name, Arc::new(entry.start(server, kept_out)));
        }
        Self {
            entries: ArcSwap::from_pointee(entries),
            lists: setup.lists,
            catalog,
            stop,
            tasks,
        }
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
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

    /// An open lane, or why there is none.
    pub fn lane(&self, key: &LaneKey) -> Result<Lane, Away> {
        let away = |state, reason: &str| Away {
            server: key.server.clone(),
            status: Arc::new(Status::new(state, Some(reason.to_owned()))),
        };
        if let Some(list) = self.lists.refuses(&key.server) {
            return Err(away(State::Disabled, list));
        }
        let Some(entry) = self.entry(&key.server) else {
            return Err(away(State::Disabled, "it is not configured"));
        };
        match (&key.lane, &*entry.lane.borrow()) {
            (LaneId::Shared, Some(lane)) => Ok(lane.clone()),
            (LaneId::Shared, None) => Err(Away {
                server: key.server.clone(),
                status: entry.status(),
            }),
            (other, _) => Err(away(
                State::Unavailable,
                &format!("it has no lane for {other}"),
            )),
        }
    }

    /// Ends all connections and waits until every process and task is gone.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Entry {
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status.borrow())
    }

    /// Waits until the server is connected or has failed to.
    pub async fn settled(&self) -> Arc<Status> {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.state.is_settled()).await {
            Ok(status) => Arc::clone(&status),
            Err(_) => self.status(),
        }
    }

    /// The last words of its process, without the secrets it was given.
    pub fn stderr_tail(&self) -> String {
        self.masker.mask(&self.tail.text())
    }
}

/// What an entry is started from.
struct Starter<'a> {
    surroundings: Surroundings,
    publisher: &'a Publisher,
    stop: &'a CancellationToken,
    sync_interval: Option<Duration>,
}

impl Starter<'_> {
    fn start(self, server: Server, kept_out: Option<String>) -> Entry {
        let server = Arc::new(server);
        let tail = self.surroundings.tail.clone();
        let masker = masker(&server, &self.surroundings.environment);
        let state = if kept_out.is_some() {
            State::Disabled
        } else {
            State::Connecting
        };
        let supervised = kept_out.is_none();
        let (status, status_seen) = watch::channel(Arc::new(Status::new(state, kept_out)));
        let (lane, lane_seen) = watch::channel(None);
        if supervised {
            let tasks = self.surroundings.tasks.clone();
            let supervisor = Supervisor {
                server: Arc::clone(&server),
                surroundings: self.surroundings,
                masker: masker.clone(),
                publisher: self.publisher.clone(),
                sync_interval: self.sync_interval,
                status,
                lane,
                stop: self.stop.child_token(),
            };
            tasks.spawn(supervisor.run());
        }
        Entry {
            server,
            status: status_seen,
            lane: lane_seen,
            tail,
            masker,
        }
    }
}

fn kept_out(server: &Server, lists: &ServerLists) -> Option<String> {
    match lists.refuses(&server.name) {
        Some(list) => Some(format!("`{list}` keeps it from being connected")),
        None if !server.enabled => Some("it is switched off in the configuration".to_owned()),
        None => None,
    }
}

/// Knows the secrets that a server was given, to keep them out of what is shown of it.
fn masker(server: &Server, environment: &Environment) -> Masker {
    let secrets: Vec<&Secret> = match &server.link {
        Link::Stdio(stdio) => stdio.env.values().collect(),
        Link::Http(http) => http.headers.values().collect(),
        Link::InProcess => Vec::new(),
    };
    let resolved = secrets
        .into_iter()
        .filter_map(|secret| secret.resolve(&|name| environment.get(name)).ok());
    Masker::new(resolved.flat_map(|value| {
        let bare = value.strip_prefix("Bearer ").map(str::to_owned);
        std::iter::once(value).chain(bare)
    }))
}

fn because(status: &Status) -> String {
    status
        .reason
        .as_ref()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default()
}

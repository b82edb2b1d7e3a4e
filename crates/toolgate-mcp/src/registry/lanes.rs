//! Connections that belong to one client's session each. They are opened when first used, on
//! behalf of a client that can be asked, and end with the session, or with the settings that they
//! were opened with.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolgate_core::config::Server;
use toolgate_core::name::ServerName;

use super::{Access, Away, Entry, NoAccess, Registry};
use crate::ear::Client;
use crate::handshake::Era;
use crate::jsonrpc::Object;
use crate::lane::{Ask, Lane, LaneId, LaneKey};
use crate::serve::{MOST_SESSIONS, SESSION_IDLE};
use crate::status::{State, Status};
use crate::transport::{RequestError, Tail};

/// How often those are looked for that nobody uses.
const LOOK: Duration = Duration::from_secs(60);
/// How long a server may take to note what its client says to all of them.
const NOTED: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<LaneKey, Arc<Slot>>>);

#[derive(Debug)]
pub(super) struct Slot {
    /// What the server was when the lane was opened.
    server: Arc<Server>,
    lane: OnceCell<Lane>,
    last_used: Mutex<Instant>,
    /// The calls on it.
    calls: TaskTracker,
    stop: CancellationToken,
    /// Ends what listens on the lane.
    _guard: DropGuard,
}

/// A call on a session's own lane, for as long as it lives.
#[derive(Debug)]
pub struct OwnCall(#[expect(dead_code, reason = "it counts while it lives")] TaskTrackerToken);

/// A session's own lane, and a call on it.
#[derive(Debug)]
pub struct OwnLane {
    pub lane: Lane,
    pub call: OwnCall,
}

impl Slot {
    fn new(server: Arc<Server>) -> Self {
        let stop = CancellationToken::new();
        Self {
            server,
            lane: OnceCell::new(),
            last_used: Mutex::new(Instant::now()),
            calls: TaskTracker::new(),
            _guard: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Whether it is as good as a new one.
    fn is_usable(&self, server: &Server) -> bool {
        let open = self.lane.get().is_none_or(Lane::is_open);
        open && !server.reconnects_after(&self.server)
    }

    fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.last_used().elapsed() > SESSION_IDLE
    }

    fn last_used(&self) -> std::sync::MutexGuard<'_, Instant> {
        let last_used = self.last_used.lock();
        last_used.unwrap_or_else(PoisonError::into_inner)
    }

    async fn end(&self) {
        self.stop.cancel();
        if let Some(lane) = self.lane.get() {
            lane.close().await;
        }
    }
}

impl Lanes {
    /// The place of a lane; none if there are too many, or nobody is there to have it.
    fn slot(
        &self,
        key: &LaneKey,
        client: &Client,
        server: impl FnOnce() -> Option<Arc<Server>>,
    ) -> Option<Arc<Slot>> {
        self.with(|lanes| {
            // Asked under the lock: whoever ends lanes next finds this one, or it is not made.
            let server = server().filter(|_| !client.ended.is_cancelled())?;
            if let Some(slot) = lanes.get(key).filter(|slot| slot.is_usable(&server)) {
                *slot.last_used() = Instant::now();
                return Some(Arc::clone(slot));
            }
            if lanes.len() >= MOST_SESSIONS && !lanes.contains_key(key) {
                return None;
            }
            let slot = Arc::new(Slot::new(server));
            lanes.insert(key.clone(), Arc::clone(&slot));
            Some(slot)
        })
    }

    fn take(&self, wanted: impl Fn(&LaneKey, &Slot) -> bool) -> Vec<Arc<Slot>> {
        self.with(|lanes| {
            lanes
                .extract_if(|key, slot| wanted(key, slot))
                .map(|(_, slot)| slot)
                .collect()
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<LaneKey, Arc<Slot>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) async fn close(&self) {
        end(self.take(|_, _| true)).await;
    }

    /// Ends lanes whose sessions are long forgotten, again and again.
    pub(super) async fn tend(&self) {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            looks.tick().await;
            end(self.take(|_, slot| slot.is_idle())).await;
        }
    }
}

async fn end(slots: Vec<Arc<Slot>>) {
    futures_util::future::join_all(slots.iter().map(|slot| slot.end())).await;
}

impl Registry {
    /// A lane of a session's own, opened on behalf of its client if there is none yet.
    pub async fn own_access(
        &self,
        key: &LaneKey,
        client: &Client,
        within: Duration,
    ) -> Result<Access, NoAccess> {
        let access = self.access(&key.server, within).await?;
        Ok(match self.own_lane(key, client, within).await? {
            Some(OwnLane { lane, call }) => Access {
                lane,
                _own: Some(call),
                ..access
            },
            None => access,
        })
    }

    /// The lane that comes after one of a session's own that was lost.
    pub async fn own_after(
        &self,
        old: &Lane,
        client: &Client,
        within: Duration,
    ) -> Option<OwnLane> {
        let lost = |slot: &Slot| slot.lane.get().is_some_and(|lane| lane.is(old));
        let lost = self.lanes.take(|key, slot| key == old.key() && lost(slot));
        self.tasks.spawn(end(lost));
        let lane = self.own_lane(old.key(), client, within).await;
        lane.ok().flatten()
    }

    /// A session's own lane, opened if need be; none if there are too many.
    async fn own_lane(
        &self,
        key: &LaneKey,
        client: &Client,
        within: Duration,
    ) -> Result<Option<OwnLane>, Away> {
        let server = || {
            let entry = self.entry(&key.server)?;
            entry.has_own_lanes().then(|| Arc::clone(&entry.server))
        };
        let Some(slot) = self.lanes.slot(key, client, server) else {
            return match client.ended.is_cancelled() {
                true => Err(away(key, "the client's session has ended".to_owned())),
                false => Ok(None),
            };
        };
        let call = OwnCall(slot.calls.token());
        let opening = slot.lane.get_or_try_init(|| self.open(key, &slot, client));
        let opened = tokio::select! {
            opened = tokio::time::timeout(within, opening) => opened,
            () = slot.stop.cancelled() => Ok(Err("the client's session has ended".to_owned())),
        };
        match opened {
            Ok(Ok(lane)) => Ok(Some(OwnLane {
                lane: lane.clone(),
                call,
            })),
            Ok(Err(reason)) => Err(away(key, reason)),
            Err(_) => Err(away(key, "it did not answer in time".to_owned())),
        }
    }

    async fn open(&self, key: &LaneKey, slot: &Slot, client: &Client) -> Result<Lane, String> {
        let mut surroundings = self.surroundings(&slot.server, Tail::default());
        surroundings.client = client.clone();
        let opened = Lane::open(key.clone(), &slot.server, &surroundings, Some(Era::Legacy)).await;
        let (lane, _events) = opened.map_err(|error| {
            let masker = self.setup.environment.masker(&slot.server);
            masker.mask(&error.to_string())
        })?;
        if let Some(level) = &client.log_level {
            let ask = Ask {
                method: "logging/setLevel",
                params: Object::new().text("level", level.as_str()),
                ..Ask::default()
            };
            // A server without log messages may say so, or nothing.
            let _ = tokio::time::timeout(NOTED, lane.ask(ask)).await;
        }
        let (listening, stop) = (lane.clone(), slot.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = listening.listen() => {}
                _ = listening.closed() => {}
                () = stop.cancelled() => {}
            }
        });
        Ok(lane)
    }

    /// Ends the lanes of a session, soon.
    pub fn end_session(&self, session: &str) {
        let own = |key: &LaneKey| matches!(&key.lane, LaneId::Session(id) if id == session);
        let ended = self.lanes.take(|key, _| own(key));
        self.tasks.spawn(end(ended));
    }

    /// Lets go of the lanes to servers that are not to be had in this way any more, each as soon
    /// as the calls on it are done.
    pub(super) fn retire_lanes(&self, entries: &BTreeMap<ServerName, Arc<Entry>>) {
        let stays = |key: &LaneKey, slot: &Slot| {
            let entry = entries.get(&key.server);
            entry.is_some_and(|entry| {
                entry.has_own_lanes() && !entry.server.reconnects_after(&slot.server)
            })
        };
        for slot in self.lanes.take(|key, slot| !stays(key, slot)) {
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                slot.calls.close();
                tokio::select! {
                    () = slot.calls.wait() => {}
                    () = stop.cancelled() => {}
                }
                slot.end().await;
            });
        }
    }

    /// Sends a request to every server with which a session has a lane of its own, without
    /// waiting for the answers.
    pub fn tell_own(&self, session: &str, ask: &Ask) {
        for lane in self.own_lanes(session) {
            let ask = ask.clone();
            self.send_off(async move { lane.ask(ask).await.map(drop) });
        }
    }

    /// Sends a notification in the same way.
    pub fn notify_own(&self, session: &str, method: &'static str) {
        for lane in self.own_lanes(session) {
            self.send_off(async move { lane.notify(method).await });
        }
    }

    fn send_off(&self, sending: impl Future<Output = Result<(), RequestError>> + Send + 'static) {
        self.tasks.spawn(async move {
            let sent = tokio::time::timeout(NOTED, sending).await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::debug!(?sent, "a server did not take what its client said");
            }
        });
    }

    fn own_lanes(&self, session: &str) -> Vec<Lane> {
        self.lanes.with(|lanes| {
            let own = lanes
                .iter()
                .filter(|(key, _)| matches!(&key.lane, LaneId::Session(id) if id == session));
            own.filter_map(|(_, slot)| slot.lane.get().cloned())
                .collect()
        })
    }
}

fn away(key: &LaneKey, reason: String) -> Away {
    Away {
        server: key.server.clone(),
        status: Arc::new(Status::new(State::Unavailable, Some(reason))),
    }
}

//! Session lanes: connections that belong to one client session each.
//!
//! They are opened on first use for clients that can answer server requests, and close with the
//! session or when the server's connection settings change. A caller that has its share of them loses
//! the one that it has not used for longest.

mod slot;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::timeout_at;
use toolgate_core::config::{CapacityLimits, ServerConfig, Share};
use toolgate_core::name::ServerName;

use super::{AccessError, AccessTimeouts, LaneAccess, Registry, RegistryEntry, ServerUnavailable};
use crate::Deadline;
use crate::client_handler::SessionClient;
use crate::handshake::Era;
use crate::jsonrpc::Object;
use crate::lane::{Lane, LaneId, LaneKey, UpstreamRequest};
use crate::processes::CLIENT_PLACES;
use crate::share::{ShareFull, make_room};
use crate::status::{ServerState, ServerStatus};
use crate::transport::{RequestError, StderrTail};
pub use slot::SessionCall;
use slot::{LaneSlot, is_automatic};

/// Interval between sweeps for idle session lanes.
const IDLE_SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time a server may take to accept a message that a client sends to all its lanes.
const CLIENT_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct SessionLanes(Mutex<LaneTable>);

#[derive(Debug, Default)]
struct LaneTable {
    slots: HashMap<LaneKey, Arc<LaneSlot>>,
    capacity: CapacityLimits,
}

/// A slot that is in use for a call.
struct FoundSlot {
    slot: Arc<LaneSlot>,
    call: SessionCall,
    /// The slots whose places it took, which must be closed.
    replaced: Vec<Arc<LaneSlot>>,
}

/// Why a call goes to the lane of its client's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneNeed {
    /// The server may ask the client there; the shared lane does if the session's is busy.
    Optional,
    /// The server offers what is called only to clients with these capabilities.
    Required,
}

/// A session lane and a call on it.
#[derive(Debug)]
pub struct SessionLane {
    pub lane: Lane,
    pub call: SessionCall,
}

impl SessionLanes {
    /// Returns the slot for a lane, creating it if needed; `None` if the server has no session lanes or
    /// the client has disconnected. A new slot may take the place of another one.
    fn slot(
        &self,
        key: &LaneKey,
        client: &SessionClient,
        server: impl Fn() -> Option<Arc<ServerConfig>>,
    ) -> Result<Option<FoundSlot>, ShareFull> {
        let mut table = self.0.lock();
        // Checked under the lock, so that a concurrent end of the session either finds this slot or
        // prevents its creation.
        let Some(server) = server().filter(|_| !client.disconnected.is_cancelled()) else {
            return Ok(None);
        };
        let known = table.slots.get(key);
        if let Some(slot) = known.filter(|slot| slot.is_usable(&server)) {
            *slot.last_used.lock() = Instant::now();
            return Ok(Some(FoundSlot::new(slot)));
        }
        let replaced = match known {
            Some(_) => Vec::new(),
            None => table.make_room(&key.server, client.owner.as_ref(), &server)?,
        };
        let slot = Arc::new(LaneSlot::new(server, client.owner.clone()));
        table.slots.insert(key.clone(), Arc::clone(&slot));
        Ok(Some(FoundSlot {
            replaced,
            ..FoundSlot::new(&slot)
        }))
    }

    pub(super) fn set_capacity(&self, capacity: CapacityLimits) {
        self.0.lock().capacity = capacity;
    }

    fn remove_matching(
        &self,
        matches_slot: impl Fn(&LaneKey, &LaneSlot) -> bool,
    ) -> Vec<Arc<LaneSlot>> {
        let mut table = self.0.lock();
        let matching = table
            .slots
            .extract_if(|key, slot| matches_slot(key, slot))
            .map(|(_, slot)| slot);
        matching.collect()
    }

    pub(super) async fn close(&self) {
        close_all(self.remove_matching(|_, _| true)).await;
    }

    /// Periodically closes lanes of abandoned sessions.
    pub(super) async fn sweep_idle(&self) {
        let mut interval = tokio::time::interval(IDLE_SWEEP_INTERVAL);
        loop {
            interval.tick().await;
            let timeout = self.0.lock().capacity.session_idle_timeout;
            close_all(self.remove_matching(|_, slot| slot.is_expired(timeout))).await;
        }
    }
}

impl LaneTable {
    /// Removes the slots whose places are needed for another one of the owner. Removes none if there is no
    /// room.
    fn make_room(
        &mut self,
        name: &ServerName,
        owner: Option<&Arc<str>>,
        server: &ServerConfig,
    ) -> Result<Vec<Arc<LaneSlot>>, ShareFull> {
        let mut entries: Vec<_> = self
            .slots
            .iter()
            .map(|(key, slot)| slot.entry(key))
            .collect();
        let mut removed: Vec<LaneKey> = Vec::new();
        if is_automatic(server) {
            let of_server = entries.iter().filter(|entry| entry.key.server == *name);
            let of_server: Vec<_> = of_server.cloned().collect();
            let share = Share {
                max: CLIENT_PLACES.slots,
                max_per_key: CLIENT_PLACES.slots_per_owner,
            };
            removed.extend(make_room(&of_server, owner, share)?);
            entries.retain(|entry| !removed.contains(entry.key));
        }
        removed.extend(make_room(
            &entries,
            owner,
            self.capacity.session_connections,
        )?);
        drop(entries);
        let removed = removed.iter().filter_map(|key| self.slots.remove(key));
        Ok(removed.collect())
    }
}

impl FoundSlot {
    fn new(slot: &Arc<LaneSlot>) -> Self {
        Self {
            call: SessionCall::new(slot),
            slot: Arc::clone(slot),
            replaced: Vec::new(),
        }
    }
}

async fn close_all(slots: Vec<Arc<LaneSlot>>) {
    futures_util::future::join_all(slots.iter().map(|slot| slot.close())).await;
}

impl Registry {
    /// Returns a session's lane, opening it for the client if needed, or the shared lane if the server
    /// has no session lanes.
    pub async fn session_access(
        &self,
        key: &LaneKey,
        client: &SessionClient,
        need: LaneNeed,
        timeouts: AccessTimeouts,
    ) -> Result<LaneAccess, AccessError> {
        let access = self.access(&key.server, &client.owner, timeouts).await?;
        if client.is_modern && access.lane.session().era == Era::Modern {
            return Ok(access);
        }
        let deadline = timeouts.deadline + access.start_wait;
        Ok(
            match self.session_lane(key, client, need, deadline).await? {
                Some(SessionLane { lane, call }) => LaneAccess {
                    lane,
                    session_call: Some(call),
                    ..access
                },
                None => access,
            },
        )
    }

    /// Opens a replacement for a lost session lane.
    pub async fn session_lane_after(
        &self,
        old: &Lane,
        client: &SessionClient,
        deadline: Deadline,
    ) -> Option<SessionLane> {
        let lost = |slot: &LaneSlot| {
            slot.lane
                .get()
                .is_some_and(|lane| lane.is_same_connection(old))
        };
        let lost = self
            .lanes
            .remove_matching(|key, slot| key == old.key() && lost(slot));
        self.tasks.spawn(close_all(lost));
        let need = LaneNeed::Optional;
        let lane = self.session_lane(old.key(), client, need, deadline).await;
        lane.ok().flatten()
    }

    /// Returns a session's lane, opening it if needed; `None` if the shared lane must be used.
    async fn session_lane(
        &self,
        key: &LaneKey,
        client: &SessionClient,
        need: LaneNeed,
        deadline: Deadline,
    ) -> Result<Option<SessionLane>, AccessError> {
        loop {
            let Some(FoundSlot {
                slot,
                mut call,
                replaced,
            }) = self.find_slot(key, client, need)?
            else {
                return Ok(None);
            };
            if !replaced.is_empty() {
                self.tasks.spawn(close_all(replaced));
            }
            let opening = slot
                .lane
                .get_or_try_init(|| self.open_session_lane(key, &slot, client));
            let opened = tokio::select! {
                opened = timeout_at(deadline, opening) => opened,
                () = slot.stop.cancelled() => Ok(Err("the client's session has ended".to_owned())),
            };
            let late = || unavailable(key, "server did not respond in time".to_owned());
            let lane = opened
                .map_err(|_| late())?
                .map_err(|reason| unavailable(key, reason))?;
            match need {
                // A call beside one that waits for an answer can do without being asked.
                LaneNeed::Optional => match slot.try_take_turn() {
                    Some(turn) => call.turn = turn,
                    None => return Ok(None),
                },
                LaneNeed::Required => {
                    let turn = timeout_at(deadline, slot.take_turn()).await;
                    call.turn = turn.map_err(|_| late())?;
                    // The call before was not answered, so the lane is closed.
                    if slot.stop.is_cancelled() && !client.disconnected.is_cancelled() {
                        continue;
                    }
                }
            }
            let lane = lane.clone();
            return Ok(Some(SessionLane { lane, call }));
        }
    }

    /// Returns the slot of a session's lane; `None` if the shared lane must be used.
    fn find_slot(
        &self,
        key: &LaneKey,
        client: &SessionClient,
        need: LaneNeed,
    ) -> Result<Option<FoundSlot>, AccessError> {
        let is_required = need == LaneNeed::Required;
        let server = &|| {
            let entry = self.entry(&key.server)?;
            let is_needed =
                is_required || client.can_answer_requests || !is_automatic(&entry.server);
            (entry.has_session_lanes() && is_needed).then(|| Arc::clone(&entry.server))
        };
        let can_share = || !is_required && server().is_some_and(|server| is_automatic(&server));
        match self.lanes.slot(key, client, server) {
            // The call can do without being asked.
            Err(_) if can_share() => Ok(None),
            Err(full) => Err(AccessError::SessionLanes(full)),
            // A disconnected client must not fall back to the shared lane: its call is pointless.
            Ok(None) if client.disconnected.is_cancelled() => {
                let reason = "the client's session has ended".to_owned();
                Err(unavailable(key, reason).into())
            }
            Ok(found) => Ok(found),
        }
    }

    async fn open_session_lane(
        &self,
        key: &LaneKey,
        slot: &LaneSlot,
        client: &SessionClient,
    ) -> Result<Lane, String> {
        let mut dependencies = self.lane_dependencies(&slot.server, StderrTail::default());
        dependencies.client = client.clone();
        if is_automatic(&slot.server) {
            let places = dependencies.processes.client_places.clone();
            let place = places.acquire(&client.owner).await.map_err(|_| {
                "too many clients wait for a process of their own; try again".to_owned()
            })?;
            dependencies.place = Some(Arc::new(place));
        }
        // Only a legacy server can send requests, so `initialize` is tried first.
        let opened = Lane::open(key.clone(), &slot.server, &dependencies, Some(Era::Legacy)).await;
        let (lane, _events) = opened.map_err(|error| {
            let masker = self.dependencies.environment.masker(&slot.server);
            masker.mask(&error.to_string())
        })?;
        if let Some(level) = &client.log_level {
            let request = UpstreamRequest {
                method: "logging/setLevel",
                params: Object::new().text("level", level.as_str()),
                ..UpstreamRequest::default()
            };
            // Servers without logging may reject this or ignore it.
            let _ = tokio::time::timeout(CLIENT_MESSAGE_TIMEOUT, lane.send(request)).await;
        }
        let (listening, stop) = (lane.clone(), slot.stop.clone());
        let server = Arc::clone(&slot.server);
        let masker = self.dependencies.environment.masker(&server);
        self.tasks.spawn(async move {
            let listen = async {
                listening.listen().await;
                // Not every transport has something to listen to.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = listen => {}
                reason = listening.wait_closed() => {
                    if !stop.is_cancelled() {
                        let reason = masker.mask(&reason);
                        tracing::warn!(server = %server.name, %reason, "lost the connection to the server for a client's session");
                    }
                }
                () = stop.cancelled() => listening.close().await,
            }
        });
        Ok(lane)
    }

    /// Closes the lanes of a session in the background.
    pub fn end_session(&self, session: &str) {
        let is_of_session =
            |key: &LaneKey| matches!(&key.lane, LaneId::Session(id) if id == session);
        let removed = self.lanes.remove_matching(|key, _| is_of_session(key));
        if !removed.is_empty() {
            self.tasks.spawn(close_all(removed));
        }
    }

    /// Closes lanes whose server was removed or changed, each once its calls have finished.
    pub(super) fn retire_session_lanes(&self, entries: &BTreeMap<ServerName, Arc<RegistryEntry>>) {
        let is_current = |key: &LaneKey, slot: &LaneSlot| {
            let entry = entries.get(&key.server);
            entry.is_some_and(|entry| {
                entry.has_session_lanes() && !entry.server.needs_reconnect(&slot.server)
            })
        };
        for slot in self
            .lanes
            .remove_matching(|key, slot| !is_current(key, slot))
        {
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                slot.calls.close();
                tokio::select! {
                    () = slot.calls.wait() => {}
                    () = stop.cancelled() => {}
                }
                slot.close().await;
            });
        }
    }

    /// Sends a request on every lane of a session without waiting for the responses.
    pub fn send_to_session_lanes(&self, session: &str, request: &UpstreamRequest) {
        for lane in self.session_lanes(session) {
            let request = request.clone();
            let server = lane.key().server.clone();
            self.spawn_send(server, async move { lane.send(request).await.map(drop) });
        }
    }

    /// Sends a notification on every lane of a session without waiting.
    pub fn notify_session_lanes(&self, session: &str, method: &'static str) {
        for lane in self.session_lanes(session) {
            let server = lane.key().server.clone();
            self.spawn_send(server, async move { lane.notify(method).await });
        }
    }

    fn spawn_send(
        &self,
        server: ServerName,
        sending: impl Future<Output = Result<(), RequestError>> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            match tokio::time::timeout(CLIENT_MESSAGE_TIMEOUT, sending).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%server, %error, "failed to forward a client message to a server");
                }
                Err(_) => tracing::debug!(%server, "timed out forwarding a client message to a server"),
            }
        });
    }

    fn session_lanes(&self, session: &str) -> Vec<Lane> {
        let table = self.lanes.0.lock();
        let slots = table.slots.iter();
        slots
            .filter(|(key, _)| matches!(&key.lane, LaneId::Session(id) if id == session))
            .filter_map(|(_, slot)| slot.lane.get().cloned())
            .collect()
    }
}

fn unavailable(key: &LaneKey, reason: String) -> ServerUnavailable {
    ServerUnavailable {
        server: key.server.clone(),
        status: Arc::new(ServerStatus::new(ServerState::Unavailable, Some(reason))),
    }
}

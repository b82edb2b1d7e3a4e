//! Session lanes: connections that belong to one client session each.
//!
//! They are opened on first use for clients that can answer server requests, and close with the
//! session or when the server's connection settings change. A caller that has its share of them loses
//! the one that it has not used for longest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolgate_core::config::{CapacityLimits, PerSession, ServerConfig, ServerConnection, Share};
use toolgate_core::name::ServerName;

use super::{AccessError, AccessTimeouts, LaneAccess, Registry, RegistryEntry, ServerUnavailable};
use crate::Deadline;
use crate::client_handler::SessionClient;
use crate::fair_queue::Owner;
use crate::handshake::Era;
use crate::jsonrpc::Object;
use crate::lane::{Lane, LaneId, LaneKey, UpstreamRequest};
use crate::processes::CLIENT_PLACES;
use crate::share::{ShareFull, SharedEntry, make_room};
use crate::status::{ServerState, ServerStatus};
use crate::transport::{RequestError, StderrTail};

/// Time without calls after which a process ends that was started for a single client without the
/// configuration of its server asking for it.
const AUTOMATIC_IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
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

#[derive(Debug)]
pub(super) struct LaneSlot {
    /// The settings under which the lane was opened.
    server: Arc<ServerConfig>,
    /// The name of the client's key.
    owner: Owner,
    lane: OnceCell<Lane>,
    last_used: Mutex<Instant>,
    /// Calls in flight on the lane.
    calls: TaskTracker,
    /// Admits one call at a time where the requests of a server do not say which call they belong to.
    turns: Option<Arc<Semaphore>>,
    stop: CancellationToken,
    /// Cancels the listening task on drop.
    _guard: DropGuard,
}

/// A slot that is in use for a call.
struct FoundSlot {
    slot: Arc<LaneSlot>,
    call: SessionCall,
    /// The slots whose places it took, which must be closed.
    replaced: Vec<Arc<LaneSlot>>,
}

/// Counts as a call on a session lane until dropped.
#[derive(Debug)]
pub struct SessionCall {
    _token: TaskTrackerToken,
    turn: Option<LaneTurn>,
}

/// The only call in flight on a lane. The lane is closed if the call is not answered: a late question of
/// the server would reach the client of the next call.
#[derive(Debug)]
struct LaneTurn {
    _permit: OwnedSemaphorePermit,
    is_answered: bool,
    lane: CancellationToken,
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

impl LaneSlot {
    fn new(server: Arc<ServerConfig>, owner: Owner) -> Self {
        let stop = CancellationToken::new();
        Self {
            owner,
            lane: OnceCell::new(),
            last_used: Mutex::new(Instant::now()),
            calls: TaskTracker::new(),
            turns: is_automatic(&server).then(|| Arc::new(Semaphore::new(1))),
            server,
            _guard: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Returns whether the slot can serve the given settings.
    fn is_usable(&self, server: &ServerConfig) -> bool {
        let is_open = self.lane.get().is_none_or(Lane::is_open);
        is_open && !self.stop.is_cancelled() && !server.needs_reconnect(&self.server)
    }

    fn is_expired(&self, timeout: Duration) -> bool {
        let timeout = if is_automatic(&self.server) {
            timeout.min(AUTOMATIC_IDLE_TIMEOUT)
        } else {
            timeout
        };
        self.calls.is_empty() && self.last_used.lock().elapsed() > timeout
    }

    fn entry<'a>(&'a self, key: &'a LaneKey) -> SharedEntry<'a, LaneKey> {
        SharedEntry {
            key,
            owner: self.owner.as_ref(),
            last_used: *self.last_used.lock(),
            is_idle: self.calls.is_empty(),
        }
    }

    /// Takes the turn of a call where only one may be in flight; `None` if another one is.
    fn try_take_turn(&self) -> Option<Option<LaneTurn>> {
        let Some(turns) = &self.turns else {
            return Some(None);
        };
        let permit = Arc::clone(turns).try_acquire_owned().ok()?;
        Some(Some(LaneTurn {
            _permit: permit,
            is_answered: false,
            lane: self.stop.clone(),
        }))
    }

    /// Waits for the turn of a call where only one may be in flight.
    async fn take_turn(&self) -> Option<LaneTurn> {
        let turns = Arc::clone(self.turns.as_ref()?);
        // Never closed.
        let permit = turns.acquire_owned().await.ok()?;
        Some(LaneTurn {
            _permit: permit,
            is_answered: false,
            lane: self.stop.clone(),
        })
    }

    async fn close(&self) {
        self.stop.cancel();
        if let Some(lane) = self.lane.get() {
            lane.close().await;
        }
    }
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

impl SessionCall {
    /// Takes note that the server has answered the call.
    pub fn mark_answered(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.is_answered = true;
        }
    }
}

impl Drop for LaneTurn {
    fn drop(&mut self) {
        if !self.is_answered {
            self.lane.cancel();
        }
    }
}

impl FoundSlot {
    fn new(slot: &Arc<LaneSlot>) -> Self {
        Self {
            call: SessionCall {
                _token: slot.calls.token(),
                turn: None,
            },
            slot: Arc::clone(slot),
            replaced: Vec::new(),
        }
    }
}

/// Returns whether the server's processes for single clients are started without its configuration
/// saying so.
fn is_automatic(server: &ServerConfig) -> bool {
    let is_stdio = matches!(server.connection, ServerConnection::Stdio(_));
    is_stdio && server.per_session == PerSession::Auto
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

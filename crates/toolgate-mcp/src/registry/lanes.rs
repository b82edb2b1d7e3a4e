//! Connections that belong to one client's session each. They are opened when first used, on
//! behalf of a client that can be asked, and end with the session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_core::config::Server;

use super::{Access, Away, NoAccess, Registry};
use crate::ear::Client;
use crate::handshake::Era;
use crate::jsonrpc::Object;
use crate::lane::{Ask, Lane, LaneId, LaneKey};
use crate::status::{State, Status};
use crate::transport::Tail;

/// More of them cost more than they are worth; others share.
const MOST: usize = 1000;
/// As long as a session lives that nobody uses.
const IDLE: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<LaneKey, Arc<Slot>>>);

#[derive(Debug)]
struct Slot {
    /// What the server was when the lane was opened.
    server: Arc<Server>,
    lane: OnceCell<Lane>,
    last_used: Mutex<Instant>,
    stop: CancellationToken,
    /// Ends what listens on the lane.
    _guard: DropGuard,
}

impl Lanes {
    /// The place of a lane; none if there are too many.
    fn slot(&self, key: &LaneKey, server: &Arc<Server>) -> Option<Arc<Slot>> {
        self.with(|lanes| {
            let usable = |slot: &&Arc<Slot>| {
                let open = slot.lane.get().is_none_or(Lane::is_open);
                open && slot.server.link == server.link
            };
            if let Some(slot) = lanes.get(key).filter(usable) {
                *slot
                    .last_used
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Instant::now();
                return Some(Arc::clone(slot));
            }
            if lanes.len() >= MOST {
                return None;
            }
            let stop = CancellationToken::new();
            let slot = Arc::new(Slot {
                server: Arc::clone(server),
                lane: OnceCell::new(),
                last_used: Mutex::new(Instant::now()),
                _guard: stop.clone().drop_guard(),
                stop,
            });
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

    pub(super) async fn close(&self, wanted: impl Fn(&LaneKey) -> bool) {
        Self::end(self.take(|key, _| wanted(key))).await;
    }

    /// Ends lanes whose sessions are long forgotten.
    async fn close_idle(&self) {
        let idle = |_: &LaneKey, slot: &Slot| {
            let last_used = slot.last_used.lock();
            last_used.unwrap_or_else(PoisonError::into_inner).elapsed() > IDLE
        };
        Self::end(self.take(idle)).await;
    }

    async fn end(slots: Vec<Arc<Slot>>) {
        for slot in slots {
            slot.stop.cancel();
            if let Some(lane) = slot.lane.get() {
                lane.close().await;
            }
        }
    }
}

impl Registry {
    /// A lane of a session's own, opened on behalf of its client if there is none yet.
    pub async fn own_access(
        &self,
        key: &LaneKey,
        client: &Client,
        within: Duration,
    ) -> Result<Access, NoAccess> {
        let shared = LaneKey {
            lane: LaneId::Shared,
            ..key.clone()
        };
        let access = self.access(&shared, within).await?;
        self.lanes.close_idle().await;
        Ok(match self.own_lane(key, client, within).await? {
            Some(lane) => Access { lane, ..access },
            None => access,
        })
    }

    /// The lane that comes after one of a session's own that was lost.
    pub async fn own_after(&self, old: &Lane, client: &Client, within: Duration) -> Option<Lane> {
        let lost = |slot: &Slot| slot.lane.get().is_some_and(|lane| lane.is(old));
        let lost = self.lanes.take(|key, slot| key == old.key() && lost(slot));
        Lanes::end(lost).await;
        let lane = self.own_lane(old.key(), client, within).await;
        lane.ok().flatten()
    }

    /// A session's own lane, opened if need be; none if there are too many.
    async fn own_lane(
        &self,
        key: &LaneKey,
        client: &Client,
        within: Duration,
    ) -> Result<Option<Lane>, Away> {
        let entry = self.entry(&key.server);
        let slot = entry.and_then(|entry| self.lanes.slot(key, &entry.server));
        let Some(slot) = slot else { return Ok(None) };
        let opening = slot.lane.get_or_try_init(|| self.open(key, &slot, client));
        match tokio::time::timeout(within, opening).await {
            Ok(Ok(lane)) => Ok(Some(lane.clone())),
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
                params: Object::new().text("level", level),
                ..Ask::default()
            };
            // A server without log messages may say so.
            let _ = lane.ask(ask).await;
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
        self.tasks.spawn(async move { Lanes::end(ended).await });
    }

    /// The lanes that a session has.
    pub fn own_lanes(&self, session: &str) -> Vec<Lane> {
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

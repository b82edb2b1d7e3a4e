//! One server of the registry: its settings, and the supervisor that keeps it connected.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::config::{Server, ServerLists};
use toolgate_core::name::ServerName;
use toolgate_core::secret::Masker;

use super::{Access, Away, NoAccess};
use crate::activity::Activity;
use crate::handshake::Session;
use crate::lane::{Lane, Surroundings};
use crate::publisher::Publisher;
use crate::status::{State, Status};
use crate::supervisor::{Report, Rhythm, START_STDIO, Signals, Supervisor};
use crate::transport::Tail;

/// One server, supervised or kept from being connected.
#[derive(Debug)]
pub struct Entry {
    pub server: Arc<Server>,
    supervised: Arc<Supervised>,
    /// The connection under earlier settings, while the new one is not up yet.
    before: Arc<ArcSwapOption<Supervised>>,
}

/// What a supervisor is started with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) kept_out: Option<String>,
    pub(super) rhythm: Rhythm,
    pub(super) generation: u64,
    /// What the server said of itself under earlier settings.
    pub(super) session: Option<Session>,
    /// Says that some server is in a new state.
    pub(super) changes: watch::Sender<()>,
}

/// What a supervisor is and tells.
#[derive(Debug)]
pub(super) struct Supervised {
    status: watch::Receiver<Arc<Status>>,
    lane: watch::Receiver<Option<Lane>>,
    activity: Arc<Activity>,
    signals: Signals,
    tail: Tail,
    masker: Masker,
    kept_out: Option<String>,
    rhythm: Rhythm,
    generation: u64,
}

impl Entry {
    pub(super) fn new(server: Server, start: impl FnOnce(Arc<Server>) -> Supervised) -> Self {
        let server = Arc::new(server);
        Self {
            supervised: Arc::new(start(Arc::clone(&server))),
            server,
            before: Arc::default(),
        }
    }

    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.supervised.status.borrow())
    }

    /// Waits until the server is connected or has failed to.
    pub async fn settled(&self) -> Arc<Status> {
        self.supervised.settled().await
    }

    /// The last words of its process, without the secrets it was given.
    pub fn stderr_tail(&self) -> String {
        self.supervised.masker.mask(&self.supervised.tail.text())
    }

    /// Calls under way.
    pub fn in_flight(&self) -> usize {
        self.supervised.activity.in_flight()
    }

    /// Opens a new connection, at once.
    pub fn reconnect(&self) {
        self.supervised.signals.reconnect.notify_one();
    }

    pub(super) async fn access(&self, within: Duration) -> Result<Access, NoAccess> {
        if let Some(before) = self.before.load_full()
            && self.supervised.lane.borrow().is_none()
            && let Some(access) = before.access_now()
        {
            return Ok(Access {
                outdated: true,
                ..access
            });
        }
        self.supervised.access(&self.server.name, within).await
    }

    pub(super) async fn lane_after(&self, old: &Lane) -> Option<Lane> {
        if self.status().state == State::Asleep {
            self.supervised.activity.wake.notify_one();
        }
        self.newer_lane(old).await
    }

    /// The lane that comes after `old`; a server that sleeps is not woken for it.
    pub(super) async fn newer_lane(&self, old: &Lane) -> Option<Lane> {
        let mut lane = self.supervised.lane.clone();
        let newer = lane
            .wait_for(|lane| lane.as_ref().is_some_and(|lane| !lane.is(old)))
            .await;
        newer.ok().and_then(|lane| lane.clone())
    }

    /// Whether this is the same supervisor, perhaps under newer settings.
    pub(super) fn continues(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.supervised, &other.supervised)
    }

    /// The earliest supervisor whose offer counts; none if the server is kept out.
    pub(super) fn since(&self) -> Option<u64> {
        let before = self.before.load();
        let earliest = before
            .as_ref()
            .map_or(self.supervised.generation, |before| before.generation);
        self.supervised.kept_out.is_none().then_some(earliest)
    }

    /// Whether a client's session can have a lane of its own just now.
    pub(super) fn has_own_lanes(&self) -> bool {
        self.supervised.kept_out.is_none() && self.server.has_own_lanes()
    }

    /// Whether these settings need no new supervisor.
    pub(super) fn goes_on_as(
        &self,
        server: &Server,
        kept_out: Option<&String>,
        rhythm: Rhythm,
    ) -> bool {
        let own = self.supervised.rhythm;
        let same_rhythm = (rhythm.sync, rhythm.health) == (own.sync, own.health);
        !server.reconnects_after(&self.server)
            && self.supervised.kept_out.as_ref() == kept_out
            && same_rhythm
    }

    /// The same supervisor under new settings.
    pub(super) fn with(&self, server: Server) -> Self {
        Self {
            server: Arc::new(server),
            supervised: Arc::clone(&self.supervised),
            before: Arc::clone(&self.before),
        }
    }

    /// Lets `old` serve until this one has settled; or the one before it, if `old` never came up.
    pub(super) fn succeed(&self, old: &Self, publisher: &Publisher, tasks: &TaskTracker) {
        if self.supervised.kept_out.is_some() {
            old.retire();
            return;
        }
        let older = old.before.swap(None);
        let old_is_up = old.supervised.lane.borrow().is_some();
        let predecessor = match older {
            Some(older) if !old_is_up => {
                old.supervised.retire();
                older
            }
            older => {
                older.iter().for_each(|older| older.retire());
                Arc::clone(&old.supervised)
            }
        };
        self.before.store(Some(predecessor));
        let (new, before) = (Arc::clone(&self.supervised), Arc::clone(&self.before));
        let elsewhere = self.server.link != old.server.link;
        let (publisher, name) = (publisher.clone(), self.server.name.clone());
        tasks.spawn(async move {
            let settled = tokio::select! {
                biased;
                () = new.signals.stop.cancelled() => false,
                _ = new.settled() => !new.signals.stop.is_cancelled(),
            };
            // A later change may have taken it over.
            if let Some(before) = before.swap(None) {
                before.retire();
            }
            if elsewhere && settled {
                publisher.outdate(name, new.generation);
            }
        });
    }

    /// Closes the connection when the calls on it are done.
    pub(super) fn retire(&self) {
        if let Some(before) = self.before.swap(None) {
            before.retire();
        }
        self.supervised.retire();
    }
}

impl Supervised {
    /// Starts the supervisor, unless the server is kept out.
    pub(super) fn start(
        start: Start,
        surroundings: Surroundings,
        publisher: &Publisher,
        stop: CancellationToken,
    ) -> impl FnOnce(Arc<Server>) -> Self {
        let publisher = publisher.clone();
        let Start {
            kept_out,
            rhythm,
            generation,
            session,
            changes,
        } = start;
        move |server| {
            let masker = surroundings.environment.masker(&server);
            let (state, reason) = match &kept_out {
                Some(reason) => (State::Disabled, reason.clone()),
                None => (State::Connecting, "waiting for its first answer".to_owned()),
            };
            let status = Status {
                session,
                ..Status::new(state, Some(reason))
            };
            let (status, status_seen) = watch::channel(Arc::new(status));
            let (lane, lane_seen) = watch::channel(None);
            let supervised = Self {
                status: status_seen,
                lane: lane_seen,
                activity: Arc::new(Activity::new(&server.care)),
                signals: Signals {
                    stop,
                    ..Signals::default()
                },
                tail: surroundings.tail.clone(),
                masker,
                kept_out,
                rhythm,
                generation,
            };
            if supervised.kept_out.is_none() {
                let tasks = surroundings.tasks.clone();
                let supervisor = Supervisor {
                    server,
                    surroundings,
                    masker: supervised.masker.clone(),
                    publisher,
                    generation,
                    rhythm,
                    activity: Arc::clone(&supervised.activity),
                    signals: supervised.signals.clone(),
                    report: Report {
                        status,
                        lane,
                        changes,
                    },
                };
                tasks.spawn(supervisor.run());
            }
            supervised
        }
    }

    async fn settled(&self) -> Arc<Status> {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.state.is_settled()).await {
            Ok(status) => Arc::clone(&status),
            Err(_) => Arc::clone(&self.status.borrow()),
        }
    }

    /// A lane and a place on it. The lane is taken after the place: one that is being closed waits
    /// for the calls on it, and must not wait for those that have yet to find a lane.
    async fn access(&self, server: &ServerName, within: Duration) -> Result<Access, NoAccess> {
        let busy = |busy| NoAccess::Busy {
            server: server.clone(),
            busy,
        };
        loop {
            let up = self.lane().await;
            up.map_err(|status| Away {
                server: server.clone(),
                status,
            })?;
            let entered = tokio::time::timeout(within, self.activity.enter()).await;
            let turn = entered
                .map_err(|_| busy(self.activity.busy()))?
                .map_err(busy)?;
            if let Some(lane) = &*self.lane.borrow() {
                return Ok(Access {
                    lane: lane.clone(),
                    turn,
                    outdated: false,
                    _own: None,
                });
            }
        }
    }

    /// A lane and a place on it, if both are to be had without waiting.
    fn access_now(&self) -> Option<Access> {
        let turn = self.activity.try_enter()?;
        let lane = self.lane.borrow().clone()?;
        Some(Access {
            lane,
            turn,
            outdated: false,
            _own: None,
        })
    }

    /// The lane, after waking a server that sleeps.
    async fn lane(&self) -> Result<Lane, Arc<Status>> {
        let now = || Arc::clone(&self.status.borrow());
        if let Some(lane) = &*self.lane.borrow() {
            return Ok(lane.clone());
        }
        let coming = matches!(now().state, State::Connecting) && now().session.is_some();
        if now().state != State::Asleep && !coming {
            return Err(now());
        }
        let mut lanes = self.lane.clone();
        let mut statuses = self.status.clone();
        self.activity.wake.notify_one();
        let up = lanes.wait_for(Option::is_some);
        let failed = statuses.wait_for(|status| {
            matches!(
                status.state,
                State::Unavailable | State::NeedsAuth | State::Disabled | State::Error
            )
        });
        let woken = tokio::time::timeout(START_STDIO, async {
            tokio::select! {
                biased;
                lane = up => lane.ok().and_then(|lane| lane.clone()),
                _ = failed => None,
            }
        });
        woken.await.ok().flatten().ok_or_else(now)
    }

    fn retire(&self) {
        self.signals.stop.cancel();
    }
}

pub(super) fn kept_out(server: &Server, lists: &ServerLists) -> Option<String> {
    match lists.refuses(&server.name) {
        Some(list) => Some(format!("`{list}` keeps it from being connected")),
        None if !server.enabled => Some("it is switched off in the configuration".to_owned()),
        None => None,
    }
}

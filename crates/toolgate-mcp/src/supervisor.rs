//! Keeps one server connected: opens its shared lane, publishes its listing, refreshes the listing
//! when the server announces changes, checks its health, stops it when idle, and reconnects when
//! the connection is lost. Session lanes are managed by the registry instead.

mod maintenance;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolgate_core::catalog::ServerListing;
use toolgate_core::config::{ServerConfig, ServerConnection};
use toolgate_core::secret::Masker;

use crate::activity::Activity;
use crate::backoff::Backoff;
use crate::handshake::{Era, HandshakeError};
use crate::lane::{Dependencies, Lane, LaneId, LaneKey, OpenError};
use crate::maintenance_schedule::MaintenanceSchedule;
use crate::publisher::Publisher;
use crate::status::{ServerState, ServerStatus};
use crate::transport::{RequestError, TransportEvents};

/// Long, because a cold `npx` or `uvx` downloads packages before it responds.
pub(crate) const STDIO_START_TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const HTTP_START_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for calls in flight when a reconnect is requested.
const RECONNECT_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection that lasted this long resets the backoff.
const STABLE_CONNECTION_AGE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) dependencies: Dependencies,
    pub(crate) masker: Masker,
    pub(crate) publisher: Publisher,
    pub(crate) generation: u64,
    pub(crate) intervals: Intervals,
    pub(crate) activity: Arc<Activity>,
    pub(crate) signals: SupervisorSignals,
    pub(crate) outputs: SupervisorOutputs,
}

/// Maintenance intervals of a server, and how long to wait for its calls when closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intervals {
    pub(crate) sync: Option<Duration>,
    pub(crate) health: Duration,
    /// Maximum time calls in flight may take to finish before their connection is closed.
    pub(crate) drain: Duration,
}

/// Signals from the registry to a supervisor.
#[derive(Clone, Debug, Default)]
pub(crate) struct SupervisorSignals {
    pub(crate) stop: CancellationToken,
    pub(crate) reconnect: Arc<Notify>,
}

/// Channels on which a supervisor publishes its state.
#[derive(Debug)]
pub(crate) struct SupervisorOutputs {
    pub(crate) status: watch::Sender<Arc<ServerStatus>>,
    pub(crate) lane: watch::Sender<Option<Lane>>,
    /// Notified when any server changes state.
    pub(crate) changes: watch::Sender<()>,
}

/// Reason why serving a connection ended.
#[derive(Debug)]
enum EndReason {
    Stopped,
    Idle,
    /// A new connection was requested.
    Reconnect,
    Lost(String),
}

/// Reason why there is no connection.
#[derive(Debug)]
struct ConnectFailure {
    state: ServerState,
    reason: String,
    /// The server stopped responding or exited before the era was negotiated.
    inconclusive: bool,
}

impl Supervisor {
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::default();
        let mut era: Option<Era> = None;
        let mut was_lost = false;
        self.report_starting();
        loop {
            let connection = tokio::select! {
                biased;
                () = self.signals.stop.cancelled() => return,
                connection = self.open(era) => connection,
            };
            let failure = match connection {
                Ok((lane, events, listing)) => {
                    era = Some(lane.session().era);
                    if std::mem::take(&mut was_lost) {
                        self.update_status(|status| status.reconnects += 1);
                    }
                    let connected_at = Instant::now();
                    match self.serve_and_close(&lane, events, listing).await {
                        EndReason::Stopped => return,
                        EndReason::Idle => {
                            self.wait_for_wake().await;
                            continue;
                        }
                        EndReason::Reconnect => continue,
                        EndReason::Lost(reason) => {
                            was_lost = true;
                            if connected_at.elapsed() > STABLE_CONNECTION_AGE {
                                backoff.reset();
                            } else {
                                backoff.record_failure();
                            }
                            ConnectFailure {
                                state: ServerState::Unavailable,
                                reason,
                                inconclusive: false,
                            }
                        }
                    }
                }
                Err(failure) => {
                    era = self.next_era(era, &failure);
                    backoff.record_failure();
                    failure
                }
            };
            self.dependencies.processes.note_failure();
            let delay = backoff.delay();
            self.report_failure(&failure, delay);
            if self.wait_before_retry(&failure, delay).await {
                return;
            }
        }
    }

    /// Serves a lane until it ends, then closes it once its calls have finished.
    async fn serve_and_close(
        &self,
        lane: &Lane,
        events: TransportEvents,
        listing: ServerListing,
    ) -> EndReason {
        let end = self.serve(lane, events, listing).await;
        if let EndReason::Lost(reason) = &end {
            let reason = self.masker.mask(reason);
            tracing::warn!(server = %self.server.name, %reason, "lost the connection to the server");
        }
        // Discard a stale wake-up, which would restart the server right after an idle stop.
        let _ = self.activity.wake.notified().now_or_never();
        // Update the status before removing the lane, so that callers finding no lane see why.
        self.update_status(|status| match &end {
            EndReason::Lost(reason) => {
                status.state = ServerState::Unavailable;
                status.reason = Some(self.masker.mask(reason));
            }
            EndReason::Idle => status.state = ServerState::Asleep,
            EndReason::Reconnect => status.state = ServerState::Connecting,
            EndReason::Stopped => {}
        });
        self.outputs.lane.send_replace(None);
        match end {
            EndReason::Lost(_) => lane.abandon().await,
            // A reconnect may have been requested because calls hang, so wait only briefly.
            EndReason::Reconnect => {
                self.activity.wait_idle(RECONNECT_DRAIN_TIMEOUT).await;
                lane.close().await;
            }
            EndReason::Stopped | EndReason::Idle => {
                self.activity.wait_idle(self.intervals.drain).await;
                lane.close().await;
            }
        }
        end
    }

    /// Waits until a call or a reconnect request needs the server.
    async fn wait_for_wake(&self) {
        tracing::info!(server = %self.server.name, "stopped idle server");
        tokio::select! {
            () = self.activity.wake.notified() => {}
            () = self.signals.reconnect.notified() => {}
            () = self.signals.stop.cancelled() => {}
        }
        self.activity.touch();
        self.update_status(|status| status.state = ServerState::Connecting);
    }

    /// Waits for the next attempt; returns true if the supervisor must stop instead.
    async fn wait_before_retry(&self, failure: &ConnectFailure, delay: Duration) -> bool {
        let retry = async {
            match failure.state {
                ServerState::Error => std::future::pending().await,
                _ => tokio::time::sleep(delay).await,
            }
        };
        tokio::select! {
            () = retry => false,
            () = self.signals.reconnect.notified() => {
                self.update_status(|status| status.state = ServerState::Connecting);
                false
            }
            () = self.signals.stop.cancelled() => true,
        }
    }

    async fn open(
        &self,
        era: Option<Era>,
    ) -> Result<(Lane, TransportEvents, ServerListing), ConnectFailure> {
        let start_timeout = match self.server.connection {
            ServerConnection::Stdio(_) => STDIO_START_TIMEOUT,
            ServerConnection::Http(_) | ServerConnection::InProcess => HTTP_START_TIMEOUT,
        };
        let key = LaneKey {
            server: self.server.name.clone(),
            lane: LaneId::Shared,
        };
        let open = async {
            let (lane, events) = Lane::open(key, &self.server, &self.dependencies, era).await?;
            match lane.fetch_listing(None).await {
                Ok(listing) => Ok((lane, events, listing)),
                Err(error) => {
                    lane.close().await;
                    Err(ConnectFailure::from(OpenError::Handshake(error.into())))
                }
            }
        };
        timeout(start_timeout, open).await.unwrap_or_else(|_| {
            Err(ConnectFailure {
                state: ServerState::Unavailable,
                reason: format!(
                    "server did not respond within {} s of starting",
                    start_timeout.as_secs()
                ),
                inconclusive: true,
            })
        })
    }

    /// Serves until the connection is lost or no longer needed.
    async fn serve(
        &self,
        lane: &Lane,
        mut events: TransportEvents,
        listing: ServerListing,
    ) -> EndReason {
        let mut listing = Arc::new(listing);
        self.publisher
            .publish_listing(
                self.server.name.clone(),
                self.generation,
                Arc::clone(&listing),
            )
            .await;
        self.outputs.lane.send_replace(Some(lane.clone()));
        self.report_connected(lane, &listing);
        let mut schedule = MaintenanceSchedule::new(&self.intervals, self.server.tuning.idle_stop);
        let mut missed_pings = 0;
        let listening = async {
            lane.listen().await;
            std::future::pending::<()>().await;
        };
        tokio::pin!(listening);
        loop {
            let task = tokio::select! {
                reason = lane.wait_closed() => return EndReason::Lost(reason),
                () = self.signals.stop.cancelled() => return EndReason::Stopped,
                () = self.signals.reconnect.notified() => return EndReason::Reconnect,
                () = &mut listening => continue,
                Some(_) = events.recv() => {
                    match self.server.connection {
                        ServerConnection::InProcess => schedule.note_local_change(),
                        ServerConnection::Stdio(_) | ServerConnection::Http(_) => {
                            schedule.note_change();
                        }
                    }
                    continue;
                }
                task = schedule.next() => task,
            };
            let end = tokio::select! {
                end = self.perform(task, lane, &mut listing, &mut missed_pings, &mut schedule) => end,
                reason = lane.wait_closed() => Some(EndReason::Lost(reason)),
                () = self.signals.stop.cancelled() => Some(EndReason::Stopped),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Returns the era to try next. A child that did not respond to `initialize` may be a modern
    /// server; in all other cases negotiation starts over.
    fn next_era(&self, tried: Option<Era>, failure: &ConnectFailure) -> Option<Era> {
        match (&self.server.connection, tried) {
            (ServerConnection::Stdio(_), None) if failure.inconclusive => Some(Era::Modern),
            _ => None,
        }
    }
}

impl From<OpenError> for ConnectFailure {
    fn from(error: OpenError) -> Self {
        let state = match &error {
            OpenError::Config(_) => ServerState::Error,
            OpenError::Handshake(HandshakeError::Request(RequestError::Status {
                status: 401 | 403,
                ..
            })) => ServerState::NeedsAuth,
            OpenError::Handshake(_) | OpenError::Spawn(_) => ServerState::Unavailable,
        };
        let advice = match state {
            ServerState::NeedsAuth => "; add credentials to the server's `headers`",
            _ => "",
        };
        Self {
            state,
            reason: format!("{error}{advice}"),
            inconclusive: matches!(
                &error,
                OpenError::Handshake(HandshakeError::Request(RequestError::Lost(_)))
            ),
        }
    }
}

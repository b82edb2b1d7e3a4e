//! Keeps one server connected: opens its shared lane, publishes what it offers, lists anew when
//! the server says so, asks whether it is still there, puts it to sleep when nobody uses it, and
//! tries again when the connection is lost.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolgate_core::catalog::Offer;
use toolgate_core::config::{Link, Server};
use toolgate_core::secret::Masker;

use crate::activity::Activity;
use crate::agenda::{Agenda, Due};
use crate::backoff::Backoff;
use crate::handshake::{Era, HandshakeError};
use crate::lane::{Lane, LaneId, LaneKey, OpenError, Surroundings};
use crate::publisher::Publisher;
use crate::status::{State, Status};
use crate::transport::{Events, RequestError};

/// A cold `npx` or `uvx` downloads before it speaks.
pub(crate) const START_STDIO: Duration = Duration::from_secs(120);
const START_HTTP: Duration = Duration::from_secs(30);
const LIST: Duration = Duration::from_secs(30);
const PING: Duration = Duration::from_secs(5);
const PING_SHORTEST: Duration = Duration::from_millis(200);
/// Pings that may go unanswered before a server counts as gone.
const MISSES: u32 = 2;
/// How long calls under way may take to end when a new connection is asked for.
const RECONNECT: Duration = Duration::from_secs(2);
/// A connection that held this long was a good one.
const LASTING: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) server: Arc<Server>,
    pub(crate) surroundings: Surroundings,
    pub(crate) masker: Masker,
    pub(crate) publisher: Publisher,
    pub(crate) generation: u64,
    pub(crate) rhythm: Rhythm,
    pub(crate) activity: Arc<Activity>,
    pub(crate) signals: Signals,
    pub(crate) report: Report,
}

/// How often to look after a server, and how long to wait for its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rhythm {
    pub(crate) sync: Option<Duration>,
    pub(crate) health: Duration,
    /// The longest that a call may still take when its connection is to be closed.
    pub(crate) drain: Duration,
}

/// What a supervisor is told from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) stop: CancellationToken,
    pub(crate) reconnect: Arc<Notify>,
}

/// What a supervisor tells.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) status: watch::Sender<Arc<Status>>,
    pub(crate) lane: watch::Sender<Option<Lane>>,
    /// Says that some server is in a new state.
    pub(crate) changes: watch::Sender<()>,
}

/// Why a connection is no longer served.
#[derive(Debug)]
enum End {
    Stopped,
    Idle,
    /// Somebody asked for a new one.
    Reconnect,
    Lost(String),
}

/// Why there is no connection.
#[derive(Debug)]
struct Failure {
    state: State,
    reason: String,
    /// The server fell silent or went away while the era was still open.
    inconclusive: bool,
}

impl Supervisor {
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::default();
        let mut era: Option<Era> = None;
        loop {
            let opened = tokio::select! {
                biased;
                () = self.signals.stop.cancelled() => return,
                opened = self.open(era) => opened,
            };
            let failure = match opened {
                Ok((lane, events, offer)) => {
                    era = Some(lane.session().era);
                    let began = Instant::now();
                    match self.hold(&lane, events, offer).await {
                        End::Stopped => return,
                        End::Idle => {
                            self.sleep().await;
                            continue;
                        }
                        End::Reconnect => continue,
                        End::Lost(reason) => {
                            match began.elapsed() > LASTING {
                                true => backoff.reset(),
                                false => backoff.fail(),
                            }
                            Failure {
                                state: State::Unavailable,
                                reason,
                                inconclusive: false,
                            }
                        }
                    }
                }
                Err(failure) => {
                    era = self.other_era(era, &failure);
                    backoff.fail();
                    failure
                }
            };
            let delay = backoff.delay();
            self.fail(&failure, delay);
            if self.pause(&failure, delay).await {
                return;
            }
        }
    }

    /// Serves a lane to its end, and closes it when the calls on it are done.
    async fn hold(&self, lane: &Lane, events: Events, offer: Offer) -> End {
        let end = self.serve(lane, events, offer).await;
        // Who wanted it before it sleeps has had it.
        let _ = self.activity.wake.notified().now_or_never();
        // Whoever finds no lane must find the reason for it.
        self.change(|status| match &end {
            End::Lost(reason) => {
                status.state = State::Unavailable;
                status.reason = Some(self.masker.mask(reason));
            }
            End::Idle => status.state = State::Asleep,
            End::Reconnect => status.state = State::Connecting,
            End::Stopped => {}
        });
        self.report.lane.send_replace(None);
        match end {
            End::Lost(_) => lane.abandon().await,
            // Whoever asks for a new connection may do so because calls hang on this one.
            End::Reconnect => {
                self.activity.quiet(RECONNECT).await;
                lane.close().await;
            }
            End::Stopped | End::Idle => {
                self.activity.quiet(self.rhythm.drain).await;
                lane.close().await;
            }
        }
        end
    }

    /// Waits until a call wants the server, or somebody else does.
    async fn sleep(&self) {
        tracing::info!(server = %self.server.name, "put to sleep: nobody uses it");
        tokio::select! {
            () = self.activity.wake.notified() => {}
            () = self.signals.reconnect.notified() => {}
            () = self.signals.stop.cancelled() => {}
        }
        self.activity.touch();
        self.change(|status| status.state = State::Connecting);
    }

    /// Waits for the next try; true if there is to be none.
    async fn pause(&self, failure: &Failure, delay: Duration) -> bool {
        let retry = async {
            match failure.state {
                State::Error => std::future::pending().await,
                _ => tokio::time::sleep(delay).await,
            }
        };
        tokio::select! {
            () = retry => false,
            () = self.signals.reconnect.notified() => false,
            () = self.signals.stop.cancelled() => true,
        }
    }

    async fn open(&self, era: Option<Era>) -> Result<(Lane, Events, Offer), Failure> {
        let bound = match self.server.link {
            Link::Stdio(_) => START_STDIO,
            Link::Http(_) | Link::InProcess => START_HTTP,
        };
        let key = LaneKey {
            server: self.server.name.clone(),
            lane: LaneId::Shared,
        };
        let open = async {
            let (lane, events) = Lane::open(key, &self.server, &self.surroundings, era).await?;
            match lane.offer(None).await {
                Ok(offer) => Ok((lane, events, offer)),
                Err(error) => {
                    lane.close().await;
                    Err(Failure::from(OpenError::Handshake(error.into())))
                }
            }
        };
        timeout(bound, open).await.unwrap_or_else(|_| {
            Err(Failure {
                state: State::Unavailable,
                reason: format!(
                    "the server did not answer within {} s of its start",
                    bound.as_secs()
                ),
                inconclusive: true,
            })
        })
    }

    /// Serves until the connection is lost, or not wanted any more.
    async fn serve(&self, lane: &Lane, mut events: Events, offer: Offer) -> End {
        let mut offer = Arc::new(offer);
        self.publisher
            .offer(
                self.server.name.clone(),
                self.generation,
                Arc::clone(&offer),
            )
            .await;
        self.report.lane.send_replace(Some(lane.clone()));
        self.connected(lane, &offer);
        let mut agenda = Agenda::new(&self.rhythm, self.server.care.idle_stop);
        let mut misses = 0;
        let listening = async {
            lane.listen().await;
            std::future::pending::<()>().await;
        };
        tokio::pin!(listening);
        loop {
            let due = tokio::select! {
                reason = lane.closed() => return End::Lost(reason),
                () = self.signals.stop.cancelled() => return End::Stopped,
                () = self.signals.reconnect.notified() => return End::Reconnect,
                () = &mut listening => continue,
                Some(_) = events.recv() => {
                    agenda.hear();
                    continue;
                }
                due = agenda.next() => due,
            };
            let ended = tokio::select! {
                ended = self.attend(due, lane, &mut offer, &mut misses, &mut agenda) => ended,
                reason = lane.closed() => Some(End::Lost(reason)),
                () = self.signals.stop.cancelled() => Some(End::Stopped),
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    /// Does what is due; an end if the connection is not to be kept.
    async fn attend(
        &self,
        due: Due,
        lane: &Lane,
        offer: &mut Arc<Offer>,
        misses: &mut u32,
        agenda: &mut Agenda,
    ) -> Option<End> {
        match due {
            Due::Idle => {
                let after = self.server.care.idle_stop?;
                (self.activity.idle_for() >= after).then_some(End::Idle)
            }
            Due::Health => match self.check(lane, misses).await {
                Some(reason) => Some(End::Lost(reason)),
                None if *misses == 0 => {
                    self.well(offer);
                    None
                }
                None => None,
            },
            Due::Lists => match timeout(LIST, lane.offer(Some(offer))).await {
                Ok(Ok(new)) => {
                    if new != **offer {
                        *offer = Arc::new(new);
                        self.publisher
                            .offer(self.server.name.clone(), self.generation, Arc::clone(offer))
                            .await;
                        self.tell_problems(offer);
                    }
                    self.well(offer);
                    agenda.listed(offer);
                    None
                }
                Ok(Err(error)) if is_passing(&error) => {
                    self.unwell(&format!("its lists could not be had again: {error}"));
                    None
                }
                Ok(Err(error)) => Some(End::Lost(format!(
                    "its lists could not be had again: {error}"
                ))),
                Err(_) if self.is_busy() => {
                    self.unwell("it does not answer while it works on calls");
                    None
                }
                Err(_) => Some(End::Lost("it does not answer".to_owned())),
            },
        }
    }

    /// Asks for a sign of life; the reason if there is none and the connection must go.
    async fn check(&self, lane: &Lane, misses: &mut u32) -> Option<String> {
        let missed = match timeout(self.rhythm.health.clamp(PING_SHORTEST, PING), lane.ping()).await
        {
            Ok(Ok(())) => {
                *misses = 0;
                return None;
            }
            Ok(Err(error)) if is_passing(&error) => error.to_string(),
            Ok(Err(error)) => return Some(error.to_string()),
            Err(_) => "it does not answer pings".to_owned(),
        };
        *misses += 1;
        if *misses >= MISSES && !self.is_busy() {
            return Some(missed);
        }
        self.unwell(&missed);
        None
    }

    /// A child that works on a call may answer nothing else meanwhile.
    fn is_busy(&self) -> bool {
        matches!(self.server.link, Link::Stdio(_)) && self.activity.in_flight() > 0
    }

    fn connected(&self, lane: &Lane, offer: &Offer) {
        let session = lane.session();
        tracing::info!(
            server = %self.server.name, version = session.version, tools = offer.tools.len(),
            resources = offer.resources.len(), prompts = offer.prompts.len(), "connected"
        );
        self.tell_problems(offer);
        self.change(|status| status.session = Some(session.clone()));
        self.well(offer);
    }

    fn tell_problems(&self, offer: &Offer) {
        for problem in &offer.problems {
            tracing::warn!(server = %self.server.name, item = problem.item, "left out: {}", problem.reason);
        }
    }

    /// The server answers; it is healthy if all its lists could be had.
    fn well(&self, offer: &Offer) {
        let reason = (!offer.failed.is_empty()).then(|| self.masker.mask(&offer.failed.join("; ")));
        self.change(|status| {
            status.state = match reason {
                Some(_) => State::Degraded,
                None => State::Healthy,
            };
            status.reason = reason.clone();
            status.next_try_at = None;
        });
    }

    /// The server is there, and something is wrong with it.
    fn unwell(&self, reason: &str) {
        self.change(|status| {
            status.state = State::Degraded;
            status.reason = Some(reason.to_owned());
        });
    }

    fn fail(&self, failure: &Failure, delay: Duration) {
        let reason = self.masker.mask(&failure.reason);
        let server = &self.server.name;
        let news = self.report.status.borrow().reason.as_deref() != Some(&reason);
        match news {
            true => tracing::warn!(%server, state = failure.state.as_str(), "{reason}"),
            false => tracing::debug!(%server, state = failure.state.as_str(), "still: {reason}"),
        }
        self.change(|status| {
            status.state = failure.state;
            status.reason = Some(reason.clone());
            status.last_error = Some(reason.clone());
            status.next_try_at = (failure.state != State::Error).then(|| SystemTime::now() + delay);
        });
    }

    fn change(&self, change: impl Fn(&mut Status)) {
        self.report.status.send_modify(|status| {
            let mut next = Status::clone(status);
            let before = next.state;
            change(&mut next);
            if next.state != before {
                next.since = SystemTime::now();
            }
            *status = Arc::new(next);
        });
        self.report.changes.send_replace(());
    }

    /// The era to try next: what was known did not work, or the other one has not been tried.
    fn other_era(&self, tried: Option<Era>, failure: &Failure) -> Option<Era> {
        match (&self.server.link, tried) {
            (Link::Stdio(_), None) if failure.inconclusive => Some(Era::Modern),
            _ => None,
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let state = match &error {
            OpenError::Config(_) => State::Error,
            OpenError::Handshake(HandshakeError::Request(RequestError::Status {
                status: 401 | 403,
                ..
            })) => State::NeedsAuth,
            OpenError::Handshake(_) | OpenError::Spawn(_) => State::Unavailable,
        };
        let advice = match state {
            State::NeedsAuth => "; give the server credentials in `headers`",
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

/// An answer that says "not now" rather than "not any more".
fn is_passing(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Status {
            status: 429 | 500..=599,
            ..
        }
    )
}

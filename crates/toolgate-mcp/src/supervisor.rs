//! Keeps one server connected: opens its shared lane, publishes what it offers, lists anew when
//! the server says so, and tries again when the connection is lost.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolgate_core::catalog::Offer;
use toolgate_core::config::{Link, Server};
use toolgate_core::secret::Masker;

use crate::backoff::Backoff;
use crate::handshake::{Era, HandshakeError};
use crate::lane::{Lane, LaneId, LaneKey, OpenError, Surroundings};
use crate::publisher::Publisher;
use crate::status::{State, Status};
use crate::transport::{Events, RequestError};

/// A cold `npx` or `uvx` downloads before it speaks.
const START_STDIO: Duration = Duration::from_secs(120);
const START_HTTP: Duration = Duration::from_secs(30);
const LIST: Duration = Duration::from_secs(30);
/// A connection that held this long was a good one.
const LASTING: Duration = Duration::from_secs(10);
/// Changes that are announced together are fetched together.
const SETTLE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) server: Arc<Server>,
    pub(crate) surroundings: Surroundings,
    pub(crate) masker: Masker,
    pub(crate) publisher: Publisher,
    pub(crate) sync_interval: Option<Duration>,
    pub(crate) status: watch::Sender<Arc<Status>>,
    pub(crate) lane: watch::Sender<Option<Lane>>,
    pub(crate) stop: CancellationToken,
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
            let began = Instant::now();
            let opened = tokio::select! {
                opened = self.open(era) => opened,
                () = self.stop.cancelled() => return,
            };
            let failure = match opened {
                Ok((lane, events, offer)) => {
                    era = Some(lane.session().era);
                    let failure = self.serve(&lane, events, offer).await;
                    self.lane.send_replace(None);
                    lane.close().await;
                    match began.elapsed() > LASTING {
                        true => backoff.reset(),
                        false => backoff.fail(),
                    }
                    failure
                }
                Err(failure) => {
                    era = self.other_era(era, &failure);
                    backoff.fail();
                    failure
                }
            };
            if self.stop.is_cancelled() {
                return;
            }
            let delay = backoff.delay();
            self.fail(&failure, delay);
            let retry = async {
                match failure.state {
                    State::Error => std::future::pending().await,
                    _ => tokio::time::sleep(delay).await,
                }
            };
            tokio::select! {
                () = retry => {}
                () = self.stop.cancelled() => return,
            }
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
            match lane.offer().await {
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

    /// Serves until the connection is lost or the supervisor is stopped.
    async fn serve(&self, lane: &Lane, mut events: Events, offer: Offer) -> Failure {
        let mut offer = Arc::new(offer);
        self.publisher
            .offer(self.server.name.clone(), Arc::clone(&offer))
            .await;
        self.lane.send_replace(Some(lane.clone()));
        self.connected(lane, &offer);
        let interval = self
            .sync_interval
            .unwrap_or(Duration::from_secs(365 * 24 * 3600));
        loop {
            tokio::select! {
                reason = lane.closed() => return Failure::lost(reason),
                () = self.stop.cancelled() => return Failure::lost(String::new()),
                Some(_) = events.recv() => {
                    tokio::time::sleep(SETTLE).await;
                    while events.try_recv().is_ok() {}
                }
                () = tokio::time::sleep(interval) => {}
            }
            match timeout(LIST, lane.offer()).await {
                Ok(Ok(new)) if new != *offer => {
                    offer = Arc::new(new);
                    self.publisher
                        .offer(self.server.name.clone(), Arc::clone(&offer))
                        .await;
                    self.connected(lane, &offer);
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    return Failure::lost(format!("its lists could not be had again: {error}"));
                }
                Err(_) => return Failure::lost("it does not answer".to_owned()),
            }
        }
    }

    fn connected(&self, lane: &Lane, offer: &Offer) {
        let session = lane.session();
        let server = &self.server.name;
        for problem in &offer.problems {
            tracing::warn!(%server, item = problem.item, "left out: {}", problem.reason);
        }
        tracing::info!(
            %server, version = session.version, tools = offer.tools.len(),
            resources = offer.resources.len(), prompts = offer.prompts.len(), "connected"
        );
        let reason = (!offer.failed.is_empty()).then(|| self.masker.mask(&offer.failed.join("; ")));
        self.change(|status| {
            status.state = if reason.is_some() {
                State::Degraded
            } else {
                State::Healthy
            };
            status.reason = reason.clone();
            status.next_try_at = None;
            status.session = Some(session.clone());
        });
    }

    fn fail(&self, failure: &Failure, delay: Duration) {
        let reason = self.masker.mask(&failure.reason);
        let server = &self.server.name;
        let news = self.status.borrow().reason.as_deref() != Some(&reason);
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
        self.status.send_modify(|status| {
            let mut next = Status::clone(status);
            let before = next.state;
            change(&mut next);
            if next.state != before {
                next.since = SystemTime::now();
            }
            *status = Arc::new(next);
        });
    }

    /// The era to try next: what was known did not work, or the other one has not been tried.
    fn other_era(&self, tried: Option<Era>, failure: &Failure) -> Option<Era> {
        match (&self.server.link, tried) {
            (Link::Stdio(_), None) if failure.inconclusive => Some(Era::Modern),
            _ => None,
        }
    }
}

impl Failure {
    fn lost(reason: String) -> Self {
        Self {
            state: State::Unavailable,
            reason,
            inconclusive: false,
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

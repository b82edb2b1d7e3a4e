//! Sends one call to its server: acquires a lane, enforces the timeout, and retries once where that
//! is safe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::time::timeout_at;
use toolgate_core::catalog::Tool;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::fair_queue::Owner;
use toolgate_mcp::lane::{ToolAnswer, UpstreamRequest, UpstreamTask, UpstreamToolCall as LaneCall};
use toolgate_mcp::local::CallIdentity;
use toolgate_mcp::registry::{
    AccessError, AccessTimeouts, LaneAccess, LaneNeed, Registry, ResourceSubscription, SessionCall,
    SessionLane, SubscribeError,
};
use toolgate_mcp::share::ShareFull;
use toolgate_mcp::transport::RequestError;
use toolgate_mcp::{Deadline, Lane, LaneId, LaneKey, TraceContext};

use crate::call::{Arguments, CallError, ClientSession, LimitReached, RequestContext};
use crate::metrics::{Bound, Metrics};

/// Minimum time for a response during which the server may ask the client's user.
const INTERACTIVE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

pub(super) struct Dispatch {
    pub(super) registry: Arc<Registry>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) tool: Arc<Tool>,
    pub(super) arguments: Arguments,
    pub(super) headers: HeaderMap,
    pub(super) request: Arc<RequestContext>,
    /// The caller that the call is counted for.
    pub(super) owner: Owner,
    /// Who makes the call, if the server runs in this process.
    pub(super) identity: Option<Arc<CallIdentity>>,
    /// Bound on waiting for slots, a connection and the response together.
    pub(super) limit: TimeLimit,
    /// Maximum time for a lost connection to be re-established.
    pub(super) reconnect_wait: Duration,
    /// Whether another server handles the call if this one is unavailable.
    pub(super) has_fallback: bool,
    /// Whether the server accepts a separate lane per client session.
    pub(super) uses_session_lane: bool,
    /// Refuse to call the previously configured program while its replacement starts.
    pub(super) current_only: bool,
}

/// The time that a request may take, from the wait for its first slot to the response of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimit {
    timeout: Duration,
    pub(super) deadline: Deadline,
}

/// A server's response to a tool call.
pub(super) struct ServerResponse {
    pub(super) raw: Box<RawValue>,
    /// The response came from the previously configured program.
    pub(super) outdated: bool,
}

/// The answer to a call, with the guard of the session lane that it came over if that is another one
/// than the call was sent over first.
struct LaneAnswer {
    answer: Result<ToolAnswer, RequestError>,
    guard: Option<SessionCall>,
}

/// What came of a task.
pub(super) enum FollowedTask {
    Ended(Result<Box<RawValue>, RequestError>),
    TimedOut,
    SessionEnded,
}

impl Dispatch {
    /// Waits for a connection to the server and a slot on it.
    pub(super) async fn acquire_lane(&self) -> Result<LaneAccess, CallError> {
        let server = &self.tool.id.server;
        let wanted = WantedLane {
            server,
            session: self.lane_session(),
            need: self.lane_need(),
            reconnect_wait: if self.has_fallback {
                Duration::ZERO
            } else {
                self.reconnect_wait
            },
        };
        let access = acquire_lane(&self.registry, wanted, &self.owner, self.limit).await?;
        if access.outdated && self.current_only {
            return Err(CallError::Reconfiguring(server.clone()));
        }
        Ok(access)
    }

    /// Returns the client session that has a lane of its own, if any.
    fn lane_session(&self) -> Option<&ClientSession> {
        let session = self.request.session.as_ref();
        session.filter(|_| self.uses_session_lane)
    }

    /// Returns whether the server offers the tool only to clients like this one.
    fn lane_need(&self) -> LaneNeed {
        let catalog = self.registry.catalog();
        let common = catalog.tool(&self.tool.id);
        if common.is_some_and(|common| common.tool.hash == self.tool.hash) {
            LaneNeed::Optional
        } else {
            LaneNeed::Required
        }
    }

    /// Sends the call over a lane and waits for the response.
    pub(super) async fn send(
        mut self,
        mut access: LaneAccess,
        trace: TraceContext,
    ) -> Result<ServerResponse, CallError> {
        trace.insert_into_headers(&mut self.headers);
        let (server, session) = (&self.tool.id.server, self.lane_session());
        let _in_flight = self.metrics.start_call(server.as_str());
        let started = Instant::now();
        let wait = ResponseWait::new(&self.request, &access, self.limit);
        let mut timeout = wait.limit.timeout;
        let answer = tokio::select! {
            answer = wait.run(self.call_tool(access.lane.clone(), &trace)) => answer,
            () = session_ended(session) => return Err(CallError::Cancelled),
        };
        if answer.is_some() {
            access.mark_answered();
        }
        let answer = match answer {
            None => None,
            Some(LaneAnswer { answer, guard }) => match answer {
                Ok(ToolAnswer::Task(task)) => {
                    timeout = self.task_timeout(&task);
                    let followed = Box::pin(follow_task(*task, timeout, session)).await;
                    drop(guard);
                    match followed {
                        FollowedTask::Ended(answer) => Some(answer),
                        FollowedTask::TimedOut => None,
                        FollowedTask::SessionEnded => return Err(CallError::Cancelled),
                    }
                }
                Ok(ToolAnswer::Result(raw)) => Some(Ok(raw)),
                Err(error) => Some(Err(error)),
            },
        };
        let bytes = answer
            .as_ref()
            .and_then(|answer| answer.as_ref().ok())
            .map_or(0, |result| result.get().len());
        self.metrics.record_dispatch(
            &self.tool.id,
            started.elapsed(),
            self.arguments.raw().get().len(),
            bytes,
        );
        match answer {
            Some(Ok(raw)) => Ok(ServerResponse {
                raw,
                outdated: access.outdated,
            }),
            Some(Err(cause)) => Err(CallError::Server {
                server: server.clone(),
                cause,
            }),
            None => Err(CallError::Timeout {
                tool: self.tool.id.clone(),
                after: timeout,
            }),
        }
    }

    /// Sends the call, and retries it once over a new connection if the first one was stale.
    async fn call_tool(&self, lane: Lane, trace: &TraceContext) -> LaneAnswer {
        let call = || LaneCall {
            tool: &self.tool,
            arguments: self.arguments.raw(),
            headers: self.headers.clone(),
            meta: trace.append_to_meta(self.request.meta.clone()),
            handler: self.request.client_handler.clone(),
            modern_client: self.request.modern_client.clone(),
            log_level: self.request.log_level,
            identity: self.identity.clone(),
            tasks: self.request.tasks.clone(),
        };
        let error = match lane.call_tool(call()).await {
            Err(error) if self.can_retry(&error) => error,
            answer => return LaneAnswer::from(answer),
        };
        let next = match &error {
            RequestError::Lost(_) if lane.is_open() => Some((lane, None)),
            _ => Box::pin(self.replacement_lane(&lane)).await,
        };
        // The guard keeps a session lane in use until the retry has finished.
        let Some((next, mut guard)) = next else {
            return LaneAnswer::from(Err(error));
        };
        tracing::debug!(tool = %self.tool.id, %error, "retrying tool call");
        let answer = Box::pin(next.call_tool(call())).await;
        if let Some(guard) = &mut guard {
            guard.mark_answered();
        }
        LaneAnswer { answer, guard }
    }

    /// Returns the time for a task, which is not that for a response: the server says how long it may
    /// take.
    fn task_timeout(&self, task: &UpstreamTask) -> Duration {
        let max_ttl = self.registry.capacity().tasks.max_ttl;
        task.ttl().map_or(max_ttl, |ttl| ttl.min(max_ttl))
    }

    /// Waits for the connection that replaces a lost one. A session lane is replaced by another lane
    /// of the same session.
    async fn replacement_lane(&self, lost: &Lane) -> Option<(Lane, Option<SessionCall>)> {
        let deadline = Deadline::now() + self.reconnect_wait;
        match (&lost.key().lane, &self.request.session) {
            (LaneId::Session(_), Some(session)) => {
                let client = &session.client;
                let next = self
                    .registry
                    .session_lane_after(lost, client, deadline)
                    .await;
                next.map(|SessionLane { lane, call }| (lane, Some(call)))
            }
            _ => {
                let next = self.registry.lane_after(lost, deadline).await;
                next.map(|lane| (lane, None))
            }
        }
    }

    /// Returns whether a failed call may be retried. A call that may have run is retried only if the
    /// tool is marked read-only or idempotent.
    fn can_retry(&self, error: &RequestError) -> bool {
        let is_repeatable =
            self.tool.hints.read_only == Some(true) || self.tool.hints.idempotent == Some(true);
        match error {
            RequestError::SessionGone | RequestError::NotSent(_) => true,
            RequestError::Lost(_) => is_repeatable,
            _ => false,
        }
    }
}

impl From<Result<ToolAnswer, RequestError>> for LaneAnswer {
    fn from(answer: Result<ToolAnswer, RequestError>) -> Self {
        let guard = None;
        Self { answer, guard }
    }
}

/// Waits for the end of a task, which is cancelled if it is not reached.
pub(super) async fn follow_task(
    task: UpstreamTask,
    timeout: Duration,
    session: Option<&ClientSession>,
) -> FollowedTask {
    tokio::select! {
        answer = task.follow() => FollowedTask::Ended(answer),
        () = tokio::time::sleep(timeout) => FollowedTask::TimedOut,
        () = session_ended(session) => FollowedTask::SessionEnded,
    }
}

impl TimeLimit {
    /// Starts to count the time of a request.
    pub(super) fn start(timeout: Duration) -> Self {
        Self {
            timeout,
            deadline: Deadline::now() + timeout,
        }
    }

    /// Adds time that does not count.
    fn extend_by(self, time: Duration) -> Self {
        Self {
            deadline: self.deadline + time,
            ..self
        }
    }
}

/// A bounded wait for a server's response.
pub(super) struct ResponseWait {
    limit: TimeLimit,
    handler: Option<Arc<dyn ClientHandler>>,
}

impl ResponseWait {
    /// The wait is longer where the server may ask the client's user.
    pub(super) fn new(request: &RequestContext, access: &LaneAccess, limit: TimeLimit) -> Self {
        let may_ask = request.may_prompt_user() && access.lane.key().lane != LaneId::Shared;
        let limit = limit.extend_by(access.start_wait);
        Self {
            limit: if may_ask {
                TimeLimit::start(limit.timeout.max(INTERACTIVE_TIMEOUT))
            } else {
                limit
            },
            handler: request.client_handler.clone().filter(|_| may_ask),
        }
    }

    /// Returns `None` if the time is over and no question waits for the client's answer. Questions
    /// have a timeout of their own.
    async fn run<T>(mut self, response: impl Future<Output = T>) -> Option<T> {
        let mut response = std::pin::pin!(response);
        loop {
            if let Ok(response) = timeout_at(self.limit.deadline, &mut response).await {
                return Some(response);
            }
            if !self
                .handler
                .as_ref()
                .is_some_and(|handler| handler.is_asking())
            {
                return None;
            }
            self.limit = TimeLimit::start(self.limit.timeout);
        }
    }
}

/// The lane that a request wants.
#[derive(Clone, Copy)]
pub(super) struct WantedLane<'a> {
    pub(super) server: &'a ServerName,
    /// The client's session, if the server has lanes for single sessions.
    pub(super) session: Option<&'a ClientSession>,
    pub(super) need: LaneNeed,
    /// Maximum time for a lost connection to be re-established.
    pub(super) reconnect_wait: Duration,
}

/// Acquires a slot on the client's session lane if a session is given, otherwise on the shared lane.
pub(super) async fn acquire_lane(
    registry: &Registry,
    wanted: WantedLane<'_>,
    owner: &Owner,
    limit: TimeLimit,
) -> Result<LaneAccess, CallError> {
    let WantedLane {
        server,
        session,
        need,
        reconnect_wait,
    } = wanted;
    let timeouts = AccessTimeouts {
        deadline: limit.deadline,
        reconnect: reconnect_wait,
    };
    let access = match session {
        Some(session) => {
            let key = LaneKey {
                server: server.clone(),
                lane: LaneId::Session(session.id.clone()),
            };
            let client = &session.client;
            Box::pin(registry.session_access(&key, client, need, timeouts)).await
        }
        None => registry.access(server, owner, timeouts).await,
    };
    access.map_err(|error| access_error(error, registry, session))
}

/// Waits until the client session that owns the lane ends. Never returns without a session.
async fn session_ended(session: Option<&ClientSession>) {
    match session {
        Some(session) => session.client.disconnected.cancelled().await,
        None => std::future::pending().await,
    }
}

fn access_error(
    error: AccessError,
    registry: &Registry,
    session: Option<&ClientSession>,
) -> CallError {
    match error {
        AccessError::SessionLanes(full) => {
            let share = registry.capacity().session_connections;
            let (bound, max) = match full {
                ShareFull::Owner => (Bound::SessionConnectionsPerKey, share.max_per_key),
                ShareFull::All => (Bound::SessionConnections, share.max),
            };
            let owner = session.and_then(|session| session.client.owner.as_deref());
            CallError::Limited {
                limit: LimitReached::share(owner, bound, max),
                retry_after: None,
            }
        }
        AccessError::Unavailable(unavailable) => CallError::Unavailable(unavailable),
        AccessError::Busy { server, busy } => CallError::Busy { server, busy },
    }
}

/// Subscribes `handler` to changes of a resource over the shared lane of its server.
pub(super) async fn subscribe_resource(
    registry: &Registry,
    lane: &Lane,
    uri: &str,
    handler: Arc<dyn ClientHandler>,
    limit: TimeLimit,
) -> Result<ResourceSubscription, CallError> {
    let server = &lane.key().server;
    let subscription = registry.subscribe_resource(lane, uri, handler, limit.deadline);
    subscription.await.map_err(|error| match error {
        SubscribeError::Server(cause) => CallError::Server {
            server: server.clone(),
            cause: (*cause).clone(),
        },
        SubscribeError::Refused => CallError::Server {
            server: server.clone(),
            cause: RequestError::Malformed(error.to_string()),
        },
        SubscribeError::TooMany => CallError::Limited {
            limit: LimitReached::Subscriptions,
            retry_after: None,
        },
    })
}

/// Sends a request other than a tool call over a lane and waits for the response.
pub(super) async fn send_request(
    mut access: LaneAccess,
    session: Option<&ClientSession>,
    upstream: UpstreamRequest,
    wait: ResponseWait,
) -> Result<Box<RawValue>, CallError> {
    let (lane, method) = (access.lane.clone(), upstream.method);
    let server = &lane.key().server;
    let timeout = wait.limit.timeout;
    let answer = tokio::select! {
        answer = wait.run(lane.send_resolving_input(upstream)) => answer,
        () = session_ended(session) => return Err(CallError::Cancelled),
    };
    if answer.is_some() {
        access.mark_answered();
    }
    match answer {
        Some(Ok(result)) => Ok(result),
        Some(Err(cause)) => Err(CallError::Server {
            server: server.clone(),
            cause,
        }),
        None => Err(CallError::Timeout {
            tool: ToolId {
                server: server.clone(),
                tool: ToolName::new(method),
            },
            after: timeout,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn response_must_arrive_before_the_deadline_of_the_whole_call() {
        let second = Duration::from_secs(1);
        let limit = TimeLimit::start(10 * second);
        let wait = || ResponseWait {
            limit,
            handler: None,
        };
        // The call waited for a slot and a connection.
        tokio::time::sleep(8 * second).await;
        let answer = wait().run(tokio::time::sleep(second)).await;
        assert!(answer.is_some());
        let answer = wait().run(tokio::time::sleep(5 * second)).await;
        assert!(answer.is_none(), "13 seconds after the start");
        let extended = ResponseWait {
            limit: limit.extend_by(5 * second),
            handler: None,
        };
        let answer = extended.run(tokio::time::sleep(4 * second)).await;
        assert!(answer.is_some(), "starting the server does not count");
    }
}

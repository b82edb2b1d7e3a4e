//! One call on its way to its server: its turn, its timeout, and a second try where that is safe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use serde_json::value::RawValue;
use toolgate_core::catalog::Tool;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_mcp::ear::Ear;
use toolgate_mcp::lane::{Ask, ToolCall as LaneCall};
use toolgate_mcp::registry::{Access, NoAccess, OwnCall, OwnLane, Registry, WatchError, Watching};
use toolgate_mcp::transport::RequestError;
use toolgate_mcp::{Lane, LaneId, LaneKey, TraceContext};

use crate::call::{Arguments, CallError, ClientSession, Limit, Request};
use crate::metrics::Metrics;

/// How long a call waits for a connection that is being made anew.
const RECONNECT: Duration = Duration::from_secs(5);

pub(super) struct Dispatch {
    pub(super) registry: Arc<Registry>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) tool: Arc<Tool>,
    pub(super) arguments: Arguments,
    pub(super) headers: HeaderMap,
    pub(super) request: Arc<Request>,
    /// For its turn and its connection.
    pub(super) within: Duration,
    /// For its answer.
    pub(super) after: Duration,
    /// Whether the server takes connections of a client's own.
    pub(super) own_lane: bool,
    /// Refuse to call the program that was configured before, while the new one starts.
    pub(super) current_only: bool,
}

/// What a server answered.
pub(super) struct Answer {
    pub(super) raw: Box<RawValue>,
    /// The program that was configured before answered.
    pub(super) outdated: bool,
}

impl Dispatch {
    pub(super) async fn run(mut self, trace: TraceContext) -> Result<Answer, CallError> {
        trace.onto_headers(&mut self.headers);
        let server = &self.tool.id.server;
        let own = self.request.session.as_ref().filter(|_| self.own_lane);
        let access = access(&self.registry, server, own, self.within).await?;
        let (_turn, outdated) = (access.turn, access.outdated);
        if outdated && self.current_only {
            return Err(CallError::Changing(server.clone()));
        }
        let _in_flight = self.metrics.enter(server.as_str());
        let began = Instant::now();
        let answer = tokio::select! {
            answer = tokio::time::timeout(self.after, self.send(access.lane, &trace)) => answer,
            () = left(own) => return Err(CallError::Cancelled),
        };
        let bytes = answer
            .as_ref()
            .ok()
            .and_then(|answer| answer.as_ref().ok())
            .map_or(0, |result| result.get().len());
        self.metrics.took(
            &self.tool.id,
            began.elapsed(),
            self.arguments.raw().get().len(),
            bytes,
        );
        match answer {
            Ok(Ok(raw)) => Ok(Answer { raw, outdated }),
            Ok(Err(cause)) => Err(CallError::Server {
                server: server.clone(),
                cause,
            }),
            Err(_) => Err(CallError::Timeout {
                tool: self.tool.id.clone(),
                after: self.after,
            }),
        }
    }

    /// Sends the call, and once more over the next connection if the first one was stale.
    async fn send(&self, lane: Lane, trace: &TraceContext) -> Result<Box<RawValue>, RequestError> {
        let call = || LaneCall {
            tool: &self.tool,
            arguments: self.arguments.raw(),
            headers: self.headers.clone(),
            meta: trace.onto_meta(self.request.meta.clone()),
            ear: self.request.ear.clone(),
            guest: self.request.guest.clone(),
            log_level: self.request.log_level,
        };
        let error = match lane.call_tool(call()).await {
            Err(error) if self.may_repeat(&error) => error,
            answer => return answer,
        };
        let next = match &error {
            RequestError::Lost(_) if lane.is_open() => Some((lane, None)),
            _ => Box::pin(self.after(&lane)).await,
        };
        let Some((next, _own)) = next else {
            return Err(error);
        };
        tracing::debug!(tool = %self.tool.id, %error, "once more");
        Box::pin(next.call_tool(call())).await
    }

    /// The connection that comes after one that was lost: the client's own again if it was its own.
    async fn after(&self, lost: &Lane) -> Option<(Lane, Option<OwnCall>)> {
        match (&lost.key().lane, &self.request.session) {
            (LaneId::Session(_), Some(session)) => {
                let client = &session.client;
                let next = self.registry.own_after(lost, client, RECONNECT).await;
                next.map(|OwnLane { lane, call }| (lane, Some(call)))
            }
            _ => {
                let next = self.registry.after(lost, RECONNECT).await;
                next.map(|lane| (lane, None))
            }
        }
    }

    /// A call that did not run may run; one that may have run only if twice is as good as once.
    fn may_repeat(&self, error: &RequestError) -> bool {
        let harmless =
            self.tool.hints.read_only == Some(true) || self.tool.hints.idempotent == Some(true);
        match error {
            RequestError::SessionGone | RequestError::NotSent(_) => true,
            RequestError::Lost(_) => harmless,
            _ => false,
        }
    }
}

/// A lane and a place on it: one of the client's own where it has a session, else the shared one.
async fn access(
    registry: &Registry,
    server: &ServerName,
    own: Option<&ClientSession>,
    within: Duration,
) -> Result<Access, CallError> {
    let access = match own {
        Some(session) => {
            let key = LaneKey {
                server: server.clone(),
                lane: LaneId::Session(session.id.clone()),
            };
            Box::pin(registry.own_access(&key, &session.client, within)).await
        }
        None => registry.access(server, within).await,
    };
    access.map_err(no_access)
}

/// Waits until the client has left whose connection it is.
async fn left(own: Option<&ClientSession>) {
    match own {
        Some(session) => session.client.ended.cancelled().await,
        None => std::future::pending().await,
    }
}

fn no_access(error: NoAccess) -> CallError {
    match error {
        NoAccess::Away(away) => CallError::Away(away),
        NoAccess::Busy { server, busy } => CallError::Busy { server, busy },
    }
}

/// Has `ear` told whenever a resource changes.
pub(super) async fn watch(
    registry: &Registry,
    server: &ServerName,
    uri: &str,
    ear: Arc<dyn Ear>,
    within: Duration,
) -> Result<Watching, CallError> {
    let watching = registry.watch(server, uri, ear, within).await;
    watching.map_err(|error| match error {
        WatchError::NoAccess(error) => no_access(error),
        WatchError::Server(cause) => CallError::Server {
            server: server.clone(),
            cause: (*cause).clone(),
        },
        WatchError::Refused => CallError::Server {
            server: server.clone(),
            cause: RequestError::Malformed(error.to_string()),
        },
        WatchError::TooMany => CallError::Limited {
            limit: Limit::Watched,
            retry_after: None,
        },
    })
}

/// Sends a request that is no tool call.
pub(super) async fn ask(
    registry: &Registry,
    server: &ServerName,
    own: Option<&ClientSession>,
    ask: Ask,
    (within, after): (Duration, Duration),
) -> Result<Box<RawValue>, CallError> {
    let access = access(registry, server, own, within).await?;
    let method = ask.method;
    let answer = tokio::select! {
        answer = tokio::time::timeout(after, access.lane.ask_through(ask)) => answer,
        () = left(own) => return Err(CallError::Cancelled),
    };
    match answer {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(cause)) => Err(CallError::Server {
            server: server.clone(),
            cause,
        }),
        Err(_) => Err(CallError::Timeout {
            tool: ToolId {
                server: server.clone(),
                tool: ToolName::new(method),
            },
            after,
        }),
    }
}

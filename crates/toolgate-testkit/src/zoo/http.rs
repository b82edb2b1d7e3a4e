//! The HTTP transport: routing and access checks of the endpoint.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

use super::flags::{FaultFlags, GateFlags, HttpFlags};
use super::headers;
use super::legacy_sse::{self, LegacyStreams};
use super::outbox::{Frame, Outbox};
use super::post;
use super::rejection::Rejection;
use super::rpc::RpcMessage;
use super::server::ZooServer;
use super::session::{LegacySessions, Traffic};
use super::sse;

/// State of the HTTP transport.
#[derive(Debug)]
pub(crate) struct HttpEndpoint {
    pub(crate) server: Arc<ZooServer>,
    pub(crate) flags: HttpFlags,
    pub(crate) sessions: LegacySessions,
    pub(crate) interrupted_streams: InterruptedStreams,
    pub(crate) legacy_streams: LegacyStreams,
}

/// Remaining frames of interrupted streams, by the event id from which a client resumes.
#[derive(Debug, Default)]
pub(crate) struct InterruptedStreams {
    next: AtomicU64,
    frames: Mutex<HashMap<String, UnboundedReceiver<Frame>>>,
}

/// Listens on the port and serves forever.
pub(crate) async fn serve(
    server: Arc<ZooServer>,
    port: u16,
    faults: &FaultFlags,
    mut flags: HttpFlags,
) {
    flags.sessions.sessions |= server.fixtures.is_some();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap_or_else(|error| panic!("cannot listen on port {port}: {error}"));
    let port = listener
        .local_addr()
        .expect("the listener has no address")
        .port();
    println!("listening on http://127.0.0.1:{port}/mcp");
    let _ = std::io::stdout().flush();
    if let Some(ms) = faults.slow_start {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let endpoint = HttpEndpoint {
        server,
        sessions: LegacySessions::new(&flags.sessions),
        flags,
        interrupted_streams: InterruptedStreams::default(),
        legacy_streams: LegacyStreams::default(),
    };
    let router = Router::new()
        .fallback(handle_request)
        .with_state(Arc::new(endpoint));
    axum::serve(listener, router)
        .await
        .expect("the server failed");
}

async fn handle_request(State(endpoint): State<Arc<HttpEndpoint>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let sse_legacy = endpoint.flags.sse_legacy;
    let headers = &parts.headers;
    let is_foreign = endpoint.server.fixtures.is_some() && headers::is_foreign(headers);
    let response = match apply_gate(&endpoint.flags.gate, headers) {
        None if is_foreign => {
            Rejection::new(StatusCode::FORBIDDEN, "only local clients are allowed").into_response()
        }
        Some(response) => response,
        None => match (&parts.method, parts.uri.path(), sse_legacy) {
            (&Method::POST, "/mcp", false) => post::handle(&endpoint, headers, &body)
                .await
                .unwrap_or_else(Rejection::into_response),
            (&Method::GET, "/mcp", false) => open_get_stream(&endpoint, headers),
            (&Method::DELETE, "/mcp", false) => match endpoint.sessions.end(headers) {
                Ok(session) => {
                    endpoint.server.peers.remove(&session);
                    StatusCode::NO_CONTENT.into_response()
                }
                Err(rejection) => rejection.into_response(),
            },
            (&Method::GET, "/sse", true) => legacy_sse::open(&endpoint),
            (&Method::POST, "/messages", true) => legacy_sse::post(&endpoint, &parts, &body),
            (_, "/mcp", _) | (_, "/sse" | "/messages", true) => {
                StatusCode::METHOD_NOT_ALLOWED.into_response()
            }
            _ => StatusCode::NOT_FOUND.into_response(),
        },
    };
    if !response.status().is_success()
        && let Ok(RpcMessage::Request(request)) = RpcMessage::parse(&body)
    {
        let status = response.status().as_u16();
        endpoint.server.request_log.log_rejected(status, &request);
    }
    response
}

/// Returns the response that the gate flags prescribe for this request, if any.
fn apply_gate(gate: &GateFlags, headers: &HeaderMap) -> Option<Response> {
    if let Some(status) = gate.status {
        let status = StatusCode::from_u16(status).expect("`--status` is not an HTTP status");
        return Some(
            (status, format!("every request is answered with {status}\n")).into_response(),
        );
    }
    if let Some(url) = &gate.redirect {
        let location = [(LOCATION, url.clone())];
        return Some((StatusCode::TEMPORARY_REDIRECT, location).into_response());
    }
    let (name, _) = gate.require_header.iter().find(|(name, value)| {
        let found = headers.get(name.as_str());
        found.is_none_or(|found| found != value.as_str())
    })?;
    let challenge = [(WWW_AUTHENTICATE, r#"Bearer realm="zoo""#)];
    let text = format!("the header `{name}` is missing or wrong\n");
    Some((StatusCode::UNAUTHORIZED, challenge, text).into_response())
}

/// `GET /mcp`: resumes an interrupted stream, or opens a stream for announcements.
fn open_get_stream(endpoint: &HttpEndpoint, headers: &HeaderMap) -> Response {
    if !endpoint.server.eras().has_legacy() {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains("text/event-stream")) {
        return StatusCode::NOT_ACCEPTABLE.into_response();
    }
    let scope = match endpoint.sessions.check(headers, Traffic::Other) {
        Ok(scope) => scope,
        Err(rejection) => return rejection.into_response(),
    };
    if let Some(id) = headers.get("last-event-id") {
        let frames = id
            .to_str()
            .ok()
            .and_then(|id| endpoint.interrupted_streams.take(id));
        return match frames {
            Some(frames) => sse::response(sse::frame_events(frames)),
            None => {
                let message = format!("unknown event id {id:?}");
                Rejection::new(StatusCode::BAD_REQUEST, message).into_response()
            }
        };
    }
    let (outbox, frames) = Outbox::new();
    endpoint.server.send_list_changed_storm("{}", &outbox);
    // Storing the outbox keeps the stream open until the client disconnects or its session ends.
    endpoint.server.peers.add_stream(&scope, outbox);
    sse::response(sse::frame_events(frames))
}

impl InterruptedStreams {
    /// Stores the remaining frames under a new event id.
    pub(crate) fn store(&self, frames: UnboundedReceiver<Frame>) -> String {
        let id = format!("zoo-event-{}", self.next.fetch_add(1, Ordering::Relaxed));
        self.frames.lock().insert(id.clone(), frames);
        id
    }

    fn take(&self, id: &str) -> Option<UnboundedReceiver<Frame>> {
        self.frames.lock().remove(id)
    }
}

//! The HTTP transport: one endpoint, and who may pass to it.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

use super::flags::{Faults, Gate, HttpFlags};
use super::headers;
use super::old_sse::{self, Streams};
use super::outbox::{Frame, Outbox};
use super::post;
use super::refusal::Refusal;
use super::rpc::Message;
use super::server::Server;
use super::session::{Sessions, Traffic};
use super::sse;

/// Everything the HTTP transport knows.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) server: Arc<Server>,
    pub(crate) flags: HttpFlags,
    pub(crate) sessions: Sessions,
    pub(crate) cut_streams: CutStreams,
    pub(crate) old_streams: Streams,
}

/// Answers whose stream was cut, until somebody asks for them by event id.
#[derive(Debug, Default)]
pub(crate) struct CutStreams {
    next: AtomicU64,
    kept: Mutex<HashMap<String, UnboundedReceiver<Frame>>>,
}

/// Listens on the port and serves for ever.
pub(crate) async fn serve(server: Arc<Server>, port: u16, faults: &Faults, mut flags: HttpFlags) {
    flags.sessions.sessions |= server.fixtures.is_some();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap_or_else(|error| panic!("cannot listen on port {port}: {error}"));
    let port = listener.local_addr().expect("it is bound").port();
    println!("listening on http://127.0.0.1:{port}/mcp");
    let _ = std::io::stdout().flush();
    if let Some(ms) = faults.slow_start {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    let endpoint = Endpoint {
        server,
        sessions: Sessions::new(&flags.sessions),
        flags,
        cut_streams: CutStreams::default(),
        old_streams: Streams::default(),
    };
    let router = Router::new().fallback(entry).with_state(Arc::new(endpoint));
    axum::serve(listener, router)
        .await
        .expect("serving never fails");
}

async fn entry(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let old = endpoint.flags.sse_legacy;
    let headers = &parts.headers;
    let stranger = endpoint.server.fixtures.is_some() && headers::is_foreign(headers);
    let response = match turned_away(&endpoint.flags.gate, headers) {
        None if stranger => {
            Refusal::new(StatusCode::FORBIDDEN, "this is for local clients").into_response()
        }
        Some(response) => response,
        None => match (&parts.method, parts.uri.path(), old) {
            (&Method::POST, "/mcp", false) => post::answer(&endpoint, headers, &body)
                .await
                .unwrap_or_else(Refusal::into_response),
            (&Method::GET, "/mcp", false) => listen(&endpoint, headers),
            (&Method::DELETE, "/mcp", false) => match endpoint.sessions.end(headers) {
                Ok(session) => {
                    endpoint.server.peers.forget(&session);
                    StatusCode::NO_CONTENT.into_response()
                }
                Err(refusal) => refusal.into_response(),
            },
            (&Method::GET, "/sse", true) => old_sse::open(&endpoint),
            (&Method::POST, "/messages", true) => old_sse::post(&endpoint, &parts, &body),
            (_, "/mcp", _) | (_, "/sse" | "/messages", true) => {
                StatusCode::METHOD_NOT_ALLOWED.into_response()
            }
            _ => StatusCode::NOT_FOUND.into_response(),
        },
    };
    if !response.status().is_success()
        && let Ok(Message::Request(request)) = Message::parse(&body)
    {
        let status = response.status().as_u16();
        endpoint.server.ledger.refused(status, &request);
    }
    response
}

/// What the flags have to say about every request, or about this one, if anything.
fn turned_away(gate: &Gate, headers: &HeaderMap) -> Option<Response> {
    if let Some(status) = gate.status {
        let status = StatusCode::from_u16(status).expect("`--status` is an HTTP status");
        return Some((status, format!("every request gets {status} here\n")).into_response());
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

/// `GET /mcp`: the answer of a stream that was cut, or what the server has to announce.
fn listen(endpoint: &Endpoint, headers: &HeaderMap) -> Response {
    if !endpoint.server.eras().has_legacy() {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains("text/event-stream")) {
        return StatusCode::NOT_ACCEPTABLE.into_response();
    }
    let scope = match endpoint.sessions.check(headers, Traffic::Other) {
        Ok(scope) => scope,
        Err(refusal) => return refusal.into_response(),
    };
    if let Some(id) = headers.get("last-event-id") {
        let kept = id
            .to_str()
            .ok()
            .and_then(|id| endpoint.cut_streams.take(id));
        return match kept {
            Some(frames) => sse::response(sse::frames(frames)),
            None => {
                let message = format!("unknown event id {id:?}");
                Refusal::new(StatusCode::BAD_REQUEST, message).into_response()
            }
        };
    }
    let (outbox, frames) = Outbox::new();
    endpoint.server.storm("{}", &outbox);
    // The outbox is kept, so that the stream stays open until the client or its session ends.
    endpoint.server.peers.add_stream(&scope, outbox);
    sse::response(sse::frames(frames))
}

impl CutStreams {
    /// Keeps what is still to come under a new event id.
    pub(crate) fn keep(&self, frames: UnboundedReceiver<Frame>) -> String {
        let id = format!("zoo-event-{}", self.next.fetch_add(1, Ordering::Relaxed));
        self.kept.lock().unwrap().insert(id.clone(), frames);
        id
    }

    fn take(&self, id: &str) -> Option<UnboundedReceiver<Frame>> {
        self.kept.lock().unwrap().remove(id)
    }
}

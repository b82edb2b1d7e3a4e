//! `POST /mcp`: one message in, its answer out as JSON or as an event stream.

use std::sync::Arc;

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::mpsc::UnboundedReceiver;

use super::era::{self, Era, MODERN};
use super::flags::Eras;
use super::headers;
use super::http::Endpoint;
use super::outbox::{Frame, Outbox};
use super::refusal::{Refusal, json};
use super::rpc::{METHOD_NOT_FOUND, Message, Request, RpcError};
use super::server::{HangUp, Origin};
use super::session::Traffic;
use super::sse;

/// Answers one POST; the error is a refusal, sent before anything ran.
pub(crate) async fn answer(
    endpoint: &Arc<Endpoint>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Refusal> {
    check_media(headers)?;
    let message = Message::parse(body)
        .map_err(|answer| Refusal::with_body(StatusCode::BAD_REQUEST, answer))?;
    endpoint.server.arrived(&message);
    match message {
        Message::Response(reply) => {
            let scope = scope_of(endpoint, headers)?;
            endpoint.server.answered(&scope, reply);
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Message::Notification { method, params } => {
            let scope = scope_of(endpoint, headers)?;
            endpoint.server.notified(&method, &params, &scope, None);
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Message::Request(request) => answer_request(endpoint, headers, request).await,
    }
}

/// The headers as text, names in lower case.
pub(crate) fn readable(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.as_str().to_owned(), value.into_owned())
        })
        .collect()
}

/// The session of a message that is not answered.
fn scope_of(endpoint: &Endpoint, headers: &HeaderMap) -> Result<String, Refusal> {
    match endpoint.server.eras() {
        Eras::Modern => Ok(String::new()),
        Eras::Legacy | Eras::Dual => endpoint.sessions.check(headers, Traffic::Other),
    }
}

async fn answer_request(
    endpoint: &Arc<Endpoint>,
    headers: &HeaderMap,
    request: Request,
) -> Result<Response, Refusal> {
    let silent = endpoint.server.is_silent_on(&request.method);
    let (scope, new_session, hang_up) = match era_of(endpoint, headers, &request) {
        Era::Modern => {
            if !silent {
                check_modern(endpoint, headers, &request)?;
            }
            (String::new(), None, HangUp::Cancels)
        }
        Era::Legacy if request.method == "initialize" => {
            let version = era::negotiate(request.params.protocol_version.as_deref());
            let session = endpoint.sessions.begin(version);
            let scope = session.clone().unwrap_or_default();
            (scope, session, HangUp::Ignored)
        }
        Era::Legacy => {
            let session = endpoint.sessions.check(headers, Traffic::Request)?;
            (session, None, HangUp::Ignored)
        }
    };
    let origin = Origin {
        scope: scope.clone(),
        headers: readable(headers),
        hang_up,
    };
    let method = request.method.clone();
    let (outbox, frames) = Outbox::new();
    endpoint.server.start(request, origin, outbox);
    let mut response = match method.as_str() {
        "tools/call" if endpoint.flags.half_close => cut(endpoint, frames),
        "subscriptions/listen" => sse::response(sse::frames(frames)),
        _ if endpoint.flags.json => only_answer(endpoint, frames, &scope).await,
        _ => sse::response(resumable(Arc::clone(endpoint), frames)),
    };
    if let Some(session) = new_session {
        let session = HeaderValue::from_str(&session).expect("a session id is plain ASCII");
        response.headers_mut().insert("mcp-session-id", session);
    }
    Ok(response)
}

fn era_of(endpoint: &Endpoint, headers: &HeaderMap, request: &Request) -> Era {
    let eras = endpoint.server.eras();
    let version = headers.get("mcp-protocol-version");
    // The header alone makes it modern, so that a missing `_meta` is found out.
    if eras == Eras::Dual && version.is_some_and(|version| version == MODERN) {
        return Era::Modern;
    }
    eras.of(request)
}

fn check_modern(
    endpoint: &Endpoint,
    headers: &HeaderMap,
    request: &Request,
) -> Result<(), Refusal> {
    let server = &endpoint.server;
    let refuse = |error: &RpcError| {
        let status = match error.code {
            METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal::with_body(status, error.answer(&request.id))
    };
    if request.method == "initialize" && request.declared_version().is_none() {
        let requested = request.params.protocol_version.as_deref();
        let error = server.eras().unsupported(requested.unwrap_or_default());
        return Err(refuse(&error));
    }
    if request.declared_version().is_some() {
        headers::check(headers, request, &server.catalog).map_err(|error| refuse(&error))?;
    } else {
        era::check_meta(request, server.eras()).map_err(|error| refuse(&error))?;
    }
    server.admit(request).map_err(|error| refuse(&error))
}

/// Ends the stream before the answer; if it can be resumed, the answer waits for a GET.
fn cut(endpoint: &Endpoint, frames: UnboundedReceiver<Frame>) -> Response {
    if endpoint.flags.resumable {
        let id = endpoint.cut_streams.keep(frames);
        sse::response(stream::iter([sse::priming(&id)]))
    } else {
        sse::response(stream::empty())
    }
}

/// The stream of a request, until the server cuts it; then the rest waits for a GET.
fn resumable(
    endpoint: Arc<Endpoint>,
    frames: UnboundedReceiver<Frame>,
) -> impl Stream<Item = Bytes> {
    stream::unfold(Some((endpoint, frames)), async |state| {
        let (endpoint, mut frames) = state?;
        let frame = frames.recv().await?;
        match frame.text() {
            Some(text) => Some((sse::message(text), Some((endpoint, frames)))),
            None => {
                let id = endpoint.cut_streams.keep(frames);
                Some((sse::priming(&id), None))
            }
        }
    })
}

/// A body has room for one message; what we ask the client goes to its GET stream.
async fn only_answer(
    endpoint: &Endpoint,
    mut frames: UnboundedReceiver<Frame>,
    scope: &str,
) -> Response {
    let peers = &endpoint.server.peers;
    while let Some(frame) = frames.recv().await {
        match frame {
            Frame::Answer(text) => return json(StatusCode::OK, text),
            Frame::Question { id, text } => match peers.stream(scope) {
                Some(stream) => stream.ask(id, text),
                None => peers.questions.give_up(scope, &id),
            },
            Frame::Notification(_) | Frame::Cut => {}
        }
    }
    // The call was cancelled, so there is nothing to say.
    StatusCode::NO_CONTENT.into_response()
}

fn check_media(headers: &HeaderMap) -> Result<(), Refusal> {
    let has = |name, media: &str| {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.contains(media))
    };
    if !has(ACCEPT, "application/json") || !has(ACCEPT, "text/event-stream") {
        let message = "`Accept` has to list application/json and text/event-stream";
        return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, message));
    }
    if !has(CONTENT_TYPE, "application/json") {
        let message = "`Content-Type` has to be application/json";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

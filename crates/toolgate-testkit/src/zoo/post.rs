//! `POST /mcp`: accepts one message and answers as JSON or as an event stream.

use std::sync::Arc;

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::mpsc::UnboundedReceiver;

use super::era::{self, MODERN, RequestEra};
use super::flags::SupportedEras;
use super::headers;
use super::http::HttpEndpoint;
use super::outbox::{Frame, Outbox};
use super::rejection::{Rejection, json};
use super::rpc::{METHOD_NOT_FOUND, Request, RpcMessage, ZooError};
use super::server::{OnDisconnect, RequestOrigin};
use super::session::Traffic;
use super::sse;

/// Handles one POST; the error is a rejection before anything ran.
pub(crate) async fn handle(
    endpoint: &Arc<HttpEndpoint>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Rejection> {
    check_media(headers)?;
    let message = RpcMessage::parse(body)
        .map_err(|answer| Rejection::with_body(StatusCode::BAD_REQUEST, answer))?;
    endpoint.server.on_message(&message);
    match message {
        RpcMessage::Response(reply) => {
            let scope = scope_of(endpoint, headers)?;
            endpoint.server.on_response(&scope, reply);
            Ok(StatusCode::ACCEPTED.into_response())
        }
        RpcMessage::Notification { method, params } => {
            let scope = scope_of(endpoint, headers)?;
            endpoint
                .server
                .on_notification(&method, &params, &scope, None);
            Ok(StatusCode::ACCEPTED.into_response())
        }
        RpcMessage::Request(request) => handle_request(endpoint, headers, request).await,
    }
}

/// Converts headers to text, with names in lower case.
pub(crate) fn headers_to_text(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.as_str().to_owned(), value.into_owned())
        })
        .collect()
}

/// Returns the session of a notification or response.
fn scope_of(endpoint: &HttpEndpoint, headers: &HeaderMap) -> Result<String, Rejection> {
    match endpoint.server.eras() {
        SupportedEras::Modern => Ok(String::new()),
        SupportedEras::Legacy | SupportedEras::Dual => {
            endpoint.sessions.check(headers, Traffic::Other)
        }
    }
}

async fn handle_request(
    endpoint: &Arc<HttpEndpoint>,
    headers: &HeaderMap,
    request: Request,
) -> Result<Response, Rejection> {
    let silent = endpoint.server.is_silent_on(&request.method);
    let (scope, new_session, on_disconnect) = match era_of(endpoint, headers, &request) {
        RequestEra::Modern => {
            if !silent {
                check_modern(endpoint, headers, &request)?;
            }
            (String::new(), None, OnDisconnect::Cancel)
        }
        RequestEra::Legacy if request.method == "initialize" => {
            let version = era::negotiate(request.params.protocol_version.as_deref());
            let session = endpoint.sessions.create(version);
            let scope = session.clone().unwrap_or_default();
            (scope, session, OnDisconnect::Ignore)
        }
        RequestEra::Legacy => {
            let session = endpoint.sessions.check(headers, Traffic::Request)?;
            (session, None, OnDisconnect::Ignore)
        }
    };
    let origin = RequestOrigin {
        scope: scope.clone(),
        headers: headers_to_text(headers),
        on_disconnect,
    };
    let method = request.method.clone();
    let (outbox, frames) = Outbox::new();
    endpoint.server.start(request, origin, outbox);
    let mut response = match method.as_str() {
        "tools/call" if endpoint.flags.half_close => half_close(endpoint, frames),
        "subscriptions/listen" => sse::response(sse::frame_events(frames)),
        _ if endpoint.flags.json => json_response(endpoint, frames, &scope).await,
        _ => sse::response(resumable_stream(Arc::clone(endpoint), frames)),
    };
    if let Some(session) = new_session {
        let session = HeaderValue::from_str(&session).expect("a session id must be plain ASCII");
        response.headers_mut().insert("mcp-session-id", session);
    }
    Ok(response)
}

fn era_of(endpoint: &HttpEndpoint, headers: &HeaderMap, request: &Request) -> RequestEra {
    let eras = endpoint.server.eras();
    let version = headers.get("mcp-protocol-version");
    // The header alone makes a request modern, so that a missing `_meta` is an error.
    if eras == SupportedEras::Dual && version.is_some_and(|version| version == MODERN) {
        return RequestEra::Modern;
    }
    eras.era_of(request)
}

fn check_modern(
    endpoint: &HttpEndpoint,
    headers: &HeaderMap,
    request: &Request,
) -> Result<(), Rejection> {
    let server = &endpoint.server;
    let refuse = |error: &ZooError| {
        let status = match error.code {
            METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Rejection::with_body(status, error.response(&request.id))
    };
    if request.method == "initialize" && request.declared_version().is_none() {
        let requested = request.params.protocol_version.as_deref();
        let error = server
            .eras()
            .unsupported_version_error(requested.unwrap_or_default());
        return Err(refuse(&error));
    }
    if request.declared_version().is_some() {
        headers::check(headers, request, &server.catalog).map_err(|error| refuse(&error))?;
    } else {
        era::check_meta(request, server.eras()).map_err(|error| refuse(&error))?;
    }
    server.admit(request).map_err(|error| refuse(&error))
}

/// Ends the stream before the response; with `--resumable`, a GET delivers the response.
fn half_close(endpoint: &HttpEndpoint, frames: UnboundedReceiver<Frame>) -> Response {
    if endpoint.flags.resumable {
        let id = endpoint.interrupted_streams.store(frames);
        sse::response(stream::iter([sse::priming_event(&id)]))
    } else {
        sse::response(stream::empty())
    }
}

/// Streams the frames of a request; after an interruption, a GET delivers the rest.
fn resumable_stream(
    endpoint: Arc<HttpEndpoint>,
    frames: UnboundedReceiver<Frame>,
) -> impl Stream<Item = Bytes> {
    stream::unfold(Some((endpoint, frames)), async |state| {
        let (endpoint, mut frames) = state?;
        let frame = frames.recv().await?;
        match frame.text() {
            Some(text) => Some((sse::message_event(text), Some((endpoint, frames)))),
            None => {
                let id = endpoint.interrupted_streams.store(frames);
                Some((sse::priming_event(&id), None))
            }
        }
    })
}

/// Answers with a JSON body, which holds one message; requests to the client go to its GET stream.
async fn json_response(
    endpoint: &HttpEndpoint,
    mut frames: UnboundedReceiver<Frame>,
    scope: &str,
) -> Response {
    let peers = &endpoint.server.peers;
    while let Some(frame) = frames.recv().await {
        match frame {
            Frame::Answer(text) => return json(StatusCode::OK, text),
            Frame::ClientRequest { id, text } => match peers.stream(scope) {
                Some(stream) => stream.send_request(id, text),
                None => peers.pending_requests.abandon(scope, &id),
            },
            Frame::Notification(_) | Frame::Interrupt => {}
        }
    }
    // The call was cancelled, so there is no response.
    StatusCode::NO_CONTENT.into_response()
}

fn check_media(headers: &HeaderMap) -> Result<(), Rejection> {
    let has = |name, media: &str| {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.contains(media))
    };
    if !has(ACCEPT, "application/json") || !has(ACCEPT, "text/event-stream") {
        let message = "`Accept` must list application/json and text/event-stream";
        return Err(Rejection::new(StatusCode::NOT_ACCEPTABLE, message));
    }
    if !has(CONTENT_TYPE, "application/json") {
        let message = "`Content-Type` must be application/json";
        return Err(Rejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

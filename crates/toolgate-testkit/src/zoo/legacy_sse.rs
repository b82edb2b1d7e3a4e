//! The HTTP+SSE transport of 2024-11-05: one stream for all answers, with separate POSTs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;

use super::http::HttpEndpoint;
use super::outbox::Outbox;
use super::post::headers_to_text;
use super::rejection::json;
use super::rpc::RpcMessage;
use super::server::{OnDisconnect, RequestOrigin};
use super::sse;

/// The open streams by the id in the URL to post to.
#[derive(Debug, Default)]
pub(crate) struct LegacyStreams {
    next: AtomicU64,
    open: Mutex<HashMap<String, Outbox>>,
}

/// `GET /sse`: sends the URL to post to, then every answer.
pub(crate) fn open(endpoint: &Arc<HttpEndpoint>) -> Response {
    let streams = &endpoint.legacy_streams;
    let number = streams.next.fetch_add(1, Ordering::Relaxed);
    let id = format!("{}-{number}", std::process::id());
    let (outbox, frames) = Outbox::new();
    streams.open.lock().insert(id.clone(), outbox);
    let address = sse::event("endpoint", &format!("/messages?sessionId={id}"));
    let guard = StreamGuard {
        endpoint: Arc::clone(endpoint),
        id,
    };
    let messages = sse::frame_events(frames).map(move |event| {
        let _ = &guard;
        event
    });
    sse::response(stream::iter([address]).chain(messages))
}

/// `POST /messages`: accepts a message for the stream named in the query.
pub(crate) fn post(endpoint: &HttpEndpoint, parts: &Parts, body: &[u8]) -> Response {
    let id = parts
        .uri
        .query()
        .and_then(|query| query.strip_prefix("sessionId="))
        .unwrap_or_default();
    let outbox = endpoint.legacy_streams.open.lock().get(id).cloned();
    let Some(outbox) = outbox else {
        return (StatusCode::NOT_FOUND, "unknown session\n").into_response();
    };
    let message = match RpcMessage::parse(body) {
        Ok(message) => message,
        Err(answer) => return json(StatusCode::BAD_REQUEST, answer),
    };
    let server = &endpoint.server;
    server.on_message(&message);
    match message {
        RpcMessage::Request(request) => {
            let origin = RequestOrigin {
                scope: id.to_owned(),
                headers: headers_to_text(&parts.headers),
                on_disconnect: OnDisconnect::Ignore,
            };
            server.start(request, origin, outbox);
        }
        RpcMessage::Notification { method, params } => {
            server.on_notification(&method, &params, id, Some(&outbox));
        }
        RpcMessage::Response(reply) => server.on_response(id, reply),
    }
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

/// Removes the stream when its client disconnects.
struct StreamGuard {
    endpoint: Arc<HttpEndpoint>,
    id: String,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let streams = &self.endpoint.legacy_streams;
        streams.open.lock().remove(&self.id);
        self.endpoint.server.peers.remove(&self.id);
    }
}

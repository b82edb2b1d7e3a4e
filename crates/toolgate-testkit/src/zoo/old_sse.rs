//! The HTTP+SSE transport of 2024-11-05: one stream for all answers, POSTs beside it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, StreamExt as _};

use super::http::Endpoint;
use super::outbox::Outbox;
use super::post::readable;
use super::refusal::json;
use super::rpc::Message;
use super::server::{HangUp, Origin};
use super::sse;

/// The open streams by the id that is part of the address to post to.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    next: AtomicU64,
    open: Mutex<HashMap<String, Outbox>>,
}

/// `GET /sse`: tells where to post, then sends every answer.
pub(crate) fn open(endpoint: &Arc<Endpoint>) -> Response {
    let streams = &endpoint.old_streams;
    let number = streams.next.fetch_add(1, Ordering::Relaxed);
    let id = format!("{}-{number}", std::process::id());
    let (outbox, frames) = Outbox::new();
    streams.open.lock().unwrap().insert(id.clone(), outbox);
    let address = sse::event("endpoint", &format!("/messages?sessionId={id}"));
    let forget = Forget {
        endpoint: Arc::clone(endpoint),
        id,
    };
    let messages = sse::frames(frames).map(move |event| {
        let _ = &forget;
        event
    });
    sse::response(stream::iter([address]).chain(messages))
}

/// `POST /messages`: takes a message for the stream that the query names.
pub(crate) fn post(endpoint: &Endpoint, parts: &Parts, body: &[u8]) -> Response {
    let id = parts
        .uri
        .query()
        .and_then(|query| query.strip_prefix("sessionId="))
        .unwrap_or_default();
    let outbox = endpoint.old_streams.open.lock().unwrap().get(id).cloned();
    let Some(outbox) = outbox else {
        return (StatusCode::NOT_FOUND, "unknown session\n").into_response();
    };
    let message = match Message::parse(body) {
        Ok(message) => message,
        Err(answer) => return json(StatusCode::BAD_REQUEST, answer),
    };
    let server = &endpoint.server;
    server.arrived(&message);
    match message {
        Message::Request(request) => {
            let origin = Origin {
                scope: id.to_owned(),
                headers: readable(&parts.headers),
                hang_up: HangUp::Ignored,
            };
            server.start(request, origin, outbox);
        }
        Message::Notification { method, params } => {
            server.notified(&method, &params, id, Some(&outbox));
        }
        Message::Response(reply) => server.answered(id, reply),
    }
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

/// Forgets a stream when its client is gone.
struct Forget {
    endpoint: Arc<Endpoint>,
    id: String,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let streams = &self.endpoint.old_streams;
        streams.open.lock().unwrap().remove(&self.id);
        self.endpoint.server.peers.forget(&self.id);
    }
}

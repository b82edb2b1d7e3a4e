//! Event streams: messages as events, and response bodies made of them.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use std::convert::Infallible;
use tokio::sync::mpsc::UnboundedReceiver;

use super::outbox::Frame;

/// Encodes frames as events; the stream ends when all senders are dropped.
pub(crate) fn frame_events(frames: UnboundedReceiver<Frame>) -> impl Stream<Item = Bytes> {
    stream::unfold(frames, async |mut frames| {
        loop {
            if let Some(text) = frames.recv().await?.text() {
                return Some((message_event(text), frames));
            }
        }
    })
}

/// Builds a response with this stream of events as the body.
pub(crate) fn response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache, no-transform"),
    ];
    let body = Body::from_stream(events.map(Ok::<_, Infallible>));
    let mut response = (headers, body).into_response();
    let unbuffered = axum::http::HeaderValue::from_static("no");
    response
        .headers_mut()
        .insert("x-accel-buffering", unbuffered);
    response
}

/// Builds an event without data that carries the id to resume from and the retry delay.
pub(crate) fn priming_event(id: &str) -> Bytes {
    Bytes::from(format!("id: {id}\nretry: 100\ndata:\n\n"))
}

/// Builds an event; each line of the text becomes a `data` line.
pub(crate) fn event(kind: &str, text: &str) -> Bytes {
    let mut event = format!("event: {kind}\n");
    for line in text.lines() {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    Bytes::from(event)
}

pub(crate) fn message_event(text: &str) -> Bytes {
    event("message", text)
}

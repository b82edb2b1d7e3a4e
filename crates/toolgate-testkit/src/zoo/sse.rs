//! Event streams: messages as events, and response bodies made of them.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use std::convert::Infallible;
use tokio::sync::mpsc::UnboundedReceiver;

use super::outbox::Frame;

/// A stream that ends when nobody is left who could send to it.
pub(crate) fn frames(frames: UnboundedReceiver<Frame>) -> impl Stream<Item = Bytes> {
    stream::unfold(frames, async |mut frames| {
        loop {
            if let Some(text) = frames.recv().await?.text() {
                return Some((message(text), frames));
            }
        }
    })
}

/// A response whose body is this stream of events.
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

/// The event that only tells an id to resume from, and how long to wait before.
pub(crate) fn priming(id: &str) -> Bytes {
    Bytes::from(format!("id: {id}\nretry: 100\ndata:\n\n"))
}

/// An event of this kind; a text of several lines is sent as several.
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

pub(crate) fn message(text: &str) -> Bytes {
    event("message", text)
}

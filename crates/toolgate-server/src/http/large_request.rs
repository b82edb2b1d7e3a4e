//! Requests with a large body, which take much time to process.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Method};
use toolgate::large::{LARGE_BYTES, run_large};

use super::connections::Connection;

/// What is known of the size of a request's body before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySize {
    Small,
    Large,
    /// The body is sent in chunks.
    Unknown,
}

impl BodySize {
    pub(super) fn new(method: &Method, headers: &HeaderMap) -> Self {
        if matches!(*method, Method::GET | Method::HEAD | Method::DELETE) {
            return Self::Small;
        }
        let length = headers.get(CONTENT_LENGTH);
        match length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok()) {
            Some(length) if length < LARGE_BYTES => Self::Small,
            Some(_) => Self::Large,
            None => Self::Unknown,
        }
    }
}

/// Processes a request, step by step. Steps of one with a large body do not delay other requests.
pub(super) async fn process<F: Future>(
    answer: F,
    size: BodySize,
    connection: Arc<Connection>,
) -> F::Output {
    if size == BodySize::Small {
        return answer.await;
    }
    let request = LargeRequest {
        answer: Box::pin(answer),
        is_large: size == BodySize::Large,
        connection,
    };
    request.await
}

struct LargeRequest<F> {
    answer: Pin<Box<F>>,
    is_large: bool,
    connection: Arc<Connection>,
}

impl<F: Future> Future for LargeRequest<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let is_large = self.is_large || self.connection.holds_body();
        let bytes = if is_large { LARGE_BYTES } else { 0 };
        run_large(bytes, || self.answer.as_mut().poll(context))
    }
}

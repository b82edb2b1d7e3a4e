//! Requests with a large body, which take much time to process.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Method};
use toolgate::large::{LARGE_BYTES, run_large};

/// Returns whether a request may have a large body. One without a length is sent in chunks.
pub(super) fn is_large(method: &Method, headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let has_body = !matches!(*method, Method::GET | Method::HEAD | Method::DELETE);
    has_body && length.is_none_or(|length| length >= LARGE_BYTES)
}

/// Processes a large request, step by step, without delaying other requests.
pub(super) async fn process<F: Future>(answer: F) -> F::Output {
    LargeRequest(Box::pin(answer)).await
}

struct LargeRequest<F>(Pin<Box<F>>);

impl<F: Future> Future for LargeRequest<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        run_large(LARGE_BYTES, || self.0.as_mut().poll(context))
    }
}

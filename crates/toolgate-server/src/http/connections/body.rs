//! Bodies of requests, which must make progress, and of responses, which keep their connection busy.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};
use toolgate::metrics::Bound;

use super::{Connection, ServedRequest};

/// The body of a request. Fails if nothing arrives for some time.
#[derive(Debug)]
pub(in crate::http) struct ProgressBody {
    body: Incoming,
    connection: Arc<Connection>,
    /// Runs while the body is awaited.
    timeout: Option<Pin<Box<Sleep>>>,
}

/// The body of a response.
#[derive(Debug)]
pub(in crate::http) struct BusyBody {
    body: Body,
    _request: ServedRequest,
}

/// Error of a body that makes no progress.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request's body did not arrive in time (`http.body_timeout`)")]
pub(in crate::http) struct BodyTimeout;

impl ProgressBody {
    pub(in crate::http) fn new(body: Incoming, connection: Arc<Connection>) -> Self {
        connection.set_unread_body(!body.is_end_stream());
        Self {
            body,
            connection,
            timeout: None,
        }
    }

    /// Returns whether the time for progress is over.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> bool {
        let wait = self.connection.body_timeout();
        let timeout = self
            .timeout
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        timeout.as_mut().poll(context).is_ready()
    }
}

impl HttpBody for ProgressBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                if frame.is_none() || self.body.is_end_stream() {
                    self.connection.set_unread_body(false);
                }
                let wait = self.connection.body_timeout();
                if let Some(timeout) = &mut self.timeout {
                    timeout.as_mut().reset(Instant::now() + wait);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)))
            }
            Poll::Pending if self.poll_timeout(context) => {
                self.connection.report(Bound::BodyTime, "");
                Poll::Ready(Some(Err(axum::Error::new(BodyTimeout))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl BusyBody {
    pub(in crate::http) fn new(body: Body, request: ServedRequest) -> Self {
        Self {
            body,
            _request: request,
        }
    }
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

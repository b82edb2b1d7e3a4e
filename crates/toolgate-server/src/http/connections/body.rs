//! Bodies of requests, which must make progress, and of responses, which keep their connection busy.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};
use toolgate::metrics::Bound;

use super::{BodyRefused, Connection, ServedRequest};

/// Bytes of each body that do not count, so that ordinary requests are served beside large ones.
const UNCOUNTED_BYTES: usize = 64 * 1024;

/// Maximum size of the pieces in which a response is sent.
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// The body of a request. Fails if nothing arrives for some time.
#[derive(Debug)]
pub(in crate::http) struct ProgressBody {
    body: Incoming,
    connection: Arc<Connection>,
    received: usize,
    /// Runs while the body is awaited.
    timeout: Option<Pin<Box<Sleep>>>,
}

/// The body of a response.
#[derive(Debug)]
pub(in crate::http) struct BusyBody {
    body: Body,
    /// What remains of a large frame.
    rest: Bytes,
    /// Whether frames count one by one, because the size of all is not known.
    counts_frames: bool,
    /// Bytes of the current frame that count.
    counted: usize,
    request: ServedRequest,
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
            received: 0,
            timeout: None,
        }
    }

    /// Counts received bytes towards the limits, except the first ones.
    fn hold(&mut self, bytes: usize) -> Result<(), BodyRefused> {
        let before = self.received;
        self.received += bytes;
        let counted = |received: usize| received.saturating_sub(UNCOUNTED_BYTES);
        match counted(self.received) - counted(before) {
            0 => Ok(()),
            bytes => self.connection.hold_body(bytes),
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
                let held = match &frame {
                    Some(Ok(frame)) => self.hold(frame.data_ref().map_or(0, Bytes::len)),
                    _ => Ok(()),
                };
                match held {
                    Ok(()) => Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new))),
                    Err(refused) => Poll::Ready(Some(Err(axum::Error::new(refused)))),
                }
            }
            Poll::Pending if self.poll_timeout(context) => {
                let peer = self.connection.state.peer.to_string();
                self.connection.report(Bound::BodyTime, &peer);
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
        let bytes = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if bytes > UNCOUNTED_BYTES {
            request.0.hold_response(bytes);
        }
        Self {
            body,
            rest: Bytes::new(),
            counts_frames: bytes == 0,
            counted: 0,
            request,
        }
    }

    /// Counts a frame in place of the one before it, which has been sent.
    fn count_frame(&mut self, bytes: usize) {
        if !self.counts_frames {
            return;
        }
        let connection = &self.request.0;
        connection.release_response(std::mem::take(&mut self.counted));
        if bytes > UNCOUNTED_BYTES {
            connection.hold_response(bytes);
            self.counted = bytes;
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
        // In pieces: the server takes the next one when the client has read most of those before, so the
        // request lasts until then.
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => {
                    self.count_frame(data.len());
                    self.rest = data;
                }
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(MAX_PIECE_BYTES);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

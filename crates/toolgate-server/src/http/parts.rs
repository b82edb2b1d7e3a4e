//! A body in a few parts that are sent without being put together.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// What stands before something large, that, and what stands behind it.
#[derive(Debug)]
pub(crate) struct Parts([Bytes; 3]);

impl Parts {
    pub(crate) fn new(parts: [Bytes; 3]) -> Self {
        Self(parts)
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.iter_mut().find(|part| !part.is_empty());
        Poll::Ready(next.map(|part| Ok(Frame::data(std::mem::take(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}

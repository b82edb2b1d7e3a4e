//! The body of an answer: whole, or in pieces that are sent one by one.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

#[derive(Debug)]
pub(crate) enum Answer {
    Whole(Bytes),
    Stream {
        pieces: VecDeque<Bytes>,
        writing: Writing,
    },
}

/// How the pieces of a stream are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// As many at a time as the connection takes.
    Together,
    /// Each by itself, as a model does that thinks in between.
    Singly,
    /// A piece was given out that is to be written first.
    Now,
}

impl Answer {
    pub(crate) fn stream(pieces: Vec<Bytes>) -> Self {
        Self::Stream {
            pieces: pieces.into(),
            writing: Writing::Together,
        }
    }

    pub(crate) fn piecewise(pieces: Vec<Bytes>) -> Self {
        Self::Stream {
            pieces: pieces.into(),
            writing: Writing::Singly,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Stream { pieces, writing } => {
                match writing {
                    Writing::Together => {}
                    Writing::Singly => *writing = Writing::Now,
                    Writing::Now => {
                        // The connection writes what it has before it asks again.
                        *writing = Writing::Singly;
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream { pieces, .. } => pieces.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}

//! Response bodies: complete, or a stream of pieces.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

#[derive(Debug)]
pub(crate) enum MockBody {
    Whole(Bytes),
    Stream {
        pieces: VecDeque<Bytes>,
        writing: WriteMode,
    },
}

/// Write mode for the pieces of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// As many pieces per write as the connection takes.
    Together,
    /// One write per piece, like a model that generates token by token.
    Singly,
    /// A piece was returned and must be flushed before the next one.
    Flush,
}

impl MockBody {
    pub(crate) fn stream(pieces: Vec<Bytes>) -> Self {
        Self::Stream {
            pieces: pieces.into(),
            writing: WriteMode::Together,
        }
    }

    pub(crate) fn piecewise(pieces: Vec<Bytes>) -> Self {
        Self::Stream {
            pieces: pieces.into(),
            writing: WriteMode::Singly,
        }
    }
}

impl Body for MockBody {
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
                    WriteMode::Together => {}
                    WriteMode::Singly => *writing = WriteMode::Flush,
                    WriteMode::Flush => {
                        // Returning `Pending` makes the connection flush before it polls again.
                        *writing = WriteMode::Singly;
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

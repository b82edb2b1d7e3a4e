//! How the bytes of an answer reach the client, or do not.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;

/// How the bytes of a body are cut into writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Chunking {
    /// One event a write.
    #[default]
    Events,
    /// So many bytes a write, wherever that cuts.
    Bytes(usize),
    /// Everything in one write.
    Whole,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Manner {
    pub(crate) chunking: Chunking,
    pub(crate) ending: Ending,
    pub(crate) delay: Duration,
    pub(crate) pause: Duration,
}

/// How a body ends.
#[derive(Debug, Clone, Default)]
pub(crate) enum Ending {
    #[default]
    Complete,
    /// The connection is closed after so many events.
    Break(usize),
    /// After so many events there is an error instead of the rest.
    Failure(usize, String),
}

/// Counts its client as gone if it is dropped before the last byte was handed over.
#[derive(Debug)]
pub(crate) struct Witness {
    gone: Arc<AtomicUsize>,
    served: bool,
}

struct Delivery {
    writes: VecDeque<Bytes>,
    ending: Ending,
    pause: Duration,
    begun: bool,
    witness: Witness,
}

impl Witness {
    pub(crate) fn new(gone: &Arc<AtomicUsize>) -> Self {
        Self {
            gone: Arc::clone(gone),
            served: false,
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !self.served {
            self.gone.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The body that these events make.
pub(crate) fn body(mut events: Vec<Bytes>, manner: &Manner, mut witness: Witness) -> Body {
    if let Ending::Break(after) = manner.ending {
        events.truncate(after);
    }
    let writes: VecDeque<Bytes> = cut(events, manner.chunking).into();
    // The client of an empty body has everything already.
    witness.served = writes.is_empty();
    let delivery = Delivery {
        writes,
        ending: manner.ending.clone(),
        pause: manner.pause,
        begun: false,
        witness,
    };
    Body::from_stream(stream::unfold(delivery, next))
}

async fn next(mut delivery: Delivery) -> Option<(io::Result<Bytes>, Delivery)> {
    if delivery.begun || delivery.writes.is_empty() {
        // Waiting makes hyper flush: that is what keeps two writes apart, and what sends the head
        // and the last write before the connection is closed.
        match delivery.pause {
            Duration::ZERO => tokio::task::yield_now().await,
            pause => tokio::time::sleep(pause).await,
        }
    }
    delivery.begun = true;
    let write = match delivery.writes.pop_front() {
        Some(write) => Ok(write),
        None if matches!(delivery.ending, Ending::Break(_)) => {
            delivery.ending = Ending::Complete;
            Err(io::Error::other("the script closes the connection here"))
        }
        None => return None,
    };
    delivery.witness.served = delivery.writes.is_empty();
    Some((write, delivery))
}

fn cut(events: Vec<Bytes>, chunking: Chunking) -> Vec<Bytes> {
    let size = match chunking {
        Chunking::Events => return events,
        Chunking::Bytes(size) => size.max(1),
        Chunking::Whole => usize::MAX,
    };
    let whole = Bytes::from(events.concat());
    let starts = (0..whole.len()).step_by(size);
    starts
        .map(|start| whole.slice(start..whole.len().min(start.saturating_add(size))))
        .collect()
}

/// The events of a stream that is served as it is, with whatever ends them.
pub(crate) fn events(bytes: &Bytes) -> Vec<Bytes> {
    let mut events = Vec::new();
    let mut start = 0;
    for end in 1..=bytes.len() {
        let event = &bytes[start..end];
        if event.ends_with(b"\n\n") || event.ends_with(b"\r\n\r\n") || end == bytes.len() {
            events.push(bytes.slice(start..end));
            start = end;
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::{Chunking, cut, events};
    use bytes::Bytes;

    #[test]
    fn cutting_keeps_every_byte() {
        let stream = Bytes::from_static(b"data: 1\n\nevent: x\r\ndata: 2\r\n\r\n: rest");
        let apart = events(&stream);
        assert_eq!(apart.len(), 3);
        for (chunking, writes) in [
            (Chunking::Events, 3),
            (Chunking::Whole, 1),
            (Chunking::Bytes(1), stream.len()),
            (Chunking::Bytes(10), stream.len().div_ceil(10)),
        ] {
            let cut = cut(apart.clone(), chunking);
            assert_eq!((cut.len(), cut.concat()), (writes, stream.to_vec()));
        }
        assert!(cut(Vec::new(), Chunking::Whole).is_empty());
    }
}

//! Delivery of response bytes: chunking, delays and early disconnects.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;

/// How a body is split into writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Chunking {
    /// One event per write.
    #[default]
    Events,
    /// This many bytes per write, regardless of event boundaries.
    Bytes(usize),
    /// Everything in one write.
    Whole,
}

/// How a body is delivered.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeliveryOptions {
    pub(crate) chunking: Chunking,
    pub(crate) ending: BodyEnding,
    pub(crate) delay: Duration,
    pub(crate) pause: Duration,
}

/// How a body ends.
#[derive(Debug, Clone, Default)]
pub(crate) enum BodyEnding {
    #[default]
    Complete,
    /// Closes the connection after this many events.
    Disconnect(usize),
    /// Replaces the rest by an error after this many events.
    Error(usize, String),
}

/// Counts a disconnect if dropped before the last byte was handed over.
#[derive(Debug)]
pub(crate) struct DisconnectGuard {
    disconnects: Arc<AtomicUsize>,
    is_delivered: bool,
}

struct BodyState {
    writes: VecDeque<Bytes>,
    ending: BodyEnding,
    pause: Duration,
    started: bool,
    guard: DisconnectGuard,
}

impl DisconnectGuard {
    pub(crate) fn new(disconnects: &Arc<AtomicUsize>) -> Self {
        Self {
            disconnects: Arc::clone(disconnects),
            is_delivered: false,
        }
    }
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.disconnects.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Builds the body that delivers these events.
pub(crate) fn build_body(
    mut events: Vec<Bytes>,
    options: &DeliveryOptions,
    mut guard: DisconnectGuard,
) -> Body {
    if let BodyEnding::Disconnect(after) = options.ending {
        events.truncate(after);
    }
    let writes: VecDeque<Bytes> = split_into_writes(events, options.chunking).into();
    // The client of an empty body already has everything.
    guard.is_delivered = writes.is_empty();
    let state = BodyState {
        writes,
        ending: options.ending.clone(),
        pause: options.pause,
        started: false,
        guard,
    };
    Body::from_stream(stream::unfold(state, next_write))
}

async fn next_write(mut state: BodyState) -> Option<(io::Result<Bytes>, BodyState)> {
    if state.started || state.writes.is_empty() {
        // Yielding makes hyper flush: this keeps two writes apart, and sends the head and the last
        // write before the connection is closed.
        match state.pause {
            Duration::ZERO => tokio::task::yield_now().await,
            pause => tokio::time::sleep(pause).await,
        }
    }
    state.started = true;
    let write = match state.writes.pop_front() {
        Some(write) => Ok(write),
        None if matches!(state.ending, BodyEnding::Disconnect(_)) => {
            state.ending = BodyEnding::Complete;
            Err(io::Error::other("the script closes the connection"))
        }
        None => return None,
    };
    state.guard.is_delivered = state.writes.is_empty();
    Some((write, state))
}

fn split_into_writes(events: Vec<Bytes>, chunking: Chunking) -> Vec<Bytes> {
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

/// Splits a raw stream into events, each with its terminator.
pub(crate) fn split_events(bytes: &Bytes) -> Vec<Bytes> {
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
    use super::{Chunking, split_events, split_into_writes};
    use bytes::Bytes;

    #[test]
    fn splitting_preserves_every_byte() {
        let stream = Bytes::from_static(b"data: 1\n\nevent: x\r\ndata: 2\r\n\r\n: rest");
        let events = split_events(&stream);
        assert_eq!(events.len(), 3);
        for (chunking, expected) in [
            (Chunking::Events, 3),
            (Chunking::Whole, 1),
            (Chunking::Bytes(1), stream.len()),
            (Chunking::Bytes(10), stream.len().div_ceil(10)),
        ] {
            let writes = split_into_writes(events.clone(), chunking);
            assert_eq!((writes.len(), writes.concat()), (expected, stream.to_vec()));
        }
        assert!(split_into_writes(Vec::new(), Chunking::Whole).is_empty());
    }
}

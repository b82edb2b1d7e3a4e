//! The event streams of one session: one for the messages that belong to no request, and one for each
//! request whose answer takes longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::event_stream::{EventId, EventStream, StreamEvent};
use super::reply::PendingReply;
use crate::held_bytes::Hold;

/// Size of the answers that are always kept for a client that may have lost them. Further ones are kept
/// until half of the memory is used that may be held for the client's key, or for all.
const MIN_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of requests that go on although their client has left.
const MAX_LEFT_REQUESTS: usize = 8;

/// The streams of a session's requests, by number.
#[derive(Debug, Default)]
pub(super) struct EventStreams(Mutex<StreamTable>);

#[derive(Debug, Default)]
struct StreamTable {
    last: u64,
    streams: BTreeMap<u64, RequestStream>,
}

#[derive(Debug)]
struct RequestStream {
    events: Arc<EventStream>,
    /// Cancels the request.
    cancel: CancellationToken,
}

/// What a request needs whose answer outlives the client's connection.
#[derive(Debug)]
pub(super) struct Resumption {
    pub(super) streams: Arc<EventStreams>,
    /// Whether the client expects a first event without a message.
    pub(super) announces_ids: bool,
    pub(super) tasks: TaskTracker,
    /// Counts what is kept for the client.
    pub(super) memory: Hold,
    /// Ends requests whose clients are gone.
    pub(super) stop: CancellationToken,
}

impl EventStreams {
    /// Number of the stream for messages that belong to no request.
    pub(super) const SESSION: u64 = 0;

    fn open(
        &self,
        memory: Hold,
        stop: &CancellationToken,
    ) -> (Arc<EventStream>, CancellationToken) {
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table.cancel_oldest_left();
        let stream = RequestStream {
            events: Arc::new(EventStream::new(number, memory)),
            cancel: stop.child_token(),
        };
        let opened = (Arc::clone(&stream.events), stream.cancel.clone());
        table.streams.insert(number, stream);
        opened
    }

    /// Continues the stream of a request; `None` if it is not kept.
    pub(super) fn resume(&self, after: EventId) -> Option<BoxStream<'static, StreamEvent>> {
        let events = {
            let table = self.0.lock();
            Arc::clone(&table.streams.get(&after.stream)?.events)
        };
        Some(events.read(Some(after), false)?.boxed())
    }

    /// Cancels requests whose clients have left some time ago, and forgets their streams.
    pub(super) fn sweep(&self, timeout: Duration) {
        self.forget_oldest();
        self.0.lock().streams.retain(|_, stream| {
            let is_abandoned = stream.events.is_abandoned(timeout);
            if is_abandoned {
                stream.cancel.cancel();
            }
            !is_abandoned
        });
    }

    /// Cancels all requests, also those whose clients have left.
    pub(super) fn cancel_all(&self) {
        for (_, stream) in std::mem::take(&mut self.0.lock().streams) {
            stream.cancel.cancel();
        }
    }

    /// Forgets the oldest answers beyond what may be kept. The newest is kept whatever its size.
    fn forget_oldest(&self) {
        let mut table = self.0.lock();
        let kept = table.streams.iter();
        let kept = kept.filter(|(_, stream)| stream.events.is_complete());
        let (mut bytes, mut has_newer) = (0, false);
        let mut candidates = Vec::new();
        for (number, stream) in kept.rev() {
            bytes += stream.events.kept_bytes();
            if bytes > MIN_KEPT_BYTES && has_newer && !stream.events.is_read() {
                candidates.push(*number);
            }
            has_newer = true;
        }
        for number in candidates.into_iter().rev() {
            let streams = &mut table.streams;
            // Forgetting an older one may have been enough.
            if streams
                .get(&number)
                .is_some_and(|stream| stream.events.is_crowded())
            {
                streams.remove(&number);
            }
        }
    }
}

impl StreamTable {
    /// Cancels the oldest request whose client has left, if there are too many of them.
    fn cancel_oldest_left(&mut self) {
        let left = self.streams.iter().filter(|(_, stream)| {
            let events = &stream.events;
            !events.is_complete() && events.is_abandoned(Duration::ZERO)
        });
        let left: Vec<u64> = left.map(|(number, _)| *number).collect();
        if left.len() < MAX_LEFT_REQUESTS {
            return;
        }
        let oldest = left.first().and_then(|number| self.streams.remove(number));
        if let Some(oldest) = oldest {
            oldest.cancel.cancel();
        }
    }
}

impl Resumption {
    /// Answers a request on a stream of its own, which the client can resume.
    pub(super) fn start(
        self,
        first: Option<String>,
        pending: PendingReply,
    ) -> BoxStream<'static, StreamEvent> {
        let (stream, cancel) = self.streams.open(self.memory, &self.stop);
        let events = stream.read(None, self.announces_ids);
        if let Some(first) = first {
            // A new stream has room.
            let _ = stream.push(first);
        }
        let streams = self.streams;
        self.tasks.spawn(async move {
            tokio::select! {
                () = pending.send_to(&stream) => {}
                () = cancel.cancelled() => stream.complete(None),
            }
            streams.forget_oldest();
        });
        match events {
            Some(events) => events.boxed(),
            // Cannot happen: a new stream keeps everything.
            None => futures_util::stream::empty().boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use toolgate_core::config::Share;

    use super::*;
    use crate::held_bytes::HeldBytes;

    /// A client that lost its answer cannot repeat the request, so the newest is kept whatever its size.
    #[test]
    fn answers_are_kept_until_half_of_the_share_of_the_key_is_used() {
        let size = 2 * MIN_KEPT_BYTES;
        let held = HeldBytes::new(Share {
            max: usize::MAX,
            max_per_key: 5 * size,
        });
        let streams = EventStreams::default();
        let answer = || {
            let (stream, _) = streams.open(held.hold(None), &CancellationToken::new());
            drop(stream.read(None, false));
            stream.complete(Some("x".repeat(size)));
            streams.forget_oldest();
        };
        let is_kept = |id: &str| streams.resume(EventId::parse(id).unwrap()).is_some();
        answer();
        answer();
        assert_eq!(held.of_key(None), 2 * size);
        assert!(is_kept("1-0") && is_kept("2-0"));
        answer();
        assert!(!is_kept("1-0") && is_kept("2-0") && is_kept("3-0"));
        assert_eq!(held.of_key(None), 2 * size, "less than half of the share");
        let body = held.hold(None);
        body.grow(5 * size);
        answer();
        assert!(!is_kept("3-0") && is_kept("4-0"), "the newest");
        assert_eq!(held.of_key(None), 6 * size);
    }
}

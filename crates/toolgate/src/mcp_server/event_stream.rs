//! A stream of events to the client of a session. It keeps events that the client may not have
//! received, so that a client whose connection broke can continue where it ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::held_bytes::Hold;

/// Maximum number and size of the messages that wait for the client to read them.
const MAX_UNREAD_MESSAGES: usize = 1024;
const MAX_UNREAD_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number and size of the messages that are kept after the client has read them.
const MAX_KEPT_MESSAGES: usize = 256;
const MAX_KEPT_BYTES: usize = 256 * 1024;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// The id with which a client asks for the events that follow.
    pub id: Option<String>,
    /// The message; empty if the event only announces its id.
    pub message: String,
}

/// The id of an event: the number of its stream, and its position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) stream: u64,
    position: u64,
}

#[derive(Debug)]
pub(super) struct EventStream {
    number: u64,
    state: Mutex<StreamState>,
    changed: Notify,
    /// The memory of the kept messages, which counts for the client's key.
    memory: Hold,
}

#[derive(Debug, Default)]
struct StreamState {
    /// Kept messages, of which the newest is at the position `last`.
    messages: VecDeque<Arc<str>>,
    last: u64,
    /// Position of the newest message that was read.
    read: u64,
    read_bytes: usize,
    unread_bytes: usize,
    is_complete: bool,
    /// Counts the readers, because a new one ends the one before it.
    readers: u64,
    presence: Presence,
}

/// Whether the client reads the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    NeverRead,
    Reads,
    Left(Instant),
    /// It left too long ago for anything to be kept.
    GivenUp,
}

/// Reason why a message cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushError {
    NoReader,
    /// Too much is unread.
    Full,
}

/// A client that reads a stream.
struct Reader {
    stream: Arc<EventStream>,
    number: u64,
    position: u64,
    announces_id: bool,
}

impl From<String> for StreamEvent {
    fn from(message: String) -> Self {
        Self { id: None, message }
    }
}

impl EventId {
    /// Parses the id that a client has received.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (stream, position) = text.split_once('-')?;
        Some(Self {
            stream: stream.parse().ok()?,
            position: position.parse().ok()?,
        })
    }
}

impl EventStream {
    pub(super) fn new(number: u64, memory: Hold) -> Self {
        Self {
            number,
            memory,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds a message unless the client cannot receive it.
    pub(super) fn push(&self, message: String) -> Result<(), PushError> {
        let mut state = self.state.lock();
        if state.is_complete || !state.is_awaited() {
            return Err(PushError::NoReader);
        }
        // A single message of any size passes: it may be a request that the client must answer.
        let is_first = state.last == state.read;
        if !state.has_room(message.len())
            || (!is_first && self.memory.check_room(message.len()).is_err())
        {
            return Err(PushError::Full);
        }
        state.add(message);
        self.announce(&state);
        Ok(())
    }

    /// Adds a message of any size, after [`Self::wait_for_room`].
    pub(super) fn push_in_turn(&self, message: String) {
        let mut state = self.state.lock();
        if !state.is_complete && state.is_awaited() {
            state.add(message);
            self.announce(&state);
        }
    }

    /// Ends the stream, with a last message if there is one. It is kept whatever its size.
    pub(super) fn complete(&self, last: Option<String>) {
        let mut state = self.state.lock();
        if let Some(last) = last {
            state.add(last);
        }
        state.is_complete = true;
        self.announce(&state);
    }

    /// Counts the memory of a changed state, and wakes those that wait for a change.
    fn announce(&self, state: &StreamState) {
        self.memory.set(state.kept_bytes());
        self.changed.notify_waiters();
    }

    /// Waits until what is unread leaves room for more.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().has_room(0) {
                return;
            }
            changed.await;
        }
    }

    /// Streams the events after the given one, or those that were not yet read. A reader before this
    /// one ends. Returns `None` if some of the events are no longer kept. If `announces_id`, the first
    /// event has no message, so that the client knows from the start where to continue.
    pub(super) fn read(
        self: &Arc<Self>,
        after: Option<EventId>,
        announces_id: bool,
    ) -> Option<impl Stream<Item = StreamEvent> + Send + use<>> {
        let reader = {
            let mut state = self.state.lock();
            let position = after.map_or(state.read, |id| id.position);
            if position < state.first_position() || position > state.last {
                return None;
            }
            state.readers += 1;
            state.presence = Presence::Reads;
            self.changed.notify_waiters();
            Reader {
                stream: Arc::clone(self),
                number: state.readers,
                position,
                announces_id,
            }
        };
        Some(stream::unfold(reader, |mut reader| async move {
            reader.next().await.map(|event| (event, reader))
        }))
    }

    pub(super) fn is_read(&self) -> bool {
        self.state.lock().presence == Presence::Reads
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state.lock().is_complete
    }

    /// Returns the size of what is kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.state.lock().kept_bytes()
    }

    /// Returns whether so much memory is held for the client's key that less should be kept.
    pub(super) fn is_crowded(&self) -> bool {
        self.memory.is_crowded()
    }

    /// Returns whether the client stopped to read some time ago.
    pub(super) fn is_abandoned(&self, timeout: Duration) -> bool {
        match self.state.lock().presence {
            Presence::NeverRead | Presence::Reads => false,
            Presence::Left(at) => at.elapsed() > timeout,
            Presence::GivenUp => true,
        }
    }

    /// Forgets what is kept for a client that does not return. It may still read what follows.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        if matches!(state.presence, Presence::Left(_)) {
            state.presence = Presence::GivenUp;
            state.forget_messages();
            self.announce(&state);
        }
    }

    fn event(&self, position: u64, message: &str) -> StreamEvent {
        StreamEvent {
            id: Some(format!("{}-{position}", self.number)),
            message: message.to_owned(),
        }
    }
}

impl StreamState {
    /// Returns whether a message fits. One of any size does if none is unread: it may be a request
    /// that the client must answer.
    fn has_room(&self, bytes: usize) -> bool {
        let unread = self.last - self.read;
        unread == 0
            || (self.unread_bytes + bytes < MAX_UNREAD_BYTES && unread < MAX_UNREAD_MESSAGES as u64)
    }

    fn kept_bytes(&self) -> usize {
        self.read_bytes + self.unread_bytes
    }

    /// Returns whether the client reads the stream or may return to it.
    fn is_awaited(&self) -> bool {
        matches!(self.presence, Presence::Reads | Presence::Left(_))
    }

    fn forget_messages(&mut self) {
        self.messages.clear();
        self.read = self.last;
        (self.read_bytes, self.unread_bytes) = (0, 0);
    }

    fn add(&mut self, message: String) {
        self.last += 1;
        self.unread_bytes += message.len();
        self.messages.push_back(message.into());
    }

    /// Returns the position after which all messages are kept.
    fn first_position(&self) -> u64 {
        self.last - self.messages.len() as u64
    }

    fn message_after(&self, position: u64) -> Option<&Arc<str>> {
        let index = position.checked_sub(self.first_position())?;
        let index = usize::try_from(index).ok()?;
        self.messages.get(index)
    }

    fn mark_read(&mut self, position: u64, bytes: usize) {
        if position > self.read {
            self.read = position;
            self.unread_bytes -= bytes;
            self.read_bytes += bytes;
        }
        // The last message of a complete stream is kept, because a client that lost it cannot repeat
        // its request.
        let min_kept = u64::from(self.is_complete);
        while self.read - self.first_position() > min_kept
            && (self.read_bytes > MAX_KEPT_BYTES
                || self.read - self.first_position() > MAX_KEPT_MESSAGES as u64)
        {
            let Some(oldest) = self.messages.pop_front() else {
                return;
            };
            self.read_bytes -= oldest.len();
        }
    }
}

impl Reader {
    async fn next(&mut self) -> Option<StreamEvent> {
        if std::mem::take(&mut self.announces_id) {
            return Some(self.stream.event(self.position, ""));
        }
        let stream = Arc::clone(&self.stream);
        loop {
            let changed = stream.changed.notified();
            {
                let mut state = stream.state.lock();
                if state.readers != self.number {
                    return None;
                }
                if let Some(message) = state.message_after(self.position).cloned() {
                    self.position += 1;
                    state.mark_read(self.position, message.len());
                    stream.announce(&state);
                    return Some(stream.event(self.position, &message));
                }
                if state.is_complete {
                    // All was handed over. What a client rarely asks for again must not take the memory
                    // that further requests of its key need.
                    if stream.memory.is_crowded() {
                        state.forget_messages();
                        stream.announce(&state);
                    }
                    return None;
                }
            }
            changed.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.stream.state.lock();
        if state.readers == self.number {
            state.presence = Presence::Left(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, pin_mut};

    use toolgate_core::config::Share;

    use super::*;
    use crate::held_bytes::HeldBytes;

    fn new_stream(number: u64) -> EventStream {
        let share = Share {
            max: usize::MAX,
            max_per_key: usize::MAX,
        };
        EventStream::new(number, HeldBytes::new(share).hold(None))
    }

    fn next(events: &mut (impl Stream<Item = StreamEvent> + Unpin)) -> Option<StreamEvent> {
        events.next().now_or_never().flatten()
    }

    fn event(id: &str, message: &str) -> Option<StreamEvent> {
        Some(StreamEvent {
            id: Some(id.to_owned()),
            message: message.to_owned(),
        })
    }

    #[test]
    fn reader_continues_after_the_last_event_it_received() {
        let stream = Arc::new(new_stream(7));
        assert!(
            stream.push("lost".to_owned()).is_err(),
            "nobody has read it"
        );
        let first = stream.read(None, true).unwrap();
        pin_mut!(first);
        assert!(stream.push("a".to_owned()).is_ok());
        assert!(stream.push("b".to_owned()).is_ok());
        assert_eq!(next(&mut first), event("7-0", ""));
        assert_eq!(next(&mut first), event("7-1", "a"));
        assert_eq!(next(&mut first), event("7-2", "b"));
        let second = stream.read(EventId::parse("7-1"), false).unwrap();
        pin_mut!(second);
        assert_eq!(next(&mut first), None, "replaced");
        assert_eq!(next(&mut second), event("7-2", "b"));
        stream.complete(Some("c".to_owned()));
        assert!(stream.push("late".to_owned()).is_err());
        assert_eq!(next(&mut second), event("7-3", "c"));
        assert_eq!(next(&mut second), None);
        let third = stream.read(EventId::parse("7-2"), false).unwrap();
        pin_mut!(third);
        assert_eq!(next(&mut third), event("7-3", "c"));
        assert!(stream.read(EventId::parse("7-4"), false).is_none());
        assert!(EventId::parse("7").is_none() && EventId::parse("7-x").is_none());
    }

    #[test]
    fn answer_that_was_read_is_forgotten_if_its_key_needs_the_memory() {
        let held = HeldBytes::new(Share {
            max: usize::MAX,
            max_per_key: 10,
        });
        let stream = Arc::new(EventStream::new(1, held.hold(None)));
        let reader = stream.read(None, false).unwrap();
        pin_mut!(reader);
        stream.complete(Some("123456".to_owned()));
        assert_eq!(next(&mut reader), event("1-1", "123456"));
        assert_eq!(held.of_key(None), 6, "it may be on its way");
        assert_eq!(next(&mut reader), None);
        assert_eq!(held.of_key(None), 0);
        assert!(stream.read(EventId::parse("1-0"), false).is_none());
    }

    #[test]
    fn messages_wait_for_a_client_that_left_until_it_is_given_up() {
        let stream = Arc::new(new_stream(0));
        drop(stream.read(None, false));
        assert!(stream.push("a".to_owned()).is_ok());
        assert!(!stream.is_abandoned(Duration::MAX) && stream.is_abandoned(Duration::ZERO));
        let back = stream.read(None, false).unwrap();
        pin_mut!(back);
        assert_eq!(next(&mut back), event("0-1", "a"));
        stream.give_up();
        assert!(stream.push("b".to_owned()).is_ok(), "it reads again");
        let stream = Arc::new(new_stream(0));
        drop(stream.read(None, false));
        assert!(stream.push("a".to_owned()).is_ok());
        stream.give_up();
        assert!(stream.push("b".to_owned()).is_err());
        assert_eq!((stream.kept_bytes(), stream.memory.bytes()), (0, 0));
        assert!(stream.read(EventId::parse("0-0"), false).is_none());
        assert!(stream.read(None, false).is_some());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let stream = Arc::new(new_stream(0));
        let events = stream.read(None, false).unwrap();
        pin_mut!(events);
        let large = "x".repeat(MAX_UNREAD_BYTES);
        assert!(
            stream.push(large.clone()).is_ok(),
            "the first may have any size"
        );
        assert!(stream.push("y".to_owned()).is_err());
        assert!(stream.wait_for_room().now_or_never().is_none());
        assert!(next(&mut events).is_some());
        assert!(stream.wait_for_room().now_or_never().is_some());
        assert_eq!(stream.kept_bytes(), 0);
        for _ in 0..10 * MAX_KEPT_MESSAGES {
            assert!(stream.push("z".to_owned()).is_ok());
            assert!(next(&mut events).is_some());
        }
        assert_eq!(stream.kept_bytes(), MAX_KEPT_MESSAGES);
        assert!(stream.read(EventId::parse("0-1"), false).is_none());
        let events = stream.read(None, false).unwrap();
        pin_mut!(events);
        stream.complete(Some(large.clone()));
        assert!(next(&mut events).is_some());
        assert_eq!(stream.kept_bytes(), large.len(), "the answer is kept");
        assert_eq!(stream.memory.bytes(), large.len(), "and counts");
    }
}

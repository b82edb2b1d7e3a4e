//! A legacy session: its owner, its idle time, and the messages to the client that belong to none of
//! its requests.

use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use parking_lot::Mutex;
use toolgate_core::scope::Filters;

use super::client_requests::MessageSender;
use super::endpoint::McpEndpoint;
use super::event_stream::{EventId, EventStream, PushError, StreamEvent};
use super::event_streams::EventStreams;
use super::legacy_client::LegacyClient;
use super::list_changes::ListChanges;
use super::method::InitializeRequest;
use crate::active_set::ActiveSet;
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::held_bytes::Hold;
use crate::metrics::Bound;

/// A session of a legacy client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: LegacyClient,
    pub(super) owner: SessionOwner,
    listener: Arc<SessionListener>,
    /// The streams of requests whose answers take longer.
    pub(super) streams: Arc<EventStreams>,
    last_used: Mutex<Instant>,
}

/// The endpoint and caller that a session belongs to.
#[derive(Clone, Debug)]
pub(super) struct SessionOwner {
    pub(super) endpoint: McpEndpoint,
    pub(super) caller: Caller,
    pub(super) filters: Filters,
}

/// The state that a session shares with its connection, if the client has one of its own.
#[derive(Clone, Debug)]
pub(super) struct SessionChannel {
    pub(super) listener: Arc<SessionListener>,
    pub(super) in_flight: Arc<ActiveSet>,
}

/// The messages to a client that belong to none of its requests.
#[derive(Debug)]
pub(super) struct SessionListener {
    events: Arc<EventStream>,
    /// Changes that the client was told of, kept while it does not listen.
    changes: Mutex<Option<ListChanges>>,
}

/// Changes of lists for a client that listens; returned to the listener on drop.
struct ListenedChanges {
    listener: Weak<SessionListener>,
    changes: Option<ListChanges>,
}

impl Session {
    pub(super) fn new(
        gateway: &Gateway,
        owner: SessionOwner,
        initialize: InitializeRequest,
        channel: SessionChannel,
    ) -> Self {
        let SessionChannel {
            listener,
            in_flight,
        } = channel;
        let sender: MessageSender = Arc::new({
            let (listener, gateway) = (Arc::clone(&listener), gateway.clone());
            move |message| listener.send(&gateway, message)
        });
        let id = uuid::Uuid::new_v4().to_string();
        let share_owner = owner.caller.share_owner().cloned();
        Self {
            client: LegacyClient::new(id, share_owner, initialize, in_flight, sender),
            owner,
            listener,
            streams: Arc::default(),
            last_used: Mutex::new(Instant::now()),
        }
    }

    /// Streams the messages to the client until the session ends or another stream replaces this
    /// one, from the given event on. Returns `None` if that event is not kept.
    pub(super) fn messages(
        &self,
        gateway: &Gateway,
        after: Option<EventId>,
    ) -> Option<BoxStream<'static, StreamEvent>> {
        let events = match after {
            Some(id) if id.stream != EventStreams::SESSION => self.streams.resume(id)?,
            after => {
                let changes = self.listener.changes(gateway, &self.owner);
                let announces_id = after.is_none() && self.client.expects_announced_ids();
                let messages = self.listener.messages(after, announces_id, changes)?;
                messages.boxed()
            }
        };
        let disconnected = self.client.disconnect_token().clone();
        Some(events.take_until(disconnected.cancelled_owned()).boxed())
    }

    /// Forgets what is kept for streams that the client has left some time ago, and cancels their
    /// requests.
    pub(super) fn sweep_streams(&self, timeout: Duration) {
        self.streams.sweep(timeout);
        if self.listener.events.is_abandoned(timeout) {
            self.listener.events.give_up();
        }
    }

    /// Ends the session with everything that belongs to it.
    pub(super) fn disconnect(&self, gateway: &Gateway) {
        self.client.disconnect(gateway);
        self.streams.cancel_all();
    }

    pub(super) fn mark_used(&self) {
        *self.last_used.lock() = Instant::now();
    }

    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock()
    }

    /// Returns whether the client has not used the session for some time. A client that listens, or
    /// waits for an answer, uses it.
    pub(super) fn is_idle(&self, timeout: Duration) -> bool {
        let is_in_use = self.listener.events.is_read() || !self.client.in_flight.is_empty();
        !is_in_use && self.last_used().elapsed() > timeout
    }

    /// Returns whether the client stopped to listen some time ago and has not returned.
    pub(super) fn is_abandoned(&self, timeout: Duration) -> bool {
        self.listener.events.is_abandoned(timeout) && self.is_idle(timeout)
    }
}

impl SessionListener {
    /// Streams the session's messages, with those of `changes`, until either ends. Replaces an earlier
    /// stream, because the protocol forbids sending a message on more than one.
    pub(super) fn messages<S>(
        self: &Arc<Self>,
        after: Option<EventId>,
        announces_id: bool,
        changes: S,
    ) -> Option<impl Stream<Item = StreamEvent> + Send + use<S>>
    where
        S: Stream<Item = String> + Send,
    {
        let events = self.events.read(after, announces_id)?;
        let target = Arc::downgrade(self);
        // A change is an event like any other, with an id of its own.
        let changes = changes.take_while(move |message| {
            let listener = target.upgrade();
            if let Some(listener) = &listener {
                // The client reads, and is told of few changes.
                let _ = listener.events.push(message.clone());
            }
            ready(listener.is_some())
        });
        let changes = changes.filter_map(|_| ready(None));
        // `select` ends with the last of its streams; the `None` ends it with the first.
        let end = || stream::iter([None]);
        let both = stream::select(events.map(Some).chain(end()), changes.chain(end()));
        let both = both.take_while(|event| ready(event.is_some()));
        Some(both.filter_map(ready))
    }

    /// Returns the changes of lists since the client was last told of any.
    fn changes(
        self: &Arc<Self>,
        gateway: &Gateway,
        owner: &SessionOwner,
    ) -> impl Stream<Item = String> + Send + use<> {
        let kept = self.changes.lock().take();
        let changes = kept.unwrap_or_else(|| {
            let SessionOwner {
                caller, filters, ..
            } = owner.clone();
            ListChanges::new(gateway.clone(), caller, filters)
        });
        let listened = ListenedChanges {
            listener: Arc::downgrade(self),
            changes: Some(changes),
        };
        stream::unfold(listened, |mut listened| async move {
            let messages = listened.changes.as_mut()?.next_messages().await?;
            Some((stream::iter(messages), listened))
        })
        .flatten()
    }

    fn send(&self, gateway: &Gateway, message: String) -> bool {
        let pushed = self.events.push(message);
        if pushed == Err(PushError::Full) {
            gateway.report_bound(Bound::Notifications, "");
        }
        pushed.is_ok()
    }
}

impl SessionChannel {
    /// Creates the channel of a client whose messages take this memory.
    pub(super) fn new(memory: Hold) -> Self {
        let listener = SessionListener {
            events: Arc::new(EventStream::new(EventStreams::SESSION, memory)),
            changes: Mutex::default(),
        };
        Self {
            listener: Arc::new(listener),
            in_flight: Arc::default(),
        }
    }
}

impl Drop for SessionListener {
    fn drop(&mut self) {
        self.events.complete(None);
    }
}

impl Drop for ListenedChanges {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.upgrade() {
            *listener.changes.lock() = self.changes.take();
        }
    }
}

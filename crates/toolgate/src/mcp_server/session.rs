//! A legacy session: its owner, its idle time, and the messages to the client that belong to none of
//! its requests.

use std::fmt;
use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::stream::{self, Stream, StreamExt as _};
use parking_lot::Mutex;
use toolgate_core::scope::Filters;

use super::client_requests::MessageSender;
use super::endpoint::McpEndpoint;
use super::legacy_client::LegacyClient;
use super::list_changes::ListChanges;
use super::message_queue::message_queue;
use super::method::InitializeRequest;
use crate::active_set::ActiveSet;
use crate::caller::Caller;
use crate::gateway::Gateway;

/// A session of a legacy client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: LegacyClient,
    pub(super) owner: SessionOwner,
    listener: Arc<SessionListener>,
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
#[derive(Clone, Debug, Default)]
pub(super) struct SessionChannel {
    pub(super) listener: Arc<SessionListener>,
    pub(super) in_flight: Arc<ActiveSet>,
}

/// The stream that the client listens to, if any.
#[derive(Debug, Default)]
pub(super) struct SessionListener(Mutex<ListenerState>);

#[derive(Default)]
struct ListenerState {
    sender: Option<MessageSender>,
    /// Counts the streams, so that the end of an earlier one does not end a later one.
    streams: u64,
    /// When the client stopped to listen.
    left_at: Option<Instant>,
}

/// A stream in use; dropping it marks the client as no longer listening.
struct ListenGuard {
    /// Weak, because the stream ends with the listener.
    listener: Weak<SessionListener>,
    stream: u64,
}

impl Session {
    pub(super) fn new(
        owner: SessionOwner,
        initialize: InitializeRequest,
        channel: SessionChannel,
    ) -> Self {
        let SessionChannel {
            listener,
            in_flight,
        } = channel;
        let sender: MessageSender = Arc::new({
            let listener = Arc::clone(&listener);
            move |message| listener.send(message)
        });
        let id = uuid::Uuid::new_v4().to_string();
        let key = owner.caller.key().cloned();
        Self {
            client: LegacyClient::new(id, key, initialize, in_flight, sender),
            owner,
            listener,
            last_used: Mutex::new(Instant::now()),
        }
    }

    /// Streams the messages to the client until the session ends or another stream replaces this
    /// one.
    pub(super) fn messages(
        &self,
        gateway: &Gateway,
        changes: ListChanges,
    ) -> impl Stream<Item = String> + Send + use<> {
        let disconnected = self.client.disconnect_token().clone();
        self.listener
            .messages(gateway, changes.into_messages())
            .take_until(disconnected.cancelled_owned())
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
        let is_in_use = self.listener.is_listening() || !self.client.in_flight.is_empty();
        !is_in_use && self.last_used().elapsed() > timeout
    }

    /// Returns whether the client stopped to listen some time ago and has not returned.
    pub(super) fn is_abandoned(&self, timeout: Duration) -> bool {
        let left_at = self.listener.0.lock().left_at;
        left_at.is_some_and(|left_at| left_at.elapsed() > timeout) && self.is_idle(timeout)
    }
}

impl SessionListener {
    /// Streams the session's messages from now on, with those of `changes`, until either ends.
    /// Replaces an earlier stream, because the protocol forbids sending a message on more than one.
    pub(super) fn messages<S>(
        self: &Arc<Self>,
        gateway: &Gateway,
        changes: S,
    ) -> impl Stream<Item = String> + Send + use<S>
    where
        S: Stream<Item = String> + Send,
    {
        let (sender, inbox) = message_queue(gateway);
        let guard = self.start_listening(sender);
        let inbox = stream::unfold((inbox, guard), |(mut inbox, guard)| async move {
            inbox.recv().await.map(|message| (message, (inbox, guard)))
        });
        // `select` ends with the last of its streams; the `None` ends it with the first.
        let end = || stream::iter([None]);
        let both = stream::select(inbox.map(Some).chain(end()), changes.map(Some).chain(end()));
        both.take_while(|message| ready(message.is_some()))
            .filter_map(ready)
    }

    fn start_listening(self: &Arc<Self>, sender: MessageSender) -> ListenGuard {
        let mut state = self.0.lock();
        state.sender = Some(sender);
        state.left_at = None;
        state.streams += 1;
        ListenGuard {
            listener: Arc::downgrade(self),
            stream: state.streams,
        }
    }

    fn is_listening(&self) -> bool {
        self.0.lock().sender.is_some()
    }

    fn send(&self, message: String) -> bool {
        let sender = self.0.lock().sender.clone();
        sender.is_some_and(|sender| sender(message))
    }
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        let mut state = listener.0.lock();
        if state.streams == self.stream {
            state.sender = None;
            state.left_at = Some(Instant::now());
        }
    }
}

impl fmt::Debug for ListenerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerState")
            .field("is_listening", &self.sender.is_some())
            .field("left_at", &self.left_at)
            .finish_non_exhaustive()
    }
}

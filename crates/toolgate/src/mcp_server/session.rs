//! A legacy session: its owner, its idle time, and the messages to the client that belong to none of
//! its requests.

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use toolgate_core::scope::Filters;

use super::client_requests::MessageSender;
use super::endpoint::McpEndpoint;
use super::legacy_client::LegacyClient;
use super::list_changes::ListChanges;
use super::method::InitializeRequest;
use crate::active_set::ActiveSet;
use crate::caller::Caller;

/// Messages buffered for a listening client; more are dropped.
const LISTENER_BUFFER_MESSAGES: usize = 256;

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

/// Sender to the stream that the client listens to, if any.
#[derive(Debug, Default)]
pub(super) struct SessionListener(Mutex<Option<mpsc::Sender<String>>>);

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
        Self {
            client: LegacyClient::new(id, initialize, in_flight, sender),
            owner,
            listener,
            last_used: Mutex::new(Instant::now()),
        }
    }

    /// Streams the messages to the client until the session ends or another stream replaces this
    /// one.
    pub(super) fn messages(
        &self,
        changes: ListChanges,
    ) -> impl Stream<Item = String> + Send + use<> {
        let disconnected = self.client.disconnect_token().clone();
        self.listener
            .messages(changes.into_messages())
            .take_until(disconnected.cancelled_owned())
    }

    pub(super) fn mark_used(&self) {
        *self.last_used.lock() = Instant::now();
    }

    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock()
    }
}

impl SessionListener {
    /// Streams the session's messages from now on, with those of `changes`, until either ends.
    /// Replaces an earlier stream, because the protocol forbids sending a message on more than one.
    pub(super) fn messages<S>(&self, changes: S) -> impl Stream<Item = String> + Send + use<S>
    where
        S: Stream<Item = String> + Send,
    {
        let (sender, inbox) = mpsc::channel(LISTENER_BUFFER_MESSAGES);
        *self.0.lock() = Some(sender);
        let inbox = stream::unfold(inbox, |mut inbox| async move {
            inbox.recv().await.map(|message| (message, inbox))
        });
        // `select` ends with the last of its streams; the `None` ends it with the first.
        let end = || stream::iter([None]);
        let both = stream::select(inbox.map(Some).chain(end()), changes.map(Some).chain(end()));
        both.take_while(|message| ready(message.is_some()))
            .filter_map(ready)
    }

    fn send(&self, message: String) -> bool {
        let sender = self.0.lock().clone();
        sender.is_some_and(|sender| sender.try_send(message).is_ok())
    }
}

//! Broadcast channel for the events of one component. The module `event` merges them for subscribers.

use tokio::sync::broadcast;

/// Events buffered for a slow subscriber before it loses the oldest.
const MAX_BUFFERED_EVENTS: usize = 1024;

/// Broadcasts events to all subscribers; clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct EventChannel<T>(broadcast::Sender<T>);

impl<T: Clone> EventChannel<T> {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(MAX_BUFFERED_EVENTS).0)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<T> {
        self.0.subscribe()
    }

    /// Publishes an event, which is built only if there are subscribers.
    pub(crate) fn publish(&self, event: impl FnOnce() -> T) {
        if self.0.receiver_count() > 0 {
            // Sending fails if the last subscriber has just left.
            let _ = self.0.send(event());
        }
    }
}

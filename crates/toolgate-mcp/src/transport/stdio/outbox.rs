//! Messages that wait for a child to read them, bounded in number and size.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::transport::RequestError;

/// Maximum number of messages.
const MAX_MESSAGES: usize = 1024;

/// The queue of a child. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Outbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max_bytes: usize,
    queue: Mutex<OutboxQueue>,
    /// A message was added, or the queue was closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct OutboxQueue {
    messages: VecDeque<QueuedMessage>,
    bytes: usize,
    is_closed: bool,
}

#[derive(Debug)]
struct QueuedMessage {
    /// The id of the request, if the message is one.
    request: Option<u64>,
    text: String,
}

impl Outbox {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Inner {
            max_bytes,
            queue: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    /// Adds a message. An empty queue takes a message of any size.
    pub(super) fn push(&self, request: Option<u64>, text: String) -> Result<(), RequestError> {
        let mut queue = self.0.queue.lock();
        if queue.is_closed {
            let reason = "server process has exited".to_owned();
            return Err(RequestError::NotSent(reason));
        }
        let is_full = queue.messages.len() >= MAX_MESSAGES
            || queue.bytes.saturating_add(text.len()) > self.0.max_bytes;
        if is_full && !queue.messages.is_empty() {
            return Err(RequestError::QueueFull {
                bytes: queue.bytes,
                messages: queue.messages.len(),
            });
        }
        queue.bytes += text.len();
        queue.messages.push_back(QueuedMessage { request, text });
        drop(queue);
        self.0.changed.notify_one();
        Ok(())
    }

    /// Removes a request. Returns false if it is no longer in the queue.
    pub(super) fn remove(&self, request: u64) -> bool {
        let mut queue = self.0.queue.lock();
        let mut messages = queue.messages.iter();
        let position = messages.position(|message| message.request == Some(request));
        let removed = position.and_then(|position| queue.messages.remove(position));
        queue.bytes -= removed.as_ref().map_or(0, |message| message.text.len());
        removed.is_some()
    }

    /// Takes the next message, waiting for one; `None` if the queue is closed and empty. Only one task may wait.
    pub(super) async fn next(&self) -> Option<String> {
        loop {
            if let Some(text) = self.try_next() {
                return Some(text);
            }
            if self.0.queue.lock().is_closed {
                return None;
            }
            self.0.changed.notified().await;
        }
    }

    /// Takes the next message if there is one.
    pub(super) fn try_next(&self) -> Option<String> {
        let mut queue = self.0.queue.lock();
        let message = queue.messages.pop_front()?;
        queue.bytes -= message.text.len();
        Some(message.text)
    }

    /// Takes no more messages and drops the requests, which nobody waits for. Notifications stay: the
    /// cancellation of a request is often queued right before the end.
    pub(super) fn close(&self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        queue.messages.retain(|message| message.request.is_none());
        queue.bytes = queue
            .messages
            .iter()
            .map(|message| message.text.len())
            .sum();
        drop(queue);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn size_and_number_are_bounded() {
        let outbox = Outbox::new(100);
        let text = "x".repeat(60);
        outbox.push(Some(1), text.clone()).unwrap();
        let full = outbox.push(Some(2), text.clone()).unwrap_err();
        assert!(
            matches!(full, RequestError::QueueFull { bytes: 60, .. }),
            "{full}"
        );
        assert_eq!(outbox.next().await, Some(text));
        // An empty queue takes any message.
        outbox.push(Some(3), "x".repeat(200)).unwrap();
        assert!(outbox.remove(3));
        for _ in 0..MAX_MESSAGES {
            outbox.push(None, String::new()).unwrap();
        }
        outbox.push(None, String::new()).unwrap_err();
    }

    #[tokio::test]
    async fn removed_requests_are_not_sent() {
        let outbox = Outbox::new(100);
        outbox.push(Some(1), "one".to_owned()).unwrap();
        outbox.push(Some(2), "two".to_owned()).unwrap();
        assert!(outbox.remove(1));
        assert!(!outbox.remove(1));
        assert_eq!(outbox.next().await.as_deref(), Some("two"));
        assert!(!outbox.remove(2), "it was sent");
        outbox.push(Some(3), "three".to_owned()).unwrap();
        outbox.push(None, "cancelled".to_owned()).unwrap();
        outbox.close();
        assert_eq!(outbox.next().await.as_deref(), Some("cancelled"));
        assert_eq!(outbox.next().await, None);
        let closed = outbox.push(None, String::new()).unwrap_err();
        assert!(matches!(closed, RequestError::NotSent(_)), "{closed}");
    }
}

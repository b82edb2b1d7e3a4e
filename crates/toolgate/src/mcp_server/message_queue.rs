//! Messages that wait for a client to read them, bounded in number and size. What exceeds the bounds is
//! dropped: a client that does not read must not fill the memory.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::client_requests::MessageSender;
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::held_bytes::Hold;
use crate::metrics::Bound;

const MAX_MESSAGES: usize = 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The receiving end of a queue.
#[derive(Debug)]
pub(super) struct MessageReceiver {
    messages: mpsc::Receiver<String>,
    /// The memory of the messages, which counts for the client's key.
    held: Arc<Hold>,
}

/// Creates a queue for a client of the caller. The sender returns false if the client cannot receive the
/// message.
pub(super) fn message_queue(
    gateway: &Gateway,
    caller: &Caller,
) -> (MessageSender, MessageReceiver) {
    let (sender, messages) = mpsc::channel(MAX_MESSAGES);
    let held = Arc::new(gateway.held_bytes().hold(caller.share_owner()));
    let receiver = MessageReceiver {
        messages,
        held: Arc::clone(&held),
    };
    let gateway = gateway.clone();
    let key = caller.key().cloned();
    let send = move |message: String| {
        let length = message.len();
        let waiting = held.bytes();
        let fits = if waiting == 0 {
            // A single message of any size passes: it may be a request that the client must answer.
            held.grow(length);
            true
        } else {
            waiting + length <= MAX_BYTES && held.try_grow(length).is_ok()
        };
        let sent = if fits {
            let sent = sender.try_send(message);
            sent.inspect_err(|_| held.shrink(length))
        } else {
            Err(mpsc::error::TrySendError::Full(message))
        };
        if matches!(sent, Err(mpsc::error::TrySendError::Full(_))) {
            gateway.report_bound(Bound::Notifications, key.as_deref().unwrap_or(""));
        }
        sent.is_ok()
    };
    (Arc::new(send), receiver)
}

impl MessageReceiver {
    pub(super) async fn recv(&mut self) -> Option<String> {
        let message = self.messages.recv().await?;
        Some(self.took(message))
    }

    pub(super) fn try_recv(&mut self) -> Option<String> {
        let message = self.messages.try_recv().ok()?;
        Some(self.took(message))
    }

    fn took(&self, message: String) -> String {
        self.held.shrink(message.len());
        message
    }
}

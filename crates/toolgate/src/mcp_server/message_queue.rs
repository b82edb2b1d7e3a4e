//! Messages that wait for a client to read them, bounded in number and size. What exceeds the bounds is
//! dropped: a client that does not read must not fill the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::client_requests::MessageSender;
use crate::gateway::Gateway;
use crate::metrics::Bound;

const MAX_MESSAGES: usize = 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The receiving end of a queue.
#[derive(Debug)]
pub(super) struct MessageReceiver {
    messages: mpsc::Receiver<String>,
    bytes: Arc<AtomicUsize>,
}

/// Creates a queue. The sender returns false if the client cannot receive the message.
pub(super) fn message_queue(gateway: &Gateway) -> (MessageSender, MessageReceiver) {
    let (sender, messages) = mpsc::channel(MAX_MESSAGES);
    let bytes = Arc::new(AtomicUsize::new(0));
    let receiver = MessageReceiver {
        messages,
        bytes: Arc::clone(&bytes),
    };
    let gateway = gateway.clone();
    let send = move |message: String| {
        let length = message.len();
        let waiting = bytes.fetch_add(length, Ordering::Relaxed);
        // A single message of any size passes: it may be a request that the client must answer.
        let fits = waiting == 0 || waiting + length <= MAX_BYTES;
        let sent = if fits {
            sender.try_send(message)
        } else {
            Err(mpsc::error::TrySendError::Full(message))
        };
        if let Err(error) = &sent {
            bytes.fetch_sub(length, Ordering::Relaxed);
            if matches!(error, mpsc::error::TrySendError::Full(_)) {
                gateway.report_bound(Bound::Notifications, "");
            }
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
        self.bytes.fetch_sub(message.len(), Ordering::Relaxed);
        message
    }
}

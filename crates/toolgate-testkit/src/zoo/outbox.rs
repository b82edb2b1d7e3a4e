//! The way back to whoever sent a request, whatever the transport.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// One message to send.
#[derive(Debug)]
pub(crate) enum Frame {
    /// The last message of a request.
    Answer(String),
    Notification(String),
}

/// A cheap handle through which messages leave; sending to somebody who left does nothing.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(UnboundedSender<Frame>);

impl Outbox {
    pub(crate) fn new() -> (Self, UnboundedReceiver<Frame>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn answer(&self, text: String) {
        let _ = self.0.send(Frame::Answer(text));
    }

    pub(crate) fn notify(&self, text: String) {
        let _ = self.0.send(Frame::Notification(text));
    }

    /// Returns once nobody receives any more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

impl Frame {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Answer(text) | Self::Notification(text) => text,
        }
    }
}

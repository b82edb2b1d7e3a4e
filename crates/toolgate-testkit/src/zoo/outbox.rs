//! The way back to whoever sent a request, whatever the transport.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// One message to send.
#[derive(Debug)]
pub(crate) enum Frame {
    /// The last message of a request.
    Answer(String),
    Notification(String),
    /// A request to the client, by its raw id.
    Question {
        id: String,
        text: String,
    },
    /// The stream ends here, and goes on wherever it is resumed.
    Cut,
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

    pub(crate) fn ask(&self, id: String, text: String) {
        let _ = self.0.send(Frame::Question { id, text });
    }

    pub(crate) fn cut(&self) {
        let _ = self.0.send(Frame::Cut);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns once nobody receives any more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

impl Frame {
    /// The message, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Answer(text) | Self::Notification(text) | Self::Question { text, .. } => {
                Some(text)
            }
            Self::Cut => None,
        }
    }
}

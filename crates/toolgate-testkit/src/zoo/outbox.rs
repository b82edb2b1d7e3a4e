//! The channel back to the sender of a request, independent of the transport.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// One message to send.
#[derive(Debug)]
pub(crate) enum Frame {
    /// The response to a request.
    Answer(String),
    Notification(String),
    /// A request to the client, with its raw id.
    ClientRequest {
        id: String,
        text: String,
    },
    /// Ends the stream; the rest is delivered when the client resumes it.
    Interrupt,
}

/// A cheap handle for sending messages; sending to a disconnected client does nothing.
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

    pub(crate) fn send_request(&self, id: String, text: String) {
        let _ = self.0.send(Frame::ClientRequest { id, text });
    }

    pub(crate) fn interrupt(&self) {
        let _ = self.0.send(Frame::Interrupt);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the receiver is dropped.
    pub(crate) async fn wait_closed(&self) {
        self.0.closed().await;
    }
}

impl Frame {
    /// Returns the message text, if the frame has one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Answer(text) | Self::Notification(text) | Self::ClientRequest { text, .. } => {
                Some(text)
            }
            Self::Interrupt => None,
        }
    }
}

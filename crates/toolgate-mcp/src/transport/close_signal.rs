//! One-shot signal that a connection has closed, with the reason.

use tokio::sync::watch;

/// Waits for the connection to close; clones wait for the same connection.
#[derive(Clone, Debug)]
pub(super) struct CloseReceiver(watch::Receiver<Option<String>>);

/// Announces that the connection has closed.
#[derive(Clone, Debug)]
pub(super) struct CloseNotifier(watch::Sender<Option<String>>);

pub(super) fn channel() -> (CloseNotifier, CloseReceiver) {
    let (sender, receiver) = watch::channel(None);
    (CloseNotifier(sender), CloseReceiver(receiver))
}

impl CloseNotifier {
    /// Announces the reason; later calls have no effect.
    pub(super) fn notify(&self, reason: &str) {
        self.0.send_if_modified(|closed| {
            let is_first = closed.is_none();
            closed.get_or_insert_with(|| reason.to_owned());
            is_first
        });
    }
}

impl CloseReceiver {
    /// Waits until the connection has closed and returns the reason.
    pub(super) async fn wait(&self) -> String {
        let mut closed = self.0.clone();
        let reason = closed.wait_for(Option::is_some).await.ok();
        reason
            .and_then(|reason| reason.clone())
            .unwrap_or_else(|| "the connection was closed".to_owned())
    }
}

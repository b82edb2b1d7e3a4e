//! Whether a connection has ended, and why.

use tokio::sync::watch;

/// Waits for the end of a connection; clones wait for the same one.
#[derive(Clone, Debug)]
pub(super) struct Closing(watch::Receiver<Option<String>>);

/// Tells the end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Ending(watch::Sender<Option<String>>);

pub(super) fn channel() -> (Ending, Closing) {
    let (sender, receiver) = watch::channel(None);
    (Ending(sender), Closing(receiver))
}

impl Ending {
    /// The first reason counts.
    pub(super) fn tell(&self, reason: &str) {
        self.0.send_if_modified(|told| {
            let first = told.is_none();
            told.get_or_insert_with(|| reason.to_owned());
            first
        });
    }
}

impl Closing {
    pub(super) async fn wait(&self) -> String {
        let mut told = self.0.clone();
        match told.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "the connection was closed".to_owned(),
        }
    }
}

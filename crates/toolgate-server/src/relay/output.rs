//! Standard output: MCP messages, one per line, and nothing else.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Messages queued for a slow client.
const QUEUE_SIZE: usize = 1024;
/// Maximum time for the client to read the queued messages at shutdown.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends messages to the client; clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct ClientSender(mpsc::Sender<String>);

/// Writes the queued messages.
#[derive(Debug)]
pub(super) struct ClientWriter {
    task: TaskTracker,
    end: CancellationToken,
    /// Cancelled when the client no longer reads.
    pub(super) closed: CancellationToken,
}

impl ClientSender {
    /// Queues a message, waiting for space if necessary.
    pub(super) async fn send(&self, message: String) {
        // Fails only if the client has disconnected.
        let _ = self.0.send(message).await;
    }
}

impl ClientWriter {
    pub(super) fn start() -> (ClientSender, Self) {
        let (sender, messages) = mpsc::channel(QUEUE_SIZE);
        let writer = Self {
            task: TaskTracker::new(),
            end: CancellationToken::new(),
            closed: CancellationToken::new(),
        };
        let (end, closed) = (writer.end.clone(), writer.closed.clone());
        writer.task.spawn(async move {
            write_messages(messages, end).await;
            closed.cancel();
        });
        (ClientSender(sender), writer)
    }

    /// Writes what is queued, and ends.
    pub(super) async fn finish(self) {
        self.end.cancel();
        self.task.close();
        // A client that no longer reads must not block the exit.
        let _ = tokio::time::timeout(FINAL_WRITE_TIMEOUT, self.task.wait()).await;
    }
}

/// Writes messages, one per line, until `end` is cancelled and the queue is empty.
async fn write_messages(mut messages: mpsc::Receiver<String>, end: CancellationToken) {
    let mut out = tokio::io::stdout();
    loop {
        let message = tokio::select! {
            biased;
            message = messages.recv() => message,
            () = end.cancelled(), if !messages.is_closed() => {
                messages.close();
                continue;
            }
        };
        let Some(message) = message else { return };
        // Raw line breaks occur only between JSON tokens, so values do not change.
        let line = message.replace(['\n', '\r'], " ") + "\n";
        if out.write_all(line.as_bytes()).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}

//! A server as a child process: one JSON message a line on its pipes.
//!
//! The child leads a process group of its own, gets a minimal environment and ends, with whatever
//! it started, when the transport closes. Its standard error goes into a bounded ring.

mod child;

use std::sync::Arc;

use child::Child;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::asking::Asking;
use super::closing::{self, Closing};
use super::inbox::Inbox;
use super::pending::Pending;
use super::{Events, Outgoing, RequestError, Tail};
use crate::MAX_MESSAGE_BYTES;
use crate::ear::Ear;
use crate::jsonrpc::{self, Answer, Object};
use crate::line::{Line, Lines};

pub use child::{Command, SpawnError};

/// Messages that may wait for a child that does not read.
const OUTBOX: usize = 1024;

/// A running child and the requests it has not answered yet.
#[derive(Debug)]
pub struct Stdio {
    outbox: mpsc::Sender<String>,
    pending: Pending,
    closing: Closing,
    stop: CancellationToken,
}

impl Stdio {
    /// Starts the child; its tasks run in `tasks`, whose owner waits for them.
    pub fn start(
        command: &Command,
        tail: &Tail,
        tasks: &TaskTracker,
        ear: Arc<dyn Ear>,
    ) -> Result<(Self, Events), SpawnError> {
        let (mut child, pipes) = Child::spawn(command)?;
        let (outbox, outgoing) = mpsc::channel(OUTBOX);
        let (events, heard) = mpsc::channel(16);
        let (ending, closing) = closing::channel();
        let stdio = Self {
            outbox: outbox.clone(),
            pending: Pending::default(),
            closing,
            stop: CancellationToken::new(),
        };
        let pending = stdio.pending.clone();
        let stop = stdio.stop.clone();
        let inbox = Inbox {
            pending: pending.clone(),
            events,
            ear,
            asking: Asking::new(tasks),
            end: stop.clone(),
        };
        let reader = read(pipes.stdout, inbox, outbox);
        let mut stderr = tasks.spawn(drain(pipes.stderr, tail.clone()));
        let mut writer = tasks.spawn(write(pipes.stdin, outgoing, stop.clone()));
        let tail = tail.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = reader => {}
                () = child.gone() => {}
                _ = &mut writer => {}
                () = stop.cancelled() => {}
            }
            writer.abort();
            let status = child.end(stop.is_cancelled()).await;
            // The last words are worth a moment; a grandchild may hold the pipe open for ever.
            if tokio::time::timeout(child::GRACE, &mut stderr)
                .await
                .is_err()
            {
                stderr.abort();
            }
            let ended = format!("the server's process ended ({status})");
            let reason = match tail.last_line() {
                Some(line) => format!("{ended}: {line}"),
                None => ended.clone(),
            };
            // What the child said last is for those who run the gateway, not for those who call it.
            pending.close(&ended);
            stop.cancel();
            ending.tell(&reason);
        });
        Ok((stdio, heard))
    }

    pub(super) async fn request(&self, outgoing: Outgoing) -> Result<Answer, RequestError> {
        let place = self.pending.enter(outgoing.ear.clone())?;
        let message = outgoing.message(place.id);
        let mut call = Call {
            place,
            outbox: &self.outbox,
            cancellable: outgoing.method != "initialize",
        };
        self.send(message).await?;
        call.place.answer().await
    }

    pub(super) async fn notify(&self, method: &str) -> Result<(), RequestError> {
        self.send(jsonrpc::notification(method, &Object::new()))
            .await
    }

    pub(super) async fn closed(&self) -> String {
        self.closing.wait().await
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.closed().await;
    }

    async fn send(&self, message: String) -> Result<(), RequestError> {
        let message = one_line(message);
        let sent = self.outbox.send(message).await;
        sent.map_err(|_| RequestError::NotSent("the server's process has ended".to_owned()))
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A message ends at its line's end, so what callers wrote must not end it earlier. In JSON a line
/// break can only stand between tokens, where a blank is as good.
fn one_line(message: String) -> String {
    match message.contains(['\n', '\r']) {
        true => message.replace(['\n', '\r'], " "),
        false => message,
    }
}

/// A request in flight; dropped before its answer, it tells the server to stop.
struct Call<'a> {
    place: super::pending::Place,
    outbox: &'a mpsc::Sender<String>,
    cancellable: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.place.leave() && self.cancellable {
            let params = Object::new().raw("requestId", &self.place.id.to_string());
            // A full outbox means a child that does not read: it would not hear this either.
            let _ = self
                .outbox
                .try_send(jsonrpc::notification("notifications/cancelled", &params));
        }
    }
}

async fn write(stdin: ChildStdin, mut outgoing: mpsc::Receiver<String>, stop: CancellationToken) {
    let mut stdin = BufWriter::new(stdin);
    loop {
        let message = tokio::select! {
            message = outgoing.recv() => message,
            () = stop.cancelled() => None,
        };
        let Some(message) = message else { return };
        let mut written = put(&mut stdin, &message).await;
        while let (true, Ok(message)) = (written.is_ok(), outgoing.try_recv()) {
            written = put(&mut stdin, &message).await;
        }
        if written.is_err() || stdin.flush().await.is_err() {
            return; // the reader sees the end and says why
        }
    }
}

async fn put(stdin: &mut BufWriter<ChildStdin>, message: &str) -> std::io::Result<()> {
    stdin.write_all(message.as_bytes()).await?;
    stdin.write_all(b"\n").await
}

async fn read(stdout: ChildStdout, inbox: Inbox, outbox: mpsc::Sender<String>) {
    let mut lines = Lines::new(stdout, MAX_MESSAGE_BYTES);
    let too_large = || RequestError::TooLarge(MAX_MESSAGE_BYTES);
    while let Ok(Some(line)) = lines.next().await {
        match line {
            Line::Text(text) => {
                let outbox = outbox.clone();
                inbox.take(&text, move |reply| {
                    // A child that does not read would not see the reply either.
                    let _ = outbox.try_send(one_line(reply));
                });
            }
            Line::TooLong { id: Some(id) } => {
                inbox.pending.settle(id, Err(too_large()));
            }
            Line::TooLong { id: None } => {
                tracing::warn!("a message of the server was too large and is dropped")
            }
        }
    }
}

async fn drain(mut stderr: ChildStderr, tail: Tail) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        tail.push(&buffer[..read]);
    }
}

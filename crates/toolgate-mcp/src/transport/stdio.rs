//! The stdio transport: a child process with one JSON message per line on its pipes.
//!
//! The child leads its own process group, gets a minimal environment, and is terminated with all
//! its descendants when the transport closes. The end of its stderr is kept in a bounded buffer.

mod child;
mod limited_child;
mod outbox;

use std::sync::Arc;
use std::time::Duration;

use child::{ChildProcess, ShutdownCause};
use limited_child::LimitedChild;
use outbox::Outbox;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::close_signal::{self, CloseReceiver};
use super::message_router::MessageRouter;
use super::pending::{PendingRequest, PendingRequests};
use super::server_requests::ServerRequests;
use super::{OutgoingRequest, RequestError, StderrTail, TransportEvents};
use crate::MAX_MESSAGE_BYTES;
use crate::client_handler::ClientHandler;
use crate::fair_queue::Slot;
use crate::jsonrpc::{self, Object};
use crate::lane::LaneId;
use crate::large::run_large;
use crate::line::{LineReader, MessageLine};
use crate::processes::{ProcessStart, ServerProcesses, Supervisors};

pub use child::{ChildCommand, LauncherCall, SpawnError};

/// Maximum time to write the notifications that are queued when the transport is closed.
const FLUSH_GRACE_PERIOD: Duration = Duration::from_millis(250);

/// A running child process and its pending requests.
#[derive(Debug)]
pub struct StdioTransport {
    outbox: Outbox,
    pending: PendingRequests,
    close_receiver: CloseReceiver,
    stop: CancellationToken,
}

/// Everything besides the command that a child needs.
#[derive(Debug)]
pub(crate) struct ChildContext<'a> {
    pub(crate) lane: &'a LaneId,
    /// Size of the messages that may wait for the child to read them.
    pub(crate) max_queued_bytes: usize,
    /// Accounts for the child's processes.
    pub(crate) processes: &'a Arc<ServerProcesses>,
    /// Taken by the child until it has exited.
    pub(crate) place: Option<Arc<Slot>>,
    pub(crate) tail: &'a StderrTail,
    /// Runs the tasks of the transport; its owner waits for them.
    pub(crate) tasks: &'a TaskTracker,
    pub(crate) handler: Arc<dyn ClientHandler>,
}

impl StdioTransport {
    /// Starts the child.
    pub(crate) fn start(
        command: &ChildCommand,
        context: ChildContext<'_>,
    ) -> Result<(Self, TransportEvents), SpawnError> {
        let ChildContext {
            lane,
            max_queued_bytes,
            processes,
            place,
            tail,
            tasks,
            handler,
        } = context;
        let (child, pipes) = ChildProcess::spawn(command)?;
        let launcher = command.launcher.as_ref();
        let supervisors = launcher.map_or(Supervisors::None, |launcher| launcher.supervisors);
        let start = ProcessStart {
            supervisors,
            lane,
            place,
        };
        let processes = child.id().map(|pid| processes.add(pid, start));
        let outbox = Outbox::new(max_queued_bytes);
        let (events, event_receiver) = mpsc::channel(16);
        let (close_notifier, close_receiver) = close_signal::channel();
        let stdio = Self {
            outbox: outbox.clone(),
            pending: PendingRequests::default(),
            close_receiver,
            stop: CancellationToken::new(),
        };
        let pending = stdio.pending.clone();
        let stop = stdio.stop.clone();
        let router = MessageRouter {
            pending: pending.clone(),
            events,
            handler,
            server_requests: ServerRequests::new(tasks),
            end: stop.clone(),
        };
        let reader = read_messages(pipes.stdout, router, outbox.clone());
        let mut stderr = tasks.spawn(capture_stderr(pipes.stderr, tail.clone()));
        let mut writer = tasks.spawn(write_messages(pipes.stdin, outbox.clone()));
        let mut child = LimitedChild {
            child,
            memory: command.memory.clone(),
            processes,
        };
        let tail = tail.clone();
        tasks.spawn(async move {
            let mut exceeded = None;
            tokio::select! {
                () = reader => {}
                end = child.wait_end() => exceeded = end,
                _ = &mut writer => {}
                () = stop.cancelled() => {}
            }
            outbox.close();
            if stop.is_cancelled() {
                let _ = tokio::time::timeout(FLUSH_GRACE_PERIOD, &mut writer).await;
            }
            // Closes the child's stdin, which asks it to exit.
            writer.abort();
            let cause = if stop.is_cancelled() {
                ShutdownCause::Requested
            } else {
                ShutdownCause::Failed
            };
            let exit = child.shut_down(cause, exceeded).await;
            // Wait briefly for the rest of stderr; a grandchild may hold the pipe open forever.
            if tokio::time::timeout(child::EXIT_GRACE_PERIOD, &mut stderr)
                .await
                .is_err()
            {
                stderr.abort();
            }
            let reason = match tail.failure_line() {
                Some(line) => format!("{exit}: {line}"),
                None => exit.clone(),
            };
            // Stderr may contain secrets: only operators see it, callers get the bare status.
            pending.close(&exit);
            stop.cancel();
            close_notifier.notify(&reason);
        });
        Ok((stdio, event_receiver))
    }

    pub(super) async fn request(
        &self,
        outgoing: OutgoingRequest,
    ) -> Result<Box<RawValue>, RequestError> {
        let request = self.pending.register(outgoing.handler.clone())?;
        let message = outgoing.message(request.id);
        let mut guard = RequestGuard {
            request,
            outbox: &self.outbox,
            // The protocol does not allow clients to cancel `initialize`.
            is_cancellable: outgoing.method != "initialize",
        };
        self.outbox
            .push(Some(guard.request.id), to_single_line(message))?;
        guard.request.wait_result().await
    }

    pub(super) fn notify(&self, method: &str) -> Result<(), RequestError> {
        let message = jsonrpc::notification(method, &Object::new());
        self.outbox.push(None, message)
    }

    pub(super) async fn wait_closed(&self) -> String {
        self.close_receiver.wait().await
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.wait_closed().await;
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Replaces line breaks, which would end the message early, by blanks. In valid JSON a raw line
/// break occurs only between tokens, so the meaning stays the same.
fn to_single_line(message: String) -> String {
    if message.contains(['\n', '\r']) {
        message.replace(['\n', '\r'], " ")
    } else {
        message
    }
}

/// A request in flight. If it is dropped before the response, it leaves the queue, or, if it was sent,
/// the child receives `notifications/cancelled`.
struct RequestGuard<'a> {
    request: PendingRequest,
    outbox: &'a Outbox,
    is_cancellable: bool,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let is_unanswered = self.request.remove();
        if is_unanswered && !self.outbox.remove(self.request.id) && self.is_cancellable {
            let params = Object::new().raw("requestId", &self.request.id.to_string());
            let cancelled = jsonrpc::notification("notifications/cancelled", &params);
            // A full outbox means that the child does not read, so it would not see this either.
            let _ = self.outbox.push(None, cancelled);
        }
    }
}

async fn write_messages(stdin: ChildStdin, outbox: Outbox) {
    let mut stdin = BufWriter::new(stdin);
    while let Some(message) = outbox.next().await {
        // Messages that are already queued share one flush.
        let mut written = write_line(&mut stdin, &message).await;
        drop(message);
        while let (true, Some(message)) = (written.is_ok(), outbox.try_next()) {
            written = write_line(&mut stdin, &message).await;
        }
        if written.is_err() || stdin.flush().await.is_err() {
            return; // the reader notices the closed pipe and reports the reason
        }
    }
}

async fn write_line(stdin: &mut BufWriter<ChildStdin>, message: &str) -> std::io::Result<()> {
    stdin.write_all(message.as_bytes()).await?;
    stdin.write_all(b"\n").await
}

async fn read_messages(stdout: ChildStdout, router: MessageRouter, outbox: Outbox) {
    let mut lines = LineReader::new(stdout, MAX_MESSAGE_BYTES);
    let too_large = || RequestError::TooLarge(MAX_MESSAGE_BYTES);
    while let Ok(Some(line)) = lines.next().await {
        match line {
            MessageLine::Text(text) => {
                let outbox = outbox.clone();
                run_large(text.len(), || {
                    router.route(&text, move |reply| {
                        // A child that does not read would not see the reply either.
                        let _ = outbox.push(None, to_single_line(reply));
                    });
                });
            }
            MessageLine::TooLong { id: Some(id) } => {
                router.pending.complete(id, Err(too_large()));
            }
            MessageLine::TooLong { id: None } => {
                tracing::warn!(
                    limit = MAX_MESSAGE_BYTES,
                    "dropping oversized message from server"
                )
            }
        }
    }
}

async fn capture_stderr(mut stderr: ChildStderr, tail: StderrTail) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        tail.push(&buffer[..read]);
    }
}

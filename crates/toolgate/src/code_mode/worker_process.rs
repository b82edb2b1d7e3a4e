//! One worker process. A task of the pool waits for its end, so that a worker that dies while it is idle is
//! noticed and reaped at once.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_script::protocol::{self, HostMessage, MAX_MESSAGE_BYTES, WorkerMessage};
use toolgate_script::worker::WORKER_FLAG;

use super::pool::WorkerProgram;

/// Time for a worker to exit after its stdin is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a worker that has closed its pipes to exit.
const DEATH_TIMEOUT: Duration = Duration::from_millis(200);
/// Bytes of stderr read from a terminated worker.
const MAX_STDERR_BYTES: u64 = 4096;

/// A worker process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) scripts_run: u32,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    exit: watch::Receiver<Option<WorkerExit>>,
    kill: DropGuard,
}

/// Exit of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerExit {
    /// `None` if the gateway killed the worker.
    pub(super) status: Option<ExitStatus>,
    pub(super) stderr: String,
}

/// Waits for the end of a worker process, which it owns.
pub(super) struct WorkerWatch {
    child: Child,
    stderr: Option<ChildStderr>,
    kill: CancellationToken,
    exit: watch::Sender<Option<WorkerExit>>,
}

impl Worker {
    /// Starts a process, which is not ready yet. It ends only while the watch runs.
    pub(super) fn spawn(program: &WorkerProgram, memory: u64) -> io::Result<(Self, WorkerWatch)> {
        let mut child = Command::new(&program.path)
            .args(&program.args)
            .args([WORKER_FLAG, &memory.to_string()])
            .env_clear()
            // Further arenas would reserve more address space than the limit allows.
            .env("MALLOC_ARENA_MAX", "1")
            .current_dir("/")
            // Keep signals from the gateway's terminal (Ctrl-C) away from workers.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("worker has no pipes"));
        };
        let kill = CancellationToken::new();
        let (exit_sender, exit) = watch::channel(None);
        let watch = WorkerWatch {
            stderr: child.stderr.take(),
            child,
            kill: kill.clone(),
            exit: exit_sender,
        };
        let worker = Self {
            scripts_run: 0,
            stdin,
            stdout: BufReader::new(stdout),
            exit,
            kill: kill.drop_guard(),
        };
        Ok((worker, watch))
    }

    pub(super) async fn send(&mut self, message: &HostMessage) -> io::Result<()> {
        self.stdin
            .write_all(&protocol::encode_message(message)?)
            .await
    }

    /// Reads the next message; returns `None` if the worker is gone.
    pub(super) async fn receive(&mut self) -> io::Result<Option<WorkerMessage>> {
        let mut head = [0; 4];
        if self.stdout.read_exact(&mut head).await.is_err() {
            return Ok(None);
        }
        let length = u32::from_le_bytes(head) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(io::Error::other("worker message is too long"));
        }
        // Do not preallocate: the announced length is not trusted.
        let mut body = Vec::new();
        let limit = u64::try_from(length).unwrap_or(u64::MAX);
        let read = (&mut self.stdout).take(limit).read_to_end(&mut body).await;
        if read.is_err() || body.len() < length {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&body)?))
    }

    pub(super) fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Lets the process exit by itself, or kills it after a while.
    pub(super) async fn shut_down(self) {
        let Self {
            stdin,
            exit,
            kill: _kill,
            ..
        } = self;
        drop(stdin);
        let _killed = tokio::time::timeout(EXIT_TIMEOUT, wait_for_exit(exit)).await;
    }

    /// Ensures that the process has exited and returns its status and stderr.
    pub(super) async fn terminate(self) -> WorkerExit {
        let exited = wait_for_exit(self.exit.clone());
        if let Ok(exit) = tokio::time::timeout(DEATH_TIMEOUT, exited).await {
            return exit;
        }
        drop(self.kill);
        wait_for_exit(self.exit).await
    }
}

async fn wait_for_exit(mut exit: watch::Receiver<Option<WorkerExit>>) -> WorkerExit {
    match exit.wait_for(Option::is_some).await {
        Ok(exit) => exit.clone().unwrap_or_default(),
        // The watch was dropped, and the process with it.
        Err(_) => WorkerExit::default(),
    }
}

impl WorkerWatch {
    /// Waits until the process has exited, or kills it if its worker was dropped. Returns how it exited.
    pub(super) async fn run(mut self) -> WorkerExit {
        let status = tokio::select! {
            status = self.child.wait() => status.ok(),
            () = self.kill.cancelled() => {
                let _already_exited = self.child.kill().await;
                None
            }
        };
        let mut stderr = Vec::new();
        if let Some(pipe) = self.stderr.take() {
            let _best_effort = pipe.take(MAX_STDERR_BYTES).read_to_end(&mut stderr).await;
        }
        let exit = WorkerExit {
            status,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        };
        self.exit.send_replace(Some(exit.clone()));
        exit
    }
}

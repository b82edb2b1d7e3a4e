//! The child process itself: how it starts, and how it and its descendants end.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

/// How long a child may take to end after its input closed, and again after SIGTERM.
pub(super) const GRACE: Duration = Duration::from_millis(1500);

const LAST_WORDS: Duration = Duration::from_millis(300);

/// What to start; nothing is inherited but what is named here.
#[derive(Clone, Debug)]
pub struct Command {
    pub program: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<PathBuf>,
}

/// Why a child did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("command `{0}` was not found; install it, or give its full path")]
    NotFound(String),
    #[error("folder `{0}` (cwd) does not exist")]
    NoFolder(String),
    #[error("command `{program}` could not be started: {cause}")]
    Io { program: String, cause: io::Error },
}

/// A child and the group it leads.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    group: Option<Pid>,
}

#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Child {
    pub(super) fn spawn(command: &Command) -> Result<(Self, Pipes), SpawnError> {
        let mut process = tokio::process::Command::new(&command.program);
        process
            .args(&command.args)
            .env_clear()
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &command.cwd {
            if !cwd.is_dir() {
                return Err(SpawnError::NoFolder(cwd.display().to_string()));
            }
            process.current_dir(cwd);
        }
        let mut process = process.spawn().map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => SpawnError::NotFound(command.program.clone()),
            _ => SpawnError::Io {
                program: command.program.clone(),
                cause,
            },
        })?;
        let taken = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = taken else {
            return Err(SpawnError::Io {
                program: command.program.clone(),
                cause: io::Error::other("it has no pipes"),
            });
        };
        let group = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pipes = Pipes {
            stdin,
            stdout,
            stderr,
        };
        Ok((Self { process, group }, pipes))
    }

    /// Waits until the process has ended and what it wrote last has had time to be read. Its pipes
    /// may stay open beyond that, in the hands of a process that it started.
    pub(super) async fn gone(&mut self) {
        let _ = self.process.wait().await;
        tokio::time::sleep(LAST_WORDS).await;
    }

    /// Waits for the end, and hastens it step by step; then ends what the child left behind.
    pub(super) async fn end(mut self, asked: bool) -> String {
        let mut status = self.exited().await;
        for signal in [Signal::TERM, Signal::KILL] {
            if status.is_none() {
                self.signal(signal);
                status = self.exited().await;
            }
        }
        self.signal(Signal::KILL);
        match status {
            _ if asked => "stopped".to_owned(),
            Some(status) => status.to_string(),
            None => "it does not react".to_owned(),
        }
    }

    async fn exited(&mut self) -> Option<ExitStatus> {
        timeout(GRACE, self.process.wait()).await.ok()?.ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error means that nobody is left in the group.
            let _ = kill_process_group(group, signal);
        }
    }
}

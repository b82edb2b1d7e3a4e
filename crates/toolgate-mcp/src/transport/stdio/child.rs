//! Starting a child process, and terminating it with its descendants.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::processes::{ProcessTree, Supervisors};
use crate::sandbox::MemoryLimit;

/// Time a child gets to exit after its stdin closed, and again after SIGTERM and SIGKILL.
pub(super) const EXIT_GRACE_PERIOD: Duration = Duration::from_millis(1500);

/// Time to read the remaining output after the process has exited.
const OUTPUT_DRAIN_DELAY: Duration = Duration::from_millis(300);

/// Where programs are looked up without `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The command to start; the child inherits only what is listed here.
#[derive(Clone, Debug)]
pub struct ChildCommand {
    pub program: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<PathBuf>,
    /// The launcher that executes the command in its sandbox; `None` executes it directly.
    pub launcher: Option<LauncherCall>,
    /// Limit on the memory of its processes.
    pub(crate) memory: Option<MemoryLimit>,
}

/// How to start the launcher of a sandbox, in front of the command.
#[derive(Clone, Debug)]
pub struct LauncherCall {
    pub program: PathBuf,
    pub args: [String; 2],
    /// A variable for the launcher alone.
    pub variable: (&'static str, &'static str),
    /// Which of its processes stay beside the command.
    pub(crate) supervisors: Supervisors,
}

/// Reasons why a child did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("command `{0}` not found; install it or use its full path")]
    NotFound(String),
    #[error("directory `{0}` (`cwd`) does not exist")]
    NoDirectory(String),
    #[error("failed to start command `{program}`: {cause}")]
    Io { program: String, cause: io::Error },
}

/// Why a child is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownCause {
    Requested,
    /// It exited, or its pipes closed.
    Failed,
}

/// A child process and the process group it leads.
#[derive(Debug)]
pub(super) struct ChildProcess {
    process: tokio::process::Child,
    group: Option<Pid>,
}

#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl ChildCommand {
    fn to_process(&self) -> tokio::process::Command {
        let mut process = match &self.launcher {
            None => tokio::process::Command::new(&self.program),
            Some(launcher) => {
                let mut process = tokio::process::Command::new(&launcher.program);
                process.args(&launcher.args).arg(&self.program);
                process
            }
        };
        process
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(self.launcher.iter().map(|launcher| launcher.variable));
        process
    }

    /// Returns whether the system would find the program, in `PATH` unless its name has a slash.
    fn program_exists(&self) -> bool {
        let cwd = self.cwd.as_deref().unwrap_or(Path::new("."));
        if self.program.contains('/') {
            return cwd.join(&self.program).exists();
        }
        let path = self.env.iter().rev().find(|(name, _)| name == "PATH");
        let directories = path.map_or(DEFAULT_PATH, |(_, value)| value.as_str());
        std::env::split_paths(directories)
            .any(|directory| cwd.join(directory).join(&self.program).exists())
    }
}

impl ChildProcess {
    pub(super) fn spawn(command: &ChildCommand) -> Result<(Self, Pipes), SpawnError> {
        let mut process = command.to_process();
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &command.cwd {
            if !cwd.is_dir() {
                return Err(SpawnError::NoDirectory(cwd.display().to_string()));
            }
            process.current_dir(cwd);
        }
        // The launcher always starts, so its start does not tell whether the command exists.
        if command.launcher.is_some() && !command.program_exists() {
            return Err(SpawnError::NotFound(command.program.clone()));
        }
        let mut process = process.spawn().map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => SpawnError::NotFound(command.program.clone()),
            _ => SpawnError::Io {
                program: command.program.clone(),
                cause,
            },
        })?;
        let pipes = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(SpawnError::Io {
                program: command.program.clone(),
                cause: io::Error::other("child has no pipes"),
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

    /// Returns the process number, unless the process has exited and that was noticed.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Waits until the process has exited and its remaining output could be read. Its pipes may
    /// stay open longer if a descendant holds them.
    pub(super) async fn wait_exit(&mut self) {
        wait_exited(self.group, &mut self.process).await;
        tokio::time::sleep(OUTPUT_DRAIN_DELAY).await;
    }

    /// Waits for the exit, escalating to SIGTERM and SIGKILL, then kills remaining descendants.
    pub(super) async fn shut_down(
        mut self,
        cause: ShutdownCause,
        tree: Option<&ProcessTree>,
    ) -> String {
        let mut has_exited = self.wait_exited().await;
        if !has_exited {
            self.signal(Signal::TERM);
            has_exited = self.wait_exited().await;
        }
        if !has_exited {
            // Before the group, which contains the supervisor: it has to adopt what has left the group.
            tree.inspect(|tree| tree.kill());
            self.signal(Signal::KILL);
            has_exited = self.wait_exited().await;
        }
        self.signal(Signal::KILL);
        let status = if has_exited {
            self.process.wait().await.ok()
        } else {
            None
        };
        match status {
            _ if cause == ShutdownCause::Requested => "stopped".to_owned(),
            Some(status) if status.signal() == Some(Signal::XCPU.as_raw()) => {
                "CPU time used up, see `sandbox.cpu_seconds`".to_owned()
            }
            Some(status) => status.to_string(),
            None => "not responding to signals".to_owned(),
        }
    }

    async fn wait_exited(&mut self) -> bool {
        let exited = wait_exited(self.group, &mut self.process);
        timeout(EXIT_GRACE_PERIOD, exited).await.is_ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error means that the group is empty.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Waits until a process has exited without taking its status, so that its number, which is also that of its
/// group, is not given to another process before the rest of the group is killed.
async fn wait_exited(group: Option<Pid>, process: &mut tokio::process::Child) {
    // Before the first look, so that no exit is missed.
    let Ok(mut exits) = signal(SignalKind::child()) else {
        let _ = process.wait().await;
        return;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while let Some(group) = group {
        match waitid(WaitId::Pid(group), options) {
            Ok(None) => exits.recv().await,
            // An error means that its status was taken already.
            Ok(Some(_)) | Err(_) => return,
        };
    }
}

//! Supervisor of a server: the process that the gateway starts for it, which stays outside of the sandbox.
//!
//! It ends everything that the server has started when the server exits, and when the gateway does, also one
//! that was killed. A process that left the server's process group would outlive it otherwise. Two mechanisms
//! do this:
//!
//! - A PID namespace. The kernel kills all processes in it when its first process exits, which is another
//!   launcher that only waits for the end of the supervisor. Nothing in the namespace can signal or
//!   trace either of them, and no process can leave. The server is not that first process, because the kernel
//!   withholds signals from it, and it is not the parent of the server, because programs take a parent with the
//!   number 1 for a sign that they were abandoned.
//! - Where that needs permissions that are missing, as in most containers: a subreaper. The kernel gives orphans
//!   to the supervisor, which kills its children until none is left. Processes that start others faster than
//!   that can survive, as can all of them if the server kills its supervisor, which only `signals_blocked`
//!   prevents.

#[cfg(target_os = "linux")]
mod linux;

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub(super) use linux::{run, run_init, set_up};

use super::Mechanism;
#[cfg(not(target_os = "linux"))]
use super::{Profile, launcher};

/// First argument of the first process in a PID namespace.
pub(super) const INIT_FLAG: &str = "__hold-namespace";

/// What a supervisor has prepared for the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Supervision {
    /// What ends the descendants, or why nothing does.
    pub(super) outcome: Result<Mechanism, String>,
    /// Whether the server starts in a user namespace of its own.
    pub(super) owns_user_namespace: bool,
}

impl Supervision {
    pub(super) fn has_pid_namespace(&self) -> bool {
        self.outcome == Ok(Mechanism::PidNamespace)
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn set_up(_profile: &Profile) -> Supervision {
    Supervision {
        outcome: Err("needs Linux".to_owned()),
        owns_user_namespace: false,
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn run(
    _profile: &Profile,
    _supervision: &Supervision,
    args: Vec<std::ffi::OsString>,
) -> std::io::Result<std::process::ExitCode> {
    launcher::restrict(args.into_iter())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn run_init() -> std::io::Result<std::process::ExitCode> {
    Err(std::io::Error::other("needs Linux"))
}

//! Launcher processes: restrict themselves and then execute the command of a server.
//!
//! The gateway starts one with `LAUNCH_FLAG` or `PROBE_FLAG`, a profile as JSON, and the command with its
//! arguments. Its environment and working directory are those of the server. It becomes the supervisor,
//! which starts another one with `RESTRICT_FLAG`; that one becomes the server. A program that embeds the
//! gateway calls [`main`] at the start of its own `main` if [`is_launcher_process`] returns true.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use super::measures::apply_measures;
use super::{ALLOCATOR_SETTINGS, MeasureReport, Profile, cgroup, supervisor};
use crate::inherited_files;
use supervisor::Supervision;

/// First argument of a launcher that executes a command.
pub(super) const LAUNCH_FLAG: &str = "__launch-server";
/// First argument of a launcher that only reports which measures work.
pub(super) const PROBE_FLAG: &str = "__probe-sandbox";
/// First argument of the launcher that a supervisor starts, followed by one of the flags above.
pub(super) const RESTRICT_FLAG: &str = "__restrict-server";

/// Exit code if the command was not executed, as in a shell.
const NOT_EXECUTED: u8 = 126;

/// Returns whether this process was started as a launcher.
pub fn is_launcher_process() -> bool {
    let flags = [
        LAUNCH_FLAG,
        PROBE_FLAG,
        RESTRICT_FLAG,
        supervisor::INIT_FLAG,
    ];
    let first = std::env::args_os().nth(1);
    first.is_some_and(|first| flags.iter().any(|flag| first == *flag))
}

/// Starts the server in its sandbox, and returns when it has ended.
pub fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let flag = args.next().unwrap_or_default();
    let result = if flag == supervisor::INIT_FLAG {
        supervisor::run_init()
    } else if flag == RESTRICT_FLAG {
        restrict(args)
    } else {
        supervise(flag, args)
    };
    result.unwrap_or_else(|error| {
        // Becomes the last line of the server's standard error, which operators see.
        let _best_effort = writeln!(io::stderr(), "{error}");
        ExitCode::from(NOT_EXECUTED)
    })
}

/// Starts a launcher that becomes the server, and waits for the end of all its processes.
fn supervise(flag: OsString, mut args: impl Iterator<Item = OsString>) -> io::Result<ExitCode> {
    let profile_text = args.next().unwrap_or_default();
    let profile: Profile = serde_json::from_slice(profile_text.as_encoded_bytes())?;
    // First, so that all processes are in the group.
    if let Some(group) = &profile.group {
        cgroup::join(group)
            .map_err(|error| io::Error::other(format!("the sandbox failed: `memory`: {error}")))?;
    }
    let supervision = supervisor::set_up(&profile);
    let supervision_text = serde_json::to_string(&supervision)?;
    let args = [flag, profile_text, supervision_text.into()]
        .into_iter()
        .chain(args);
    supervisor::run(&profile, &supervision, args.collect())
}

/// Applies the profile, then becomes the server. Returns only if that fails, or after a probe.
pub(super) fn restrict(mut args: impl Iterator<Item = OsString>) -> io::Result<ExitCode> {
    let mut next = || args.next().unwrap_or_default();
    let (flag, profile, supervision) = (next(), next(), next());
    let profile: Profile = serde_json::from_slice(profile.as_encoded_bytes())?;
    let supervision: Supervision = serde_json::from_slice(supervision.as_encoded_bytes())?;
    let reports = apply_measures(&profile, &supervision);
    if flag == PROBE_FLAG {
        let text = serde_json::to_string(&reports)?;
        io::stdout().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(problem) = reports.iter().find_map(MeasureReport::problem) {
        return Err(io::Error::other(format!("the sandbox failed: {problem}")));
    }
    inherited_files::close_on_exec();
    let program = args.next().unwrap_or_default();
    let error = Command::new(&program)
        .args(args)
        .env_remove(ALLOCATOR_SETTINGS.0)
        .exec();
    let program = program.to_string_lossy();
    Err(io::Error::other(match error.kind() {
        io::ErrorKind::PermissionDenied if profile.strict.is_some() => format!(
            "failed to start command `{program}`: {error}; it must be executable and in a directory that `sandbox.read` names"
        ),
        _ => format!("failed to start command `{program}`: {error}"),
    }))
}

//! Launcher process: restricts itself and then executes the command of a server.
//!
//! It is started with `LAUNCH_FLAG` or `PROBE_FLAG`, a profile as JSON, and the command with its
//! arguments. Its environment and working directory are those of the server. A program that embeds the
//! gateway calls [`main`] at the start of its own `main` if [`is_launcher_process`] returns true.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use super::measures::apply_measures;
use super::{ALLOCATOR_SETTINGS, MeasureReport, Profile, cgroup};

/// First argument of a launcher that executes a command.
pub(super) const LAUNCH_FLAG: &str = "__launch-server";
/// First argument of a launcher that only reports which measures work.
pub(super) const PROBE_FLAG: &str = "__probe-sandbox";

/// Exit code if the command was not executed, as in a shell.
const NOT_EXECUTED: u8 = 126;

/// Returns whether this process was started as a launcher.
pub fn is_launcher_process() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == LAUNCH_FLAG || first == PROBE_FLAG)
}

/// Applies the profile, then becomes the server. Returns only if that fails, or after a probe.
pub fn main() -> ExitCode {
    match run(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Becomes the last line of the server's standard error, which operators see.
            let _best_effort = writeln!(io::stderr(), "{error}");
            ExitCode::from(NOT_EXECUTED)
        }
    }
}

fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let flag = args.next().unwrap_or_default();
    let profile = args.next().unwrap_or_default();
    let profile: Profile = serde_json::from_slice(profile.as_encoded_bytes())?;
    // First, because the other measures take away what this needs.
    if let Some(group) = &profile.group {
        cgroup::join(group)
            .map_err(|error| io::Error::other(format!("the sandbox failed: `memory`: {error}")))?;
    }
    let reports = apply_measures(&profile);
    if flag == PROBE_FLAG {
        let text = serde_json::to_string(&reports)?;
        return io::stdout().write_all(text.as_bytes());
    }
    if let Some(problem) = reports.iter().find_map(MeasureReport::problem) {
        return Err(io::Error::other(format!("the sandbox failed: {problem}")));
    }
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

//! Start-up actions, before the first message is read.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use tokio::signal::unix::{SignalKind, signal};

use super::flags::CommonFlags;

const FLOOD_BYTES: usize = 5 * 1024 * 1024;

/// Writes to stderr, then starts the grandchild. Blocks while stderr is full.
pub(crate) fn run_start_actions(common: &CommonFlags) {
    let diagnostics = &common.diagnostics;
    // The client may close stderr: a failed write is not a reason to stop.
    let mut stderr = std::io::stderr().lock();
    if let Some(text) = &diagnostics.stderr {
        let _ = writeln!(stderr, "{text}");
    }
    if diagnostics.stderr_flood {
        let line = format!("{}\n", "flood ".repeat(170));
        for _ in 0..FLOOD_BYTES.div_ceil(line.len()) {
            let _ = stderr.write_all(line.as_bytes());
        }
    }
    if let Some(file) = &diagnostics.grandchild {
        // It inherits stdin, stdout and stderr, as the children of real wrapper scripts do.
        #[expect(
            clippy::zombie_processes,
            reason = "it must outlive this process unless the whole group is killed"
        )]
        let child = Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("failed to start `sleep`");
        write_number(file, child.id());
    }
}

/// Writes the `--pid` file. Called once the signal handlers are installed.
pub(crate) fn write_pid(common: &CommonFlags) {
    if let Some(file) = &common.diagnostics.pid {
        write_number(file, std::process::id());
    }
}

/// Ignores SIGTERM from now on.
pub(crate) fn ignore_sigterm() {
    // Once installed, the handler stays for the life of the process, even after the drop.
    drop(signal(SignalKind::terminate()).expect("failed to install the SIGTERM handler"));
}

fn write_number(file: &Path, number: u32) {
    std::fs::write(file, format!("{number}\n")).expect("the process id file is not writable");
}

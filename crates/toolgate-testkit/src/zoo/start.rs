//! What happens once, before the first message is read.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use tokio::signal::unix::{SignalKind, signal};

use super::flags::Common;

const FLOOD_BYTES: usize = 5 * 1024 * 1024;

/// Writes to stderr and starts the grandchild, in this order, and blocks while nobody reads.
pub(crate) fn prepare(common: &Common) {
    let traces = &common.traces;
    // A client that closed our stderr is its own business: failing writes are no reason to stop.
    let mut stderr = std::io::stderr().lock();
    if let Some(text) = &traces.stderr {
        let _ = writeln!(stderr, "{text}");
    }
    if traces.stderr_flood {
        let line = format!("{}\n", "flood ".repeat(170));
        for _ in 0..FLOOD_BYTES.div_ceil(line.len()) {
            let _ = stderr.write_all(line.as_bytes());
        }
    }
    if let Some(file) = &traces.grandchild {
        // It inherits stdin, stdout and stderr, as the children of real wrapper scripts do.
        #[expect(
            clippy::zombie_processes,
            reason = "it has to outlive us unless somebody kills the whole group"
        )]
        let child = Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("`sleep` starts");
        write_number(file, child.id());
    }
}

/// Writes the process id, if asked to; by then the signal handlers are in place.
pub(crate) fn write_pid(common: &Common) {
    if let Some(file) = &common.traces.pid {
        write_number(file, std::process::id());
    }
}

/// Makes SIGTERM do nothing from here on.
pub(crate) fn ignore_sigterm() {
    // Once installed the handler stays for the life of the process, also when this is dropped.
    drop(signal(SignalKind::terminate()).expect("SIGTERM can be handled"));
}

fn write_number(file: &Path, number: u32) {
    std::fs::write(file, format!("{number}\n")).expect("the file for a process id is writable");
}

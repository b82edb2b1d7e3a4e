//! Standalone worker, for tests and for embedders that do not want to act as their own worker.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolgate_script::worker::main()
}

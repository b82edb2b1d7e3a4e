//! A worker and nothing else, for tests and for programs that do not want to be one themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolgate_script::worker::main()
}

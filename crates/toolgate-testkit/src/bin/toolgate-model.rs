//! The scripted model as a program; see `toolgate_testkit::model`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolgate_testkit::model::main()
}

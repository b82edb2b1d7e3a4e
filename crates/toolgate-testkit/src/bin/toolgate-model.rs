//! The scripted model as a binary; see `toolgate_testkit::model`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolgate_testkit::model::main()
}

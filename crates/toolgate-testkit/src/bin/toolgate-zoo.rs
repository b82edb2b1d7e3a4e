//! The configurable MCP server that Toolgate is tested against; see `toolgate_testkit::zoo`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolgate_testkit::zoo::main()
}

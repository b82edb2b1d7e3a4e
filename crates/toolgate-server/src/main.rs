//! The binary `toolgate`.

mod cli;
mod configuration;
mod files;
mod http;
mod remote;
mod telemetry;

use std::process::ExitCode;

fn main() -> ExitCode {
    if toolgate::script_worker::is_asked_for() {
        return toolgate::script_worker::main();
    }
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}

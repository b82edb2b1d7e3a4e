//! The binary `toolgate`.

mod cli;
mod configuration;
mod files;
mod http;
mod remote;
mod telemetry;

use std::process::ExitCode;

/// Chosen by measurement: a request allocates some blocks of more than a kilobyte, which glibc's takes
/// from shared bins each time.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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

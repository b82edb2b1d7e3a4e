//! The `toolgate` binary: command line, HTTP server, configuration management and telemetry.

mod actor;
mod cli;
mod client_settings;
mod configuration;
mod files;
mod gateway_process;
mod http;
mod local_socket;
mod process;
mod project;
mod relay;
mod remote;
mod standalone;
mod store_key;
mod telemetry;

use std::process::ExitCode;

/// jemalloc, chosen by measurement: requests allocate blocks over 1 KiB, which glibc's allocator always
/// takes from shared bins.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if toolgate::script_worker::is_worker_process() {
        return toolgate::script_worker::main();
    }
    if toolgate::server_launcher::is_launcher_process() {
        return toolgate::server_launcher::main();
    }
    toolgate::inherited_files::close_on_exec();
    match process::protect_memory().and_then(|()| cli::run()) {
        Ok(code) => code,
        Err(error) => {
            cli::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

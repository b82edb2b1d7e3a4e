//! An MCP server whose behaviour and faults are selected by flags.
//!
//! [`main`] parses the flags, runs the start-up actions and hands over to one of the two
//! transports. `server` implements methods and eras, `tool` the zoo's tools, and `fixture` those
//! of the conformance suite; none of them knows the transport.
//! Everything whose exact bytes matter stays raw JSON text from end to end.

mod calls;
mod catalog;
mod change;
mod client_request;
mod era;
mod execution_log;
mod fixture;
mod flags;
mod headers;
mod http;
mod legacy_sse;
mod outbox;
mod peers;
mod post;
mod rejection;
mod request_log;
mod rpc;
mod server;
mod session;
mod sse;
mod start;
mod stdio;
mod subscription;
mod task_tools;
mod tool;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;

use flags::{Flags, TransportCommand};
use server::ZooServer;

/// Runs the zoo with the command-line flags of this process.
#[must_use]
pub fn main() -> ExitCode {
    let Flags { transport } = Flags::parse();
    start::run_start_actions(transport.common());
    let runtime = tokio::runtime::Runtime::new().expect("failed to start the runtime");
    runtime.block_on(async {
        let common = transport.common();
        if common.faults.ignore_sigterm {
            start::ignore_sigterm();
        }
        start::write_pid(common);
        let server = Arc::new(ZooServer::new(common));
        match transport {
            TransportCommand::Stdio { common } => stdio::serve(server, &common.faults).await,
            TransportCommand::Http { port, common, http } => {
                http::serve(server, port, &common.faults, http).await;
            }
        }
    });
    // A reader thread may still be blocked on stdin: exit without waiting for it.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

//! An MCP server whose behaviour and faults are chosen by flags.
//!
//! [`main`] reads the flags, does what has to happen at the start, and hands over to one of the
//! two transports. `server` knows methods and eras, `tool` the tools, and `fixture` those of the
//! conformance suite; none of them knows a transport.
//! Everything whose exact bytes matter stays raw JSON text from end to end.

mod calls;
mod catalog;
mod change;
mod era;
mod fixture;
mod flags;
mod headers;
mod http;
mod ledger;
mod old_sse;
mod outbox;
mod peers;
mod post;
mod question;
mod refusal;
mod rpc;
mod server;
mod session;
mod sse;
mod start;
mod stdio;
mod subscription;
mod tool;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;

use flags::{Flags, Transport};
use server::Server;

/// Runs the zoo with the flags of this process.
#[must_use]
pub fn main() -> ExitCode {
    let Flags { transport } = Flags::parse();
    start::prepare(transport.common());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let common = transport.common();
        if common.faults.ignore_sigterm {
            start::ignore_sigterm();
        }
        start::write_pid(common);
        let server = Arc::new(Server::new(common));
        match transport {
            Transport::Stdio { common } => stdio::serve(server, &common.faults).await,
            Transport::Http { port, common, http } => {
                http::serve(server, port, &common.faults, http).await;
            }
        }
    });
    // A reader thread may still be blocked on stdin: leave without waiting for it.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

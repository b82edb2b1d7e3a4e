//! Real processes and sockets that the gateway is tested against. Never shipped.
//!
//! [`zoo`] is an MCP server that behaves or misbehaves as its flags say, built as the binary
//! `toolgate-zoo`. The rest helps tests: where that binary is ([`zoo_path`]), one of them on a
//! port ([`HttpZoo`]), waiting for something to become true ([`eventually`]), and the official
//! conformance [`suite`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test support: a broken expectation here has to fail the test loudly"
)]

mod http_zoo;
mod process;
pub mod suite;
mod wait;
pub mod zoo;

pub use http_zoo::HttpZoo;
pub use process::{alive, zoo_path};
pub use wait::eventually;

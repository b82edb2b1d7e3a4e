//! Real processes and sockets that the gateway is tested against. Never shipped.
//!
//! [`zoo`] is an MCP server that behaves or misbehaves as its flags say, built as the binary
//! `toolgate-zoo`; [`model`] is an LLM that says what its script tells it to, also built as
//! `toolgate-model`. The rest helps tests: where those binaries are ([`zoo_path`],
//! [`model_path`]), a zoo on a port ([`HttpZoo`]), waiting for something to become true
//! ([`eventually`]), and the official conformance [`suite`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test support: a broken expectation here has to fail the test loudly"
)]

mod http_zoo;
pub mod model;
mod process;
pub mod suite;
mod wait;
pub mod zoo;

pub use http_zoo::HttpZoo;
pub use process::{alive, model_path, zoo_path};
pub use wait::eventually;

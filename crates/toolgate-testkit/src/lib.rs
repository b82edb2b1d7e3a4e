//! Real processes and sockets to test the gateway against. Never shipped.
//!
//! [`zoo`] is an MCP server whose behaviour and faults are selected by flags, built as the binary
//! `toolgate-zoo`. [`model`] is an LLM that follows a script, also built as `toolgate-model`. The
//! rest supports tests: the paths of those binaries ([`zoo_path`], [`model_path`]), a zoo on a
//! port ([`HttpZoo`]), configuration for both ([`stdio_zoo`], [`http_server`]), the requests that a
//! zoo received ([`ZooLog`]), waiting for a condition ([`eventually`],
//! [`wait_for_state`]), and the official
//! [`conformance`] suite.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test support: a broken expectation must fail the test"
)]

mod config;
pub mod conformance;
mod http_zoo;
pub mod model;
mod process;
mod wait;
pub mod zoo;
mod zoo_log;

pub use config::{http_server, stdio_zoo};
pub use http_zoo::HttpZoo;
pub use process::{is_alive, model_path, script_worker_path, zoo_path};
pub use wait::{WAIT_TIMEOUT, eventually, wait_for_state};
pub use zoo_log::ZooLog;

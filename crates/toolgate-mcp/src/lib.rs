//! MCP on raw JSON: towards upstream servers, in every revision from 2024-11-05 to 2026-07-28.
//!
//! A gateway must lose nothing, so messages are taken apart only as far as the protocol needs and
//! everything else travels as raw JSON. This is the only crate that starts MCP processes, and the
//! [`Registry`] is the only way to reach a server.

pub mod discovery;
pub mod ear;
pub mod environment;
pub mod handshake;
pub mod jsonrpc;
pub mod lane;
pub mod line;
pub mod local;
pub mod param_header;
pub mod registry;
pub mod serve;
pub mod status;
pub mod trace_context;
pub mod transport;

mod activity;
mod agenda;
mod backoff;
mod publisher;
mod supervisor;

pub use activity::Busy;
pub use environment::Environment;
pub use lane::{Lane, LaneId, LaneKey};
pub use local::LocalServer;
pub use registry::Registry;
pub use status::{State, Status};
pub use trace_context::TraceContext;

/// Largest message that is taken from a server.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

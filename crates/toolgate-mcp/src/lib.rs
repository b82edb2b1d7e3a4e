//! The MCP protocol on raw JSON, for every revision from 2024-11-05 to 2026-07-28.
//!
//! This crate connects to upstream servers and defines the messages that serving clients shares
//! with it; serving itself lives in the `toolgate` crate. A gateway must not lose data, so messages
//! are parsed only as far as the protocol requires and everything else is forwarded as raw JSON.
//! This is the only crate that starts MCP processes, and the [`Registry`] is the only way to reach
//! a server. Permissions live elsewhere.

pub mod client_handler;
pub mod discovery;
pub mod environment;
pub mod extensions;
pub mod fair_queue;
pub mod handshake;
pub mod inherited_files;
pub mod jsonrpc;
pub mod lane;
pub mod large;
pub mod line;
pub mod local;
pub mod param_header;
pub mod registry;
pub mod sandbox;
pub mod share;
pub mod status;
pub mod task;
pub mod trace_context;
pub mod transport;

mod activity;
mod backoff;
mod maintenance_schedule;
mod processes;
mod publisher;
mod supervisor;

pub use activity::ServerBusy;
pub use environment::Environment;
pub use lane::{Lane, LaneId, LaneKey};
pub use local::{LocalServer, LocalTool};
pub use processes::ProcessUsage;
pub use registry::Registry;
pub use sandbox::ServerLauncher;
pub use status::{ServerState, ServerStatus};
pub use trace_context::TraceContext;

/// Maximum size of a message accepted from a server.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// Time at which waiting for a server ends: for a slot, a connection and the answer together.
pub type Deadline = tokio::time::Instant;

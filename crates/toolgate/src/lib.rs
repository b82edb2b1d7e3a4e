//! Toolgate as a library: a gateway to any number of MCP servers.
//!
//! Start a [`Gateway`] from a [`Config`], add your own tools, and call tools through it. Every call
//! goes through the [`engine`]; a tool that a caller may not use does not exist for that caller.
//!
//! ```
//! use std::time::Duration;
//!
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use toolgate::local::{LocalServer, LocalTool, ToolContext};
//! use toolgate::{Arguments, Caller, Config, Gateway, ServerName, ToolCall};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Greet {
//!     /// Name of the person.
//!     name: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let greet = LocalTool::new("greet", |_: ToolContext, greet: Greet| async move {
//!     Ok(format!("hello {}", greet.name))
//! });
//! let greeter = LocalServer::new(ServerName::parse("greeter")?)
//!     .tool(greet.description("Greets a person"));
//! let gateway = Gateway::builder(Config::default()).local(greeter).start().await?;
//! gateway.wait_until_settled().await;
//!
//! let call = ToolCall::new("greeter_greet", Arguments::parse(r#"{"name":"world"}"#)?);
//! let outcome = gateway.call(&Caller::library(), call).await?;
//! assert_eq!(outcome.result.text(), "hello world");
//! gateway.stop(Duration::from_secs(1)).await;
//! # Ok(()) }
//! ```

#![warn(missing_docs)]

mod active_set;
pub mod agent;
pub mod approval;
pub mod audit;
pub mod call;
pub mod caller;
#[cfg_attr(not(feature = "code-mode"), path = "code_mode/disabled.rs")]
mod code_mode;
#[doc(hidden)] // for the API of the binary
pub mod concurrent;
mod conversations;
pub mod config {
    //! The configuration: loading it from text, with findings that point to its source, and
    //! everything it consists of.

    pub use toolgate_core::config::*;
    pub use toolgate_core::rate::{Budget, Rate};
    pub use toolgate_core::secret::Secret;
}
pub mod definitions;
pub mod engine;
pub mod event;
mod event_channel;
pub mod gateway;
mod held_bytes;
pub mod hook;
mod load;
pub mod mcp_server;
pub mod metrics;
pub mod models;
pub mod registry {
    //! Servers as the gateway sees them: their configuration and state.

    pub use toolgate_mcp::handshake::{Capabilities, Era, UpstreamSession};
    pub use toolgate_mcp::registry::{
        ProbeResult, RegistryEntry, ResourceSubscription, ServerUnavailable,
    };
    pub use toolgate_mcp::sandbox::{Measure, MeasureReport, Mechanism, SandboxReport};
    pub use toolgate_mcp::{ProcessUsage, ServerState, ServerStatus};
}
pub mod result;
pub mod store;
mod tasks;
pub mod trace;
mod ttl_cache;

pub use call::{Arguments, CallError, ClientSession, Outcome, RequestContext, ToolCall};
pub use caller::{CallOrigin, Caller};
pub use event::{GatewayEvent, GatewayEvents};
pub use gateway::{Gateway, GatewayBuilder, LocalServerOptions};
#[doc(hidden)] // for the API of the binary
pub use held_bytes::{HeldBytes, HeldFull, Hold};
pub use hook::{
    CompletedCall, Hook, ModelProposal, ModelResponseEvent, ModelReview, Proposal, Review,
    RunEvent, RunEventKind,
};
pub use load::{Load, LoadLevel};
pub use models::{ModelError, ModelRequest, ModelResponse, Models, ResponseBody};
pub use result::ToolResult;
/// Derives the schemas of in-process tools. Derive with `#[schemars(crate = "toolgate::schemars")]`,
/// or depend on the same version.
pub use schemars;
pub use store::Store;
pub use toolgate_core::config::Dialect;
pub use toolgate_core::{
    Catalog, Config, NameStyle, ServerName, ToolId, ToolName, catalog, policy, scope,
};
pub use toolgate_mcp::inherited_files;
/// Processes large requests; only the binary needs it.
#[doc(hidden)]
pub use toolgate_mcp::large;
/// Reads messages from standard input; only the binary needs it.
#[doc(hidden)]
pub use toolgate_mcp::line;
/// Headers that repeat parts of a modern request; only the binary needs it.
#[doc(hidden)]
pub use toolgate_mcp::param_header;
pub use toolgate_mcp::sandbox::launcher as server_launcher;
pub use toolgate_mcp::{Environment, ServerState, ServerStatus, client_handler, jsonrpc, local};
#[cfg(feature = "code-mode")]
pub use toolgate_script::worker as script_worker;
pub use trace::{TraceContext, Tracer};

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryGuide;

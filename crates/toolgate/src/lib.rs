//! Toolgate as a library: a gateway to any number of MCP servers.
//!
//! Start a [`Gateway`] from a [`Config`], give it tools of your own, and call tools through it.
//! Every call goes through the one [`engine`]: a tool that a caller may not use does not exist.
//!
//! ```
//! use std::time::Duration;
//!
//! use serde_json::json;
//! use toolgate::local::{LocalServer, Output};
//! use toolgate::{Arguments, Caller, Config, Gateway, ServerName, ToolCall};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
//! let greeter = LocalServer::new(ServerName::parse("greeter")?).tool(
//!     "greet",
//!     "Greets somebody",
//!     &schema,
//!     |arguments| async move { Ok(Output::Text(format!("hello {arguments}"))) },
//! );
//! let gateway = Gateway::builder(Config::default()).local(greeter).start().await?;
//! gateway.settled().await;
//!
//! let call = ToolCall::new("greeter_greet", Arguments::parse(r#"{"name":"world"}"#)?);
//! let outcome = gateway.call(&Caller::library(), call).await?;
//! assert_eq!(outcome.result.text(), r#"hello {"name":"world"}"#);
//! gateway.stop(Duration::from_secs(1)).await;
//! # Ok(()) }
//! ```

pub mod agent;
pub mod approval;
pub mod audit;
pub mod call;
pub mod caller;
pub mod config {
    //! What a gateway is configured with, as text becomes a [`crate::Config`].

    pub use toolgate_core::config::{Document, Finding, Format, Invalid, Severity};
}
mod code_mode;
pub mod engine;
pub mod event;
pub mod gateway;
mod history;
pub mod hook;
mod keep;
pub mod mcp;
pub mod metrics;
pub mod models;
pub mod result;
pub mod store;
pub mod trace;

pub use call::{Arguments, CallError, ClientSession, Outcome, Request, ToolCall};
pub use caller::{Caller, Origin};
pub use event::Event;
pub use gateway::Gateway;
pub use hook::{Hook, Proposal, Review};
pub use models::{AnswerBody, ModelAnswer, ModelError, ModelRequest, Models};
pub use result::ToolResult;
pub use store::Store;
pub use toolgate_core::config::Dialect;
pub use toolgate_core::{Config, NameStyle, ServerName, ToolId, ToolName};
pub use toolgate_mcp::{Environment, State, Status, ear, jsonrpc, line, local, registry, serve};
pub use toolgate_script::worker as script_worker;
pub use trace::{TraceContext, Tracer};

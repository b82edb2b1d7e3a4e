//! Extension point for embedding programs: a [`Hook`] can review every call before it runs, generate
//! request ids, and observe agent runs.
//!
//! ```
//! use futures_util::future::BoxFuture;
//! use serde_json::json;
//! use toolgate::local::{LocalServer, LocalTool};
//! use toolgate::{Caller, Config, Gateway, Hook, Proposal, Review, ServerName, ToolCall};
//!
//! #[derive(Debug)]
//! struct NoSecrets;
//!
//! impl Hook for NoSecrets {
//!     fn review<'a>(&'a self, proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
//!         Box::pin(async move {
//!             match proposal.arguments.value()["path"].as_str() {
//!                 Some(path) if path.ends_with(".env") => Review::Deny {
//!                     reason: "secrets must not be read".to_owned(),
//!                 },
//!                 _ => Review::Proceed,
//!             }
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let read = LocalTool::raw("read", json!({"type": "object"}), |_, _| async { Ok("text") });
//! let reader = LocalServer::new(ServerName::parse("files")?).tool(read);
//! let builder = Gateway::builder(Config::default()).local(reader);
//! let gateway = builder.hook(NoSecrets).start().await?;
//! gateway.wait_until_settled().await;
//! let read = |path| ToolCall::parse("files_read", path);
//! let caller = Caller::library();
//! assert!(gateway.call(&caller, read(r#"{"path": "a.txt"}"#)).await.is_ok());
//! let refused = gateway.call(&caller, read(r#"{"path": "x/.env"}"#)).await.unwrap_err();
//! assert_eq!(refused.code(), "denied");
//! # gateway.stop(std::time::Duration::ZERO).await;
//! # Ok(()) }
//! ```

mod run_event;

use futures_util::future::BoxFuture;
pub use run_event::{RunEvent, RunEventKind};
use toolgate_core::name::ToolId;
use toolgate_core::policy::Decision;

use crate::call::Arguments;
use crate::caller::Caller;

/// A call under review, before it runs or an approval is requested.
#[derive(Debug)]
pub struct Proposal<'a> {
    pub tool: &'a ToolId,
    pub alias: &'a str,
    pub arguments: &'a Arguments,
    pub caller: &'a Caller,
    pub request_id: &'a str,
    /// Decision according to the configuration.
    pub decision: &'a Decision,
}

/// Result of a review.
#[derive(Clone, Debug)]
pub enum Review {
    /// Follow the configuration.
    Proceed,
    /// Approve a call whose verdict is `ask`; denied calls stay denied.
    Approve,
    /// Approve the call with other arguments.
    Edit(Arguments),
    Deny {
        reason: String,
    },
}

/// Custom logic of an embedding program. Every method has a default that leaves the behavior unchanged.
pub trait Hook: std::fmt::Debug + Send + Sync {
    /// Reviews a call that no rule denies, after its arguments were validated.
    fn review<'a>(&'a self, _proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        Box::pin(std::future::ready(Review::Proceed))
    }

    /// Generates the id of a request that has none; a random UUID by default.
    fn request_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }

    /// Generates the request id of a turn in a run. Turns count from one.
    fn turn_id(&self, request: &str, turn: u32) -> String {
        format!("{request}-iter-{turn}")
    }

    /// Observes run events as they happen. The run waits for this method, so it must return quickly.
    fn on_run_event(&self, _event: RunEvent<'_>) {}
}

/// Hook that leaves everything as configured.
#[derive(Debug)]
pub(crate) struct NoHook;

impl Hook for NoHook {}

//! Where an embedding program puts its own logic: it may review every call before it runs, make the ids
//! of requests, and hear what happens in the runs of [`crate::agent`].
//!
//! ```
//! use futures_util::future::BoxFuture;
//! use serde_json::json;
//! use toolgate::local::{LocalServer, Output};
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
//!                     reason: "secrets stay where they are".to_owned(),
//!                 },
//!                 _ => Review::Proceed,
//!             }
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reader = LocalServer::new(ServerName::parse("files")?).tool(
//!     "read",
//!     "Reads a file",
//!     &json!({"type": "object"}),
//!     |_| async { Ok(Output::Text("text".to_owned())) },
//! );
//! let builder = Gateway::builder(Config::default()).local(reader);
//! let gateway = builder.hook(NoSecrets).start().await?;
//! gateway.settled().await;
//! let read = |path| ToolCall::parse("files_read", path);
//! let caller = Caller::library();
//! assert!(gateway.call(&caller, read(r#"{"path": "a.txt"}"#)).await.is_ok());
//! let refused = gateway.call(&caller, read(r#"{"path": "x/.env"}"#)).await.unwrap_err();
//! assert_eq!(refused.code(), "denied");
//! # gateway.stop(std::time::Duration::ZERO).await;
//! # Ok(()) }
//! ```

use futures_util::future::BoxFuture;
use toolgate_core::name::ToolId;
use toolgate_core::policy::Decision;

use crate::agent::RunEvent;
use crate::call::Arguments;
use crate::caller::Caller;

/// A call that is about to run, or to be asked about.
#[derive(Debug)]
pub struct Proposal<'a> {
    pub tool: &'a ToolId,
    pub alias: &'a str,
    pub arguments: &'a Arguments,
    pub caller: &'a Caller,
    pub request_id: &'a str,
    /// What the configuration says.
    pub decision: &'a Decision,
}

/// What came of a review.
#[derive(Clone, Debug)]
pub enum Review {
    /// As the configuration says.
    Proceed,
    /// Answers an `ask`; what is denied stays denied.
    Approve,
    /// The same, with other arguments.
    Edit(Arguments),
    Deny {
        reason: String,
    },
}

/// Your own logic: approvals, ids of requests, and what is to be done when something happens in a run.
pub trait Hook: std::fmt::Debug + Send + Sync {
    /// Called for every call that no rule denies, once its arguments are valid.
    fn review<'a>(&'a self, _proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        Box::pin(std::future::ready(Review::Proceed))
    }

    /// An id for a request that came without one; a random one unless you have a better idea.
    fn request_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }

    /// The id of a model call of a run, which counts from one.
    fn turn_id(&self, request: &str, turn: u32) -> String {
        format!("{request}-iter-{turn}")
    }

    /// Hears what happens in runs, as it happens. A run waits for this, so it must be quick.
    fn hear(&self, _event: RunEvent<'_>) {}
}

/// Leaves everything as configured.
#[derive(Debug)]
pub(crate) struct NoHook;

impl Hook for NoHook {}

//! Extension point for embedding programs: a [`Hook`] acts before and after every tool call and every
//! model request, generates request ids, and observes agent runs.
//!
//! Several hooks compose, in the order in which they were added to the gateway.
//!
//! ```
//! use serde_json::json;
//! use toolgate::hook::BoxFuture;
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

mod chain;
mod model_event;
mod run_event;

pub(crate) use chain::Hooks;
pub use futures_util::future::BoxFuture;
pub use model_event::{ModelProposal, ModelResponseEvent, ModelReview};
pub use run_event::{RunEvent, RunEventKind};
use serde_json::value::RawValue;
use toolgate_core::name::ToolId;
use toolgate_core::policy::Decision;

use crate::call::{Arguments, CallError};
use crate::caller::Caller;
use crate::result::ToolResult;

/// A call under review, before it runs or an approval is requested.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Proposal<'a> {
    /// The tool.
    pub tool: &'a ToolId,
    /// Its name as models see it.
    pub alias: &'a str,
    /// The arguments, as edited by earlier hooks.
    pub arguments: &'a Arguments,
    /// Who makes the call.
    pub caller: &'a Caller,
    /// Id of the request that the call belongs to.
    pub request_id: &'a str,
    /// Decision according to the configuration.
    pub decision: &'a Decision,
}

/// Result of a review.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Review {
    /// Follow the configuration, unless another hook approves or denies the call.
    Proceed,
    /// Approve a call whose verdict is `ask`; denied calls stay denied.
    Approve,
    /// Approve the call with other arguments, which later hooks review in turn.
    Edit(Arguments),
    /// Refuse the call; later hooks are not asked.
    Deny {
        /// Reason, told to the caller.
        reason: String,
    },
}

/// A call that was sent to its server or answered from the cache.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CompletedCall<'a> {
    /// The tool that ran.
    pub tool: &'a ToolId,
    /// Its name as models see it.
    pub alias: &'a str,
    /// The arguments that were sent.
    pub arguments: &'a Arguments,
    /// Who made the call.
    pub caller: &'a Caller,
    /// Id of the request that the call belongs to.
    pub request_id: &'a str,
    /// The result, as replaced by earlier hooks, or the reason why there is none.
    pub result: Result<&'a ToolResult, &'a CallError>,
}

/// Custom logic of an embedding program. Every method has a default that leaves the behavior unchanged.
pub trait Hook: std::fmt::Debug + Send + Sync {
    /// Reviews a call that no rule denies, after its arguments were validated. The first hook that
    /// denies a call wins.
    fn review<'a>(&'a self, _proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        Box::pin(std::future::ready(Review::Proceed))
    }

    /// Observes a call after it ran. `Some` replaces the result by another `CallToolResult`, which
    /// later hooks and the caller receive; the failure of a call cannot be replaced.
    fn after_call<'a>(&'a self, _call: CompletedCall<'a>) -> BoxFuture<'a, Option<Box<RawValue>>> {
        Box::pin(std::future::ready(None))
    }

    /// Reviews a model request, or one turn of a run, before it is sent. The first hook that refuses
    /// it wins.
    fn before_model_request<'a>(
        &'a self,
        _request: ModelProposal<'a>,
    ) -> BoxFuture<'a, ModelReview> {
        Box::pin(std::future::ready(ModelReview::Proceed))
    }

    /// Observes the end of a model request, once for each provider that was tried. A streamed
    /// response is observed when it ends or the caller disconnects. Must return quickly.
    fn after_model_response(&self, _response: ModelResponseEvent<'_>) {}

    /// Generates the id of a request that has none. The first id that a hook returns is used, and a
    /// random UUID if no hook returns one.
    fn request_id(&self) -> Option<String> {
        None
    }

    /// Generates the request id of a turn in a run; `{request}-iter-{turn}` if no hook returns one.
    /// Turns count from one.
    fn turn_id(&self, _request: &str, _turn: u32) -> Option<String> {
        None
    }

    /// Observes run events as they happen. The run waits for this method, so it must return quickly.
    fn on_run_event(&self, _event: RunEvent<'_>) {}
}

//! Where an embedding program puts its own logic: it may review every call before it runs.

use futures_util::future::BoxFuture;
use toolgate_core::name::ToolId;
use toolgate_core::policy::Decision;

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

/// Your own approval logic.
pub trait Hook: std::fmt::Debug + Send + Sync {
    /// Called for every call that no rule denies, once its arguments are valid.
    fn review<'a>(&'a self, proposal: Proposal<'a>) -> BoxFuture<'a, Review>;

    /// An id for a request that came without one; a random one unless you have a better idea.
    fn request_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }
}

/// Leaves everything as configured.
#[derive(Debug)]
pub(crate) struct NoHook;

impl Hook for NoHook {
    fn review<'a>(&'a self, _: Proposal<'a>) -> BoxFuture<'a, Review> {
        Box::pin(std::future::ready(Review::Proceed))
    }
}

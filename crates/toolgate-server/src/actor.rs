//! Who makes the current request, for the audit trail. Authentication sets it; whatever changes something
//! in the course of the request reads it.

use std::future::Future;

tokio::task_local! {
    static ACTOR: String;
}

/// Runs a request on behalf of an actor.
pub(crate) async fn with_actor<F: Future>(actor: String, request: F) -> F::Output {
    ACTOR.scope(actor, request).await
}

/// Returns who makes the current request; `gateway` outside of one.
pub(crate) fn current_actor() -> String {
    ACTOR
        .try_with(Clone::clone)
        .unwrap_or_else(|_| "gateway".to_owned())
}

//! Helpers for tests of approvals, in which `zoo_say` needs one.

use std::time::SystemTime;

use serde_json::{Value, json};
use toolgate::approval::{Approval, ApprovalScope, ApprovalState, DecideError, Decider, Ruling};
use toolgate::{Arguments, CallError, Caller, Gateway, Outcome};
use toolgate_testkit::eventually;

use crate::support::{WAIT_TIMEOUT, call_as, start_settled, stdio_zoo};

/// The rule that makes `zoo_say` need an approval.
pub(crate) const ASK: &str = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";

/// Starts a zoo whose tool `say` needs an approval.
pub(crate) async fn start_asking(more: &str) -> Gateway {
    start_settled(&(stdio_zoo("zoo", &[]) + ASK + more)).await
}

pub(crate) fn hello() -> Value {
    json!({"text": "hello"})
}

/// Says hello, which needs an approval.
pub(crate) async fn say_hello(gateway: &Gateway, caller: &Caller) -> Result<Outcome, CallError> {
    call_as(gateway, caller, "zoo_say", &hello()).await
}

/// Returns the id of the approval that a call waits for.
pub(crate) fn pending_approval_id(answer: &Result<Outcome, CallError>) -> String {
    match answer {
        Err(CallError::NeedsApproval { id, expires_at, .. }) => {
            assert!(*expires_at > SystemTime::UNIX_EPOCH);
            id.clone()
        }
        answer => panic!("the call must need an approval: {answer:?}"),
    }
}

pub(crate) fn needs_approval(answer: &Result<Outcome, CallError>) -> bool {
    matches!(answer, Err(CallError::NeedsApproval { .. }))
}

/// Makes a call that needs an approval and returns the approval's id.
pub(crate) async fn request_approval(gateway: &Gateway, caller: &Caller) -> String {
    pending_approval_id(&say_hello(gateway, caller).await)
}

/// Decides as an administrator.
pub(crate) async fn decide(
    gateway: &Gateway,
    id: &str,
    ruling: Ruling,
) -> Result<Approval, DecideError> {
    let approvals = gateway.approvals();
    approvals.decide(id, ruling, &Decider::Admin).await
}

pub(crate) async fn approve(gateway: &Gateway, id: &str, scope: ApprovalScope) -> Approval {
    let decided = decide(gateway, id, approval(scope)).await;
    decided.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) async fn approve_edited(
    gateway: &Gateway,
    id: &str,
    scope: ApprovalScope,
    arguments: &Value,
) -> Approval {
    let ruling = Ruling::Approve {
        scope,
        arguments: Some(Arguments::parse(&arguments.to_string()).unwrap()),
    };
    decide(gateway, id, ruling).await.unwrap()
}

/// An approval of the call as it is.
pub(crate) fn approval(scope: ApprovalScope) -> Ruling {
    Ruling::Approve {
        scope,
        arguments: None,
    }
}

pub(crate) fn denial(reason: Option<&str>) -> Ruling {
    Ruling::Deny {
        reason: reason.map(ToOwned::to_owned),
        scope: ApprovalScope::Once,
    }
}

pub(crate) async fn assert_hello_runs(gateway: &Gateway, caller: &Caller) {
    let outcome = say_hello(gateway, caller).await.unwrap();
    assert_eq!(outcome.result.text(), "hello");
    assert!(!outcome.result.is_error());
}

pub(crate) async fn approval_by_id(gateway: &Gateway, id: &str) -> Approval {
    let found = gateway.approvals().get(id).await.unwrap();
    found.unwrap_or_else(|| panic!("no approval `{id}`"))
}

pub(crate) async fn all_approvals(gateway: &Gateway) -> Vec<Approval> {
    gateway.approvals().list(None, None, 1000).await.unwrap()
}

pub(crate) async fn wait_for_approval_state(gateway: &Gateway, id: &str, state: ApprovalState) {
    eventually(state.as_str(), WAIT_TIMEOUT, async || {
        (approval_by_id(gateway, id).await.state == state).then_some(())
    })
    .await;
}

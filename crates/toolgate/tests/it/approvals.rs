//! Approvals: requests, decisions, edited arguments, expiry and who may decide.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::join_all;
use serde_json::json;
use toolgate::approval::{ApprovalScope, ApprovalState, DecideError, Decider, Ruling};
use toolgate::client_handler::ModernClient;
use toolgate::jsonrpc::Object;
use toolgate::{Arguments, CallError, Caller, RequestContext, ToolCall};
use toolgate_testkit::eventually;

use crate::approval_support::{
    ASK, all_approvals, approval, approval_by_id, approve, approve_edited, assert_hello_runs,
    decide, denial, hello, pending_approval_id, request_approval, say_hello, start_asking,
    wait_for_approval_state,
};
use crate::support::{
    KEYS, WAIT_TIMEOUT, answer_text, call_json, config, outcomes, records, stdio_zoo, stop,
    with_key,
};

#[tokio::test]
async fn concurrent_identical_calls_create_one_approval() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let ids = join_all((0..20).map(|_| request_approval(&gateway, &caller))).await;
    let ids: HashSet<String> = ids.into_iter().collect();
    assert_eq!(ids.len(), 1);
    let pending = gateway.approvals();
    let pending = pending.list(Some(ApprovalState::Pending), None, 10).await;
    assert_eq!(pending.unwrap().len(), 1);
    stop(gateway).await;
}

#[tokio::test]
async fn invalid_arguments_are_reported_before_approval() {
    let gateway = start_asking("").await;
    let answer = call_json(&gateway, "zoo_say", &json!({"text": 5})).await;
    assert!(
        matches!(answer, Err(CallError::SchemaViolation(_))),
        "{answer:?}"
    );
    assert!(all_approvals(&gateway).await.is_empty());
    stop(gateway).await;
}

#[tokio::test]
async fn ask_without_approvers_is_refused() {
    let gateway = start_asking("[permissions]\napproval_by = []\n").await;
    let answer = say_hello(&gateway, &Caller::library()).await;
    assert!(
        matches!(answer, Err(CallError::NoApprover { .. })),
        "{answer:?}"
    );
    assert!(answer_text(&answer).contains("no approver is available"));
    assert!(all_approvals(&gateway).await.is_empty());
    assert_eq!(outcomes(&gateway).await, ["denied"]);
    stop(gateway).await;
}

#[tokio::test]
async fn edited_arguments_replace_original() {
    for scope in [
        ApprovalScope::Once,
        ApprovalScope::Session,
        ApprovalScope::Always,
    ] {
        let gateway = start_asking("").await;
        let caller = Caller::library().with_session("s");
        let id = request_approval(&gateway, &caller).await;
        let edited = json!({"text": "goodbye"});
        let decided = approve_edited(&gateway, &id, scope, &edited).await;
        assert_eq!(decided.edited.unwrap().get(), edited.to_string());
        let outcome = say_hello(&gateway, &caller).await.unwrap();
        assert_eq!(outcome.result.text(), "goodbye", "{scope:?}");
        let used = outcome.approval.unwrap();
        assert_eq!((used.id, used.edited), (id, true));
        let records = records(&gateway).await;
        let recorded = records.last().unwrap().arguments.as_ref().unwrap();
        assert_eq!(recorded.get(), edited.to_string());
        stop(gateway).await;
    }
}

#[tokio::test]
async fn edited_arguments_cannot_bypass_deny() {
    let deny = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"deny\"\narguments = { text = \"*secret*\" }\n";
    let gateway = start_asking(deny).await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    let secret = json!({"text": "a secret"});
    approve_edited(&gateway, &id, ApprovalScope::Once, &secret).await;
    for answer in [
        say_hello(&gateway, &caller).await,
        call_json(&gateway, "zoo_say", &secret).await,
    ] {
        assert!(
            matches!(&answer, Err(CallError::Denied { because, approval: None, .. }) if because == "permissions.rules[1]"),
            "{answer:?}"
        );
    }
    stop(gateway).await;
}

#[tokio::test]
async fn denial_returns_its_reason_and_is_recorded() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    let denied = decide(&gateway, &id, denial(Some("not on a Friday"))).await;
    let denied = denied.unwrap();
    assert_eq!(denied.state, ApprovalState::Denied);
    let reason = denied.decision.unwrap().reason;
    assert_eq!(reason.as_deref(), Some("not on a Friday"));
    let answer = say_hello(&gateway, &caller).await;
    assert!(
        matches!(&answer, Err(CallError::Denied { approval: Some(denied_by), .. }) if *denied_by == id),
        "{answer:?}"
    );
    assert!(answer_text(&answer).contains("not on a Friday"));
    let records = records(&gateway).await;
    let outcomes: Vec<&str> = records.iter().map(|r| r.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ask", "denied"]);
    assert_eq!(records[1].approval.as_ref(), Some(&id));
    pending_approval_id(&call_json(&gateway, "zoo_say", &json!({"text": "other"})).await);
    stop(gateway).await;
}

#[tokio::test]
async fn pending_approval_expires() {
    let gateway = start_asking("[permissions]\napproval_expiry = \"300ms\"\n").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    eventually("the approval expires", WAIT_TIMEOUT, async || {
        let listed = all_approvals(&gateway).await;
        (listed[0].state == ApprovalState::Expired).then_some(())
    })
    .await;
    let shown = approval_by_id(&gateway, &id).await;
    assert_eq!(shown.state, ApprovalState::Expired);
    let late = decide(&gateway, &id, approval(ApprovalScope::Once)).await;
    assert!(
        matches!(late, Err(DecideError::AlreadyDecided("expired"))),
        "{late:?}"
    );
    assert_ne!(request_approval(&gateway, &caller).await, id);
    stop(gateway).await;
}

#[tokio::test]
async fn given_approval_expires() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    // An approval expires after the time that is configured when it is given.
    let short = "[permissions]\napproval_expiry = \"50ms\"\n";
    let toml = stdio_zoo("zoo", &[]) + ASK + short;
    gateway.apply(config(&toml)).await.unwrap();
    let approved = approve(&gateway, &id, ApprovalScope::Once).await;
    let decided_at = approved.decision.unwrap().at;
    assert_eq!(approved.expires_at - decided_at, 50, "milliseconds");
    eventually("the approval expires", WAIT_TIMEOUT, async || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap().as_millis()).unwrap();
        (now > approved.expires_at).then_some(())
    })
    .await;
    assert_ne!(request_approval(&gateway, &caller).await, id);
    wait_for_approval_state(&gateway, &id, ApprovalState::Expired).await;
    stop(gateway).await;
}

#[tokio::test]
async fn concurrent_decisions_have_one_winner() {
    let gateway = start_asking("").await;
    let id = request_approval(&gateway, &Caller::library()).await;
    let decisions = (0..20).map(|n| {
        let ruling = match n % 2 {
            0 => approval(ApprovalScope::Once),
            _ => denial(Some(&n.to_string())),
        };
        decide(&gateway, &id, ruling)
    });
    let (won, lost): (Vec<_>, Vec<_>) = join_all(decisions)
        .await
        .into_iter()
        .partition(Result::is_ok);
    let [Ok(winner)] = &won[..] else {
        panic!("exactly one decision wins: {won:?}")
    };
    assert!(
        lost.iter()
            .all(|answer| matches!(answer, Err(DecideError::AlreadyDecided(_)))),
        "{lost:?}"
    );
    let stored = approval_by_id(&gateway, &id).await;
    assert_eq!(stored.state, winner.state);
    assert_eq!(stored.decision, winner.decision);
    stop(gateway).await;
}

#[tokio::test]
async fn key_cannot_decide_on_its_own_call() {
    let gateway = start_asking(KEYS).await;
    let alice = with_key("alice");
    let id = request_approval(&gateway, &alice).await;
    let decide_as = async |key: &str| {
        let by = Decider::Key(key.to_owned());
        let ruling = approval(ApprovalScope::Once);
        gateway.approvals().decide(&id, ruling, &by).await
    };
    let own = decide_as("alice").await;
    assert!(matches!(own, Err(DecideError::OwnCall)), "{own:?}");
    let decided = decide_as("bob").await.unwrap();
    assert_eq!(decided.decision.unwrap().by, "key:bob");
    assert_hello_runs(&gateway, &alice).await;
    stop(gateway).await;
}

#[tokio::test]
async fn edited_arguments_cannot_violate_schema() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    let edited = Ruling::Approve {
        scope: ApprovalScope::Once,
        arguments: Some(Arguments::parse(r#"{"text": 5}"#).unwrap()),
    };
    let refused = decide(&gateway, &id, edited).await;
    assert!(
        matches!(refused, Err(DecideError::InvalidArguments(_))),
        "{refused:?}"
    );
    assert_eq!(request_approval(&gateway, &caller).await, id, "still open");
    stop(gateway).await;
}

#[tokio::test]
async fn admin_cannot_decide_when_only_clients_approve() {
    let gateway = start_asking("[permissions]\napproval_by = [\"client\"]\n").await;
    let caller = Caller::library();
    let unattended = say_hello(&gateway, &caller).await;
    assert!(
        matches!(unattended, Err(CallError::NoApprover { .. })),
        "a client that cannot ask its user: {unattended:?}"
    );
    let client = ModernClient {
        capabilities: r#"{"elicitation": {}}"#.into(),
        input: Object::default(),
        has_state: false,
    };
    let request = Arc::new(RequestContext {
        modern_client: Some(Arc::new(client)),
        ..RequestContext::default()
    });
    let say = || ToolCall::parse("zoo_say", &hello().to_string()).with_request(&request);
    let id = pending_approval_id(&gateway.call(&caller, say()).await);
    let ruling = || approval(ApprovalScope::Once);
    for other in [Decider::Admin, Decider::Key("carol".to_owned())] {
        let refused = gateway.approvals().decide(&id, ruling(), &other).await;
        assert!(
            matches!(refused, Err(DecideError::DeciderNotAllowed)),
            "{refused:?}"
        );
    }
    let decided = gateway.approvals().decide(&id, ruling(), &Decider::Client);
    decided.await.unwrap();
    let outcome = gateway.call(&caller, say()).await.unwrap();
    assert_eq!(outcome.result.text(), "hello");
    stop(gateway).await;
}

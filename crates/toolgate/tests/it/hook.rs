//! Hooks of the embedding program, and approvals.

use futures_util::future::{BoxFuture, OptionFuture};
use tokio_util::task::TaskTracker;
use toolgate::approval::{ApprovalScope, ApprovalState, Decider, Ruling};
use toolgate::audit::{AuditQuery, AuditRecord};
use toolgate::{
    Arguments, CallError, Caller, Environment, Gateway, Hook, Proposal, RequestContext, Review,
    ToolCall,
};
use toolgate_testkit::eventually;

use crate::support::{WAIT_TIMEOUT, config, start_settled, stdio_zoo, stop};

/// Chooses the review by the argument `b`.
#[derive(Debug)]
struct ByArgument;

impl Hook for ByArgument {
    fn review<'a>(&'a self, proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        let edit = |text: &str| Review::Edit(Arguments::parse(text).unwrap());
        let review = match proposal.arguments.value()["b"].as_u64() {
            Some(1) => Review::Approve,
            Some(2) => edit(r#"{"a": 40, "b": 2}"#),
            Some(3) => edit(r#"{"a": 13, "b": 2}"#),
            Some(4) => edit(r#"{"a": "no number", "b": 2}"#),
            Some(5) => Review::Deny {
                reason: format!("{} said no", proposal.decision.decided_by),
            },
            _ => Review::Proceed,
        };
        Box::pin(std::future::ready(review))
    }

    fn request_id(&self) -> Option<String> {
        Some("from-the-hook".to_owned())
    }
}

const RULES: &str = r#"
[[permissions.rules]]
tool = "zoo.add"
arguments = { a = "7" }
action = "ask"
[[permissions.rules]]
tool = "zoo.add"
arguments = { a = "13" }
action = "deny"
"#;

async fn gateway() -> Gateway {
    let environment = Environment::new(|name| (name == "PATH").then(|| env!("PATH").to_owned()));
    let builder = Gateway::builder(config(&(stdio_zoo("zoo", &[]) + RULES)));
    let gateway = builder.environment(environment).hook(ByArgument).start();
    let gateway = gateway.await.unwrap();
    gateway.wait_until_settled().await;
    gateway
}

async fn add(gateway: &Gateway, a: u32, b: u32) -> Result<String, CallError> {
    let call = ToolCall::parse("zoo_add", &format!(r#"{{"a": {a}, "b": {b}}}"#));
    let outcome = gateway.call(&Caller::library(), call).await?;
    Ok(outcome.result.text())
}

/// Waits for the audit record of a call that was denied for a reason.
async fn denied_record(gateway: &Gateway, reason: &str) -> AuditRecord {
    let query = AuditQuery {
        outcome: Some("denied".to_owned()),
        limit: 10,
        ..AuditQuery::default()
    };
    let matches_reason =
        |record: &AuditRecord| record.error.as_ref().is_some_and(|e| e.contains(reason));
    eventually("the record is written", WAIT_TIMEOUT, async || {
        let page = gateway.audit().query(&query).await.unwrap();
        page.records.into_iter().find(matches_reason)
    })
    .await
}

#[tokio::test]
async fn hook_can_satisfy_ask_but_not_override_deny() {
    let gateway = gateway().await;
    assert_eq!(add(&gateway, 7, 1).await.unwrap(), "8", "approved");
    assert_eq!(add(&gateway, 7, 2).await.unwrap(), "42", "edited");
    let edited = add(&gateway, 1, 3).await.unwrap_err();
    assert_eq!(
        edited.code(),
        "denied",
        "edited arguments are denied by a rule"
    );
    let invalid = add(&gateway, 1, 4).await.unwrap_err();
    assert_eq!(invalid.code(), "bad_arguments", "{invalid}");
    let denied = add(&gateway, 13, 1).await.unwrap_err();
    assert_eq!(
        denied.code(),
        "denied",
        "approving does not override the rule"
    );
    let asked = add(&gateway, 7, 9).await.unwrap_err();
    assert!(matches!(asked, CallError::NeedsApproval { .. }), "{asked}");
    let refused = add(&gateway, 7, 5).await.unwrap_err().to_string();
    assert!(
        refused.contains("permissions.rules[0] said no"),
        "{refused}"
    );
    let record = denied_record(&gateway, "said no").await;
    assert_eq!(record.request_id, "from-the-hook");
    assert_eq!(record.verdict.as_deref(), Some("deny"));
    stop(gateway).await;
}

fn short_call() -> ToolCall {
    ToolCall::parse("zoo_sleep", r#"{"ms": 1}"#)
}

fn long_call() -> ToolCall {
    ToolCall::parse("zoo_sleep", r#"{"ms": 60000}"#)
}

/// Starts a gateway on which [`short_call`] needs an approval and has it; returns its id. The tool
/// runs one call at a time.
async fn start_with_approved_call() -> (Gateway, String) {
    let toml = stdio_zoo("zoo", &[])
        + "[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n[[permissions.rules]]\ntool = \"zoo.sleep\"\narguments = { ms = \"1\" }\naction = \"ask\"\n";
    let gateway = start_settled(&toml).await;
    let refused = gateway.call(&Caller::library(), short_call()).await;
    let CallError::NeedsApproval { id, .. } = refused.unwrap_err() else {
        panic!("the call must need an approval")
    };
    let approve = Ruling::Approve {
        scope: ApprovalScope::Once,
        arguments: None,
    };
    let decided = gateway.approvals().decide(&id, approve, &Decider::Admin);
    decided.await.unwrap();
    (gateway, id)
}

async fn wait_for_call_in_flight(gateway: &Gateway) {
    eventually("a call is in flight", WAIT_TIMEOUT, async || {
        let metrics = gateway.metrics();
        let is_in_flight = metrics.contains("in_flight{server=\"zoo\"} 1");
        is_in_flight.then_some(())
    })
    .await;
}

#[tokio::test]
async fn ticket_is_released_whenever_its_call_is_dropped() {
    let (gateway, id) = start_with_approved_call().await;
    let caller = Caller::library();
    let (tasks, other) = (TaskTracker::new(), gateway.clone());
    // Takes the only slot, so that no approved call reaches the tool.
    let long = tasks.spawn(async move { other.call(&Caller::library(), long_call()).await });
    wait_for_call_in_flight(&gateway).await;
    for _ in 0..20 {
        let mut events = gateway.approvals().subscribe();
        let mut call = Box::pin(gateway.call(&caller, short_call()));
        // Drops the call when the ticket has been claimed for it, but has not arrived yet.
        loop {
            assert!(futures_util::poll!(&mut call).is_pending());
            tokio::task::yield_now().await;
            if let Ok(approval) = events.try_recv() {
                assert_eq!(approval.state, ApprovalState::Executing);
                break;
            }
        }
        drop(call);
        wait_for_approval_state(&gateway, &id, ApprovalState::Approved).await;
    }
    long.abort();
    stop(gateway).await;
}

#[tokio::test]
async fn unused_approval_ticket_is_released() {
    let (gateway, id) = start_with_approved_call().await;
    let caller = Caller::library();
    // The only slot is taken, so the approved call waits with its ticket until it is dropped.
    let long = OptionFuture::from(Some(gateway.call(&caller, long_call())));
    tokio::pin!(long);
    tokio::select! {
        answer = &mut long => panic!("the long call ended: {answer:?}"),
        () = wait_for_call_in_flight(&gateway) => {}
    }
    tokio::select! {
        answer = &mut long => panic!("the long call ended: {answer:?}"),
        answer = gateway.call(&caller, short_call()) => panic!("the short call did not wait: {answer:?}"),
        () = wait_for_approval_state(&gateway, &id, ApprovalState::Executing) => {}
    }
    wait_for_approval_state(&gateway, &id, ApprovalState::Approved).await;
    let outcome = {
        let short = gateway.call(&caller, short_call());
        tokio::pin!(short);
        tokio::select! {
            answer = &mut long => panic!("the long call ended: {answer:?}"),
            answer = &mut short => panic!("the short call did not wait: {answer:?}"),
            () = wait_for_approval_state(&gateway, &id, ApprovalState::Executing) => {}
        }
        long.set(None.into());
        short.await.unwrap()
    };
    assert_eq!(outcome.approval.unwrap().id, id);
    wait_for_approval_state(&gateway, &id, ApprovalState::Done).await;
    stop(gateway.clone()).await;
}

async fn wait_for_approval_state(gateway: &Gateway, id: &str, state: ApprovalState) {
    eventually(state.as_str(), WAIT_TIMEOUT, async || {
        let approval = gateway.approvals().get(id).await.unwrap().unwrap();
        (approval.state == state).then_some(())
    })
    .await;
}

#[tokio::test]
async fn calls_are_recorded_under_their_request_id() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let request = RequestContext::with_id("mine");
    for name in ["zoo_echo", "zoo_nothing"] {
        let call = ToolCall::parse(name, "{}").with_request(&request);
        let _ = gateway.call(&Caller::library(), call).await;
    }
    let query = AuditQuery {
        request_id: Some("mine".to_owned()),
        limit: 10,
        ..AuditQuery::default()
    };
    let records = eventually("both calls are recorded", WAIT_TIMEOUT, async || {
        let page = gateway.audit().query(&query).await.unwrap();
        (page.records.len() == 2).then_some(page.records)
    })
    .await;
    assert_eq!(
        records
            .iter()
            .map(|r| r.outcome.as_str())
            .collect::<Vec<_>>(),
        ["unknown", "ok"],
        "newest first"
    );
    stop(gateway).await;
}

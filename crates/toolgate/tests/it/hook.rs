//! The embedding program's own logic, and what an approver can and cannot do.

use futures_util::future::{BoxFuture, OptionFuture};
use toolgate::approval::{ApprovalScope, ApprovalState, Decider, Ruling};
use toolgate::audit::{Query, Record};
use toolgate::{
    Arguments, CallError, Caller, Environment, Gateway, Hook, Proposal, Request, Review, ToolCall,
};
use toolgate_testkit::eventually;

use crate::support::{SOON, config, settled, stop, zoo};

/// Does what the argument `b` says.
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
                reason: format!("{} said no", proposal.decision.because),
            },
            _ => Review::Proceed,
        };
        Box::pin(std::future::ready(review))
    }

    fn request_id(&self) -> String {
        "from-the-hook".to_owned()
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
    let builder = Gateway::builder(config(&(zoo("zoo", &[]) + RULES)));
    let gateway = builder.environment(environment).hook(ByArgument).start();
    let gateway = gateway.await.unwrap();
    gateway.settled().await;
    gateway
}

async fn add(gateway: &Gateway, a: u32, b: u32) -> Result<String, CallError> {
    let call = ToolCall::parse("zoo_add", &format!(r#"{{"a": {a}, "b": {b}}}"#));
    let outcome = gateway.call(&Caller::library(), call).await?;
    Ok(outcome.result.text())
}

/// The record of a call that was denied for a reason, once it is written.
async fn denied_record(gateway: &Gateway, reason: &str) -> Record {
    let query = Query {
        outcome: Some("denied".to_owned()),
        limit: 10,
        ..Query::default()
    };
    let because = |record: &Record| record.error.as_ref().is_some_and(|e| e.contains(reason));
    eventually("the record is written", SOON, async || {
        let page = gateway.audit(&query).await.unwrap();
        page.records.into_iter().find(because)
    })
    .await
}

#[tokio::test]
async fn a_hook_answers_an_ask_and_lifts_no_deny() {
    let gateway = gateway().await;
    assert_eq!(add(&gateway, 7, 1).await.unwrap(), "8", "approved");
    assert_eq!(add(&gateway, 7, 2).await.unwrap(), "42", "edited");
    let edited = add(&gateway, 1, 3).await.unwrap_err();
    assert_eq!(edited.code(), "denied", "edited into what a rule denies");
    let misfit = add(&gateway, 1, 4).await.unwrap_err();
    assert_eq!(misfit.code(), "bad_arguments", "{misfit}");
    let denied = add(&gateway, 13, 1).await.unwrap_err();
    assert_eq!(denied.code(), "denied", "approving changes nothing");
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

#[tokio::test]
async fn a_ticket_that_was_not_used_can_be_used_again() {
    let toml = zoo("zoo", &[])
        + "[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n[[permissions.rules]]\ntool = \"zoo.sleep\"\narguments = { ms = \"1\" }\naction = \"ask\"\n";
    let gateway = settled(&toml).await;
    let caller = Caller::library();
    let short = || ToolCall::parse("zoo_sleep", r#"{"ms": 1}"#);
    let CallError::NeedsApproval { id, .. } = gateway.call(&caller, short()).await.unwrap_err()
    else {
        panic!("it must be asked for")
    };
    let approve = Ruling::Approve {
        scope: ApprovalScope::Once,
        arguments: None,
    };
    gateway.decide(&id, approve, &Decider::Admin).await.unwrap();

    // The only place is taken, so the approved call waits with its ticket, and its caller leaves.
    let long = ToolCall::parse("zoo_sleep", r#"{"ms": 60000}"#);
    let long = OptionFuture::from(Some(gateway.call(&caller, long)));
    tokio::pin!(long);
    let sleeps = eventually("the long call is under way", SOON, async || {
        let figures = gateway.metrics();
        figures
            .contains("in_flight{server=\"zoo\"} 1")
            .then_some(())
    });
    tokio::select! {
        answer = &mut long => panic!("it sleeps: {answer:?}"),
        () = sleeps => {}
    }
    tokio::select! {
        answer = &mut long => panic!("it sleeps: {answer:?}"),
        answer = gateway.call(&caller, short()) => panic!("it waits: {answer:?}"),
        () = reaches(&gateway, &id, ApprovalState::Executing) => {}
    }
    reaches(&gateway, &id, ApprovalState::Approved).await;
    let outcome = {
        let short = gateway.call(&caller, short());
        tokio::pin!(short);
        tokio::select! {
            answer = &mut long => panic!("it sleeps: {answer:?}"),
            answer = &mut short => panic!("it waits: {answer:?}"),
            () = reaches(&gateway, &id, ApprovalState::Executing) => {}
        }
        long.set(None.into());
        short.await.unwrap()
    };
    assert_eq!(outcome.approval.unwrap().id, id);
    reaches(&gateway, &id, ApprovalState::Done).await;
    stop(gateway.clone()).await;
}

async fn reaches(gateway: &Gateway, id: &str, state: ApprovalState) {
    eventually(state.as_str(), SOON, async || {
        let approval = gateway.approval(id).await.unwrap().unwrap();
        (approval.state == state).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_request_gives_its_calls_an_id() {
    let gateway = settled(&zoo("zoo", &[])).await;
    let request = Request::with_id("mine");
    for name in ["zoo_echo", "zoo_nothing"] {
        let call = ToolCall::parse(name, "{}").of(&request);
        let _ = gateway.call(&Caller::library(), call).await;
    }
    let query = Query {
        request_id: Some("mine".to_owned()),
        limit: 10,
        ..Query::default()
    };
    let found = eventually("both are recorded", SOON, async || {
        let page = gateway.audit(&query).await.unwrap();
        (page.records.len() == 2).then_some(page.records)
    })
    .await;
    assert_eq!(
        found.iter().map(|r| r.outcome.as_str()).collect::<Vec<_>>(),
        ["unknown", "ok"],
        "the newest first"
    );
    stop(gateway).await;
}

//! The approval of a call as a ticket: it is used once, by the approved call only, and released by a
//! call that was never sent.

use std::collections::HashSet;

use futures_util::future::{OptionFuture, join_all};
use serde_json::json;
use tokio_util::task::TaskTracker;
use toolgate::approval::{ApprovalScope, ApprovalState};
use toolgate::{Caller, Gateway, ServerState, ToolCall};
use toolgate_testkit::{HttpZoo, eventually};

use crate::approval_support::{
    ASK, approval_by_id, approve, assert_hello_runs, hello, pending_approval_id, request_approval,
    say_hello, start_asking, wait_for_approval_state,
};
use crate::support::{
    KEYS, WAIT_TIMEOUT, call_as, http_server, start_in_folder, start_settled, stdio_zoo, stop,
    wait_for_state, with_key,
};

#[tokio::test]
async fn approval_allows_one_call() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    assert_eq!(
        request_approval(&gateway, &caller).await,
        id,
        "the same call waits for the same approval"
    );
    let pending = gateway.approvals();
    let pending = pending.list(Some(ApprovalState::Pending), None, 10).await;
    let pending = pending.unwrap();
    assert_eq!(pending.len(), 1);
    let request = &pending[0].request;
    assert_eq!((&pending[0].id, request.alias.as_str()), (&id, "zoo_say"));
    assert_eq!(request.arguments.get(), hello().to_string());
    assert_eq!(request.rule, "permissions.rules[0]");

    let decided = approve(&gateway, &id, ApprovalScope::Once).await;
    assert_eq!(decided.state, ApprovalState::Approved);
    assert_eq!(decided.decision.unwrap().by, "admin");
    let outcome = say_hello(&gateway, &caller).await.unwrap();
    assert_eq!(outcome.result.text(), "hello");
    let used = outcome.approval.unwrap();
    assert_eq!((&used.id, used.edited), (&id, false));
    let used = approval_by_id(&gateway, &id).await;
    assert_eq!(used.state, ApprovalState::Done);
    assert_ne!(
        request_approval(&gateway, &caller).await,
        id,
        "an approval is used once"
    );
    assert!(gateway.approvals().grants().await.unwrap().is_empty());
    stop(gateway).await;
}

#[tokio::test]
async fn one_approval_allows_one_of_many_concurrent_calls() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    approve(&gateway, &id, ApprovalScope::Once).await;
    let calls = (0..20).map(|_| say_hello(&gateway, &caller));
    let (ran, waiting): (Vec<_>, Vec<_>) =
        join_all(calls).await.into_iter().partition(Result::is_ok);
    let [Ok(outcome)] = &ran[..] else {
        panic!("exactly one call runs: {ran:?}")
    };
    assert_eq!(outcome.result.text(), "hello");
    let ids: HashSet<String> = waiting.iter().map(pending_approval_id).collect();
    assert_eq!(ids.len(), 1, "the others wait for one new approval");
    assert!(!ids.contains(&id));
    stop(gateway).await;
}

#[tokio::test]
async fn approval_matches_tool_caller_and_arguments() {
    let gateway = start_asking(KEYS).await;
    let alice = with_key("alice");
    let id = request_approval(&gateway, &alice).await;
    approve(&gateway, &id, ApprovalScope::Once).await;
    let other_key = request_approval(&gateway, &with_key("bob")).await;
    assert_ne!(other_key, id);
    let other = call_as(&gateway, &alice, "zoo_say", &json!({"text": "other"})).await;
    assert_ne!(pending_approval_id(&other), id, "other arguments");
    let spelled = ToolCall::parse("mcp__zoo__say", r#"{ "text" : "hell\u006f" }"#);
    let outcome = gateway.call(&alice, spelled).await.unwrap();
    assert_eq!(
        outcome.result.text(),
        "hello",
        "the same arguments with another spelling"
    );
    assert_eq!(outcome.approval.unwrap().id, id);
    stop(gateway).await;
}

#[tokio::test]
async fn similar_arguments_need_separate_approval() {
    let toml = stdio_zoo("zoo", &[]) + &ASK.replace("zoo_say", "zoo_echo");
    let gateway = start_settled(&toml).await;
    let echo = async |arguments: &str| {
        let call = ToolCall::parse("zoo_echo", arguments);
        gateway.call(&Caller::library(), call).await
    };
    let id = pending_approval_id(&echo(r#"{"n":9007199254740993,"m":null,"s":"1"}"#).await);
    approve(&gateway, &id, ApprovalScope::Once).await;
    for other in [
        r#"{"n":9007199254740992,"m":null,"s":"1"}"#,
        r#"{"n":9007199254740993,"s":"1"}"#,
        r#"{"n":9007199254740993,"m":null,"s":1}"#,
        r#"{"n":"9007199254740993","m":null,"s":"1"}"#,
        r#"{"n":9007199254740993,"m":null,"s":"1 "}"#,
        r#"{"n":9007199254740993,"m":null,"s":"1","t":"1"}"#,
    ] {
        assert_ne!(pending_approval_id(&echo(other).await), id, "{other}");
    }
    let reordered = echo(r#"{"s": "1", "m": null, "n": 9007199254740993}"#).await;
    let outcome = reordered.expect("key order does not matter");
    assert!(!outcome.result.is_error());
    stop(gateway).await;
}

#[tokio::test]
async fn approval_survives_restart_and_is_used_once() {
    let folder = tempfile::tempdir().unwrap();
    let toml = stdio_zoo("zoo", &[]) + ASK;
    let caller = Caller::library();
    let gateway = start_in_folder(folder.path(), &toml).await;
    let id = request_approval(&gateway, &caller).await;
    stop(gateway).await;
    let gateway = start_in_folder(folder.path(), &toml).await;
    approve(&gateway, &id, ApprovalScope::Once).await;
    stop(gateway).await;
    let gateway = start_in_folder(folder.path(), &toml).await;
    assert_hello_runs(&gateway, &caller).await;
    assert_ne!(request_approval(&gateway, &caller).await, id);
    stop(gateway).await;
}

#[tokio::test]
async fn ticket_is_released_if_the_call_was_never_sent() {
    let mut web = HttpZoo::start(&[]);
    let toml = http_server("web", &web.url()) + &ASK.replace("zoo_say", "web_say");
    let gateway = start_settled(&toml).await;
    let say = async || call_as(&gateway, &Caller::library(), "web_say", &hello()).await;
    let id = pending_approval_id(&say().await);
    approve(&gateway, &id, ApprovalScope::Once).await;
    web.kill();
    let answer = say().await;
    assert!(answer.is_err(), "{answer:?}");
    let shown = approval_by_id(&gateway, &id).await;
    assert_eq!(
        shown.state,
        ApprovalState::Approved,
        "the server was down, so nothing was sent: {answer:?}"
    );
    web.restart();
    wait_for_state(&gateway, "web", ServerState::Healthy).await;
    let outcome = say().await.unwrap();
    assert_eq!(outcome.result.text(), "hello");
    assert_eq!(outcome.approval.unwrap().id, id);
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
    let id = pending_approval_id(&refused);
    approve(&gateway, &id, ApprovalScope::Once).await;
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

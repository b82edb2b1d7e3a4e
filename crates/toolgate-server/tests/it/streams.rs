//! Answers that take longer: they start at once, and survive the connection of a legacy client.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::{LegacySession, META, headers, read_json};
use crate::resource_subscriptions::EventStream;

const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");

async fn start(extra: &str) -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + extra));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

fn with_accept(mut sent: HeaderMap) -> HeaderMap {
    sent.extend(headers(&[BOTH]));
    sent
}

fn call(id: u32, tool: &str, arguments: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}})
    .to_string()
}

/// Opens a session of the revision with resumable streams.
async fn open_session(gate: &TestGate) -> LegacySession<'_> {
    LegacySession::open_with(gate, "/mcp", None, ("2025-11-25", json!({}))).await
}

async fn resume(gate: &TestGate, session: &LegacySession<'_>, id: &str) -> reqwest::Response {
    let get = gate.client.get(format!("{}/mcp", gate.url));
    let get = get.headers(session.headers()).header("last-event-id", id);
    get.send().await.unwrap()
}

/// The head of the answer arrives although the tool is silent, in both eras.
#[tokio::test]
async fn silent_call_is_answered_with_a_stream_at_once() {
    let gate = start("").await;
    let session = open_session(&gate).await;
    let body = call(1, "zoo_sleep", &json!({"ms": 600_000}));
    let response = gate
        .post("/mcp", &body, with_accept(session.headers()))
        .await;
    let mut stream = EventStream::new(response);
    stream.next_where("the first event", Value::is_null).await;
    assert!(stream.last_id.is_some(), "it announces its id");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1}});
    let sent = gate
        .post("/mcp", &cancel.to_string(), session.headers())
        .await;
    assert_eq!(sent.status(), 202);
    assert_eq!(stream.rest().await, "", "a cancelled request has no answer");

    let meta: Value = serde_json::from_str(META).unwrap();
    let params = json!({"name": "zoo_sleep", "arguments": {"ms": 600_000}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let sent = headers(&[
        BOTH,
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "zoo_sleep"),
    ]);
    let response = gate.post("/mcp", &body.to_string(), sent).await;
    let kind = response.headers()["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    gate.wait_for_in_flight_call().await;
    // A modern client cancels a request by closing its stream.
    drop(response);
    eventually("the call is cancelled", WAIT_TIMEOUT, async || {
        let metrics = gate.get("/metrics").await.text().await.unwrap();
        metrics
            .contains("in_flight{server=\"zoo\"} 0")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn client_that_accepts_only_json_gets_json() {
    let gate = start("").await;
    let session = open_session(&gate).await;
    let body = call(1, "zoo_sleep", &json!({"ms": 1_000}));
    let response = gate.post("/mcp", &body, session.headers()).await;
    let (status, answer) = read_json(response).await;
    assert_eq!((status, &answer["id"]), (200, &json!(1)));
}

#[tokio::test]
async fn client_whose_connection_broke_gets_its_answer() {
    let gate = start("").await;
    let session = open_session(&gate).await;
    let body = call(1, "zoo_sleep", &json!({"ms": 1_500}));
    let response = gate
        .post("/mcp", &body, with_accept(session.headers()))
        .await;
    let mut stream = EventStream::new(response);
    stream.next_where("the first event", Value::is_null).await;
    let id = stream.last_id.clone().unwrap();
    drop(stream);
    // Twice, because the client may lose the answer too.
    for _ in 0..2 {
        let mut resumed = EventStream::new(resume(&gate, &session, &id).await);
        let answer = resumed.next_where("the answer", |m| m["id"] == 1).await;
        assert_eq!(answer["result"]["content"][0]["text"], "slept 1500 ms");
        assert_eq!(resumed.rest().await, "");
    }
    for unknown in ["99-0", "1-99", "x"] {
        let response = resume(&gate, &session, unknown).await;
        assert_eq!(response.status(), 400, "{unknown}");
    }
    let other = open_session(&gate).await;
    assert_eq!(resume(&gate, &other, &id).await.status(), 400);
}

#[tokio::test]
async fn call_is_cancelled_if_its_client_does_not_return() {
    let gate = start("[capacity]\nsession_disconnect_timeout = \"100ms\"\n").await;
    let session = open_session(&gate).await;
    let body = call(1, "zoo_sleep", &json!({"ms": 600_000}));
    let response = gate
        .post("/mcp", &body, with_accept(session.headers()))
        .await;
    let mut stream = EventStream::new(response);
    stream.next_where("the first event", Value::is_null).await;
    let id = stream.last_id.clone().unwrap();
    drop(stream);
    eventually("the call is cancelled", WAIT_TIMEOUT, async || {
        let metrics = gate.get("/metrics").await.text().await.unwrap();
        metrics
            .contains("in_flight{server=\"zoo\"} 0")
            .then_some(())
    })
    .await;
    assert_eq!(resume(&gate, &session, &id).await.status(), 400);
}

#[tokio::test]
async fn call_whose_client_has_left_ends_with_its_session() {
    let gate = start("").await;
    let session = open_session(&gate).await;
    let body = call(1, "zoo_sleep", &json!({"ms": 600_000}));
    let sent = with_accept(session.headers());
    let mut stream = EventStream::new(gate.post("/mcp", &body, sent).await);
    stream.next_where("the first event", Value::is_null).await;
    drop(stream);
    session.end(&gate).await;
    eventually("the call is cancelled", WAIT_TIMEOUT, async || {
        let metrics = gate.get("/metrics").await.text().await.unwrap();
        metrics
            .contains("in_flight{server=\"zoo\"} 0")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn notifications_wait_for_a_client_that_reconnects() {
    let gate = start("").await;
    let session = open_session(&gate).await;
    let mut stream = session.open_get_stream(&gate).await;
    stream.next_where("the first event", Value::is_null).await;
    let id = stream.last_id.clone().unwrap();
    drop(stream);
    gate.edit(&zoo("zoo", &["--tools", "1"]));
    eventually("the new tool is listed", WAIT_TIMEOUT, async || {
        let tools = session.result("tools/list", json!({})).await;
        tools.to_string().contains("zoo_tool_0001").then_some(())
    })
    .await;
    let mut resumed = EventStream::new(resume(&gate, &session, &id).await);
    resumed.next("notifications/tools/list_changed").await;
}

/// The transport of 2024-11-05: messages are posted to a URL that the stream announces.
#[tokio::test]
async fn client_of_the_first_revision_uses_an_event_stream() {
    let gate = start("").await;
    let get = gate.client.get(format!("{}/sse", gate.url));
    let mut response = get.send().await.unwrap();
    let chunk = response.chunk().await.unwrap().unwrap();
    let first = String::from_utf8(chunk.to_vec()).unwrap();
    let path = first
        .strip_prefix("event: endpoint\ndata: ")
        .and_then(|rest| rest.split('\n').next())
        .expect(&first)
        .to_owned();
    let mut stream = EventStream::new(response);
    let post = async |message: Value| {
        let response = gate
            .post(&path, &message.to_string(), HeaderMap::new())
            .await;
        assert_eq!(response.status(), 202);
    };
    post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}))
    .await;
    let initialized = stream.next_where("initialize", |m| m["id"] == 1).await;
    assert_eq!(initialized["result"]["protocolVersion"], "2024-11-05");
    post(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    post(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "zoo_add", "arguments": {"a": 1, "b": 2}}}))
    .await;
    let answer = stream.next_where("the answer", |m| m["id"] == 2).await;
    assert_eq!(answer["result"]["content"][0]["text"], "3");
    gate.edit(&zoo("zoo", &["--tools", "1"]));
    stream.next("notifications/tools/list_changed").await;
    drop(stream);
    eventually("the stream has ended", WAIT_TIMEOUT, async || {
        let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
        let response = gate.post(&path, &ping.to_string(), HeaderMap::new()).await;
        (response.status() == 404).then_some(())
    })
    .await;
}

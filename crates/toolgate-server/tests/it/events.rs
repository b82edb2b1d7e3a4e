//! `GET /api/events`: the stream of server-sent events.

use futures_util::StreamExt as _;
use serde_json::json;

use crate::caller::SESSION;
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

async fn start_gate(more: &str) -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + more));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

#[tokio::test]
async fn events_report_servers_approvals_and_calls() {
    let toml = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
    let gate = start_gate(toml).await;
    let response = gate.get("/api/events").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let caller = gate.caller().with_header(SESSION, "s");
    let waiting = caller.call("zoo_say", &json!({"text": "x"})).await;
    let id = waiting["approval"]["id"].as_str().unwrap();
    let path = format!("/api/approvals/{id}");
    caller
        .post(&path, &json!({"decision": "deny", "reason": "no"}))
        .await
        .expect_status(200);
    caller.call("zoo_die", &json!({})).await;
    let mut stream = response.bytes_stream();
    let mut events = String::new();
    let expected = [
        "event: approval",
        "\"state\":\"pending\"",
        "\"state\":\"denied\"",
        "event: call",
        "\"outcome\":\"ask\"",
        "\"outcome\":\"server\"",
        "event: server",
    ];
    let read = async {
        while !expected.iter().all(|part| events.contains(part)) {
            let chunk = stream.next().await.expect("the stream ended").unwrap();
            events += &String::from_utf8_lossy(&chunk);
        }
    };
    let received = tokio::time::timeout(WAIT_TIMEOUT, read).await.is_ok();
    assert!(received, "{events}");
}

#[tokio::test]
async fn events_contain_no_server_secrets() {
    let secret = "hunter2-hunter2-hunter2";
    let gate = start_gate(&format!("env = {{ TOKEN = \"{secret}\" }}\n")).await;
    let response = gate.get("/api/events").await;
    let mut stream = response.bytes_stream();
    gate.caller()
        .call("zoo_echo", &json!({"mine": secret}))
        .await;
    gate.caller().call("zoo_fail", &json!({})).await;
    let mut events = String::new();
    let read = async {
        while !events.contains("tool_error") {
            let chunk = stream.next().await.expect("the stream ended").unwrap();
            events += &String::from_utf8_lossy(&chunk);
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, read)
        .await
        .expect("timed out waiting for both call events");
    assert!(
        events.contains("\"outcome\":\"ok\"") && !events.contains(secret),
        "{events}"
    );
}

#[tokio::test]
async fn open_event_stream_does_not_delay_shutdown() {
    let mut gate = start_gate("").await;
    let response = gate.get("/api/events").await;
    gate.restart().await;
    drop(response);
}

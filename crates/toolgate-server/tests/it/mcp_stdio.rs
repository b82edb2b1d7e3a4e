//! `toolgate mcp`: the gateway as a child process of a client, over stdio.

use serde_json::{Value, json};

use crate::gate::zoo;
use crate::stdio_client::StdioClient;

fn per_session_fixtures() -> String {
    zoo("zoo", &["--fixtures"]) + "per_session = true\n"
}

#[tokio::test]
async fn exits_while_client_request_is_pending() {
    let mut client = StdioClient::start_legacy(
        &per_session_fixtures(),
        "2025-11-25",
        json!({"elicitation": {}}),
    )
    .await;
    let call = json!({"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}});
    client.send_request("tools/call", call).await;
    let question = client.next().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    client.stdin.take();
    client.wait_for_exit().await;
}

#[tokio::test]
async fn signal_exits_while_stdin_is_open() {
    let client = StdioClient::start_legacy(&zoo("zoo", &[]), "2025-11-25", json!({})).await;
    let id = client.child.id().unwrap().to_string();
    let sent = std::process::Command::new("kill").arg(id).status();
    assert!(sent.unwrap().success());
    client.wait_for_exit().await;
}

#[tokio::test]
async fn batch_is_answered_only_by_revision_with_batches() {
    let add = |id: u64| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "zoo_add", "arguments": {"a": id, "b": 1}}})
    };
    let batch = json!([add(1), {"jsonrpc": "2.0", "method": "notifications/x"}, add(2)]);
    let mut client = StdioClient::start_legacy(&zoo("zoo", &[]), "2025-03-26", json!({})).await;
    client.send(&batch).await;
    let answers = client.next().await;
    let texts = answers.as_array().unwrap().iter();
    let texts: Vec<&Value> = texts
        .map(|answer| &answer["result"]["content"][0]["text"])
        .collect();
    assert_eq!(texts, ["2", "3"]);
    let mut newer = StdioClient::start_legacy(&zoo("zoo", &[]), "2025-06-18", json!({})).await;
    newer.send(&batch).await;
    assert_eq!(newer.next().await["error"]["code"], -32600);
}

#[tokio::test]
async fn oversized_line_is_rejected_and_next_line_is_read() {
    let mut client = StdioClient::start_legacy(&zoo("zoo", &[]), "2025-11-25", json!({})).await;
    client
        .send(&json!({"long": "x".repeat(17 * 1024 * 1024)}))
        .await;
    assert_eq!(client.next().await["error"]["code"], -32600);
    let level = client
        .request("logging/setLevel", json!({"level": "loud"}))
        .await;
    assert_eq!(level["error"]["code"], -32602, "{level}");
    let level = client
        .request("logging/setLevel", json!({"level": "error"}))
        .await;
    assert_eq!(level["result"], json!({}));
    let mut uninitialized = StdioClient::start("");
    let refused = uninitialized.request("tools/list", json!({})).await;
    assert_eq!(
        refused["error"]["code"], -32600,
        "the client has not initialized"
    );
}

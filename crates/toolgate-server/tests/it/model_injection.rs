//! Which tools of the gateway are added to a model request, and results of tools that callers execute.

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::caller::{ALICE, BOB};
use crate::client_process;
use crate::gate::{TestGate, zoo};
use crate::mcp::headers;
use crate::mcp_sdk::env_file;
use crate::models::{PATHS, provider, request};

/// Returns the names of the tools in a chat request.
fn tool_names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn key_and_header_say_which_tools_are_added() {
    let model = ScriptedModel::start(vec![Reply::text("ok")]);
    let toml = provider("there", &model, "openai")
        + &zoo("zoo", &["--tools", "2"])
        + "tools_to_auto_execute = [\"add\"]\n[mcp]\nresource_tools = false\n"
        + "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\ninject = \"none\"\n"
        + "[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let body = request("openai", "there/m", false).to_string();
    let cases = [
        (BOB, None, "all"),
        (BOB, Some("all"), "all"),
        (BOB, Some("auto"), "auto"),
        (BOB, Some("none"), "none"),
        (ALICE, None, "none"),
        (ALICE, Some("auto"), "auto"),
        (ALICE, Some("all"), "all"),
    ];
    for (key, header, expected) in cases {
        let mut sent = vec![("x-api-key", key)];
        sent.extend(header.map(|value| ("x-toolgate-inject", value)));
        let response = gate.post(PATHS[0].1, &body, headers(&sent)).await;
        assert_eq!(response.status(), 200);
        let turn = model.turns().pop().unwrap();
        let names = tool_names(&turn.body);
        let is_expected = match expected {
            "all" => names.contains(&"zoo_add") && names.contains(&"zoo_echo"),
            "auto" => names == ["zoo_add"],
            // Without tools, the request is passed on as it came.
            _ => turn.text == body.replace("there/m", "m"),
        };
        assert!(is_expected, "{expected}: {names:?}");
    }
    let wrong = headers(&[("x-toolgate-inject", "some")]);
    let refused = gate.post(PATHS[0].1, &body, wrong).await;
    assert_eq!(refused.status(), 401, "a key is required");
    let wrong = headers(&[("x-toolgate-inject", "some"), ("x-api-key", BOB)]);
    let refused = gate.post(PATHS[0].1, &body, wrong).await;
    assert_eq!(refused.status(), 400);
    assert!(refused.text().await.unwrap().contains("x-toolgate-inject"));
    let key = gate.json("/api/keys/alice").await;
    assert_eq!(key["inject"], "none");
}

/// A framework that raises when the model calls a tool of the gateway.
#[tokio::test]
async fn agents_sdk_runs_with_tools_that_the_gateway_executes() {
    let model = ScriptedModel::start(vec![Reply::from_request(|body| {
        if body["tools"].to_string().contains("zoo_echo") {
            Reply::calls([("call_1", "zoo_echo", json!({"text": "x"}))])
        } else {
            Reply::text("hello")
        }
    })]);
    let toml = provider("there", &model, "openai") + &zoo("zoo", &[]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let mut client = Command::new(env_file("models/.venv/bin/python"));
    client
        .arg(env_file("models/inject_client.py"))
        .args([gate.url.as_str(), "any", "there/m"])
        .env_clear();
    let report = client_process::run_client(&mut client).await;
    let report = report.unwrap_or_else(|output| panic!("{output}"));
    let expected = json!({"all": "ModelBehaviorError", "auto": "hello", "none": "hello"});
    assert_eq!(report, json!({"chat": expected, "responses": expected}));
}

#[tokio::test]
async fn images_of_executed_tools_reach_the_model() {
    let model = ScriptedModel::start(vec![Reply::text("ok")]);
    let toml = provider("chat", &model, "openai")
        + &provider("responses", &model, "responses")
        + &provider("claude", &model, "anthropic")
        + &zoo("zoo", &[]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let image = |name: &str, sent: &Value| {
        let marker = match name {
            "chat/m" => "\"type\":\"image_url\"",
            "responses/m" => "\"type\":\"input_image\"",
            _ => "\"type\":\"image\"",
        };
        sent.to_string().contains(marker)
    };
    let result = gate.call("zoo_kinds", "{}").await;
    let calls = json!([{"id": "c1", "type": "function", "function": {"name": "zoo_kinds", "arguments": "{}"}}]);
    let none = headers(&[("x-toolgate-inject", "none")]);
    for name in ["chat/m", "responses/m", "claude/m"] {
        let mut body = request("openai", name, false);
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
        messages.push(result.clone());
        let response = gate.post(PATHS[0].1, &body.to_string(), none.clone()).await;
        assert_eq!(response.status(), 200, "{name}");
        let sent = model.turns().pop().unwrap().body;
        assert!(image(name, &sent), "{name}: {sent}");
        if name == "chat/m" {
            let roles: Vec<&str> = sent["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|message| message["role"].as_str().unwrap())
                .collect();
            assert_eq!(roles, ["user", "assistant", "tool", "user"]);
            assert!(!sent["messages"][2].to_string().contains("image_url"));
            assert_eq!(sent["messages"][3]["content"][0]["type"], "image_url");
        }
    }
    let call = json!({"call_id": "c1", "name": "zoo_kinds", "arguments": "{}"});
    let output = gate
        .post(
            "/v1/mcp/tool/execute?format=responses",
            &call.to_string(),
            headers(&[]),
        )
        .await;
    let output: Value = serde_json::from_str(&output.text().await.unwrap()).unwrap();
    assert_eq!(output["output"][1]["type"], "input_image", "{output}");
    for name in ["chat/m", "responses/m", "claude/m"] {
        let mut body = request("responses", name, false);
        let input = body["input"].as_array_mut().unwrap();
        input.push(json!({"type": "function_call", "call_id": "c1", "name": "zoo_kinds", "arguments": "{}"}));
        input.push(output.clone());
        let response = gate.post(PATHS[1].1, &body.to_string(), none.clone()).await;
        assert_eq!(
            response.status(),
            200,
            "{name}: {}",
            response.text().await.unwrap()
        );
        assert!(image(name, &model.turns().pop().unwrap().body), "{name}");
    }
}

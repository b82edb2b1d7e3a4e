//! Model requests through the gateway: translation, tool injection, fallbacks and usage.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use reqwest::Response;
use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Chunking, Reply, ScriptedModel};

use crate::caller::{ALICE, BOB};
use crate::gate::{TestGate, WAIT_TIMEOUT, files_in, zoo};
use crate::mcp::headers;

pub(crate) const PATHS: [(&str, &str); 3] = [
    ("openai", "/v1/chat/completions"),
    ("responses", "/v1/responses"),
    ("anthropic", "/v1/messages"),
];

/// Configures a provider with one dialect for a scripted model.
pub(crate) fn provider(name: &str, model: &ScriptedModel, dialect: &str) -> String {
    format!(
        "[providers.{name}]\nbase_url = \"{}/v1\"\napi_key = \"secret-of-{name}\"\ndialect = {dialect:?}\n",
        model.url()
    )
}

/// Builds a request in a dialect.
pub(crate) fn request(dialect: &str, model: &str, stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "hello"}]);
    let mut request = match dialect {
        "responses" => json!({"model": model, "input": messages}),
        "anthropic" => json!({"model": model, "max_tokens": 50, "messages": messages}),
        _ => json!({"model": model, "messages": messages}),
    };
    if stream {
        request["stream"] = json!(true);
    }
    request
}

/// Returns the model's text from a response in any dialect, streamed or not.
fn response_text(body: &str) -> String {
    if let Ok(value) = serde_json::from_str::<Value>(body) {
        return body_text(&value);
    }
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    events
        .map(|event| {
            let chat = event["choices"][0]["delta"]["content"].as_str();
            let messages = event["delta"]["text"].as_str();
            let responses = event["delta"].as_str();
            chat.or(messages)
                .or(responses)
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

fn body_text(answer: &Value) -> String {
    let pointers = [
        "/choices/0/message/content",
        "/content/0/text",
        "/output/0/content/0/text",
    ];
    let found = pointers
        .iter()
        .find_map(|pointer| answer.pointer(pointer)?.as_str());
    found.unwrap_or_default().to_owned()
}

async fn post_request(gate: &TestGate, path: &str, body: &Value) -> Response {
    gate.post(path, &body.to_string(), headers(&[])).await
}

#[tokio::test]
async fn every_dialect_translates_to_every_dialect() {
    for (provider_dialect, _) in PATHS {
        let model = ScriptedModel::start(vec![Reply::text("hello you").with_usage(9, 4)]);
        let gate = TestGate::start(&provider("there", &model, provider_dialect));
        for (client_dialect, path) in PATHS {
            for stream in [false, true] {
                let body = request(client_dialect, "there/m-1", stream);
                let response = post_request(&gate, path, &body).await;
                let status = response.status();
                let text = response.text().await.unwrap();
                let what =
                    format!("{client_dialect} to {provider_dialect}, stream {stream}: {text}");
                assert_eq!(status, 200, "{what}");
                assert_eq!(response_text(&text), "hello you", "{what}");
            }
        }
        for turn in model.turns() {
            assert_eq!(turn.body["model"], "m-1");
            let secret = turn.header("authorization").or(turn.header("x-api-key"));
            assert!(secret.unwrap().ends_with("secret-of-there"));
        }
    }
}

#[tokio::test]
async fn scoped_tools_are_injected_and_caller_tools_kept() {
    let model = ScriptedModel::start(vec![Reply::text("ok")]);
    let toml =
        provider("there", &model, "openai") + &zoo("zoo", &[]) + &zoo("other", &["--tools", "2"]);
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("other", "healthy").await;
    let mut body = request("openai", "there/m", false);
    body["tools"] = json!([
        {"type": "function", "function": {"name": "mine", "parameters": {}}},
        {"type": "function", "function": {"name": "mcp__zoo__echo", "parameters": {}}},
        {"type": "web_search", "x": 1},
    ]);
    let filtered = headers(&[("x-bf-mcp-include-clients", "zoo")]);
    let answer = gate.post(PATHS[0].1, &body.to_string(), filtered).await;
    assert_eq!(answer.status(), 200);
    let sent = model.turns()[0].body.clone();
    let names = |sent: &Value| -> Vec<String> {
        let tools = sent["tools"].as_array().unwrap().iter();
        let named = tools.filter_map(|tool| tool["function"]["name"].as_str());
        named.map(str::to_owned).collect()
    };
    let sent_names = names(&sent);
    assert_eq!(sent_names[..2], ["mine", "mcp__zoo__echo"]);
    assert!(
        sent_names.contains(&"zoo_add".to_owned()) && !sent_names.contains(&"zoo_echo".to_owned())
    );
    assert!(!sent_names.iter().any(|name| name.starts_with("other_")));
    assert!(
        sent_names.contains(&"ListMcpResources".to_owned()),
        "{sent_names:?}"
    );
    assert_eq!(sent["tools"][2], body["tools"][2]);
    let injected: Vec<&String> = sent_names[2..]
        .iter()
        .filter(|name| name.starts_with("zoo_"))
        .collect();
    assert!(injected.is_sorted());
    // The same request produces the same bytes.
    for _ in 0..2 {
        post_request(&gate, PATHS[0].1, &request("openai", "there/m", false)).await;
    }
    let turns = model.turns();
    assert_eq!(turns[1].text, turns[2].text);
    let no_clients = headers(&[("x-bf-mcp-include-clients", "")]);
    gate.post(
        PATHS[0].1,
        &request("openai", "there/m", false).to_string(),
        no_clients,
    )
    .await;
    assert!(model.turns()[3].body.get("tools").is_none());
}

#[tokio::test]
async fn disabled_injection_needs_a_filter_header() {
    let model = ScriptedModel::start(vec![Reply::text("ok")]);
    let toml = provider("there", &model, "openai") + &zoo("zoo", &[]);
    let gate =
        TestGate::start(&(toml + "[mcp.tool_manager_config]\ndisable_auto_tool_inject = true\n"));
    gate.wait_for_state("zoo", "healthy").await;
    let body = request("openai", "there/m", false).to_string();
    gate.post(PATHS[0].1, &body, headers(&[])).await;
    gate.post(
        PATHS[0].1,
        &body,
        headers(&[("x-bf-mcp-include-clients", "zoo")]),
    )
    .await;
    let turns = model.turns();
    assert_eq!(turns[0].text, body.replace("there/m", "m"));
    assert!(turns[1].body["tools"].is_array());
}

/// The manual flow: the model's call is returned, and the caller executes it and continues.
#[tokio::test]
async fn manual_tool_flow() {
    let call = Reply::calls([("call_7", "zoo_add", json!({"a": 19, "b": 23}))]);
    let model = ScriptedModel::start(vec![call, Reply::text("It is 42.")]);
    let gate = TestGate::start(&(provider("openai", &model, "openai") + &zoo("zoo", &[])));
    gate.wait_for_state("zoo", "healthy").await;
    let mut body = request("openai", "openai/gpt-x", false);
    let first: Value = serde_json::from_str(
        &post_request(&gate, PATHS[0].1, &body)
            .await
            .text()
            .await
            .unwrap(),
    )
    .unwrap();
    let message = &first["choices"][0]["message"];
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
    let call = message["tool_calls"][0].to_string();
    let answered = gate.post("/v1/mcp/tool/execute", &call, headers(&[])).await;
    let answered: Value = serde_json::from_str(&answered.text().await.unwrap()).unwrap();
    assert_eq!(
        answered,
        json!({"role": "tool", "content": "42", "tool_call_id": "call_7"})
    );
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([message.clone(), answered]);
    let last = post_request(&gate, PATHS[0].1, &body)
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(response_text(&last), "It is 42.");
}

#[tokio::test]
async fn errors_keep_status_and_use_caller_dialect() {
    let model = ScriptedModel::start(vec![Reply::error(400, "no such thing")]);
    let gate =
        TestGate::start(&(provider("a", &model, "openai") + &provider("b", &model, "anthropic")));
    for (client_dialect, path) in PATHS {
        for name in ["a/m", "b/m"] {
            let response = post_request(&gate, path, &request(client_dialect, name, false)).await;
            assert_eq!(response.status(), 400);
            let error: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
            assert_eq!(
                error["error"]["message"], "no such thing",
                "{client_dialect} to {name}: {error}"
            );
            assert_eq!(
                error["type"] == "error",
                client_dialect == "anthropic",
                "{error}"
            );
        }
        let response =
            post_request(&gate, path, &request(client_dialect, "nowhere/m", false)).await;
        assert_eq!(response.status(), 404);
        let error: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("providers a, b"), "{message}");
        let broken = gate
            .post(path, "{\"model\":\"a/m\",\"model\":\"b/m\"}", headers(&[]))
            .await;
        assert_eq!(broken.status(), 400);
    }
    // Untranslatable fields are named in the error.
    let mut body = request("openai", "b/m", false);
    body["logit_bias"] = json!({"5": 1});
    let response = post_request(&gate, PATHS[0].1, &body).await;
    assert_eq!(response.status(), 400);
    assert!(response.text().await.unwrap().contains("`logit_bias`"));
}

#[tokio::test]
async fn failed_requests_are_retried_then_fall_back() {
    let flaky = ScriptedModel::start(vec![
        Reply::error(429, "slow down").with_header("retry-after", "0"),
        Reply::error(503, "busy").with_header("retry-after-ms", "1"),
        Reply::text("at last"),
        Reply::error(500, "never").with_header("retry-after", "0"),
    ]);
    let other = ScriptedModel::start(vec![Reply::text("from elsewhere")]);
    let toml = provider("flaky", &flaky, "openai")
        + &provider("other", &other, "anthropic")
        + "[providers.dead]\nbase_url = \"http://127.0.0.1:9/v1\"\nmax_retries = 0\n"
        + "[model_aliases]\nbest = [\"dead/x\", \"flaky/m\", \"other/m\"]\n";
    let gate = TestGate::start(&toml);
    let answer = post_request(&gate, PATHS[0].1, &request("openai", "flaky/m", false)).await;
    assert_eq!(response_text(&answer.text().await.unwrap()), "at last");
    assert_eq!(flaky.turns().len(), 3);
    let answer = post_request(&gate, PATHS[0].1, &request("openai", "best", true)).await;
    assert_eq!(
        response_text(&answer.text().await.unwrap()),
        "from elsewhere"
    );
    let mut body = request("openai", "dead/x", false);
    body["fallbacks"] = json!(["other/m"]);
    let answer = post_request(&gate, PATHS[0].1, &body).await;
    assert_eq!(
        response_text(&answer.text().await.unwrap()),
        "from elsewhere"
    );
    assert!(
        other
            .turns()
            .iter()
            .all(|turn| turn.body.get("fallbacks").is_none())
    );
    let answer = post_request(&gate, PATHS[0].1, &request("openai", "dead/x", false)).await;
    assert_eq!(answer.status(), 502);
    let text = answer.text().await.unwrap();
    assert!(
        text.contains("could not be reached") && !text.contains("127.0.0.1"),
        "{text}"
    );
}

#[tokio::test]
async fn broken_stream_ends_with_error() {
    for (dialect, path) in PATHS {
        let model =
            ScriptedModel::start(vec![Reply::text("one two three four").disconnect_after(3)]);
        let gate = TestGate::start(
            &(provider("same", &model, dialect) + &provider("other", &model, "openai")),
        );
        for name in ["same/m", "other/m"] {
            let answer = post_request(&gate, path, &request(dialect, name, true)).await;
            assert_eq!(answer.status(), 200);
            let text = answer.text().await.unwrap();
            let last = text.trim_end().rsplit("data: ").next().unwrap();
            let last: Value = serde_json::from_str(last).unwrap();
            let names_error = last["error"].is_object()
                || last["type"] == "error"
                || last["type"] == "response.failed";
            assert!(names_error, "{dialect} from {name}: {text}");
        }
    }
}

#[tokio::test]
async fn stream_chunks_are_forwarded_immediately() {
    for (dialect, path) in PATHS {
        let slow = Reply::text("one two three").with_pause(Duration::from_secs(3600));
        let model = ScriptedModel::start(vec![slow]);
        let gate = TestGate::start(&provider("there", &model, dialect));
        let mut answer = post_request(&gate, path, &request(dialect, "there/m", true)).await;
        let first = answer.chunk().await.unwrap().unwrap();
        let first = std::str::from_utf8(&first).unwrap();
        assert!(first.contains("data: {"), "{dialect}: {first}");
    }
}

#[tokio::test]
async fn disconnecting_cancels_provider_request() {
    let slow = Reply::text("word ".repeat(500)).with_pause(Duration::from_millis(50));
    let model = ScriptedModel::start(vec![slow]);
    let gate = TestGate::start(&provider("there", &model, "openai"));
    let mut answer = post_request(&gate, PATHS[0].1, &request("openai", "there/m", true)).await;
    answer.chunk().await.unwrap().unwrap();
    drop(answer);
    eventually(
        "the provider request is cancelled",
        WAIT_TIMEOUT,
        async || (model.disconnects() == 1).then_some(()),
    )
    .await;
    eventually("the cancellation is counted", WAIT_TIMEOUT, async || {
        let metrics = gate.get("/metrics").await.text().await.unwrap();
        metrics.contains("outcome=\"cancelled\"").then_some(())
    })
    .await;
}

#[tokio::test]
async fn usage_is_counted_and_budgets_enforced() {
    let model = ScriptedModel::start(vec![Reply::text("hi").with_usage(1000, 200)]);
    let (key, rich) = ("k".repeat(43), "r".repeat(43));
    let toml = provider("there", &model, "openai")
        + "[prices]\n\"there/*\" = { input = 2.0, output = 10.0 }\n"
        + &format!("[keys.small]\nkey = {key:?}\nbudget = {{ tokens = 2000 }}\n")
        + &format!("[keys.rich]\nkey = {rich:?}\n");
    let mut gate = TestGate::start(&toml);
    let body = |stream| request("openai", "there/m", stream).to_string();
    let small = || headers(&[("authorization", &format!("Bearer {key}"))]);
    let streamed = gate
        .post(PATHS[0].1, &body(true), small())
        .await
        .text()
        .await
        .unwrap();
    assert!(
        !streamed.contains("prompt_tokens"),
        "usage was not requested: {streamed}"
    );
    assert_eq!(response_text(&streamed), "hi");
    eventually("the stream is counted", WAIT_TIMEOUT, async || {
        let stats = gate.json("/api/stats").await;
        (stats["callers"][0]["tokens"]["input"] == 1000).then_some(())
    })
    .await;
    assert_eq!(
        gate.post(PATHS[0].1, &body(false), small()).await.status(),
        200
    );
    let refused = gate.post(PATHS[0].1, &body(false), small()).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.text().await.unwrap().contains("budget"));
    let stats = gate.json("/api/stats").await;
    assert_eq!(stats["models"][0]["model"], "m");
    assert_eq!(stats["models"][0]["cost_usd"], 0.008);
    let metrics = gate.get("/metrics").await.text().await.unwrap();
    assert!(
        metrics.contains(
            "toolgate_model_tokens_total{provider=\"there\",model=\"m\",kind=\"output\"} 400"
        ),
        "{metrics}"
    );
    let rich = headers(&[("x-api-key", &rich)]);
    let plain = gate
        .post(PATHS[0].1, &body(true), rich)
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(
        model.turns().last().unwrap().text,
        body(true).replace("there/m", "m")
    );
    assert_eq!(response_text(&plain), "hi");
    // Spent budgets survive a restart.
    gate.restart().await;
    assert_eq!(
        gate.post(PATHS[0].1, &body(false), small()).await.status(),
        429
    );
}

#[tokio::test]
async fn models_are_listed_in_both_sdk_formats() {
    let model = ScriptedModel::start(vec![Reply::text("x")]);
    let toml = provider("there", &model, "openai")
        + "models = [\"m-1\"]\n"
        + &provider("asked", &model, "openai")
        + "[model_aliases]\nfast = \"there/m-1\"\n";
    let gate = TestGate::start(&toml);
    let list = gate.json("/v1/models").await;
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|model| model["id"].as_str())
        .collect();
    assert_eq!(ids[..2], ["fast", "there/m-1"]);
    assert!(ids[2].starts_with("asked/"), "{ids:?}");
    let anthropic = gate
        .client
        .get(format!("{}/v1/models", gate.url))
        .header("anthropic-version", "2023-06-01");
    let anthropic: Value =
        serde_json::from_str(&anthropic.send().await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(anthropic["data"][0]["type"], "model");
}

#[tokio::test]
async fn providers_api_never_shows_keys() {
    let model = ScriptedModel::start(vec![Reply::text("from the api")]);
    let mut gate = TestGate::start(&provider("filed", &model, "openai"));
    let listed = gate.json("/api/providers").await;
    assert!(!listed.to_string().contains("secret-of-filed"), "{listed}");
    assert_eq!(listed["providers"][0]["source"], "file");
    assert_eq!(listed["providers"][0]["ready"], true);
    let put = |name: &str, body: Value| {
        let request = gate
            .client
            .put(format!("{}/api/providers/{name}", gate.url));
        request.body(body.to_string()).send()
    };
    let entry =
        json!({"base_url": format!("{}/v1", model.url()), "api_key": "a-secret-of-the-api"});
    let added = put("mine", entry.clone()).await.unwrap();
    assert_eq!(added.status(), 200);
    assert!(!added.text().await.unwrap().contains("a-secret"));
    assert_eq!(put("filed", entry).await.unwrap().status(), 409);
    let invalid = put("wrong", json!({"base_url": "nowhere"})).await.unwrap();
    assert_eq!(invalid.status(), 400);
    let body = request("openai", "mine/m", false);
    let fetch_text = async |gate: &TestGate| {
        post_request(gate, PATHS[0].1, &body)
            .await
            .text()
            .await
            .unwrap()
    };
    assert_eq!(response_text(&fetch_text(&gate).await), "from the api");
    gate.restart().await;
    assert_eq!(response_text(&fetch_text(&gate).await), "from the api");
    for file in files_in(&gate.folder.path().join("data")) {
        let bytes = std::fs::read(file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("a-secret-of-the-api"));
    }
    let removed = gate
        .client
        .delete(format!("{}/api/providers/mine", gate.url));
    assert_eq!(removed.send().await.unwrap().status(), 200);
    assert_eq!(post_request(&gate, PATHS[0].1, &body).await.status(), 404);
}

#[tokio::test]
async fn previous_response_id_restores_conversation() {
    let call = Reply::calls([("call_1", "mine", json!({"x": 1}))]);
    let model = ScriptedModel::start(vec![call, Reply::text("done"), Reply::text("again")]);
    let gate = TestGate::start(&provider("there", &model, "openai"));
    let first = post_request(&gate, PATHS[1].1, &request("responses", "there/m", false)).await;
    let first: Value = serde_json::from_str(&first.text().await.unwrap()).unwrap();
    let mut body = request("responses", "there/m", true);
    body["input"] = json!([{"type": "function_call_output", "call_id": "call_1", "output": "42"}]);
    body["previous_response_id"] = first["id"].clone();
    let second = post_request(&gate, PATHS[1].1, &body)
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(response_text(&second), "done");
    let sent = model.turns()[1].body["messages"].clone();
    assert_eq!(sent[0]["content"], "hello");
    assert_eq!(sent[1]["tool_calls"][0]["id"], "call_1");
    assert_eq!(
        sent[2],
        json!({"role": "tool", "tool_call_id": "call_1", "content": "42"})
    );
    let mut completed = second
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let completed: Value = serde_json::from_str(completed.next_back().unwrap()).unwrap();
    body["previous_response_id"] = completed["response"]["id"].clone();
    body["input"] = json!("and?");
    let third = post_request(&gate, PATHS[1].1, &body)
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(response_text(&third), "again");
    assert_eq!(
        model.turns()[2].body["messages"].as_array().unwrap().len(),
        5
    );
    body["previous_response_id"] = json!("resp_unheard_of");
    let refused = post_request(&gate, PATHS[1].1, &body).await;
    assert_eq!(refused.status(), 400);
    assert!(
        refused
            .text()
            .await
            .unwrap()
            .contains("previous_response_id")
    );
}

/// Codex wraps the tools of an MCP server in its own `namespace` format.
#[tokio::test]
async fn namespaced_tools_are_flattened_and_restored() {
    let call = || Reply::calls([("call_1", "mcp__w__get_weather", json!({"city": "Rome"}))]);
    let model = ScriptedModel::start(vec![call(), call(), Reply::text("sunny")]);
    let toml = provider("chat", &model, "openai") + "ignore_fields = [\"web_search\"]\n";
    let gate = TestGate::start(&(toml + &zoo("w", &[])));
    gate.wait_for_state("w", "healthy").await;
    let mut body = request("responses", "chat/m", false);
    body["tools"] = json!([
        {"type": "namespace", "name": "mcp__w", "description": "weather", "tools": [
            {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": false},
            {"type": "function", "name": "echo", "parameters": {"type": "object"}}]},
        {"type": "web_search", "external_web_access": false},
    ]);
    let agent = headers(&[("user-agent", "codex_exec/0.166.0 (Debian)")]);
    let whole = gate
        .post(PATHS[1].1, &body.to_string(), agent.clone())
        .await;
    let whole: Value = serde_json::from_str(&whole.text().await.unwrap()).unwrap();
    let item = &whole["output"][0];
    assert_eq!(
        (&item["name"], &item["namespace"]),
        (&json!("get_weather"), &json!("mcp__w"))
    );
    let sent = model.turns()[0].body["tools"].clone();
    let names: Vec<&str> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    // A client with its own tools is not offered tools that it could not run.
    assert_eq!(names, ["mcp__w__get_weather", "mcp__w__echo"]);
    body["stream"] = json!(true);
    let stream = gate
        .post(PATHS[1].1, &body.to_string(), agent.clone())
        .await
        .text()
        .await
        .unwrap();
    assert!(
        stream.contains(r#""name":"get_weather","namespace":"mcp__w""#),
        "{stream}"
    );
    body["input"] = json!([{"role": "user", "content": "weather?"}, item,
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "18"}]}]);
    let last = gate
        .post(PATHS[1].1, &body.to_string(), agent)
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(response_text(&last), "sunny");
    let again = &model.turns()[2].body["messages"][1]["tool_calls"][0]["function"]["name"];
    assert_eq!(again, "mcp__w__get_weather");
}

/// Claude Code's extensions, sent to a provider that supports none of them.
#[tokio::test]
async fn claude_code_works_with_another_dialect() {
    let model = ScriptedModel::start(vec![Reply::text("hi")]);
    let gate = TestGate::start(&provider("chat", &model, "openai"));
    let body = json!({"model": "chat/m", "max_tokens": 1000, "stream": true,
        "system": [{"type": "text", "text": "You are.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "u"},
        "tools": [{"name": "Bash", "description": "b", "input_schema": {"type": "object"}, "defer_loading": true}],
        "messages": [
            {"role": "user", "content": "find"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                "content": [{"type": "tool_reference", "tool_name": "Bash"}]}]}]});
    let answer = gate
        .post("/v1/messages?beta=true", &body.to_string(), headers(&[]))
        .await;
    assert_eq!(response_text(&answer.text().await.unwrap()), "hi");
    let sent = &model.turns()[0].body;
    assert!(sent.get("reasoning_effort").is_none(), "{sent}");
    assert!(
        sent["messages"][3]["content"]
            .as_str()
            .unwrap()
            .contains("`Bash`")
    );
}

#[tokio::test]
async fn headers_are_forwarded_but_credentials_are_not() {
    let model = ScriptedModel::start(vec![
        Reply::text("x")
            .with_header("x-ratelimit-remaining", "7")
            .with_header("set-cookie", "a=b"),
    ]);
    let toml = provider("there", &model, "anthropic") + "allowed_extra_headers = [\"X-Team\"]\n";
    let gate = TestGate::start(&toml);
    let sent = headers(&[
        ("anthropic-beta", "b-1"),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        ("x-bf-eh-x-team", "blue"),
        ("x-bf-eh-x-tenant", "not listed"),
        ("x-bf-eh-authorization", "Bearer stolen"),
        ("x-api-key", "sk-what-the-sdk-must-send"),
        ("cookie", "session=1"),
    ]);
    let path = format!("{}?beta=true", PATHS[2].1);
    let answer = gate
        .post(
            &path,
            &request("anthropic", "there/m", false).to_string(),
            sent,
        )
        .await;
    assert_eq!(answer.headers()["x-ratelimit-remaining"], "7");
    assert!(answer.headers().get("set-cookie").is_none());
    let turn = model.turns().remove(0);
    assert_eq!(turn.path, "/v1/messages?beta=true");
    for (name, value) in [
        ("anthropic-beta", "b-1"),
        ("anthropic-version", "2023-06-01"),
        ("x-team", "blue"),
        ("x-api-key", "secret-of-there"),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
    ] {
        assert_eq!(turn.header(name), Some(value), "{name}");
    }
    for name in ["cookie", "authorization", "x-tenant"] {
        assert!(turn.header(name).is_none(), "{name}");
    }
    assert!(turn.header("content-length").is_some());
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é\\n\"\\\\]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z]{1,5}", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

/// Echoes a field of the request, in chunks of the requested size.
fn echo_reply() -> Reply {
    Reply::from_request(|body| {
        let reply = Reply::text("t").with_extra_fields(json!({"x_extra": body["x_extra"]}));
        let size = body["x_chunk"].as_u64().unwrap();
        reply.with_chunking(Chunking::Bytes(usize::try_from(size).unwrap()))
    })
}

/// With equal dialects, request and response pass byte for byte, except for model and tools.
#[test]
fn unknown_fields_pass_through_byte_for_byte() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (model, twin) = (
            ScriptedModel::start(vec![echo_reply()]),
            ScriptedModel::start(vec![echo_reply()]),
        );
        let toml: String = PATHS
            .iter()
            .map(|(dialect, _)| provider(&format!("p-{dialect}"), &model, dialect))
            .collect();
        let gate = TestGate::start(&toml);
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..40 {
            let extra = json_value().new_tree(&mut runner).unwrap().current();
            for (dialect, path) in PATHS {
                for stream in [false, true] {
                    let mut body = request(dialect, &format!("p-{dialect}/m"), stream);
                    body["x_extra"] = extra.clone();
                    body["x_chunk"] = json!(extra.to_string().len() % 13 + 1);
                    let text = serde_json::to_string_pretty(&body).unwrap();
                    let through = gate
                        .post(path, &text, headers(&[]))
                        .await
                        .bytes()
                        .await
                        .unwrap();
                    let sent = text.replace(&format!("p-{dialect}/m"), "m");
                    assert_eq!(model.turns().last().unwrap().text, sent);
                    let direct = gate.client.post(format!("{}{path}", twin.url()));
                    let direct = direct.header("anthropic-version", "2023-06-01").body(sent);
                    let direct = direct.send().await.unwrap().bytes().await.unwrap();
                    assert_eq!(through, direct);
                }
            }
        }
    });
}

#[tokio::test]
async fn budgets_cannot_be_bypassed() {
    let model = ScriptedModel::start(vec![Reply::text("hi").with_usage(1000, 200)]);
    let key = "k".repeat(43);
    let toml = provider("there", &model, "openai")
        + &format!("[keys.small]\nkey = {key:?}\nbudget = {{ tokens = 1000 }}\n")
        + &format!(
            "[keys.poor]\nkey = {:?}\nbudget = {{ usd = 1.0 }}\n",
            "p".repeat(43)
        );
    let gate = TestGate::start(&toml);
    let mut body = request("openai", "there/m", true);
    body["stream_options"] = json!({"include_usage": false, "x": 1});
    let small = headers(&[("x-api-key", &key), ("x-bf-eh-accept-encoding", "gzip")]);
    let text = gate
        .post(PATHS[0].1, &body.to_string(), small.clone())
        .await
        .text()
        .await
        .unwrap();
    assert!(!text.contains("prompt_tokens"), "{text}");
    let sent = &model.turns()[0];
    assert_eq!(
        sent.body["stream_options"],
        json!({"include_usage": true, "x": 1})
    );
    assert!(
        sent.header("accept-encoding")
            .is_none_or(|value| !value.contains("gzip"))
    );
    assert_eq!(
        gate.post(PATHS[0].1, &body.to_string(), small)
            .await
            .status(),
        429
    );
    // A model without a price cannot be used with a USD budget.
    let poor = headers(&[("x-api-key", &"p".repeat(43))]);
    let refused = gate.post(PATHS[0].1, &body.to_string(), poor).await;
    assert_eq!(refused.status(), 403);
    assert!(refused.text().await.unwrap().contains("[prices]"));
}

#[tokio::test]
async fn excessive_requests_are_rejected() {
    let model = ScriptedModel::start(vec![Reply::text("hi")]);
    let gate = TestGate::start(&provider("there", &model, "openai"));
    let too_many: Vec<String> = (0..9).map(|n| format!("there/{n}")).collect();
    let mut body = request("openai", "there/m", false);
    body["fallbacks"] = json!(too_many);
    assert_eq!(post_request(&gate, PATHS[0].1, &body).await.status(), 400);
    let long = request("openai", &format!("there/{}", "m".repeat(300)), false);
    assert_eq!(post_request(&gate, PATHS[0].1, &long).await.status(), 400);
    let members: serde_json::Map<String, Value> =
        (0..2000).map(|n| (format!("m{n}"), json!(1))).collect();
    assert_eq!(
        post_request(&gate, PATHS[0].1, &Value::Object(members))
            .await
            .status(),
        400
    );
    assert_eq!(model.turns().len(), 0);
}

/// Tools that the provider runs pass by the gateway, so a key that may use few tools may not use them.
#[tokio::test]
async fn tools_of_the_provider_need_permission() {
    let model = ScriptedModel::start(vec![Reply::text("ok")]);
    let keys =
        format!("[keys.free]\nkey = \"{ALICE}\"\n[keys.limited]\nkey = \"{BOB}\"\ntools = []\n");
    let allowed = keys.replace("tools = []\n", "tools = []\nprovider_tools = true\n");
    let base = format!(
        "[providers.there]\nbase_url = \"{}/v1\"\napi_key = \"k\"\ndialect = [\"openai\", \"responses\", \"anthropic\"]\n",
        model.url()
    );
    let gate = TestGate::start(&(base.clone() + &keys));
    let with_tool = |dialect: &str, tool: Value| {
        let mut body = request(dialect, "there/m", false);
        body["tools"] = json!([tool]);
        body
    };
    let mcp = json!({"type": "mcp", "server_label": "x", "server_url": "https://example.com"});
    let cases = [
        (
            "/v1/chat/completions",
            with_tool("openai", json!({"type": "web_search"})),
        ),
        ("/v1/responses", with_tool("responses", mcp)),
        (
            "/v1/messages",
            with_tool(
                "anthropic",
                json!({"type": "code_execution_20250825", "name": "code_execution"}),
            ),
        ),
    ];
    for (path, body) in &cases {
        let refused = gate.with_key(BOB).post(path, body).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.body);
        assert!(
            refused.body.to_string().contains("provider_tools"),
            "{}",
            refused.body
        );
        assert_eq!(model.turns().len(), 0, "nothing reached the provider");
    }
    for (count, (path, body)) in cases.iter().enumerate() {
        gate.with_key(ALICE)
            .post(path, body)
            .await
            .expect_status(200);
        assert_eq!(model.turns().len(), count + 1);
    }
    let records = gate.records(&gate.with_key(ALICE)).await;
    let outcomes = |caller: &str| {
        let of_caller = records.iter().filter(|record| record["caller"] == caller);
        of_caller
            .filter(|record| {
                record["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("provider: "))
            })
            .map(|record| record["outcome"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(outcomes("limited"), ["denied"; 3]);
    assert_eq!(outcomes("free"), ["ok"; 3]);
    gate.edit(&(base + &allowed));
    eventually("the key may use them", WAIT_TIMEOUT, async || {
        let (path, body) = &cases[0];
        (gate.with_key(BOB).post(path, body).await.status == 200).then_some(())
    })
    .await;
}

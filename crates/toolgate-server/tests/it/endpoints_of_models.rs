//! Endpoints of OpenAI's API besides the three dialects, stored responses and paths that name a provider.

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel, has_tool_result};

use crate::caller::{ALICE, BOB};
use crate::client_process;
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::headers;
use crate::mcp_sdk::env_file;
use crate::models::{PATHS, provider, request};

const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";
const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n\r\nID3\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nthere/m\r\n--b--\r\n";

/// Sends a request with a key and returns the status and the body.
async fn send(
    gate: &TestGate,
    method: Method,
    path: &str,
    key: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let request = gate.client.request(method, format!("{}{path}", gate.url));
    let request = request.header("x-api-key", key);
    let response = if body.is_null() {
        request.send().await.unwrap()
    } else {
        request.body(body.to_string()).send().await.unwrap()
    };
    let status = response.status();
    let text = response.text().await.unwrap();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

#[tokio::test]
async fn endpoints_are_forwarded_and_counted() {
    let model = ScriptedModel::start(vec![Reply::text("unused")]);
    let gate = TestGate::start(&(provider("there", &model, "openai") + KEYS));
    let cases = [
        ("/v1/embeddings", json!({"input": "hi", "x": 1.50}), (7, 0)),
        ("/v1/completions", json!({"prompt": "hi"}), (3, 2)),
        ("/v1/moderations", json!({"input": "hi"}), (0, 0)),
        (
            "/v1/rerank",
            json!({"query": "q", "documents": []}),
            (12, 0),
        ),
        ("/v1/images/generations", json!({"prompt": "cat"}), (4, 9)),
        ("/v1/audio/speech", json!({"input": "hi"}), (0, 0)),
    ];
    let (mut input, mut output) = (0, 0);
    for (path, mut body, used) in cases {
        body["model"] = json!("there/m");
        let (status, answer) = send(&gate, Method::POST, path, ALICE, &body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        let sent = model.requests().pop().unwrap();
        assert_eq!(sent.path, path);
        assert_eq!(sent.text, body.to_string().replace("there/m", "m"));
        assert_eq!(sent.header("authorization"), Some("Bearer secret-of-there"));
        input += used.0;
        output += used.1;
    }
    // A form names its model in a field.
    for path in [
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/images/edits",
        "/v1/images/variations",
    ] {
        let request = gate.client.post(format!("{}{path}", gate.url));
        let request = request
            .header("x-api-key", ALICE)
            .header(CONTENT_TYPE, "multipart/form-data; boundary=b");
        let response = request.body(FORM).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let sent = model.requests().pop().unwrap();
        assert_eq!(
            (sent.path.as_str(), sent.text.clone()),
            (path, FORM.replace("there/m", "m"))
        );
        assert_eq!(
            sent.header("content-type"),
            Some("multipart/form-data; boundary=b")
        );
    }
    input += 2 * 6 + 2 * 4;
    output += 2 + 2 * 9;
    eventually("all usage is counted", WAIT_TIMEOUT, async || {
        let stats = gate.json("/api/stats").await;
        let tokens = &stats["callers"][0]["tokens"];
        (tokens["input"] == input && tokens["output"] == output).then_some(())
    })
    .await;
}

#[tokio::test]
async fn forwarded_requests_are_refused_like_others() {
    let model = ScriptedModel::start(vec![Reply::text("unused")]);
    let toml = provider("there", &model, "openai")
        + &provider("claude", &model, "anthropic")
        + "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\nbudget = { tokens = 5 }\n"
        + "[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\nbudget = { usd = 1.0 }\n";
    let gate = TestGate::start(&toml);
    let path = "/v1/embeddings";
    for (name, key, status, expected) in [
        ("claude/m", ALICE, 404, "has no endpoint"),
        ("nowhere/m", ALICE, 404, "unknown model"),
        ("there/m", "tg-unknown", 401, ""),
        ("there/m", BOB, 403, "[prices]"),
    ] {
        let body = json!({"model": name, "input": "hi"});
        let (found, answer) = send(&gate, Method::POST, path, key, &body).await;
        assert_eq!(found, status, "{name}: {answer}");
        assert!(answer.to_string().contains(expected), "{name}: {answer}");
    }
    for body in [json!({"input": "hi"}), json!([])] {
        let (status, answer) = send(&gate, Method::POST, path, ALICE, &body).await;
        assert_eq!(status, 400, "{answer}");
    }
    assert!(model.requests().is_empty(), "nothing was sent");
    // What providers do not charge for needs no price.
    let free = json!({"model": "there/m", "input": "hi"});
    assert_eq!(
        send(&gate, Method::POST, "/v1/moderations", BOB, &free)
            .await
            .0,
        200
    );
    // The budget counts streams whose usage the caller did not ask for.
    let body = json!({"model": "there/m", "prompt": "hi", "stream": true});
    let (status, text) = send(&gate, Method::POST, "/v1/completions", ALICE, &body).await;
    assert_eq!(status, 200);
    let text = text.as_str().unwrap().to_owned();
    assert!(
        text.contains("hello")
            && !text.contains("prompt_tokens")
            && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
    eventually("the budget is used up", WAIT_TIMEOUT, async || {
        let (status, _) = send(&gate, Method::POST, "/v1/completions", ALICE, &body).await;
        (status == 429).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stored_responses_exist_only_for_their_caller() {
    let models = [(); 2].map(|()| ScriptedModel::start(vec![Reply::text("hello")]));
    // With a tool that runs automatically, a streamed response has an id of the gateway.
    for agent in ["", "tools_to_auto_execute = [\"*\"]\n"] {
        let toml = provider("one", &models[0], "responses")
            + &provider("two", &models[1], "responses")
            + &zoo("zoo", &[])
            + agent
            + KEYS;
        let mut gate = TestGate::start(&toml);
        gate.wait_for_state("zoo", "healthy").await;
        let body = request("responses", "two/m", false);
        let (status, created) = send(&gate, Method::POST, PATHS[1].1, ALICE, &body).await;
        assert_eq!(status, 200, "{created}");
        let id = created["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/responses/{id}");
        let before = models[0].requests().len();
        let actions = [
            (Method::GET, path.clone()),
            (Method::GET, format!("{path}/input_items?limit=5")),
            (Method::POST, format!("{path}/cancel")),
            (Method::DELETE, path.clone()),
        ];
        for restarted in [false, true] {
            for (method, path) in &actions {
                let sent = models[1].requests().len();
                let (status, answer) = send(&gate, method.clone(), path, BOB, &Value::Null).await;
                assert_eq!(status, 404, "{method} {path}: {answer}");
                assert_eq!(models[1].requests().len(), sent, "nothing is sent");
                if *method == Method::DELETE && !restarted {
                    continue;
                }
                let (status, answer) = send(&gate, method.clone(), path, ALICE, &Value::Null).await;
                assert_eq!(status, 200, "{method} {path}: {answer}");
                if answer["object"] != "list" {
                    assert_eq!(answer["id"], *id);
                }
                let sent = models[1].requests().pop().unwrap();
                assert_eq!(sent.method, method.as_str());
                assert!(!sent.path.contains(".."), "{}", sent.path);
            }
            if !restarted {
                gate.restart().await;
            }
        }
        let (status, _) = send(&gate, Method::GET, &path, ALICE, &Value::Null).await;
        assert_eq!(status, 404, "it was deleted");
        assert_eq!(
            models[0].requests().len(),
            before,
            "the other provider is not asked"
        );
    }
}

#[tokio::test]
async fn invalid_response_ids_never_reach_a_provider() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let gate = TestGate::start(&provider("there", &model, "responses"));
    for id in ["..%2Fmodels", "a%3Fb=c", "%20", "a%00"] {
        let response = gate.get(&format!("/v1/responses/{id}")).await;
        assert_eq!(response.status(), 404, "{id}");
    }
    assert!(model.requests().is_empty());
    // A caller without a key may read what belongs to no key.
    let response = gate
        .get("/v1/responses/resp_from_elsewhere?include[]=x")
        .await;
    assert_eq!(response.status(), 200);
    assert_eq!(
        model.requests()[0].path,
        "/v1/responses/resp_from_elsewhere?include[]=x"
    );
}

#[tokio::test]
async fn translated_responses_are_stored_by_the_gateway() {
    let model = ScriptedModel::start(vec![Reply::text("hello you")]);
    let gate = TestGate::start(&(provider("there", &model, "openai") + KEYS));
    for stream in [false, true] {
        let body = request("responses", "there/m", stream);
        let (_, created) = send(&gate, Method::POST, PATHS[1].1, ALICE, &body).await;
        let created = match created.as_str() {
            Some(events) => {
                let last = events
                    .lines()
                    .filter_map(|line| line.strip_prefix("data: "))
                    .next_back();
                serde_json::from_str::<Value>(last.unwrap()).unwrap()["response"].clone()
            }
            None => created,
        };
        let path = format!("/v1/responses/{}", created["id"].as_str().unwrap());
        let (status, found) = send(&gate, Method::GET, &path, ALICE, &Value::Null).await;
        assert_eq!(
            (status, &found["output"]),
            (StatusCode::OK, &created["output"])
        );
        assert_eq!(found["status"], "completed");
        assert_eq!(
            send(&gate, Method::GET, &path, BOB, &Value::Null).await.0,
            404
        );
        let (_, items) = send(
            &gate,
            Method::GET,
            &format!("{path}/input_items"),
            ALICE,
            &Value::Null,
        )
        .await;
        assert_eq!(items["data"][0]["content"], "hello");
        let (status, _) = send(
            &gate,
            Method::POST,
            &format!("{path}/cancel"),
            ALICE,
            &Value::Null,
        )
        .await;
        assert_eq!(status, 400);
        let (_, deleted) = send(&gate, Method::DELETE, &path, ALICE, &Value::Null).await;
        assert_eq!(deleted["deleted"], true);
        assert_eq!(
            send(&gate, Method::GET, &path, ALICE, &Value::Null).await.0,
            404
        );
    }
}

#[tokio::test]
async fn paths_may_name_the_provider() {
    let models = [(); 2].map(|()| ScriptedModel::start(vec![Reply::text("hello")]));
    let toml = provider("openai", &models[0], "openai")
        + &provider("claude", &models[1], "anthropic")
        + "preset = \"anthropic\"\n";
    let gate = TestGate::start(&toml);
    for (path, dialect, name, index) in [
        ("/openai/v1/chat/completions", "openai", "custom", 0),
        ("/openai/chat/completions", "openai", "custom", 0),
        ("/openai/v1/chat/completions", "openai", "claude/custom", 1),
        ("/anthropic/v1/messages", "anthropic", "custom", 1),
        (
            "/anthropic/v1/messages?beta=true",
            "anthropic",
            "openai/custom",
            0,
        ),
    ] {
        let before = models[index].turns().len();
        let response = gate
            .post(
                path,
                &request(dialect, name, false).to_string(),
                headers(&[]),
            )
            .await;
        assert_eq!(response.status(), 200, "{path} {name}");
        assert_eq!(models[index].turns().len(), before + 1, "{path} {name}");
        assert_eq!(models[index].turns()[before].body["model"], "custom");
    }
    let refused = gate
        .post("/anthropic/v1/messages", "{}", headers(&[]))
        .await;
    assert_eq!(refused.status(), 400);
    assert!(refused.text().await.unwrap().contains("\"type\":\"error\""));
    assert_eq!(gate.get("/openai/nothing").await.status(), 404);
    assert_eq!(gate.get("/openai/models").await.status(), 200);
    assert_eq!(gate.get("/v1/models/openai/scripted").await.status(), 200);
    assert_eq!(gate.get("/v1/models/openai%2Fscripted").await.status(), 200);
    assert_eq!(gate.get("/v1/models/openai/nothing").await.status(), 404);
}

#[tokio::test]
async fn tokens_are_counted_by_the_provider_or_estimated() {
    let model = ScriptedModel::start(vec![Reply::text("unused")]);
    let toml = provider("same", &model, "anthropic")
        + &provider("responses", &model, "responses")
        + &provider("chat", &model, "openai");
    let gate = TestGate::start(&toml);
    for (path, dialect, name, expected) in [
        ("/v1/messages/count_tokens", "anthropic", "same/m", Some(13)),
        (
            "/v1/responses/input_tokens",
            "responses",
            "responses/m",
            Some(11),
        ),
        ("/v1/messages/count_tokens", "anthropic", "chat/m", None),
        ("/v1/responses/input_tokens", "responses", "chat/m", None),
    ] {
        let before = model.requests().len();
        let response = gate
            .post(
                path,
                &request(dialect, name, false).to_string(),
                headers(&[]),
            )
            .await;
        assert_eq!(response.status(), 200, "{name}");
        let is_estimated = response.headers().contains_key("x-toolgate-estimated");
        let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        let tokens = body["input_tokens"].as_u64().unwrap();
        assert_eq!(is_estimated, expected.is_none(), "{name}");
        assert_eq!(model.requests().len() - before, usize::from(!is_estimated));
        assert!(
            expected.map_or((1..100).contains(&tokens), |expected| tokens == expected),
            "{tokens}"
        );
    }
}

#[tokio::test]
async fn threads_of_a_provider_are_not_open_to_other_keys() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let gate = TestGate::start(&(provider("there", &model, "anthropic") + KEYS));
    let mut body = request("anthropic", "there/m", false);
    body["thread"] = json!({"type": "create"});
    let (status, _) = send(&gate, Method::POST, PATHS[2].1, ALICE, &body).await;
    assert_eq!(status, 200);
    assert_eq!(model.turns()[0].body["thread"], body["thread"]);
    body["thread"] = json!({"type": "continue", "previous_message_id": "msg_1"});
    let (status, error) = send(&gate, Method::POST, PATHS[2].1, BOB, &body).await;
    assert_eq!(status, 400, "{error}");
    assert_eq!(error["error"]["details"]["error_code"], "thread_not_found");
    assert_eq!(model.turns().len(), 1, "nothing was sent");
}

/// The SDKs of OpenAI and Anthropic, with a path that names the provider.
#[tokio::test]
async fn sdks_use_all_endpoints() {
    for dialects in ["[\"openai\", \"responses\"]", "[\"openai\"]"] {
        let model = ScriptedModel::start(vec![Reply::from_request(|body| {
            if body["tools"].is_array() && !has_tool_result(body) {
                Reply::calls([("call_1", "add", json!({"a": 1, "b": 2}))])
            } else {
                Reply::text("hello")
            }
        })]);
        let toml = format!(
            "[providers.there]\nbase_url = \"{}/v1\"\napi_key = \"k\"\ndialect = {dialects}\nmodels = [\"m\"]\n",
            model.url()
        );
        let gate = TestGate::start(&(toml + KEYS));
        let mut client = Command::new(env_file("models/.venv/bin/python"));
        client.arg(env_file("models/endpoints_client.py"));
        client
            .args([gate.url.as_str(), ALICE, "there/m", BOB])
            .env_clear();
        let report = client_process::run_client(&mut client).await;
        let report = report.unwrap_or_else(|output| panic!("{dialects}: {output}"));
        assert_eq!(
            report,
            json!({
                "openai": {
                    "embedding": [0.5, -0.25], "completion": "hello", "streamed": "hello", "flagged": false,
                    "image": "aGk=", "edited": "aGk=", "speech": 12, "text": "hello", "translated": "hello",
                    "retrieved": "there/m",
                },
                "stored": {"same id": true, "items": ["user"], "tokens": true, "other key": "not found", "deleted": true},
                "anthropic": {"tokens": true, "text": "hello"},
            }),
            "{dialects}"
        );
    }
}

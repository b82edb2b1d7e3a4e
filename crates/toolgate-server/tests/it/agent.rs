//! Agent mode over HTTP: auto-executed tools run, all other calls are returned for a decision.

use reqwest::Response;
use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Chunking, Reply, ScriptedModel};

use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::headers;

pub(crate) const PATHS: [(&str, &str); 3] = [
    ("openai", "/v1/chat/completions"),
    ("responses", "/v1/responses"),
    ("anthropic", "/v1/messages"),
];

/// Starts a gateway with auto-executed zoo tools in front of a model in every dialect.
pub(crate) async fn start_gate(model: &ScriptedModel, auto_execute: &str, extra: &str) -> TestGate {
    let mut toml = zoo("zoo", &[]);
    toml += &format!("tools_to_auto_execute = {auto_execute}\n");
    for (dialect, _) in PATHS {
        toml += &format!(
            "[providers.{dialect}]\nbase_url = \"{}/v1\"\napi_key = \"k\"\ndialect = {dialect:?}\nmax_retries = 0\n",
            model.url()
        );
    }
    let gate = TestGate::start(&(toml + extra));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

pub(crate) fn request(dialect: &str, model: &str, stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "hello"}]);
    match dialect {
        "responses" => json!({"model": model, "input": messages, "stream": stream}),
        "anthropic" => {
            json!({"model": model, "max_tokens": 50, "messages": messages, "stream": stream})
        }
        _ => json!({"model": model, "messages": messages, "stream": stream}),
    }
}

/// An agent's response as a caller sees it, independent of dialect and streaming.
#[derive(Debug)]
pub(crate) struct AgentResponse {
    pub(crate) text: String,
    /// Names of the calls returned to the caller.
    pub(crate) calls: Vec<String>,
    pub(crate) finish: String,
    pub(crate) note: Value,
    pub(crate) input_tokens: u64,
}

pub(crate) async fn read_response(response: Response) -> AgentResponse {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    match serde_json::from_str::<Value>(&text) {
        Ok(body) => parse_body(&body),
        Err(_) => parse_stream(&text),
    }
}

fn parse_body(answer: &Value) -> AgentResponse {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let message = &answer["choices"][0]["message"];
    let mut response = AgentResponse {
        text: message["content"].as_str().unwrap_or_default().to_owned(),
        calls: Vec::new(),
        finish: String::new(),
        note: answer["toolgate"].clone(),
        input_tokens: 0,
    };
    for call in list(&message["tool_calls"]) {
        response
            .calls
            .push(call["function"]["name"].as_str().unwrap().to_owned());
    }
    for item in list(&answer["output"])
        .iter()
        .chain(&list(&answer["content"]))
    {
        for part in list(&item["content"]) {
            response.text += part["text"].as_str().unwrap_or_default();
        }
        response.text += item["text"].as_str().unwrap_or_default();
        if item["type"] == "function_call" || item["type"] == "tool_use" {
            response
                .calls
                .push(item["name"].as_str().unwrap().to_owned());
        }
    }
    let finish = [
        &answer["choices"][0]["finish_reason"],
        &answer["stop_reason"],
        &answer["status"],
    ];
    response.finish = finish
        .iter()
        .find_map(|value| value.as_str())
        .unwrap_or_default()
        .to_owned();
    let usage = &answer["usage"];
    let input = usage["prompt_tokens"]
        .as_u64()
        .or(usage["input_tokens"].as_u64());
    response.input_tokens = input.unwrap_or_default();
    response
}

fn parse_stream(stream: &str) -> AgentResponse {
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let mut response = AgentResponse {
        text: String::new(),
        calls: Vec::new(),
        finish: String::new(),
        note: Value::Null,
        input_tokens: 0,
    };
    for event in &events {
        let delta = &event["choices"][0]["delta"];
        let kind = event["type"].as_str().unwrap_or_default();
        let text = match kind {
            "response.output_text.delta" => event["delta"].as_str(),
            "content_block_delta" => event["delta"]["text"].as_str(),
            _ => delta["content"].as_str(),
        };
        response.text += text.unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            response
                .calls
                .extend(call["function"]["name"].as_str().map(str::to_owned));
        }
        let block = &event["content_block"];
        if block["type"] == "tool_use" {
            response
                .calls
                .push(block["name"].as_str().unwrap().to_owned());
        }
        if kind == "response.completed" {
            let complete = parse_body(&event["response"]);
            (response.calls, response.note, response.finish) =
                (complete.calls, complete.note, complete.finish);
            response.input_tokens = complete.input_tokens;
        }
        if event["toolgate"].is_object() {
            response.note = event["toolgate"].clone();
        }
        let finish = event["choices"][0]["finish_reason"].as_str();
        let finish = finish.or(event["delta"]["stop_reason"].as_str());
        if let Some(finish) = finish {
            finish.clone_into(&mut response.finish);
        }
        let usage = &event["usage"];
        let input = usage["prompt_tokens"]
            .as_u64()
            .or(usage["input_tokens"].as_u64());
        response.input_tokens = input.unwrap_or(response.input_tokens);
    }
    response
}

pub(crate) async fn run_agent(gate: &TestGate, path: &str, body: &Value) -> AgentResponse {
    read_response(gate.post(path, &body.to_string(), headers(&[])).await).await
}

/// Waits until the audit trail has at least this many records and returns them.
pub(crate) async fn wait_for_records(gate: &TestGate, count: usize) -> Vec<Value> {
    eventually("the calls are recorded", WAIT_TIMEOUT, async || {
        let audit = gate.json("/api/audit").await;
        let records = audit["records"].as_array().unwrap().clone();
        (records.len() >= count).then_some(records)
    })
    .await
}

pub(crate) fn add_call(id: &str, a: i64) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_add", json!({"a": a, "b": 1}))
}

/// Three turns: two parallel calls, another call, and the answer.
fn conversation() -> Vec<Reply> {
    vec![
        Reply::calls([add_call("c1", 1), add_call("c2", 10)])
            .with_text("First.")
            .with_usage(10, 1),
        Reply::calls([add_call("c3", 100)]).with_usage(20, 2),
        Reply::text("All done.").with_usage(30, 3),
    ]
}

#[tokio::test]
async fn tools_run_until_the_model_answers_in_every_dialect() {
    for (client_dialect, path) in PATHS {
        for (provider_dialect, _) in PATHS {
            for stream in [false, true] {
                let script = conversation().into_iter();
                let model = ScriptedModel::start_strict(
                    script
                        .map(|reply| reply.with_chunking(Chunking::Bytes(7)))
                        .collect(),
                );
                let gate = start_gate(&model, "[\"add\"]", "").await;
                let mut body = request(client_dialect, &format!("{provider_dialect}/m"), stream);
                if client_dialect == "openai" && stream {
                    body["stream_options"] = json!({"include_usage": true});
                }
                let response = run_agent(&gate, path, &body).await;
                let what = format!(
                    "{client_dialect} to {provider_dialect}, stream {stream}: {response:?}"
                );
                let text = if stream {
                    "First.\n\nAll done."
                } else {
                    "All done."
                };
                assert_eq!(response.text, text, "{what}");
                assert_eq!(
                    (response.calls.len(), response.input_tokens),
                    (0, 60),
                    "{what}"
                );
                let note = &response.note;
                assert_eq!(note["stop_reason"], "done", "{what}");
                assert_eq!(note["iterations"], 2, "{what}");
                assert_eq!(note["turns"], json!(["First.", "", "All done."]), "{what}");
                let results: Vec<&str> = note["executed"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|call| call["result"].as_str().unwrap())
                    .collect();
                assert_eq!(results, ["2", "11", "101"], "{what}");
                assert_eq!(note["pending"], json!([]), "{what}");
                assert_eq!(model.turns().len(), 3, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn results_are_returned_in_call_order() {
    let slow = ("c1".to_owned(), "zoo_sleep", json!({"ms": 300}));
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([slow, add_call("c2", 1)]),
        Reply::text("ok"),
    ]);
    let gate = start_gate(&model, "[\"*\"]", "").await;
    run_agent(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    let messages = model.turns()[1].body["messages"].clone();
    let ids: Vec<&str> = messages.as_array().unwrap()[2..]
        .iter()
        .map(|m| m["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["c1", "c2"]);
    assert_eq!(
        messages[1]["tool_calls"][0]["function"]["name"],
        "zoo_sleep"
    );
    for record in wait_for_records(&gate, 2).await {
        assert_eq!(record["origin"], "agent");
        assert!(
            record["request_id"].as_str().unwrap().ends_with("-iter-1"),
            "{record}"
        );
        assert!(record["run_id"].as_str().unwrap().starts_with("run_"));
    }
}

#[tokio::test]
async fn calls_needing_approval_are_returned_with_executed_results() {
    let echo = ("c9".to_owned(), "zoo_echo", json!({"x": 1}));
    for (client_dialect, path) in PATHS {
        for stream in [false, true] {
            let model = ScriptedModel::start_strict(vec![
                Reply::calls([add_call("c1", 1), echo.clone(), add_call("c2", 4)])
                    .with_text("Now."),
            ]);
            let gate = start_gate(&model, "[\"add\"]", "").await;
            let response = run_agent(
                &gate,
                path,
                &request(client_dialect, &format!("{client_dialect}/m"), stream),
            )
            .await;
            let what = format!("{client_dialect}, stream {stream}: {response:?}");
            assert_eq!(response.calls, ["zoo_echo"], "{what}");
            assert_eq!(response.note["stop_reason"], "needs_approval", "{what}");
            assert_eq!(response.note["pending"][0]["id"], "c9", "{what}");
            assert_eq!(
                response.note["executed"].as_array().unwrap().len(),
                2,
                "{what}"
            );
            if !stream {
                let expected = "Now.\n\nThe Output from allowed tools calls is - {\"zoo_add\":\"2\",\"zoo_add#2\":\"5\"}\n\nNow I shall call these tools next...";
                assert_eq!(response.text, expected, "{what}");
            }
            if client_dialect == "openai" {
                assert_eq!(response.finish, "stop", "{what}");
            }
        }
    }
    // Nothing ran: the model's answer is unchanged.
    let model = ScriptedModel::start_strict(vec![Reply::calls([echo]).with_text("Hm.")]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    let response = run_agent(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(
        (response.text.as_str(), response.finish.as_str()),
        ("Hm.", "tool_calls")
    );
    assert_eq!(response.note["stop_reason"], "needs_approval");
}

#[tokio::test]
async fn caller_tools_are_returned_to_the_caller() {
    let mine = ("c2".to_owned(), "mine", json!({}));
    let model = ScriptedModel::start_strict(vec![Reply::calls([add_call("c1", 1), mine])]);
    let gate = start_gate(&model, "[\"*\"]", "").await;
    let mut body = request("openai", "openai/m", true);
    body["tools"] = json!([{"type": "function", "function": {"name": "mine", "parameters": {}}}]);
    let response = run_agent(&gate, PATHS[0].1, &body).await;
    assert_eq!(response.calls, ["mine"]);
    assert_eq!(response.note["stop_reason"], "own_tool");
    assert_eq!(response.note["executed"][0]["result"], "2");
}

#[tokio::test]
async fn ask_rule_creates_approval_linked_to_run() {
    let model = ScriptedModel::start_strict(vec![Reply::calls([add_call("c1", 1)])]);
    let rule = "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"ask\"\n[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"allow\"\n";
    let gate = start_gate(&model, "[\"echo\"]", rule).await;
    let response = run_agent(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    let approval = gate.json("/api/approvals").await["approvals"][0].clone();
    assert_eq!(response.note["pending"][0]["approval_id"], approval["id"]);
    assert_eq!(approval["run_id"], response.note["run_id"]);
    assert_eq!(response.finish, "tool_calls");
}

#[tokio::test]
async fn limits_end_run_with_stop_reason() {
    for (header, reason) in [
        (("x-toolgate-max-depth", "1"), "max_agent_depth"),
        (("x-toolgate-budget", "tool_calls=2"), "budget"),
        (("x-toolgate-budget", "tokens=20"), "budget"),
        (("x-toolgate-budget", "model_calls=1"), "budget"),
    ] {
        let model = ScriptedModel::start_strict(conversation());
        let gate = start_gate(&model, "[\"*\"]", "").await;
        let body = request("openai", "openai/m", false).to_string();
        let response = read_response(gate.post(PATHS[0].1, &body, headers(&[header])).await).await;
        assert_eq!(
            response.note["stop_reason"], reason,
            "{header:?}: {response:?}"
        );
        assert!(model.turns().len() <= 2);
    }
    let model = ScriptedModel::start_strict(conversation());
    let gate = start_gate(
        &model,
        "[\"*\"]",
        "[mcp.tool_manager_config]\nmax_agent_depth = 1\n",
    )
    .await;
    let response = run_agent(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(
        (response.calls.len(), response.note["iterations"].clone()),
        (1, json!(1))
    );
    let invalid = headers(&[("x-toolgate-budget", "speed=1")]);
    let body = request("openai", "openai/m", false).to_string();
    assert_eq!(gate.post(PATHS[0].1, &body, invalid).await.status(), 400);
}

#[tokio::test]
async fn repeated_failing_call_triggers_loop_guard() {
    let fail = || Reply::calls([("f".to_owned(), "zoo_fail", json!({}))]);
    let model = ScriptedModel::start(vec![fail()]);
    let gate = start_gate(&model, "[\"*\"]", "").await;
    let response = run_agent(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(response.note["stop_reason"], "loop_guard", "{response:?}");
    assert_eq!(wait_for_records(&gate, 2).await.len(), 2, "it ran twice");
    let sent = model.turns().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("was not run again"), "{sent}");
    let explanation = "the model repeated tool calls that keep failing with the same arguments.";
    assert!(response.text.ends_with(explanation), "{response:?}");
    assert_eq!(response.calls, ["zoo_fail"], "{response:?}");
}

#[tokio::test]
async fn depth_limit_is_explained_and_executed_results_are_kept() {
    for (dialect, path) in PATHS {
        for stream in [false, true] {
            let model = ScriptedModel::start_strict(conversation());
            let depth = "[mcp.tool_manager_config]\nmax_agent_depth = 1\n";
            let gate = start_gate(&model, "[\"*\"]", depth).await;
            let body = request(dialect, &format!("{dialect}/m"), stream);
            let response = run_agent(&gate, path, &body).await;
            let what = format!("{dialect}, stream {stream}: {response:?}");
            let note = &response.note;
            assert_eq!(note["stop_reason"], "max_agent_depth", "{what}");
            let explanation = note["explanation"].as_str().unwrap();
            assert!(explanation.contains("depth of 1"), "{what}");
            let results = "{\"zoo_add\":\"2\",\"zoo_add#2\":\"11\"}";
            assert!(response.text.contains(results), "{what}");
            assert!(response.text.ends_with(explanation), "{what}");
            assert_eq!(response.calls, ["zoo_add"], "{what}");
        }
    }
}

#[tokio::test]
async fn model_failure_reports_executed_calls() {
    for (client_dialect, path) in PATHS {
        let model = ScriptedModel::start_strict(vec![
            Reply::calls([add_call("c1", 1)]),
            Reply::error(503, "too busy"),
        ]);
        let gate = start_gate(&model, "[\"*\"]", "").await;
        let body = request(client_dialect, &format!("{client_dialect}/m"), false);
        let answer = gate.post(path, &body.to_string(), headers(&[])).await;
        assert_eq!(answer.status(), 424);
        assert_eq!(answer.headers()["x-should-retry"], "false");
        assert!(answer.headers().contains_key("x-toolgate-run-id"));
        let error: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("503") && message.contains("too busy"),
            "{message}"
        );
        assert_eq!(error["toolgate"]["executed"][0]["result"], "2");
    }
    let model = ScriptedModel::start_strict(vec![Reply::error(429, "slow down")]);
    let gate = start_gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", true).to_string();
    assert_eq!(
        gate.post(PATHS[0].1, &body, headers(&[])).await.status(),
        429
    );
}

#[tokio::test]
async fn stream_broken_in_later_turn_ends_with_error() {
    for (client_dialect, path) in PATHS {
        let model = ScriptedModel::start_strict(vec![
            Reply::calls([add_call("c1", 1)]),
            Reply::text("a b c d").disconnect_after(3),
        ]);
        let gate = start_gate(&model, "[\"*\"]", "").await;
        let body = request(client_dialect, &format!("{client_dialect}/m"), true);
        let text = gate
            .post(path, &body.to_string(), headers(&[]))
            .await
            .text()
            .await
            .unwrap();
        assert!(text.contains("was interrupted"), "{client_dialect}: {text}");
    }
}

#[tokio::test]
async fn forced_tool_choice_applies_to_first_turn_only() {
    for (client_dialect, path) in PATHS {
        let model = ScriptedModel::start_strict(conversation());
        let gate = start_gate(&model, "[\"*\"]", "").await;
        let mut body = request(client_dialect, &format!("{client_dialect}/m"), false);
        body["tool_choice"] = match client_dialect {
            "anthropic" => json!({"type": "any"}),
            _ => json!("required"),
        };
        run_agent(&gate, path, &body).await;
        let choices: Vec<Value> = model
            .turns()
            .iter()
            .map(|turn| turn.body["tool_choice"].clone())
            .collect();
        let auto = match client_dialect {
            "anthropic" => json!({"type": "auto"}),
            _ => json!("auto"),
        };
        assert_eq!(choices, [body["tool_choice"].clone(), auto.clone(), auto]);
    }
}

#[tokio::test]
async fn disconnecting_cancels_the_run() {
    let slow = ("c1".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = ScriptedModel::start_strict(vec![Reply::calls([slow]).with_text("Wait.")]);
    let gate = start_gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", true).to_string();
    let mut answer = gate
        .post(PATHS[0].1, &body, headers(&[("x-toolgate-events", "on")]))
        .await;
    let mut text = String::new();
    while !text.contains("toolgate.tool_call.started") {
        text += &String::from_utf8_lossy(&answer.chunk().await.unwrap().unwrap());
    }
    assert!(text.contains("Wait."), "{text}");
    gate.wait_for_in_flight_call().await;
    drop(answer);
    eventually("the call is cancelled", WAIT_TIMEOUT, async || {
        let audit = gate.json("/api/audit").await;
        (audit["records"][0]["outcome"] == "cancelled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn multiple_choices_disable_agent_mode() {
    let model = ScriptedModel::start_strict(vec![Reply::calls([add_call("c1", 1)])]);
    let gate = start_gate(&model, "[\"*\"]", "").await;
    let mut body = request("openai", "openai/m", false);
    body["n"] = json!(2);
    let response = run_agent(&gate, PATHS[0].1, &body).await;
    assert_eq!((response.calls.len(), response.note), (1, Value::Null));
}

pub(crate) async fn fetch_run(gate: &TestGate, id: &Value) -> Value {
    gate.json(&format!("/api/runs/{}", id.as_str().unwrap()))
        .await
}

pub(crate) async fn resume_run(
    gate: &TestGate,
    id: &Value,
    body: Value,
    key: &[(&str, &str)],
) -> Response {
    let path = format!("/api/runs/{}/resume", id.as_str().unwrap());
    gate.post(&path, &body.to_string(), headers(key)).await
}

#[tokio::test]
async fn run_resumes_when_pending_calls_are_decided() {
    let echo = |id: &str| (id.to_owned(), "zoo_echo", json!({"said": id}));
    for (client_dialect, path) in PATHS {
        for stream in [false, true] {
            let first = Reply::calls([add_call("c1", 1), echo("c2"), echo("c3")])
                .with_text("Now.")
                .with_usage(10, 1);
            let model =
                ScriptedModel::start_strict(vec![first, Reply::text("Finally.").with_usage(20, 2)]);
            let mut gate = start_gate(&model, "[\"add\"]", "").await;
            let response = run_agent(
                &gate,
                path,
                &request(client_dialect, &format!("{client_dialect}/m"), stream),
            )
            .await;
            let id = response.note["run_id"].clone();
            let run = fetch_run(&gate, &id).await;
            assert_eq!(
                (&run["state"], &run["stop_reason"]),
                (&json!("waiting"), &json!("needs_approval"))
            );
            let incomplete = json!({"decisions": [{"id": "c2", "decision": "approve"}]});
            let refused = resume_run(&gate, &id, incomplete, &[]).await;
            assert_eq!(refused.status(), 400);
            assert!(refused.text().await.unwrap().contains("c3"));
            // The run is on disk: another gateway resumes it.
            gate.restart().await;
            gate.wait_for_state("zoo", "healthy").await;
            let decided = json!({"decisions": [
                {"id": "c2", "decision": "approve", "arguments": {"said": "edited"}},
                {"id": "c3", "decision": "deny", "reason": "not today"}]});
            let answer =
                self::read_response(resume_run(&gate, &id, decided.clone(), &[]).await).await;
            let what = format!("{client_dialect}, stream {stream}: {answer:?}");
            assert!(answer.text.ends_with("Finally."), "{what}");
            assert_eq!(answer.note["stop_reason"], "done", "{what}");
            assert_eq!(
                answer.note["executed"].as_array().unwrap().len(),
                3,
                "{what}"
            );
            let sent = model.turns()[1].body.to_string();
            let places = ["edited", "not today"].map(|text| sent.find(text).unwrap());
            assert!(
                places.is_sorted() && sent.find("c1").unwrap() < places[0],
                "{sent}"
            );
            assert_eq!(resume_run(&gate, &id, decided, &[]).await.status(), 409);
            let run = fetch_run(&gate, &id).await;
            assert_eq!(
                (&run["state"], &run["input_tokens"]),
                (&json!("done"), &json!(30)),
                "{what}"
            );
            let kinds: Vec<&str> = run["timeline"]
                .as_array()
                .unwrap()
                .iter()
                .map(|step| step["step"]["kind"].as_str().unwrap())
                .collect();
            assert_eq!(
                kinds.iter().filter(|kind| **kind == "turn").count(),
                2,
                "{kinds:?}"
            );
            assert_eq!(kinds.last(), Some(&"ended"));
        }
    }
}

#[tokio::test]
async fn runs_belong_to_caller_and_approvals_to_approver() {
    let model = ScriptedModel::start(vec![Reply::from_request(|body| {
        if body["messages"].to_string().contains("tool_call_id") {
            Reply::text("done")
        } else {
            Reply::calls([add_call("c1", 1)])
        }
    })]);
    let keys = ["a", "b"]
        .map(|name| format!("[keys.{name}]\nkey = {:?}\n", name.repeat(43)))
        .concat();
    let rule = "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"ask\"\n";
    let gate = start_gate(&model, "[\"*\"]", &(keys + rule)).await;
    let (a, b) = ("a".repeat(43), "b".repeat(43));
    let body = request("openai", "openai/m", false).to_string();
    let response = read_response(
        gate.post(PATHS[0].1, &body, headers(&[("x-api-key", &a)]))
            .await,
    )
    .await;
    let id = response.note["run_id"].clone();
    let get = |key: &str| {
        gate.client
            .get(format!("{}/api/runs/{}", gate.url, id.as_str().unwrap()))
            .header("x-api-key", key)
            .send()
    };
    assert_eq!(get(&a).await.unwrap().status(), 200);
    assert_eq!(get(&b).await.unwrap().status(), 404);
    let decided = json!({"decisions": [{"id": "c1", "decision": "approve"}]});
    assert_eq!(
        resume_run(&gate, &id, decided.clone(), &[("x-api-key", &b)])
            .await
            .status(),
        404
    );
    // The caller cannot approve its own call.
    assert_eq!(
        resume_run(&gate, &id, decided.clone(), &[("x-api-key", &a)])
            .await
            .status(),
        409
    );
    let answer = self::read_response(resume_run(&gate, &id, decided, &[]).await).await;
    assert_eq!(
        (answer.text.as_str(), &answer.note["executed"][0]["result"]),
        ("done", &json!("2"))
    );
    let approvals = gate.json("/api/approvals?state=done").await;
    assert_eq!(approvals["approvals"][0]["decided_by"], "admin");
}

#[tokio::test]
async fn killed_run_resumes_without_repeating_calls() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let slow = ("c2".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([add_call("c1", 1), slow]),
        Reply::text("After all."),
    ]);
    let toml = zoo("zoo", &["--count", count.to_str().unwrap()])
        + "tools_to_auto_execute = [\"*\"]\n"
        + &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let mut gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let body = request("openai", "p/m", false).to_string();
    let answering = gate
        .client
        .post(format!("{}{}", gate.url, PATHS[0].1))
        .body(body)
        .send();
    let killing = async {
        eventually("the first call has completed", WAIT_TIMEOUT, async || {
            let runs = gate.json("/api/runs?state=running").await;
            let run = fetch_run(&gate, &runs["runs"].get(0)?["id"].clone()).await;
            let steps = run["timeline"].as_array().unwrap().clone();
            let opened = steps
                .iter()
                .filter(|step| step["step"]["kind"] == "call_opened")
                .count();
            let closed = steps
                .iter()
                .any(|step| step["step"]["kind"] == "call_closed");
            (opened == 2 && closed).then_some(())
        })
        .await;
        gate.signal("-KILL");
    };
    let (answer, ()) = tokio::join!(answering, killing);
    assert!(answer.is_err());
    gate.wait_for_exit().await;
    gate.relaunch();
    gate.wait_for_state("zoo", "healthy").await;
    let run = gate.json("/api/runs?state=interrupted").await["runs"][0].clone();
    let answer = read_response(resume_run(&gate, &run["id"], json!({}), &[]).await).await;
    assert_eq!(answer.text, "After all.");
    let sent = model.turns()[1].body["messages"].clone();
    assert_eq!(sent[2]["content"], "2");
    assert!(
        sent[3]["content"]
            .as_str()
            .unwrap()
            .contains("may have run"),
        "{sent}"
    );
    let calls = std::fs::read_to_string(&count).unwrap();
    for tool in ["add", "sleep"] {
        let line = format!("tools/call {tool}");
        assert_eq!(
            calls.lines().filter(|logged| **logged == line).count(),
            1,
            "{calls}"
        );
    }
}

#[tokio::test]
async fn calls_within_budget_are_reported_and_not_pending() {
    for stream in [false, true] {
        let model = ScriptedModel::start_strict(conversation());
        let gate = start_gate(&model, "[\"*\"]", "").await;
        let body = request("openai", "openai/m", stream).to_string();
        // The first turn has two calls, of which one is within the budget.
        let budget = headers(&[("x-toolgate-budget", "tool_calls=1")]);
        let response = read_response(gate.post(PATHS[0].1, &body, budget).await).await;
        assert_eq!(response.calls, ["zoo_add"], "{response:?}");
        assert_eq!(response.note["pending"][0]["id"], "c2", "{response:?}");
        assert_eq!(
            response.note["executed"].as_array().unwrap().len(),
            1,
            "{response:?}"
        );
        assert_eq!(response.finish, "stop", "{response:?}");
    }
    let model = ScriptedModel::start_strict(conversation());
    let gate = start_gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", false).to_string();
    let budget = headers(&[("x-toolgate-budget", "tool_calls=2")]);
    let response = read_response(gate.post(PATHS[0].1, &body, budget).await).await;
    assert_eq!(
        (response.calls.len(), response.finish.as_str()),
        (0, "stop"),
        "{response:?}"
    );
    assert!(
        response
            .text
            .ends_with("its limit on tool_calls is reached."),
        "{response:?}"
    );
    let empty = headers(&[("x-toolgate-budget", "tokens=0")]);
    assert_eq!(gate.post(PATHS[0].1, &body, empty).await.status(), 429);
}

#[tokio::test]
async fn run_time_limit_stops_run() {
    let slow = ("c2".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = ScriptedModel::start_strict(vec![Reply::calls([add_call("c1", 1), slow])]);
    let gate = start_gate(&model, "[\"*\"]", "[agent]\nmax_time = \"2s\"\n").await;
    let response = run_agent(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(
        (&response.note["stop_reason"], &response.note["budget"]),
        (&json!("budget"), &json!("time"))
    );
    assert_eq!(response.note["executed"][0]["result"], "2");
    assert!(
        response.note["executed"][1]["result"]
            .as_str()
            .unwrap()
            .contains("may have run"),
        "{response:?}"
    );
}

/// The main server's tools are auto-executed, those of its fallback are not.
#[tokio::test]
async fn fallback_server_does_not_inherit_auto_execution() {
    let model = ScriptedModel::start_strict(vec![Reply::calls([(
        "c1",
        "main_add",
        json!({"a": 1, "b": 1}),
    )])]);
    let toml = "[mcp_servers.main]\ncommand = \"/nonexistent\"\nfallback = \"spare\"\ntools_to_auto_execute = [\"*\"]\n".to_owned()
        + &zoo("spare", &[])
        + &zoo("other", &[])
        + "tools_to_auto_execute = [\"*\"]\n"
        + &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let gate = TestGate::start(&toml);
    gate.wait_for_state("spare", "healthy").await;
    gate.wait_for_state("other", "healthy").await;
    let response = run_agent(&gate, PATHS[0].1, &request("openai", "p/m", false)).await;
    assert_eq!(
        response.note["stop_reason"], "needs_approval",
        "{response:?}"
    );
    assert_eq!(response.note["executed"], json!([]));
}

#[tokio::test]
async fn failed_stream_reports_executed_calls() {
    for (client_dialect, path) in PATHS {
        let model = ScriptedModel::start_strict(vec![
            Reply::calls([add_call("c1", 1)]),
            Reply::error(500, "broken"),
        ]);
        let gate = start_gate(&model, "[\"*\"]", "").await;
        let body = request(client_dialect, &format!("{client_dialect}/m"), true);
        let text = gate
            .post(path, &body.to_string(), headers(&[]))
            .await
            .text()
            .await
            .unwrap();
        assert!(
            text.contains("\"executed\":[{\"id\":\"c1\""),
            "{client_dialect}: {text}"
        );
    }
}

/// Chat has custom tool calls, which only callers understand.
#[tokio::test]
async fn chat_with_custom_tools_passes_through() {
    let model = ScriptedModel::start_strict(vec![Reply::calls([add_call("c1", 1)])]);
    let gate = start_gate(&model, "[\"*\"]", "").await;
    let mut body = request("openai", "openai/m", false);
    body["tools"] = json!([{"type": "custom", "custom": {"name": "free"}}]);
    let response = run_agent(&gate, PATHS[0].1, &body).await;
    assert_eq!((response.calls.len(), response.note), (1, Value::Null));
}

/// The gateway's response id maps to the provider's stored response, even after a restart.
#[tokio::test]
async fn streamed_run_can_be_continued_by_response_id() {
    for provider_dialect in ["responses", "openai"] {
        let model = ScriptedModel::start_strict(vec![
            Reply::calls([add_call("c1", 1)]),
            Reply::text("two"),
            Reply::text("three"),
        ]);
        let mut gate = start_gate(&model, "[\"*\"]", "").await;
        let stream = gate
            .post(
                PATHS[1].1,
                &request("responses", &format!("{provider_dialect}/m"), true).to_string(),
                headers(&[]),
            )
            .await;
        let stream = stream.text().await.unwrap();
        let last = stream
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .next_back()
            .unwrap()
            .to_owned();
        let last: Value = serde_json::from_str(&last).unwrap();
        let mut body = request("responses", &format!("{provider_dialect}/m"), false);
        body["previous_response_id"] = last["response"]["id"].clone();
        if provider_dialect == "responses" {
            gate.restart().await;
            gate.wait_for_state("zoo", "healthy").await;
        }
        let response = run_agent(&gate, PATHS[1].1, &body).await;
        assert_eq!(response.text, "three", "{provider_dialect}");
        let sent = &model.turns()[2].body;
        match provider_dialect {
            "responses" => assert_ne!(sent["previous_response_id"], body["previous_response_id"]),
            _ => assert_eq!(sent["messages"][1]["content"], "two", "{sent}"),
        }
    }
}

/// Runs `toolgate chat` against a gateway with this standard input.
async fn run_chat(gate: &TestGate, args: &[&str], input: &str) -> (bool, String, String) {
    use tokio::io::AsyncWriteExt as _;
    let mut command = tokio::process::Command::from(crate::gate::toolgate(gate.folder.path()));
    let mut child = command
        .args([&["chat", "--url", &gate.url], args].concat())
        .env("TOOLGATE_MODEL", "openai/m")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = tokio::time::timeout(WAIT_TIMEOUT, child.wait_with_output());
    let output = output.await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test]
async fn chat_command_runs_tools_and_keeps_conversation() {
    let echo = ("c2".to_owned(), "zoo_echo", json!({"x": 1}));
    let model = ScriptedModel::start(vec![
        Reply::calls([add_call("c1", 1)]).with_text("Adding."),
        Reply::text("It is 2."),
        Reply::calls([echo]),
        Reply::text("Once."),
    ]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    let (success, out, error) = run_chat(&gate, &[], "add please\nand echo\n").await;
    assert!(success, "{error}");
    for expected in [
        "Adding.",
        "[zoo_add {\"a\":1,\"b\":1}]",
        "It is 2.",
        "zoo_echo {\"x\":1} was not run",
        "waits for a decision",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    let sent = model.turns()[2].body["messages"].to_string();
    assert!(
        sent.contains("It is 2."),
        "the conversation continues: {sent}"
    );
    let (success, out, _) = run_chat(&gate, &["-p", "once", "--json"], "").await;
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert!(success);
    assert_eq!(answer["choices"][0]["message"]["content"], "Once.");
    let (success, _, error) = run_chat(&gate, &["--model", "nowhere/m", "-p", "x"], "").await;
    assert!(
        !success && error.contains("unknown model `nowhere/m`"),
        "{error}"
    );
}

/// Without a user, a call is left pending, and nothing is denied; with --yes or --deny, it is decided.
#[tokio::test]
async fn chat_command_without_a_user_leaves_calls_pending() {
    let echo = || ("c1".to_owned(), "zoo_echo", json!({"x": 1}));
    let model = ScriptedModel::start(vec![
        Reply::calls([echo()]),
        Reply::calls([echo()]),
        Reply::text("Echoed."),
        Reply::calls([echo()]),
        Reply::text("Not echoed."),
    ]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    let (success, out, _) = run_chat(&gate, &["-p", "echo"], "").await;
    assert!(!success && out.contains("was not run"), "{out}");
    let denied = gate.json("/api/audit?outcome=denied").await;
    assert_eq!(denied["records"], json!([]), "{denied}");
    let waiting = gate.json("/api/runs?state=waiting").await;
    assert_eq!(waiting["runs"].as_array().unwrap().len(), 1, "{waiting}");
    let (success, out, error) = run_chat(&gate, &["-p", "echo", "--yes"], "").await;
    assert!(success && out.contains("Echoed."), "{out}{error}");
    let (success, out, error) = run_chat(&gate, &["-p", "echo", "--deny"], "").await;
    assert!(success && out.contains("Not echoed."), "{out}{error}");
    let sent = model.turns()[4].body["messages"].to_string();
    assert!(sent.contains("the user denied the call"), "{sent}");
}

/// A model that repeats a failing call, or never stops to call tools, ends the command.
#[tokio::test]
async fn chat_command_ends_with_the_run() {
    let failing = ("c1".to_owned(), "zoo_add", json!({"a": "x"}));
    let model = ScriptedModel::start(vec![Reply::calls([failing])]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    for decider in [&[][..], &["--yes"], &["--deny"]] {
        let before = model.turns().len();
        let args = [&["-p", "add"][..], decider].concat();
        let (success, out, _) = run_chat(&gate, &args, "").await;
        assert!(
            !success && out.contains("keeps failing"),
            "{decider:?}: {out}"
        );
        let requests = model.turns().len() - before;
        assert!(requests <= 12, "{decider:?}: {requests} requests");
    }
    let echo = ("c1".to_owned(), "zoo_echo", json!({"x": 1}));
    let model = ScriptedModel::start(vec![Reply::calls([echo])]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    let (success, out, _) = run_chat(&gate, &["-p", "x", "--yes"], "").await;
    assert!(!success && out.contains("max_agent_depth"), "{out}");
    let turns = model.turns().len();
    let args = ["-p", "x", "--yes", "--max-turns", "3"];
    let (success, out, _) = run_chat(&gate, &args, "").await;
    assert!(!success && out.contains("--max-turns"), "{out}");
    assert_eq!(model.turns().len() - turns, 3);
}

/// `tools_to_execute` and `tools_to_auto_execute` in a JSON file, changed by the API, with rules.
#[tokio::test]
async fn tool_lists_select_auto_executed_tools() {
    let calls = || {
        Reply::calls([
            add_call("c1", 1),
            ("c2".to_owned(), "zoo_sleep", json!({"ms": 1})),
            ("c3".to_owned(), "zoo_echo", json!({"x": 1})),
        ])
    };
    let model = ScriptedModel::start(vec![Reply::from_request(move |body| {
        if body["messages"].to_string().contains("tool_call_id") {
            Reply::text("done")
        } else {
            calls()
        }
    })]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let config = json!({
        "mcp": {"client_configs": [{
            "name": "zoo",
            "connection_type": "stdio",
            "stdio_config": {"command": toolgate_testkit::zoo_path(), "args": ["stdio"]},
            "tools_to_execute": ["add", "echo"],
            // Tools that are not in the first list have no effect.
            "tools_to_auto_execute": ["add", "sleep"],
        }]},
        "providers": {"p": {"base_url": format!("{}/v1", model.url())}},
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let gate = TestGate::start_with("", &["--config", file.to_str().unwrap()], &[]);
    gate.wait_for_state("zoo", "healthy").await;
    let body = request("openai", "p/m", false);
    let response = run_agent(&gate, PATHS[0].1, &body).await;
    let offered = model.turns()[0].body["tools"].to_string();
    assert!(offered.contains("zoo_echo") && !offered.contains("zoo_sleep"));
    assert_eq!(response.calls, ["zoo_echo"], "{response:?}");
    let executed = &response.note["executed"];
    assert_eq!(executed[0]["result"], "2", "{response:?}");
    assert_eq!(
        executed[1]["is_error"], true,
        "the tool does not exist: {response:?}"
    );

    let put = |path: &str, change: Value| {
        let request = gate.client.put(format!("{}{path}", gate.url));
        request.body(change.to_string()).send()
    };
    let all = json!({"tools_to_execute": ["*"], "tools_to_auto_execute": ["*"]});
    let changed = put("/api/mcp/client/zoo", all).await.unwrap();
    assert_eq!(changed.status(), 200);
    let response = run_agent(&gate, PATHS[0].1, &body).await;
    assert_eq!(
        (response.text.as_str(), response.calls.len()),
        ("done", 0),
        "{response:?}"
    );
    assert_eq!(
        response.note["executed"][1]["result"], "slept 1 ms",
        "{response:?}"
    );

    let rule = json!({"rules": [{"tool": "zoo_echo", "action": "ask"}]});
    let changed = put("/api/permissions", rule).await.unwrap();
    assert_eq!(changed.status(), 200, "{}", changed.text().await.unwrap());
    let response = run_agent(&gate, PATHS[0].1, &body).await;
    assert_eq!(response.calls, ["zoo_echo"], "{response:?}");

    let none = json!({"tools_to_auto_execute": []});
    put("/api/mcp/client/zoo", none).await.unwrap();
    let response = run_agent(&gate, PATHS[0].1, &body).await;
    assert_eq!(
        (response.calls.len(), response.note),
        (3, Value::Null),
        "no run"
    );
}

#[tokio::test]
async fn lowest_configured_depth_and_budget_apply() {
    let model = ScriptedModel::start(vec![Reply::from_request(|body| {
        let turns = body["messages"].to_string().matches("tool_call_id").count();
        Reply::calls([add_call(&format!("c{turns}"), 1)]).with_usage(1000, 1000)
    })]);
    let key = "k".repeat(43);
    let extra = format!(
        "[agent]\nmax_tool_calls = 3\n[keys.a]\nkey = {key:?}\nagent = {{ max_tool_calls = 2 }}\n[keys.b]\nkey = {:?}\nagent = {{ max_tool_calls = 9, max_usd = 0.1 }}\n[prices]\n\"openai/*\" = {{ input = 1.0, output = 3.0 }}\n",
        "b".repeat(43)
    );
    let gate = start_gate(&model, "[\"*\"]", &extra).await;
    let body = request("openai", "openai/m", false).to_string();
    let other = "b".repeat(43);
    for (key, budget, ran, what) in [
        (&key, "", 2, "tool_calls"),
        (&key, "tool_calls=1", 1, "tool_calls"),
        (&key, "tool_calls=9", 2, "tool_calls"),
        (&other, "", 3, "tool_calls"),
        (&other, "usd=0.008", 1, "usd"),
        (&other, "tokens=2000", 0, "tokens"),
    ] {
        let mut request_headers = vec![("x-api-key", key.as_str())];
        if !budget.is_empty() {
            request_headers.push(("x-toolgate-budget", budget));
        }
        let response = read_response(
            gate.post(PATHS[0].1, &body, headers(&request_headers))
                .await,
        )
        .await;
        let executed = response.note["executed"].as_array().unwrap().len();
        // The answer that reaches a limit is the last; its own calls are not run.
        assert_eq!(
            response.note["stop_reason"], "budget",
            "{budget}: {response:?}"
        );
        assert_eq!(response.note["budget"], what, "{budget}: {response:?}");
        assert_eq!(executed, ran, "{budget}: {response:?}");
    }
    let admin = gate
        .client
        .put(format!("{}/api/settings/mcp/tool-manager-config", gate.url));
    let changed = admin.body(json!({"max_agent_depth": 1}).to_string());
    assert_eq!(changed.send().await.unwrap().status(), 200);
    let deep = [("x-api-key", key.as_str()), ("x-toolgate-max-depth", "40")];
    let response = read_response(gate.post(PATHS[0].1, &body, headers(&deep)).await).await;
    assert_eq!(
        response.note["stop_reason"], "max_agent_depth",
        "{response:?}"
    );
    assert_eq!(response.note["executed"].as_array().unwrap().len(), 1);
}

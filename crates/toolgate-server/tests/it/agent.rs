//! Agent mode over HTTP: tools that run unasked are run, all else is left to whoever must decide.

use reqwest::Response;
use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Chunking, Model, Reply};

use crate::gate::{SOON, TestGate, zoo};
use crate::mcp::headers;

pub(crate) const PATHS: [(&str, &str); 3] = [
    ("openai", "/v1/chat/completions"),
    ("responses", "/v1/responses"),
    ("anthropic", "/v1/messages"),
];

/// A gateway whose zoo may run some tools unasked, in front of models of every dialect.
pub(crate) async fn gate(model: &Model, unasked: &str, extra: &str) -> TestGate {
    let mut toml = zoo("zoo", &[]);
    toml += &format!("tools_to_auto_execute = {unasked}\n");
    for (dialect, _) in PATHS {
        toml += &format!(
            "[providers.{dialect}]\nbase_url = \"{}/v1\"\napi_key = \"k\"\ndialect = {dialect:?}\nmax_retries = 0\n",
            model.url()
        );
    }
    let gate = TestGate::start(&(toml + extra));
    gate.reaches("zoo", "healthy").await;
    gate
}

pub(crate) fn request(dialect: &str, model: &str, stream: bool) -> Value {
    let said = json!([{"role": "user", "content": "hello"}]);
    match dialect {
        "responses" => json!({"model": model, "input": said, "stream": stream}),
        "anthropic" => {
            json!({"model": model, "max_tokens": 50, "messages": said, "stream": stream})
        }
        _ => json!({"model": model, "messages": said, "stream": stream}),
    }
}

/// What a caller sees of an answer, whichever dialect and form it has.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) text: String,
    /// Names of the calls that were left.
    pub(crate) calls: Vec<String>,
    pub(crate) finish: String,
    pub(crate) note: Value,
    pub(crate) input_tokens: u64,
}

pub(crate) async fn seen(response: Response) -> Seen {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    match serde_json::from_str::<Value>(&text) {
        Ok(answer) => whole(&answer),
        Err(_) => streamed(&text),
    }
}

fn whole(answer: &Value) -> Seen {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let message = &answer["choices"][0]["message"];
    let mut seen = Seen {
        text: message["content"].as_str().unwrap_or_default().to_owned(),
        calls: Vec::new(),
        finish: String::new(),
        note: answer["toolgate"].clone(),
        input_tokens: 0,
    };
    for call in list(&message["tool_calls"]) {
        seen.calls
            .push(call["function"]["name"].as_str().unwrap().to_owned());
    }
    for item in list(&answer["output"])
        .iter()
        .chain(&list(&answer["content"]))
    {
        for part in list(&item["content"]) {
            seen.text += part["text"].as_str().unwrap_or_default();
        }
        seen.text += item["text"].as_str().unwrap_or_default();
        if item["type"] == "function_call" || item["type"] == "tool_use" {
            seen.calls.push(item["name"].as_str().unwrap().to_owned());
        }
    }
    let finish = [
        &answer["choices"][0]["finish_reason"],
        &answer["stop_reason"],
        &answer["status"],
    ];
    seen.finish = finish
        .iter()
        .find_map(|word| word.as_str())
        .unwrap_or_default()
        .to_owned();
    let usage = &answer["usage"];
    let input = usage["prompt_tokens"]
        .as_u64()
        .or(usage["input_tokens"].as_u64());
    seen.input_tokens = input.unwrap_or_default();
    seen
}

fn streamed(stream: &str) -> Seen {
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let mut seen = Seen {
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
        seen.text += text.unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            seen.calls
                .extend(call["function"]["name"].as_str().map(str::to_owned));
        }
        let block = &event["content_block"];
        if block["type"] == "tool_use" {
            seen.calls.push(block["name"].as_str().unwrap().to_owned());
        }
        if kind == "response.completed" {
            let whole = whole(&event["response"]);
            (seen.calls, seen.note, seen.finish) = (whole.calls, whole.note, whole.finish);
            seen.input_tokens = whole.input_tokens;
        }
        if event["toolgate"].is_object() {
            seen.note = event["toolgate"].clone();
        }
        let finish = event["choices"][0]["finish_reason"].as_str();
        let finish = finish.or(event["delta"]["stop_reason"].as_str());
        if let Some(finish) = finish {
            finish.clone_into(&mut seen.finish);
        }
        let usage = &event["usage"];
        let input = usage["prompt_tokens"]
            .as_u64()
            .or(usage["input_tokens"].as_u64());
        seen.input_tokens = input.unwrap_or(seen.input_tokens);
    }
    seen
}

pub(crate) async fn ask(gate: &TestGate, path: &str, body: &Value) -> Seen {
    seen(gate.post(path, &body.to_string(), headers(&[])).await).await
}

/// The records of the audit trail, once there are so many.
pub(crate) async fn records(gate: &TestGate, count: usize) -> Vec<Value> {
    eventually("the calls are on record", SOON, async || {
        let audit = gate.json("/api/audit").await;
        let records = audit["records"].as_array().unwrap().clone();
        (records.len() >= count).then_some(records)
    })
    .await
}

pub(crate) fn add(id: &str, a: i64) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_add", json!({"a": a, "b": 1}))
}

/// Three turns: two calls at once, one more, and the answer.
fn conversation() -> Vec<Reply> {
    vec![
        Reply::calls([add("c1", 1), add("c2", 10)])
            .with_text("First.")
            .usage(10, 1),
        Reply::calls([add("c3", 100)]).usage(20, 2),
        Reply::text("All done.").usage(30, 3),
    ]
}

#[tokio::test]
async fn tools_run_until_the_model_has_its_answer() {
    for (wanted, path) in PATHS {
        for (spoken, _) in PATHS {
            for stream in [false, true] {
                let script = conversation().into_iter();
                let model = Model::strict(
                    script
                        .map(|reply| reply.chunked(Chunking::Bytes(7)))
                        .collect(),
                );
                let gate = gate(&model, "[\"add\"]", "").await;
                let mut body = request(wanted, &format!("{spoken}/m"), stream);
                if wanted == "openai" && stream {
                    body["stream_options"] = json!({"include_usage": true});
                }
                let seen = ask(&gate, path, &body).await;
                let what = format!("{wanted} to {spoken}, stream {stream}: {seen:?}");
                let text = match stream {
                    true => "First.\n\nAll done.",
                    false => "All done.",
                };
                assert_eq!(seen.text, text, "{what}");
                assert_eq!((seen.calls.len(), seen.input_tokens), (0, 60), "{what}");
                let note = &seen.note;
                assert_eq!(note["stop_reason"], "done", "{what}");
                assert_eq!(note["iterations"], 3, "{what}");
                assert_eq!(note["turns"], json!(["First.", "", "All done."]), "{what}");
                let results: Vec<&str> = note["executed"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| one["result"].as_str().unwrap())
                    .collect();
                assert_eq!(results, ["2", "11", "101"], "{what}");
                assert_eq!(note["pending"], json!([]), "{what}");
                assert_eq!(model.turns().len(), 3, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn results_go_back_in_the_order_of_the_calls() {
    let slow = ("c1".to_owned(), "zoo_sleep", json!({"ms": 300}));
    let model = Model::strict(vec![Reply::calls([slow, add("c2", 1)]), Reply::text("ok")]);
    let gate = gate(&model, "[\"*\"]", "").await;
    ask(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
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
    for record in records(&gate, 2).await {
        assert_eq!(record["origin"], "agent");
        assert!(
            record["request_id"].as_str().unwrap().ends_with("-iter-1"),
            "{record}"
        );
        assert!(record["run_id"].as_str().unwrap().starts_with("run_"));
    }
}

#[tokio::test]
async fn what_must_be_decided_comes_back_in_the_mixed_form() {
    let echo = ("c9".to_owned(), "zoo_echo", json!({"x": 1}));
    for (wanted, path) in PATHS {
        for stream in [false, true] {
            let model = Model::strict(vec![
                Reply::calls([add("c1", 1), echo.clone(), add("c2", 4)]).with_text("Now."),
            ]);
            let gate = gate(&model, "[\"add\"]", "").await;
            let seen = ask(
                &gate,
                path,
                &request(wanted, &format!("{wanted}/m"), stream),
            )
            .await;
            let what = format!("{wanted}, stream {stream}: {seen:?}");
            assert_eq!(seen.calls, ["zoo_echo"], "{what}");
            assert_eq!(seen.note["stop_reason"], "needs_approval", "{what}");
            assert_eq!(seen.note["pending"][0]["id"], "c9", "{what}");
            assert_eq!(seen.note["executed"].as_array().unwrap().len(), 2, "{what}");
            if !stream {
                let told = "Now.\n\nThe Output from allowed tools calls is - {\"zoo_add\":\"2\",\"zoo_add#2\":\"5\"}\n\nNow I shall call these tools next...";
                assert_eq!(seen.text, told, "{what}");
            }
            if wanted == "openai" {
                assert_eq!(seen.finish, "stop", "{what}");
            }
        }
    }
    // Nothing ran: the model's answer is as it was.
    let model = Model::strict(vec![Reply::calls([echo]).with_text("Hm.")]);
    let gate = gate(&model, "[\"add\"]", "").await;
    let seen = ask(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(
        (seen.text.as_str(), seen.finish.as_str()),
        ("Hm.", "tool_calls")
    );
    assert_eq!(seen.note["stop_reason"], "needs_approval");
}

#[tokio::test]
async fn the_callers_own_tools_are_the_callers() {
    let mine = ("c2".to_owned(), "mine", json!({}));
    let model = Model::strict(vec![Reply::calls([add("c1", 1), mine])]);
    let gate = gate(&model, "[\"*\"]", "").await;
    let mut body = request("openai", "openai/m", true);
    body["tools"] = json!([{"type": "function", "function": {"name": "mine", "parameters": {}}}]);
    let seen = ask(&gate, PATHS[0].1, &body).await;
    assert_eq!(seen.calls, ["mine"]);
    assert_eq!(seen.note["stop_reason"], "own_tool");
    assert_eq!(seen.note["executed"][0]["result"], "2");
}

#[tokio::test]
async fn an_ask_is_an_approval_that_is_linked_to_its_run() {
    let model = Model::strict(vec![Reply::calls([add("c1", 1)])]);
    let rule = "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"ask\"\n[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"allow\"\n";
    let gate = gate(&model, "[\"echo\"]", rule).await;
    let seen = ask(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    let approval = gate.json("/api/approvals").await["approvals"][0].clone();
    assert_eq!(seen.note["pending"][0]["approval_id"], approval["id"]);
    assert_eq!(approval["run_id"], seen.note["run_id"]);
    assert_eq!(seen.finish, "tool_calls");
}

#[tokio::test]
async fn bounds_end_a_run_and_say_so() {
    for (header, reason) in [
        (("x-toolgate-max-depth", "1"), "max_agent_depth"),
        (("x-toolgate-budget", "tool_calls=2"), "budget"),
        (("x-toolgate-budget", "tokens=20"), "budget"),
        (("x-toolgate-budget", "model_calls=1"), "budget"),
    ] {
        let model = Model::strict(conversation());
        let gate = gate(&model, "[\"*\"]", "").await;
        let body = request("openai", "openai/m", false).to_string();
        let seen = seen(gate.post(PATHS[0].1, &body, headers(&[header])).await).await;
        assert_eq!(seen.note["stop_reason"], reason, "{header:?}: {seen:?}");
        assert!(model.turns().len() <= 2);
    }
    let model = Model::strict(conversation());
    let gate = gate(
        &model,
        "[\"*\"]",
        "[mcp.tool_manager_config]\nmax_agent_depth = 1\n",
    )
    .await;
    let seen = ask(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(
        (seen.calls.len(), seen.note["iterations"].clone()),
        (1, json!(2))
    );
    let wrong = headers(&[("x-toolgate-budget", "speed=1")]);
    let body = request("openai", "openai/m", false).to_string();
    assert_eq!(gate.post(PATHS[0].1, &body, wrong).await.status(), 400);
}

#[tokio::test]
async fn the_same_failing_call_is_not_run_for_ever() {
    let fail = || Reply::calls([("f".to_owned(), "zoo_fail", json!({}))]);
    let model = Model::start(vec![fail()]);
    let gate = gate(&model, "[\"*\"]", "").await;
    let seen = ask(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(seen.note["stop_reason"], "loop_guard", "{seen:?}");
    assert_eq!(records(&gate, 2).await.len(), 2, "it ran twice");
    let told = model.turns().last().unwrap().body["messages"].to_string();
    assert!(told.contains("was not run again"), "{told}");
}

#[tokio::test]
async fn what_ran_is_not_lost_when_the_model_fails() {
    for (wanted, path) in PATHS {
        let model = Model::strict(vec![
            Reply::calls([add("c1", 1)]),
            Reply::error(503, "too busy"),
        ]);
        let gate = gate(&model, "[\"*\"]", "").await;
        let body = request(wanted, &format!("{wanted}/m"), false);
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
    let model = Model::strict(vec![Reply::error(429, "slow down")]);
    let gate = gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", true).to_string();
    assert_eq!(
        gate.post(PATHS[0].1, &body, headers(&[])).await.status(),
        429
    );
}

#[tokio::test]
async fn a_stream_that_breaks_in_a_later_turn_ends_with_an_error() {
    for (wanted, path) in PATHS {
        let model = Model::strict(vec![
            Reply::calls([add("c1", 1)]),
            Reply::text("a b c d").breaks_after(3),
        ]);
        let gate = gate(&model, "[\"*\"]", "").await;
        let body = request(wanted, &format!("{wanted}/m"), true);
        let text = gate
            .post(path, &body.to_string(), headers(&[]))
            .await
            .text()
            .await
            .unwrap();
        assert!(text.contains("broke off"), "{wanted}: {text}");
    }
}

#[tokio::test]
async fn a_forced_choice_holds_for_the_first_turn_only() {
    for (wanted, path) in PATHS {
        let model = Model::strict(conversation());
        let gate = gate(&model, "[\"*\"]", "").await;
        let mut body = request(wanted, &format!("{wanted}/m"), false);
        body["tool_choice"] = match wanted {
            "anthropic" => json!({"type": "any"}),
            _ => json!("required"),
        };
        ask(&gate, path, &body).await;
        let choices: Vec<Value> = model
            .turns()
            .iter()
            .map(|turn| turn.body["tool_choice"].clone())
            .collect();
        let free = match wanted {
            "anthropic" => json!({"type": "auto"}),
            _ => json!("auto"),
        };
        assert_eq!(choices, [body["tool_choice"].clone(), free.clone(), free]);
    }
}

#[tokio::test]
async fn whoever_leaves_stops_the_run() {
    let slow = ("c1".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = Model::strict(vec![Reply::calls([slow]).with_text("Wait.")]);
    let gate = gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", true).to_string();
    let mut answer = gate
        .post(PATHS[0].1, &body, headers(&[("x-toolgate-events", "on")]))
        .await;
    let mut text = String::new();
    while !text.contains("toolgate.tool_call.started") {
        text += &String::from_utf8_lossy(&answer.chunk().await.unwrap().unwrap());
    }
    assert!(text.contains("Wait."), "{text}");
    gate.works_on_a_call().await;
    drop(answer);
    eventually("the call is cancelled", SOON, async || {
        let audit = gate.json("/api/audit").await;
        (audit["records"][0]["outcome"] == "cancelled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn several_answers_at_once_are_no_run() {
    let model = Model::strict(vec![Reply::calls([add("c1", 1)])]);
    let gate = gate(&model, "[\"*\"]", "").await;
    let mut body = request("openai", "openai/m", false);
    body["n"] = json!(2);
    let seen = ask(&gate, PATHS[0].1, &body).await;
    assert_eq!((seen.calls.len(), seen.note), (1, Value::Null));
}

pub(crate) async fn run_of(gate: &TestGate, id: &Value) -> Value {
    gate.json(&format!("/api/runs/{}", id.as_str().unwrap()))
        .await
}

pub(crate) async fn resume(
    gate: &TestGate,
    id: &Value,
    body: Value,
    key: &[(&str, &str)],
) -> Response {
    let path = format!("/api/runs/{}/resume", id.as_str().unwrap());
    gate.post(&path, &body.to_string(), headers(key)).await
}

#[tokio::test]
async fn a_run_goes_on_when_its_calls_are_decided_about() {
    let echo = |id: &str| (id.to_owned(), "zoo_echo", json!({"said": id}));
    for (wanted, path) in PATHS {
        for stream in [false, true] {
            let first = Reply::calls([add("c1", 1), echo("c2"), echo("c3")])
                .with_text("Now.")
                .usage(10, 1);
            let model = Model::strict(vec![first, Reply::text("Finally.").usage(20, 2)]);
            let mut gate = gate(&model, "[\"add\"]", "").await;
            let seen = ask(
                &gate,
                path,
                &request(wanted, &format!("{wanted}/m"), stream),
            )
            .await;
            let id = seen.note["run_id"].clone();
            let run = run_of(&gate, &id).await;
            assert_eq!(
                (&run["state"], &run["stop_reason"]),
                (&json!("waiting"), &json!("needs_approval"))
            );
            let half = json!({"decisions": [{"id": "c2", "decision": "approve"}]});
            let refused = resume(&gate, &id, half, &[]).await;
            assert_eq!(refused.status(), 400);
            assert!(refused.text().await.unwrap().contains("c3"));
            // It is on disk: another gateway goes on with it.
            gate.restart().await;
            gate.reaches("zoo", "healthy").await;
            let decided = json!({"decisions": [
                {"id": "c2", "decision": "approve", "arguments": {"said": "edited"}},
                {"id": "c3", "decision": "deny", "reason": "not today"}]});
            let answer = self::seen(resume(&gate, &id, decided.clone(), &[]).await).await;
            let what = format!("{wanted}, stream {stream}: {answer:?}");
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
            assert_eq!(resume(&gate, &id, decided, &[]).await.status(), 409);
            let run = run_of(&gate, &id).await;
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
async fn runs_belong_to_their_caller_and_an_ask_to_an_approver() {
    let model = Model::start(vec![Reply::with(|body| {
        match body["messages"].to_string().contains("tool_call_id") {
            true => Reply::text("done"),
            false => Reply::calls([add("c1", 1)]),
        }
    })]);
    let keys = ["a", "b"]
        .map(|name| format!("[keys.{name}]\nkey = {:?}\n", name.repeat(43)))
        .concat();
    let rule = "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"ask\"\n";
    let gate = gate(&model, "[\"*\"]", &(keys + rule)).await;
    let (a, b) = ("a".repeat(43), "b".repeat(43));
    let body = request("openai", "openai/m", false).to_string();
    let seen = seen(
        gate.post(PATHS[0].1, &body, headers(&[("x-api-key", &a)]))
            .await,
    )
    .await;
    let id = seen.note["run_id"].clone();
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
        resume(&gate, &id, decided.clone(), &[("x-api-key", &b)])
            .await
            .status(),
        404
    );
    // The caller cannot answer an `ask`.
    assert_eq!(
        resume(&gate, &id, decided.clone(), &[("x-api-key", &a)])
            .await
            .status(),
        409
    );
    let answer = self::seen(resume(&gate, &id, decided, &[]).await).await;
    assert_eq!(
        (answer.text.as_str(), &answer.note["executed"][0]["result"]),
        ("done", &json!("2"))
    );
    let approvals = gate.json("/api/approvals?state=done").await;
    assert_eq!(approvals["approvals"][0]["decided_by"], "admin");
}

#[tokio::test]
async fn a_run_that_was_killed_goes_on_and_runs_nothing_twice() {
    let ledger = tempfile::tempdir().unwrap();
    let count = ledger.path().join("count");
    let slow = ("c2".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = Model::strict(vec![
        Reply::calls([add("c1", 1), slow]),
        Reply::text("After all."),
    ]);
    let toml = zoo("zoo", &["--count", count.to_str().unwrap()])
        + "tools_to_auto_execute = [\"*\"]\n"
        + &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let mut gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    let body = request("openai", "p/m", false).to_string();
    let asked = gate
        .client
        .post(format!("{}{}", gate.url, PATHS[0].1))
        .body(body)
        .send();
    let ran = async {
        eventually("the first call is done", SOON, async || {
            let runs = gate.json("/api/runs?state=running").await;
            let run = run_of(&gate, &runs["runs"].get(0)?["id"].clone()).await;
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
    let (asked, ()) = tokio::join!(asked, ran);
    assert!(asked.is_err());
    gate.ends().await;
    gate.start_again();
    gate.reaches("zoo", "healthy").await;
    let run = gate.json("/api/runs?state=interrupted").await["runs"][0].clone();
    let answer = seen(resume(&gate, &run["id"], json!({}), &[]).await).await;
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
            calls.lines().filter(|seen| **seen == line).count(),
            1,
            "{calls}"
        );
    }
}

#[tokio::test]
async fn what_ran_within_a_bound_is_told_and_not_asked_for_again() {
    for stream in [false, true] {
        let model = Model::strict(conversation());
        let gate = gate(&model, "[\"*\"]", "").await;
        let body = request("openai", "openai/m", stream).to_string();
        // Two calls of the first turn, of which one is within the bound.
        let bound = headers(&[("x-toolgate-budget", "tool_calls=1")]);
        let seen = seen(gate.post(PATHS[0].1, &body, bound).await).await;
        assert_eq!(seen.calls, ["zoo_add"], "{seen:?}");
        assert_eq!(seen.note["pending"][0]["id"], "c2", "{seen:?}");
        assert_eq!(
            seen.note["executed"].as_array().unwrap().len(),
            1,
            "{seen:?}"
        );
        assert_eq!(seen.finish, "stop", "{seen:?}");
    }
    let model = Model::strict(conversation());
    let gate = gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", false).to_string();
    let bound = headers(&[("x-toolgate-budget", "tool_calls=2")]);
    let seen = seen(gate.post(PATHS[0].1, &body, bound).await).await;
    assert_eq!(
        (seen.calls.len(), seen.finish.as_str()),
        (0, "stop"),
        "{seen:?}"
    );
    assert!(
        seen.text.ends_with("its bound on tool_calls is reached."),
        "{seen:?}"
    );
    let none = headers(&[("x-toolgate-budget", "tokens=0")]);
    assert_eq!(gate.post(PATHS[0].1, &body, none).await.status(), 429);
}

#[tokio::test]
async fn a_run_has_only_so_much_time() {
    let slow = ("c2".to_owned(), "zoo_sleep", json!({"ms": 600_000}));
    let model = Model::strict(vec![Reply::calls([add("c1", 1), slow])]);
    let gate = gate(&model, "[\"*\"]", "[agent]\nmax_time = \"2s\"\n").await;
    let seen = ask(&gate, PATHS[0].1, &request("openai", "openai/m", false)).await;
    assert_eq!(
        (&seen.note["stop_reason"], &seen.note["budget"]),
        (&json!("budget"), &json!("time"))
    );
    assert_eq!(seen.note["executed"][0]["result"], "2");
    assert!(
        seen.note["executed"][1]["result"]
            .as_str()
            .unwrap()
            .contains("may have run"),
        "{seen:?}"
    );
}

/// A server's tools run unasked, those of the server that stands in for it do not.
#[tokio::test]
async fn a_stand_in_does_not_run_what_nobody_allowed() {
    let model = Model::strict(vec![Reply::calls([(
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
    gate.reaches("spare", "healthy").await;
    gate.reaches("other", "healthy").await;
    let seen = ask(&gate, PATHS[0].1, &request("openai", "p/m", false)).await;
    assert_eq!(seen.note["stop_reason"], "needs_approval", "{seen:?}");
    assert_eq!(seen.note["executed"], json!([]));
}

#[tokio::test]
async fn a_stream_that_fails_tells_what_ran() {
    for (wanted, path) in PATHS {
        let model = Model::strict(vec![
            Reply::calls([add("c1", 1)]),
            Reply::error(500, "broken"),
        ]);
        let gate = gate(&model, "[\"*\"]", "").await;
        let body = request(wanted, &format!("{wanted}/m"), true);
        let text = gate
            .post(path, &body.to_string(), headers(&[]))
            .await
            .text()
            .await
            .unwrap();
        assert!(
            text.contains("\"executed\":[{\"id\":\"c1\""),
            "{wanted}: {text}"
        );
    }
}

/// Chat has calls in a form of its own, which only callers know.
#[tokio::test]
async fn a_chat_with_tools_in_another_form_passes_through() {
    let model = Model::strict(vec![Reply::calls([add("c1", 1)])]);
    let gate = gate(&model, "[\"*\"]", "").await;
    let mut body = request("openai", "openai/m", false);
    body["tools"] = json!([{"type": "custom", "custom": {"name": "free"}}]);
    let seen = ask(&gate, PATHS[0].1, &body).await;
    assert_eq!((seen.calls.len(), seen.note), (1, Value::Null));
}

/// An id of ours leads to what the provider keeps, after a restart too.
#[tokio::test]
async fn the_answer_of_a_streamed_run_can_be_referred_to() {
    for spoken in ["responses", "openai"] {
        let model = Model::strict(vec![
            Reply::calls([add("c1", 1)]),
            Reply::text("two"),
            Reply::text("three"),
        ]);
        let mut gate = gate(&model, "[\"*\"]", "").await;
        let stream = gate
            .post(
                PATHS[1].1,
                &request("responses", &format!("{spoken}/m"), true).to_string(),
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
        let mut body = request("responses", &format!("{spoken}/m"), false);
        body["previous_response_id"] = last["response"]["id"].clone();
        if spoken == "responses" {
            gate.restart().await;
            gate.reaches("zoo", "healthy").await;
        }
        let seen = ask(&gate, PATHS[1].1, &body).await;
        assert_eq!(seen.text, "three", "{spoken}");
        let sent = &model.turns()[2].body;
        match spoken {
            "responses" => assert_ne!(sent["previous_response_id"], body["previous_response_id"]),
            _ => assert_eq!(sent["messages"][1]["content"], "two", "{sent}"),
        }
    }
}

/// Runs `toolgate chat` against a gateway, with something to read.
async fn chat(gate: &TestGate, args: &[&str], input: &str) -> (bool, String, String) {
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
    let output = tokio::time::timeout(SOON, child.wait_with_output());
    let output = output.await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test]
async fn a_conversation_in_the_terminal() {
    let echo = ("c2".to_owned(), "zoo_echo", json!({"x": 1}));
    let model = Model::start(vec![
        Reply::calls([add("c1", 1)]).with_text("Adding."),
        Reply::text("It is 2."),
        Reply::calls([echo]),
        Reply::text("Then not."),
        Reply::text("Once."),
    ]);
    let gate = gate(&model, "[\"add\"]", "").await;
    let (good, out, error) = chat(&gate, &[], "add please\nand echo\n").await;
    assert!(good, "{error}");
    for said in [
        "Adding.",
        "[zoo_add {\"a\":1,\"b\":1}]",
        "It is 2.",
        "zoo_echo {\"x\":1} was not run",
        "Then not.",
    ] {
        assert!(out.contains(said), "{said}: {out}");
    }
    let sent = model.turns()[3].body["messages"].to_string();
    assert!(sent.contains("nobody was there to decide"), "{sent}");
    assert!(
        sent.contains("It is 2."),
        "the conversation goes on: {sent}"
    );
    let (good, out, _) = chat(&gate, &["-p", "once", "--json"], "").await;
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert!(good);
    assert_eq!(answer["choices"][0]["message"]["content"], "Once.");
    let (good, _, error) = chat(&gate, &["--model", "nowhere/m", "-p", "x"], "").await;
    assert!(!good && error.contains("no model `nowhere/m`"), "{error}");
}

/// The lists of the documents: in their JSON, changed by the API, and beside rules.
#[tokio::test]
async fn lists_say_which_tools_run_unasked() {
    let calls = || {
        Reply::calls([
            add("c1", 1),
            ("c2".to_owned(), "zoo_sleep", json!({"ms": 1})),
            ("c3".to_owned(), "zoo_echo", json!({"x": 1})),
        ])
    };
    let model = Model::start(vec![Reply::with(move |body| {
        match body["messages"].to_string().contains("tool_call_id") {
            true => Reply::text("done"),
            false => calls(),
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
            // What is not in the first list does not count.
            "tools_to_auto_execute": ["add", "sleep"],
        }]},
        "providers": {"p": {"base_url": format!("{}/v1", model.url())}},
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let gate = TestGate::start_with("", &["--config", file.to_str().unwrap()], &[]);
    gate.reaches("zoo", "healthy").await;
    let body = request("openai", "p/m", false);
    let seen = ask(&gate, PATHS[0].1, &body).await;
    let offered = model.turns()[0].body["tools"].to_string();
    assert!(offered.contains("zoo_echo") && !offered.contains("zoo_sleep"));
    assert_eq!(seen.calls, ["zoo_echo"], "{seen:?}");
    let executed = &seen.note["executed"];
    assert_eq!(executed[0]["result"], "2", "{seen:?}");
    assert_eq!(executed[1]["is_error"], true, "it does not exist: {seen:?}");

    let put = |path: &str, change: Value| {
        let request = gate.client.put(format!("{}{path}", gate.url));
        request.body(change.to_string()).send()
    };
    let all = json!({"tools_to_execute": ["*"], "tools_to_auto_execute": ["*"]});
    let changed = put("/api/mcp/client/zoo", all).await.unwrap();
    assert_eq!(changed.status(), 200);
    let seen = ask(&gate, PATHS[0].1, &body).await;
    assert_eq!(
        (seen.text.as_str(), seen.calls.len()),
        ("done", 0),
        "{seen:?}"
    );
    assert_eq!(seen.note["executed"][1]["result"], "slept 1 ms", "{seen:?}");

    let rule = json!({"rules": [{"tool": "zoo_echo", "action": "ask"}]});
    let changed = put("/api/permissions", rule).await.unwrap();
    assert_eq!(changed.status(), 200, "{}", changed.text().await.unwrap());
    let seen = ask(&gate, PATHS[0].1, &body).await;
    assert_eq!(seen.calls, ["zoo_echo"], "{seen:?}");

    let none = json!({"tools_to_auto_execute": []});
    put("/api/mcp/client/zoo", none).await.unwrap();
    let seen = ask(&gate, PATHS[0].1, &body).await;
    assert_eq!((seen.calls.len(), seen.note), (3, Value::Null), "no run");
}

#[tokio::test]
async fn depth_and_budgets_are_the_lowest_that_is_said() {
    let model = Model::start(vec![Reply::with(|body| {
        let turns = body["messages"].to_string().matches("tool_call_id").count();
        Reply::calls([add(&format!("c{turns}"), 1)]).usage(1000, 1000)
    })]);
    let key = "k".repeat(43);
    let extra = format!(
        "[agent]\nmax_tool_calls = 3\n[keys.a]\nkey = {key:?}\nagent = {{ max_tool_calls = 2 }}\n[keys.b]\nkey = {:?}\nagent = {{ max_tool_calls = 9, max_usd = 0.1 }}\n[prices]\n\"openai/*\" = {{ input = 1.0, output = 3.0 }}\n",
        "b".repeat(43)
    );
    let gate = gate(&model, "[\"*\"]", &extra).await;
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
        let mut said = vec![("x-api-key", key.as_str())];
        if !budget.is_empty() {
            said.push(("x-toolgate-budget", budget));
        }
        let seen = seen(gate.post(PATHS[0].1, &body, headers(&said)).await).await;
        let executed = seen.note["executed"].as_array().unwrap().len();
        // The answer that reaches a bound is the last; its own calls are left.
        assert_eq!(seen.note["stop_reason"], "budget", "{budget}: {seen:?}");
        assert_eq!(seen.note["budget"], what, "{budget}: {seen:?}");
        assert_eq!(executed, ran, "{budget}: {seen:?}");
    }
    let admin = gate
        .client
        .put(format!("{}/api/settings/mcp/tool-manager-config", gate.url));
    let changed = admin.body(json!({"max_agent_depth": 1}).to_string());
    assert_eq!(changed.send().await.unwrap().status(), 200);
    let own = [("x-api-key", key.as_str()), ("x-toolgate-max-depth", "40")];
    let seen = seen(gate.post(PATHS[0].1, &body, headers(&own)).await).await;
    assert_eq!(seen.note["stop_reason"], "max_agent_depth", "{seen:?}");
    assert_eq!(seen.note["executed"].as_array().unwrap().len(), 1);
}

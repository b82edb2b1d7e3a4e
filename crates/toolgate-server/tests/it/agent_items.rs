//! What a model does in a turn besides speaking and asking for tools: reasoning, and what its
//! provider runs itself. Providers want it back with the calls it led to, and only there.

use serde_json::{Value, json};
use toolgate_testkit::model::{Model, Reply};

use crate::agent::{PATHS, add, gate, request, resume};
use crate::gate::TestGate;
use crate::mcp::headers;

fn echo(id: &str) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_echo", json!({"x": 1}))
}

/// The items or blocks of an answer, gathered from its events if it came as a stream.
async fn items(gate: &TestGate, path: &str, body: &Value) -> (Vec<Value>, Value) {
    let answer = gate.post(path, &body.to_string(), headers(&[])).await;
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    if let Ok(whole) = serde_json::from_str::<Value>(&text) {
        let items = [list(&whole["output"]), list(&whole["content"])].concat();
        return (items, whole["toolgate"].clone());
    }
    let (mut blocks, mut note) = (Vec::new(), Value::Null);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    for event in data.filter_map(|data| serde_json::from_str::<Value>(data).ok()) {
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.done" => {
                assert_eq!(event["output_index"], blocks.len(), "{text}");
                blocks.push(event["item"].clone());
            }
            "response.completed" => {
                assert_eq!(event["response"]["output"], json!(blocks), "{text}");
                note = event["response"]["toolgate"].clone();
            }
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len(), "{text}");
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = blocks.last_mut().unwrap();
                for name in ["text", "thinking", "signature"] {
                    let before = block[name].as_str().unwrap_or_default().to_owned();
                    if let Some(more) = event["delta"][name].as_str() {
                        block[name] = json!(before + more);
                    }
                }
            }
            "message_delta" => note = event["toolgate"].clone(),
            _ => {}
        }
    }
    (blocks, note)
}

fn kinds(items: &[Value]) -> Vec<&str> {
    let kinds = items.iter().map(|item| item["type"].as_str().unwrap());
    kinds.collect()
}

#[tokio::test]
async fn reasoning_comes_with_the_calls_that_are_left() {
    for (wanted, path) in &PATHS[1..] {
        for (stream, says) in [(false, false), (false, true), (true, false), (true, true)] {
            let last = Reply::calls([add("c2", 2), echo("c3")]).with_reasoning("second thoughts");
            let last = match says {
                true => last.with_text("Now."),
                false => last,
            };
            let model = Model::strict(vec![
                Reply::calls([add("c1", 1)]).with_reasoning("first thoughts"),
                last,
            ]);
            let gate = gate(&model, "[\"add\"]", "").await;
            let body = request(wanted, &format!("{wanted}/m"), stream);
            let (items, note) = items(&gate, path, &body).await;
            let what = format!("{wanted}, stream {stream}, says {says}: {items:?}");
            assert_eq!(note["stop_reason"], "needs_approval", "{what}");
            let text = says || !stream;
            let expected: Vec<&str> = match (*wanted, text) {
                ("responses", true) => vec!["reasoning", "message", "function_call"],
                ("responses", false) => vec!["reasoning", "function_call"],
                (_, true) => vec!["thinking", "text", "tool_use"],
                (_, false) => vec!["thinking", "tool_use"],
            };
            assert_eq!(kinds(&items), expected, "{what}");
            let reasoned = items[0].to_string();
            assert!(reasoned.contains("second thoughts"), "{what}");
            assert!(!reasoned.contains("first"), "{what}");
            if *wanted == "anthropic" {
                assert_eq!(items[0]["signature"], "signature-2", "{what}");
            }
            // What was said to the provider again has all of it, in its own words.
            let again = model.turns()[1].body.to_string();
            assert!(again.contains("first thoughts"), "{again}");
        }
    }
}

#[tokio::test]
async fn reasoning_that_led_to_the_answer_comes_with_it() {
    for (wanted, path) in &PATHS[1..] {
        for stream in [false, true] {
            let model = Model::strict(vec![
                Reply::calls([add("c1", 1)]).with_reasoning("first"),
                Reply::text("Two.").with_reasoning("second"),
            ]);
            let gate = gate(&model, "[\"add\"]", "").await;
            let body = request(wanted, &format!("{wanted}/m"), stream);
            let (items, _) = items(&gate, path, &body).await;
            assert_eq!(items.len(), 2, "{wanted}, stream {stream}: {items:?}");
            assert!(items[0].to_string().contains("second"), "{items:?}");
        }
    }
}

/// One event of a stream for each item, as the provider tells of those that are complete.
fn response_events(items: &[Value]) -> String {
    let mut events =
        vec![json!({"type": "response.created", "response": {"id": "r", "model": "m"}})];
    for (at, item) in items.iter().enumerate() {
        let done = "response.output_item.done";
        events.push(json!({"type": done, "output_index": at, "item": item}));
    }
    let last = json!({"id": "r", "model": "m", "status": "completed", "output": items});
    events.push(json!({"type": "response.completed", "response": last}));
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    events.collect()
}

fn response(items: &[Value], stream: bool) -> Reply {
    let whole = json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": items});
    match stream {
        true => Reply::raw("text/event-stream", response_events(items)),
        false => Reply::status(200, whole),
    }
}

fn call(id: &str, name: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name,
        "arguments": "{\"a\":1,\"b\":1}", "status": "completed"})
}

#[tokio::test]
async fn what_a_provider_runs_itself_goes_through_the_loop() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
        "action": {"type": "search", "query": "q"}});
    let said = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Found.", "annotations": []}]});
    for stream in [false, true] {
        let model = Model::strict(vec![
            response(&[search.clone(), call("c1", "zoo_add")], stream),
            response(&[search.clone(), said.clone()], stream),
        ]);
        let gate = gate(&model, "[\"add\"]", "").await;
        let mut body = request("responses", "responses/m", stream);
        body["tools"] = json!([{"type": "web_search"}]);
        let (items, note) = items(&gate, PATHS[1].1, &body).await;
        let what = format!("stream {stream}: {items:?} {note}");
        assert_eq!(kinds(&items), ["web_search_call", "message"], "{what}");
        assert_eq!(items[0], search, "{what}");
        assert_eq!(note["executed"][0]["result"], "2", "{what}");
        let sent = &model.turns()[1].body;
        assert_eq!(sent["input"][1], search, "as it came: {sent}");
        assert_eq!(sent["tools"][0]["type"], "web_search");
    }
}

#[tokio::test]
async fn a_call_in_a_form_of_its_dialect_is_the_callers() {
    let patch = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "patch",
        "input": "free text", "status": "completed"});
    for stream in [false, true] {
        let turn = response(&[call("c1", "zoo_add"), patch.clone()], stream);
        let model = Model::strict(vec![turn]);
        let gate = gate(&model, "[\"add\"]", "").await;
        let mut body = request("responses", "responses/m", stream);
        body["tools"] = json!([{"type": "custom", "name": "patch"}]);
        let (items, note) = items(&gate, PATHS[1].1, &body).await;
        let what = format!("stream {stream}: {items:?} {note}");
        assert!(items.contains(&patch), "{what}");
        assert!(!kinds(&items).contains(&"function_call"), "{what}");
        assert_eq!(note["stop_reason"], "own_tool", "{what}");
        assert_eq!(note["executed"][0]["result"], "2", "{what}");
        let going_on = resume(&gate, &note["run_id"], json!({}), &[]).await;
        assert_eq!(going_on.status(), 409, "nobody else can answer it");
    }
}

#[tokio::test]
async fn a_provider_that_pauses_is_asked_to_go_on() {
    let used = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
    let message = |content: Value, stop: &str| {
        let usage = json!({"input_tokens": 1, "output_tokens": 1});
        Reply::status(
            200,
            json!({"id": "m", "type": "message", "role": "assistant", "model": "x",
            "content": content, "stop_reason": stop, "usage": usage}),
        )
    };
    let add = json!({"type": "tool_use", "id": "c1", "name": "zoo_add", "input": {"a": 1, "b": 1}});
    let model = Model::strict(vec![
        message(json!([used, found, add]), "tool_use"),
        message(json!([used, found]), "pause_turn"),
        message(json!([{"type": "text", "text": "Done."}]), "end_turn"),
    ]);
    let gate = gate(&model, "[\"add\"]", "").await;
    let mut body = request("anthropic", "anthropic/m", false);
    body["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    let (items, note) = items(&gate, PATHS[2].1, &body).await;
    assert_eq!(kinds(&items), ["text"], "{items:?}");
    assert_eq!(note["iterations"], 3, "{note}");
    let sent = model.turns()[2].body["messages"].clone();
    let roles: Vec<&Value> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"], "{sent}");
    assert_eq!(sent[1]["content"][1], found, "{sent}");
    assert_eq!(sent[3]["content"], json!([used, found]), "{sent}");
}

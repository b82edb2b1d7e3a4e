//! Output items besides text and tool calls: reasoning, and tools that the provider runs itself.
//! Providers require them back together with the calls they led to, and only there.

use serde_json::{Value, json};
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::agent::{PATHS, add_call, request, resume_run, start_gate};
use crate::gate::TestGate;
use crate::mcp::headers;

fn echo_call(id: &str) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_echo", json!({"x": 1}))
}

/// Returns the items or blocks of an answer, collected from events if streamed, and the note.
async fn fetch_items(gate: &TestGate, path: &str, body: &Value) -> (Vec<Value>, Value) {
    let answer = gate.post(path, &body.to_string(), headers(&[])).await;
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    if let Ok(body) = serde_json::from_str::<Value>(&text) {
        let items = [list(&body["output"]), list(&body["content"])].concat();
        return (items, body["toolgate"].clone());
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

fn item_types(items: &[Value]) -> Vec<&str> {
    let kinds = items.iter().map(|item| item["type"].as_str().unwrap());
    kinds.collect()
}

#[tokio::test]
async fn reasoning_is_returned_with_pending_calls() {
    for (client_dialect, path) in &PATHS[1..] {
        for (stream, has_text) in [(false, false), (false, true), (true, false), (true, true)] {
            let last = Reply::calls([add_call("c2", 2), echo_call("c3")])
                .with_reasoning("second thoughts");
            let last = if has_text {
                last.with_text("Now.")
            } else {
                last
            };
            let model = ScriptedModel::start_strict(vec![
                Reply::calls([add_call("c1", 1)]).with_reasoning("first thoughts"),
                last,
            ]);
            let gate = start_gate(&model, "[\"add\"]", "").await;
            let body = request(client_dialect, &format!("{client_dialect}/m"), stream);
            let (items, note) = fetch_items(&gate, path, &body).await;
            let what = format!("{client_dialect}, stream {stream}, has text {has_text}: {items:?}");
            assert_eq!(note["stop_reason"], "needs_approval", "{what}");
            // The text has the results of the calls that were executed, streamed or not.
            let expected = match *client_dialect {
                "responses" => ["reasoning", "message", "function_call"],
                _ => ["thinking", "text", "tool_use"],
            };
            assert_eq!(item_types(&items), expected, "{what}");
            let reasoning = items[0].to_string();
            assert!(reasoning.contains("second thoughts"), "{what}");
            assert!(!reasoning.contains("first"), "{what}");
            if *client_dialect == "anthropic" {
                assert_eq!(items[0]["signature"], "signature-2", "{what}");
            }
            // The next request to the provider has all reasoning, in the provider's format.
            let sent = model.turns()[1].body.to_string();
            assert!(sent.contains("first thoughts"), "{sent}");
        }
    }
}

#[tokio::test]
async fn reasoning_is_returned_with_the_answer() {
    for (client_dialect, path) in &PATHS[1..] {
        for stream in [false, true] {
            let model = ScriptedModel::start_strict(vec![
                Reply::calls([add_call("c1", 1)]).with_reasoning("first"),
                Reply::text("Two.").with_reasoning("second"),
            ]);
            let gate = start_gate(&model, "[\"add\"]", "").await;
            let body = request(client_dialect, &format!("{client_dialect}/m"), stream);
            let (items, _) = fetch_items(&gate, path, &body).await;
            assert_eq!(
                items.len(),
                2,
                "{client_dialect}, stream {stream}: {items:?}"
            );
            assert!(items[0].to_string().contains("second"), "{items:?}");
        }
    }
}

/// Builds a stream with one `output_item.done` event per item.
fn response_events(items: &[Value]) -> String {
    let mut events =
        vec![json!({"type": "response.created", "response": {"id": "r", "model": "m"}})];
    for (index, item) in items.iter().enumerate() {
        let done = "response.output_item.done";
        events.push(json!({"type": done, "output_index": index, "item": item}));
    }
    let last = json!({"id": "r", "model": "m", "status": "completed", "output": items});
    events.push(json!({"type": "response.completed", "response": last}));
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    events.collect()
}

fn response_reply(items: &[Value], stream: bool) -> Reply {
    let body = json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": items});
    if stream {
        Reply::raw("text/event-stream", response_events(items))
    } else {
        Reply::status(200, body)
    }
}

fn function_call(id: &str, name: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name,
        "arguments": "{\"a\":1,\"b\":1}", "status": "completed"})
}

#[tokio::test]
async fn provider_tool_items_survive_the_agent_loop() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
        "action": {"type": "search", "query": "q"}});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Found.", "annotations": []}]});
    for stream in [false, true] {
        let model = ScriptedModel::start_strict(vec![
            response_reply(&[search.clone(), function_call("c1", "zoo_add")], stream),
            response_reply(&[search.clone(), message.clone()], stream),
        ]);
        let gate = start_gate(&model, "[\"add\"]", "").await;
        let mut body = request("responses", "responses/m", stream);
        body["tools"] = json!([{"type": "web_search"}]);
        let (items, note) = fetch_items(&gate, PATHS[1].1, &body).await;
        let what = format!("stream {stream}: {items:?} {note}");
        assert_eq!(item_types(&items), ["web_search_call", "message"], "{what}");
        assert_eq!(items[0], search, "{what}");
        assert_eq!(note["executed"][0]["result"], "2", "{what}");
        let sent = &model.turns()[1].body;
        assert_eq!(sent["input"][1], search, "unchanged: {sent}");
        assert_eq!(sent["tools"][0]["type"], "web_search");
    }
}

#[tokio::test]
async fn custom_tool_calls_are_returned_to_the_caller() {
    let patch = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "patch",
        "input": "free text", "status": "completed"});
    for stream in [false, true] {
        let turn = response_reply(&[function_call("c1", "zoo_add"), patch.clone()], stream);
        let model = ScriptedModel::start_strict(vec![turn]);
        let gate = start_gate(&model, "[\"add\"]", "").await;
        let mut body = request("responses", "responses/m", stream);
        body["tools"] = json!([{"type": "custom", "name": "patch"}]);
        let (items, note) = fetch_items(&gate, PATHS[1].1, &body).await;
        let what = format!("stream {stream}: {items:?} {note}");
        assert!(items.contains(&patch), "{what}");
        assert!(!item_types(&items).contains(&"function_call"), "{what}");
        assert_eq!(note["stop_reason"], "own_tool", "{what}");
        assert_eq!(note["executed"][0]["result"], "2", "{what}");
        let resumed = resume_run(&gate, &note["run_id"], json!({}), &[]).await;
        assert_eq!(resumed.status(), 409, "only the caller can answer it");
    }
}

#[tokio::test]
async fn paused_provider_turn_is_continued() {
    let tool_use = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}});
    let tool_result = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
    let message = |content: Value, stop: &str| {
        let usage = json!({"input_tokens": 1, "output_tokens": 1});
        Reply::status(
            200,
            json!({"id": "m", "type": "message", "role": "assistant", "model": "x",
            "content": content, "stop_reason": stop, "usage": usage}),
        )
    };
    let add = json!({"type": "tool_use", "id": "c1", "name": "zoo_add", "input": {"a": 1, "b": 1}});
    let model = ScriptedModel::start_strict(vec![
        message(json!([tool_use, tool_result, add]), "tool_use"),
        message(json!([tool_use, tool_result]), "pause_turn"),
        message(json!([{"type": "text", "text": "Done."}]), "end_turn"),
    ]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    let mut body = request("anthropic", "anthropic/m", false);
    body["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    let (items, note) = fetch_items(&gate, PATHS[2].1, &body).await;
    assert_eq!(item_types(&items), ["text"], "{items:?}");
    assert_eq!(note["iterations"], 1, "{note}");
    assert_eq!(note["turns"].as_array().unwrap().len(), 3, "{note}");
    let sent = model.turns()[2].body["messages"].clone();
    let roles: Vec<&Value> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"], "{sent}");
    assert_eq!(sent[1]["content"][1], tool_result, "{sent}");
    assert_eq!(sent[3]["content"], json!([tool_use, tool_result]), "{sent}");
}

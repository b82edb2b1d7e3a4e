//! The scripted model's three wire formats, streamed and not.

use serde_json::{Value, json};
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::model::{APIS, CHAT, MESSAGES, RESPONSES, post_to};

const ARGUMENTS: &str = r#"{"city":"Åbo","n":1.50}"#;

fn full_reply() -> Reply {
    Reply::text("let me look")
        .with_reasoning("hm, well")
        .with_raw_call("call_1", "weather", ARGUMENTS)
        .with_raw_call("call_2", "clock", "{}")
        .with_usage(100, 20)
        .with_cached_tokens(60)
}

async fn fetch_json(path: &str, reply: Reply) -> Value {
    let model = ScriptedModel::start(vec![reply]);
    let reply = post_to(&model, path, r#"{"model":"m"}"#).await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.is_complete());
    reply.json()
}

/// Returns the data of all events, checked against their names for APIs that name events.
async fn fetch_events(path: &str, reply: Reply) -> Vec<Value> {
    let model = ScriptedModel::start(vec![reply]);
    let reply = post_to(&model, path, r#"{"model":"m","stream":true}"#).await;
    assert!(
        reply
            .header("content-type")
            .unwrap()
            .starts_with("text/event-stream")
    );
    let names: Vec<&str> = reply
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    let mut texts = reply.messages();
    if path == CHAT {
        assert_eq!(texts.pop().as_deref(), Some("[DONE]"));
        assert!(names.is_empty());
    }
    let events: Vec<Value> = texts
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    if path != CHAT {
        assert_eq!(names, types(&events));
    }
    events
}

fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

/// Returns the event types without consecutive duplicates.
fn deduplicated_types(events: &[Value]) -> Vec<&str> {
    let mut types = types(events);
    types.dedup();
    types
}

fn join_text<'a>(pieces: impl Iterator<Item = &'a Value>) -> String {
    pieces.filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn chat_completion_format() {
    let answer = fetch_json(CHAT, full_reply()).await;
    let choice = &answer["choices"][0];
    assert_eq!(
        (&answer["object"], &answer["model"]),
        (&json!("chat.completion"), &json!("m"))
    );
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "let me look");
    assert_eq!(choice["message"]["reasoning_content"], "hm, well");
    let call = json!({
        "id": "call_1", "type": "function",
        "function": { "name": "weather", "arguments": ARGUMENTS },
    });
    assert_eq!(choice["message"]["tool_calls"][0], call);
    assert_eq!(answer["usage"]["total_tokens"], 120);
    assert_eq!(
        answer["usage"]["prompt_tokens_details"]["cached_tokens"],
        60
    );
    let plain = fetch_json(CHAT, Reply::text("hi").with_finish_reason("length")).await;
    assert_eq!(plain["choices"][0]["finish_reason"], "length");
    assert!(plain["choices"][0]["message"].get("tool_calls").is_none());
}

#[tokio::test]
async fn streamed_chat_completion_format() {
    let chunks = fetch_events(CHAT, full_reply()).await;
    let deltas: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"])
        .collect();
    let of = |name: &str| join_text(deltas.iter().map(|delta| &delta[name]));
    assert_eq!(deltas[0]["role"], "assistant");
    assert_eq!(of("content"), "let me look");
    assert_eq!(of("reasoning_content"), "hm, well");
    let calls: Vec<&Value> = deltas.iter().map(|delta| &delta["tool_calls"][0]).collect();
    let first = calls.iter().filter(|call| call["index"] == 0);
    assert_eq!(
        join_text(first.map(|call| &call["function"]["arguments"])),
        ARGUMENTS
    );
    let first_deltas: Vec<_> = calls
        .iter()
        .filter(|call| call.get("id").is_some())
        .collect();
    assert_eq!(first_deltas.len(), 2);
    assert_eq!(
        (&first_deltas[1]["id"], &first_deltas[1]["index"]),
        (&json!("call_2"), &json!(1))
    );
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[tokio::test]
async fn chat_stream_includes_usage_on_request() {
    let model = ScriptedModel::start(vec![Reply::text("hi").with_usage(3, 4)]);
    let body = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
    let messages = post_to(&model, CHAT, body).await.messages();
    let (_, chunks) = messages.split_last().unwrap();
    let chunks: Vec<Value> = chunks
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    let (counted, others) = chunks.split_last().unwrap();
    assert_eq!(
        (&counted["choices"], &counted["usage"]["total_tokens"]),
        (&json!([]), &json!(7))
    );
    assert!(
        others
            .iter()
            .all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some())
    );
}

#[tokio::test]
async fn response_format() {
    let answer = fetch_json(RESPONSES, full_reply()).await;
    let output = answer["output"].as_array().unwrap();
    assert_eq!(
        types(output),
        ["reasoning", "message", "function_call", "function_call"]
    );
    assert_eq!(output[0]["summary"][0]["text"], "hm, well");
    assert_eq!(output[1]["content"][0]["text"], "let me look");
    assert_eq!(
        (&output[2]["call_id"], &output[2]["arguments"]),
        (&json!("call_1"), &json!(ARGUMENTS))
    );
    assert_eq!(answer["usage"]["input_tokens_details"]["cached_tokens"], 60);
    assert_eq!(
        (&answer["status"], &answer["usage"]["total_tokens"]),
        (&json!("completed"), &json!(120))
    );
    let cut = fetch_json(RESPONSES, Reply::text("h").with_finish_reason("length")).await;
    assert_eq!(cut["incomplete_details"]["reason"], "max_output_tokens");
}

#[tokio::test]
async fn streamed_response_format() {
    let events = fetch_events(RESPONSES, full_reply()).await;
    let item = |inner: &[&'static str]| {
        let (first, last) = ("response.output_item.added", "response.output_item.done");
        [&[first][..], inner, &[last]].concat()
    };
    let call = item(&[
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    ]);
    let expected = [
        vec!["response.created", "response.in_progress"],
        item(&[
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
        ]),
        item(&[
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
        ]),
        call.clone(),
        call,
        vec!["response.completed"],
    ];
    assert_eq!(deduplicated_types(&events), expected.concat());
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], index);
    }
    let last = &events.last().unwrap()["response"];
    assert_eq!(last, &fetch_json(RESPONSES, full_reply()).await);
    // Every event about an item has the id and index of the finished item.
    for event in events.iter().filter(|event| event.get("item_id").is_some()) {
        let index = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        assert_eq!(event["item_id"], last["output"][index]["id"]);
    }
    let deltas = events.iter().filter(|event| event["output_index"] == 2);
    assert_eq!(join_text(deltas.map(|event| &event["delta"])), ARGUMENTS);
}

#[tokio::test]
async fn message_format() {
    let answer = fetch_json(MESSAGES, full_reply()).await;
    let blocks = answer["content"].as_array().unwrap();
    assert_eq!(types(blocks), ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(blocks[2]["input"].to_string(), ARGUMENTS);
    assert_eq!(answer["stop_reason"], "tool_use");
    let usage = &answer["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["cache_read_input_tokens"]),
        (&json!(40), &json!(60))
    );
    for (finish, stop) in [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("pause_turn", "pause_turn"),
    ] {
        let answer = fetch_json(MESSAGES, Reply::text("h").with_finish_reason(finish)).await;
        assert_eq!(answer["stop_reason"], stop);
    }
}

#[tokio::test]
async fn streamed_message_format() {
    let events = fetch_events(MESSAGES, full_reply()).await;
    let block = [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ];
    let expected = [
        &["message_start", "content_block_start", "ping"][..],
        &block[1..],
        &block,
        &block,
        &block,
        &["message_delta", "message_stop"],
    ];
    assert_eq!(deduplicated_types(&events), expected.concat());
    let of = |index: usize, name: &str| {
        let deltas = events.iter().filter(|event| event["index"] == index);
        join_text(deltas.map(|event| &event["delta"][name]))
    };
    assert_eq!(of(0, "thinking"), "hm, well");
    assert_eq!(of(1, "text"), "let me look");
    assert_eq!(of(2, "partial_json"), ARGUMENTS);
    assert_eq!(of(3, "partial_json"), "{}");
    let end = &events[events.len() - 2];
    assert_eq!(
        (&end["delta"]["stop_reason"], &end["usage"]["output_tokens"]),
        (&json!("tool_use"), &json!(20))
    );
}

#[tokio::test]
async fn extra_fields_are_added_everywhere() {
    let reply = Reply::text("a b").with_extra_fields(json!({ "x_vendor": { "a": 1 } }));
    for path in APIS {
        let answer = fetch_json(path, reply.clone()).await;
        assert_eq!(answer["x_vendor"]["a"], 1);
        for event in fetch_events(path, reply.clone()).await {
            assert_eq!(event["x_vendor"]["a"], 1, "{event}");
        }
    }
}

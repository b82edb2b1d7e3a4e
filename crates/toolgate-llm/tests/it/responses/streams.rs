//! Streamed responses.

use serde_json::json;
use toolgate_core::sse;
use toolgate_llm::event::{FinishReason, ProviderError, ReasoningProof};
use toolgate_llm::turn::TurnItem;
use toolgate_llm::{ModelTurn, TurnEvent, chat, responses};

use super::response_bodies::RESPONSE;
use super::{comparable, decode, decode_complete, encode, head, stream};

/// [`RESPONSE`] as OpenAI streams it, without the final event.
const EVENTS: &[&str] = &[
    r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_9","model":"gpt-x","status":"in_progress","error":null,"output":[],"usage":null}}"#,
    r#"{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_9","model":"gpt-x","status":"in_progress"}}"#,
    r#"{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"rs_9","type":"reasoning","encrypted_content":"gA","summary":[]}}"#,
    r#"{"type":"response.reasoning_summary_part.added","sequence_number":3,"item_id":"rs_9","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
    r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_9","output_index":0,"summary_index":0,"delta":"Fir","obfuscation":"x"}"#,
    r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_9","output_index":0,"summary_index":0,"delta":"st."}"#,
    r#"{"type":"response.reasoning_summary_text.done","item_id":"rs_9","output_index":0,"summary_index":0,"text":"First."}"#,
    r#"{"type":"response.reasoning_summary_part.done","item_id":"rs_9","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":"First."}}"#,
    r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_9","output_index":0,"summary_index":1,"delta":"Second."}"#,
    r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_9","type":"reasoning","encrypted_content":"gAAA","summary":[{"type":"summary_text","text":"First."},{"type":"summary_text","text":"Second."}]}}"#,
    r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_9","type":"message","status":"in_progress","content":[],"role":"assistant"}}"#,
    r#"{"type":"response.content_part.added","item_id":"msg_9","output_index":1,"content_index":0,"part":{"type":"output_text","annotations":[],"text":""}}"#,
    r#"{"type":"keepalive","sequence_number":11}"#,
    r#"{"type":"response.output_text.delta","item_id":"msg_9","output_index":1,"content_index":0,"delta":"Let me","logprobs":[]}"#,
    r#"{"type":"response.output_text.delta","item_id":"msg_9","output_index":1,"content_index":0,"delta":" see."}"#,
    r#"{"type":"response.output_text.done","item_id":"msg_9","output_index":1,"content_index":0,"text":"Let me see."}"#,
    r#"{"type":"response.content_part.done","item_id":"msg_9","output_index":1,"content_index":0,"part":{"type":"output_text","text":"Let me see."}}"#,
    r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"msg_9","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Let me see."}]}}"#,
    r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_9","type":"function_call","status":"in_progress","arguments":"","call_id":"c1","name":"add"}}"#,
    r#"{"type":"response.output_item.added","output_index":3,"item":{"id":"fc_8","type":"function_call","status":"in_progress","arguments":"","call_id":"c2","name":"sub"}}"#,
    r#"{"type":"response.function_call_arguments.delta","item_id":"fc_9","output_index":2,"delta":"{\"a\""}"#,
    r#"{"type":"response.function_call_arguments.delta","item_id":"new_each_time","output_index":2,"delta":":1}"}"#,
    r#"{"type":"response.function_call_arguments.done","item_id":"fc_9","output_index":2,"arguments":"{\"a\":1}"}"#,
    r#"{"type":"response.output_item.done","output_index":2,"item":{"id":"fc_9","type":"function_call","arguments":"{\"a\":1}","call_id":"c1","name":"add"}}"#,
    r#"{"type":"response.output_item.done","output_index":3,"item":{"id":"fc_8","type":"function_call","arguments":"{}","call_id":"c2","name":"sub"}}"#,
];

fn pieces() -> String {
    let whole = RESPONSE.replace('\n', "");
    let last = format!(r#"{{"type":"response.completed","response":{whole}}}"#);
    let mut pieces = EVENTS.to_vec();
    pieces.push(&last);
    stream(&pieces)
}

#[test]
fn response_and_its_stream_decode_to_same_turn_at_any_chunk_size() {
    let whole = ModelTurn::from_events(&responses::decode_response(RESPONSE).unwrap());
    let stream = pieces();
    for size in [1, 2, 3, 7, 64, 1000, stream.len()] {
        let (events, is_done) = decode(&stream, size).unwrap();
        assert!(is_done);
        assert_eq!(ModelTurn::from_events(&events), whole);
    }
    let (_, is_done) = decode(&super::stream(EVENTS), 100).unwrap();
    assert!(!is_done, "a stream without its last event is incomplete");
}

/// As llama.cpp streams: no output indexes, plain reasoning, and item ends after everything else.
#[test]
fn stream_without_output_indexes_is_decoded() {
    let events = decode_complete(&stream(&[
        r#"{"type":"response.created","response":{"id":"resp_1","object":"response","status":"in_progress"}}"#,
        r#"{"type":"response.output_item.added","item":{"id":"rs_1","summary":[],"type":"reasoning","content":[],"encrypted_content":"","status":"in_progress"}}"#,
        r#"{"type":"response.reasoning_text.delta","delta":"h","item_id":"rs_1"}"#,
        r#"{"type":"response.reasoning_text.delta","delta":"m","item_id":"rs_1"}"#,
        r#"{"type":"response.output_item.added","item":{"content":[],"id":"msg_1","role":"assistant","status":"in_progress","type":"message"}}"#,
        r#"{"type":"response.content_part.added","item_id":"msg_1","part":{"type":"output_text","text":""}}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","delta":"Hi"}"#,
        r#"{"type":"response.output_item.added","item":{"id":"fc_a","arguments":"","call_id":"call_a","name":"add","type":"function_call","status":"in_progress"}}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"{}","item_id":"fc_a"}"#,
        r#"{"type":"response.output_item.added","item":{"id":"fc_b","arguments":"","call_id":"call_b","name":"sub","type":"function_call","status":"in_progress"}}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"[]","item_id":"fc_b"}"#,
        r#"{"type":"response.output_item.done","item":{"id":"rs_1","summary":[],"type":"reasoning","content":[{"text":"hm","type":"reasoning_text"}],"encrypted_content":""}}"#,
        r#"{"type":"response.output_text.done","item_id":"msg_1","text":"Hi"}"#,
        r#"{"type":"response.output_item.done","item":{"type":"message","status":"completed","id":"msg_1","content":[{"type":"output_text","text":"Hi"}],"role":"assistant"}}"#,
        r#"{"type":"response.output_item.done","item":{"id":"fc_a","type":"function_call","status":"completed","arguments":"{}","call_id":"call_a","name":"add"}}"#,
        r#"{"type":"response.output_item.done","item":{"id":"fc_b","type":"function_call","status":"completed","arguments":"[]","call_id":"call_b","name":"sub"}}"#,
        r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","model":"m","usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7,"input_tokens_details":{"cached_tokens":1}}}}"#,
    ]));
    let whole = r#"{"id":"resp_1","model":"m","status":"completed","output":[
        {"id":"rs_1","summary":[],"type":"reasoning","content":[{"text":"hm","type":"reasoning_text"}],"encrypted_content":"","status":"completed"},
        {"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Hi"}]},
        {"id":"fc_a","type":"function_call","arguments":"{}","call_id":"call_a","name":"add"},
        {"id":"fc_b","type":"function_call","arguments":"[]","call_id":"call_b","name":"sub"}],
        "usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7,"input_tokens_details":{"cached_tokens":1}}}"#;
    let whole = ModelTurn::from_events(&responses::decode_response(whole).unwrap());
    assert_eq!(
        comparable(&ModelTurn::from_events(&events)),
        comparable(&whole)
    );
}

#[test]
fn content_without_deltas_is_emitted_once() {
    let item = r#"{"type":"message","content":[{"type":"output_text","text":"Hi"}]}"#;
    let call =
        r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"add","arguments":"{}"}"#;
    let done = |item: &str| format!(r#"{{"type":"response.output_item.done","item":{item}}}"#);
    let end = format!(r#"{{"type":"response.completed","response":{{"output":[{item},{call}]}}}}"#);
    let expected = ModelTurn::from_events(
        &responses::decode_response(&format!(r#"{{"output":[{item},{call}]}}"#)).unwrap(),
    );
    let items = [done(item), done(call)];
    for data in [vec![end.as_str()], vec![&items[0], &items[1], &end]] {
        assert_eq!(
            ModelTurn::from_events(&decode_complete(&stream(&data))),
            expected
        );
    }
}

#[test]
fn stream_errors_are_decoded() {
    let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow down"}}}"#;
    let object = r#"{"type":"error","sequence_number":2,"error":{"type":"tokens","code":"rate_limit_exceeded","message":"slow down","param":null}}"#;
    let members = r#"{"type":"error","sequence_number":2,"code":"rate_limit_exceeded","message":"slow down","param":null}"#;
    let bare = r#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#;
    for (data, kind) in [
        (vec![failed], None),
        (vec![object, failed], Some("tokens")),
        (vec![members], None),
        (vec![bare], None),
    ] {
        let failures = decode_complete(&stream(&data));
        let failures = failures.iter().filter_map(|event| match event {
            TurnEvent::Error(failure) => Some(failure),
            _ => None,
        });
        let expected = ProviderError {
            kind: kind.map(str::to_owned),
            message: "slow down".to_owned(),
            code: Some(json!("rate_limit_exceeded")),
        };
        assert_eq!(failures.collect::<Vec<_>>(), [&expected], "{data:?}");
    }
}

#[test]
fn unsupported_content_is_named_in_error() {
    for (data, expected) in [
        (
            r#"{"type":"response.output_item.added","item":{"type":"web_search_call"}}"#,
            "web_search_call",
        ),
        (
            r#"{"type":"response.audio.delta","delta":"AAAA"}"#,
            "response.audio.delta",
        ),
        (
            r#"{"type":"response.content_part.added","part":{"type":"output_audio"}}"#,
            "output_audio",
        ),
        (
            r#"{"type":"response.function_call_arguments.delta","output_index":4,"delta":"{}"}"#,
            "no name",
        ),
        ("{", "EOF"),
    ] {
        let error = decode(&stream(&[data]), 100).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let unknown = stream(&[r#"{"type":"codex.rate_limits","plan":"x"}"#, "", "[DONE]"]);
    assert_eq!(decode(&unknown, 100).unwrap(), (Vec::new(), false));
}

fn text(text: &str) -> TurnEvent {
    TurnEvent::Text(text.to_owned())
}

fn call(index: usize, id: &str) -> [TurnEvent; 2] {
    let (id, name) = (id.to_owned(), "add".to_owned());
    let arguments = "{}".to_owned();
    [
        TurnEvent::CallStart { index, id, name },
        TurnEvent::CallDelta { index, arguments },
    ]
}

fn start() -> TurnEvent {
    TurnEvent::Start {
        id: "x".to_owned(),
        model: "y".to_owned(),
    }
}

#[test]
fn several_turns_are_encoded_as_one_stream() {
    let mut events = vec![start(), text("One")];
    events.extend(call(0, "c1"));
    events.extend([
        TurnEvent::CallEnd { index: 0 },
        TurnEvent::Finish(FinishReason::ToolCalls),
    ]);
    events.extend([start(), text("Two"), TurnEvent::Refusal("No".to_owned())]);
    events.extend(call(0, "c2"));
    events.extend([
        TurnEvent::CallEnd { index: 0 },
        TurnEvent::Finish(FinishReason::Stop),
    ]);
    let stream = encode(&events);
    insta::assert_snapshot!("multi_turn_stream", stream);
    let mut turn = ModelTurn::from_events(&events);
    turn.finish = Some(FinishReason::ToolCalls);
    assert_eq!(
        comparable(&ModelTurn::from_events(&decode_complete(&stream))),
        comparable(&turn)
    );
}

#[test]
fn interleaved_calls_are_encoded_and_truncated() {
    let mut events = vec![start(), TurnEvent::Reasoning("hm".to_owned())];
    let ([begin, more], [also, too]) = (call(4, "c1"), call(2, "c2"));
    events.extend([begin, also, too, more, text("and")]);
    events.push(TurnEvent::Finish(FinishReason::Length));
    let stream = encode(&events);
    insta::assert_snapshot!("interleaved_calls", stream);
    let again = ModelTurn::from_events(&decode_complete(&stream));
    assert_eq!(again.items[1..], ModelTurn::from_events(&events).items[1..]);
    assert_eq!(again.finish, Some(FinishReason::Length));
}

#[test]
fn calls_without_ids_get_generated_ids() {
    let events: Vec<TurnEvent> = [call(0, ""), call(1, "")].concat();
    let turn = ModelTurn::from_events(&decode_complete(&encode(&events)));
    let ids: Vec<_> = turn.tool_calls().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_1_0", "call_1_1"]);
    let whole = responses::encode_response(&head(), &ModelTurn::from_events(&events));
    assert_eq!(
        ModelTurn::from_events(&responses::decode_response(&whole).unwrap()).items,
        turn.items
    );
}

#[test]
fn error_ends_stream() {
    let failure = ProviderError {
        kind: Some("overloaded_error".to_owned()),
        message: "busy".to_owned(),
        code: None,
    };
    let stream = encode(&[
        start(),
        text("Hi"),
        TurnEvent::Error(failure.clone()),
        text("?"),
    ]);
    insta::assert_snapshot!("error", stream);
    assert_eq!(
        ModelTurn::from_events(&decode_complete(&stream)).error,
        Some(failure)
    );
}

#[test]
fn reasoning_keeps_provider_id() {
    let proof = |id: &str| {
        Some(ReasoningProof::Encrypted {
            id: id.to_owned(),
            content: Some("gAAA".to_owned()),
        })
    };
    let events = [
        TurnEvent::ReasoningStart("rs_a".to_owned()),
        TurnEvent::ReasoningEnd(proof("rs_a")),
        TurnEvent::ReasoningEnd(proof("rs_b")),
        // Proofs of other providers have no equivalent here.
        TurnEvent::ReasoningEnd(Some(ReasoningProof::Redacted("x".to_owned()))),
        TurnEvent::Reasoning("hm".to_owned()),
        TurnEvent::ReasoningEnd(Some(ReasoningProof::Signature("x".to_owned()))),
    ];
    let turn = ModelTurn::from_events(&decode_complete(&encode(&events)));
    let ids: Vec<_> = turn
        .items
        .iter()
        .filter_map(|item| match item {
            TurnItem::Reasoning {
                proof: Some(ReasoningProof::Encrypted { id, content }),
                ..
            } => Some((id.as_str(), content.as_deref())),
            _ => None,
        })
        .collect();
    assert_eq!(
        ids,
        [
            ("rs_a", Some("gAAA")),
            ("rs_b", Some("gAAA")),
            ("rs_1_2", None)
        ]
    );
    let whole = responses::encode_response(&head(), &turn);
    let again = ModelTurn::from_events(&responses::decode_response(&whole).unwrap());
    assert_eq!(comparable(&again), comparable(&turn));
}

#[test]
fn stream_is_translated_to_chat_and_back() {
    let (mut encoder, mut chat) = (chat::ChatEncoder::new(head()), String::new());
    for event in decode_complete(&pieces()) {
        encoder.encode(&event, &mut chat);
    }
    encoder.finish(&mut chat);
    insta::assert_snapshot!("stream_to_chat", chat);
    let (mut raw, mut events) = (Vec::new(), Vec::new());
    sse::SseDecoder::new(1 << 20)
        .feed(chat.as_bytes(), &mut raw)
        .unwrap();
    let mut decoder = chat::ChatDecoder::default();
    for event in &raw {
        decoder.decode(event, &mut events).unwrap();
    }
    let stream = encode(&events);
    insta::assert_snapshot!("stream_from_chat", stream);
    let whole = ModelTurn::from_events(&responses::decode_response(RESPONSE).unwrap());
    let again = ModelTurn::from_events(&decode_complete(&stream));
    assert_eq!(again.items[1..], whole.items[1..]);
    assert_eq!(again.finish, whole.finish);
}

/// Dialect-specific items round-trip when the decoder preserves raw content.
#[test]
fn dialect_specific_items_are_preserved() {
    let search = r#"{"type":"web_search_call","id":"ws_0","status":"completed","action":{"query":"q","n":1.50}}"#;
    let cited =
        r#"{"type":"url_citation","url":"https://example.com","start_index":0,"end_index":3}"#;
    let pieces = [
        r#"{"type":"response.created","response":{"id":"r","model":"m"}}"#.to_owned(),
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"web_search_call","id":"ws_0","status":"in_progress"}}"#.to_owned(),
        r#"{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_0"}"#.to_owned(),
        r#"{"type":"response.code_interpreter_call_code.delta","output_index":0,"delta":"x"}"#.to_owned(),
        format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{search}}}"#),
        r#"{"type":"response.output_text.delta","output_index":1,"delta":"Yes"}"#.to_owned(),
        format!(r#"{{"type":"response.output_text.annotation.added","output_index":1,"annotation_index":0,"annotation":{cited}}}"#),
        r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#.to_owned(),
    ];
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let decode_raw = |stream: &str| {
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let mut bytes = sse::SseDecoder::new(1 << 20);
        bytes.feed(stream.as_bytes(), &mut raw).unwrap();
        let mut decoder = responses::ResponsesDecoder::default().preserve_raw();
        for event in &raw {
            decoder.decode(event, &mut events).unwrap();
        }
        events
    };
    let events = decode_raw(&stream(&pieces));
    let (search, cited) = (parse(search), parse(cited));
    assert!(
        events.contains(&TurnEvent::Raw(search.clone())),
        "{events:?}"
    );
    assert!(events.contains(&TurnEvent::Annotation(cited.clone())));
    let encoded = encode(&events);
    assert_eq!(
        decode_raw(&encoded)
            .iter()
            .filter(|event| matches!(event, TurnEvent::Raw(_) | TurnEvent::Annotation(_)))
            .count(),
        2
    );
    let last = encoded
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back()
        .unwrap();
    let output = parse(last)["response"]["output"].clone();
    assert_eq!(output[0], search);
    assert_eq!(
        output[1]["content"][0]["annotations"],
        serde_json::Value::Array(vec![cited.clone()])
    );
    let whole =
        json!({"id": "r", "model": "m", "status": "completed", "output": output}).to_string();
    let again = responses::decode_response_with_raw(&whole).unwrap();
    assert_eq!(
        ModelTurn::from_events(&again).items,
        ModelTurn::from_events(&events).items
    );
    assert!(
        !ModelTurn::from_events(&again).has_pending_caller_call(),
        "the provider has already run the call"
    );
}

#[test]
fn dialect_specific_calls_are_pending_for_caller() {
    let is_pending = |items: &str| {
        let body = format!(r#"{{"id":"r","model":"m","status":"completed","output":{items}}}"#);
        ModelTurn::from_events(&responses::decode_response_with_raw(&body).unwrap())
            .has_pending_caller_call()
    };
    assert!(is_pending(
        r#"[{"type":"custom_tool_call","call_id":"c","name":"x","input":"y"}]"#
    ));
    assert!(is_pending(r#"[{"type":"mcp_approval_request","id":"m"}]"#));
    assert!(!is_pending(
        r#"[{"type":"shell_call","call_id":"c"},{"type":"shell_call_output","call_id":"c"}]"#
    ));
    assert!(!is_pending(
        r#"[{"type":"code_interpreter_call","id":"c","code":"1"}]"#
    ));
}

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

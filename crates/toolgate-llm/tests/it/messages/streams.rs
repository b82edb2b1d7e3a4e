//! Streamed responses.

use toolgate_core::sse;
use toolgate_llm::Dialect::{Chat, Messages};
use toolgate_llm::event::{ProviderError, ReasoningProof};
use toolgate_llm::{FinishReason, ModelTurn, TurnEvent, WireFormat as _, messages};

use super::response_bodies::RESPONSE;
use super::{decode, decode_complete, encode, head};

/// [`RESPONSE`] as the provider streams it.
const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_9","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xx"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Let me"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":" see."}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_1","name":"add","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"1.0}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":4}

event: content_block_start
data: {"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_2","name":"now","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":5}

event: something_new
data: {"type":"something_new","state":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":50,"output_tokens_details":{"thinking_tokens":20},"cache_read_input_tokens":null}}

event: message_stop
data: {"type":"message_stop"}

"#;

fn text(text: &str) -> TurnEvent {
    TurnEvent::Text(text.to_owned())
}

fn start(index: usize) -> TurnEvent {
    TurnEvent::CallStart {
        index,
        id: format!("c{index}"),
        name: "t".to_owned(),
    }
}

fn delta(index: usize, arguments: &str) -> TurnEvent {
    TurnEvent::CallDelta {
        index,
        arguments: arguments.to_owned(),
    }
}

fn end(index: usize) -> TurnEvent {
    TurnEvent::CallEnd { index }
}

#[test]
fn response_and_its_stream_decode_to_same_turn() {
    let whole = ModelTurn::from_events(&Messages.decode_response(RESPONSE).unwrap());
    let events = decode_complete(STREAM);
    assert_eq!(ModelTurn::from_events(&events), whole);
    insta::assert_debug_snapshot!("stream_events", events);
    insta::assert_snapshot!("stream", encode(Messages, &events));
}

#[test]
fn interleaved_calls_are_encoded_sequentially() {
    let chat = r#"data: {"id":"chatcmpl-9","model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":"hm"}}]}

data: {"choices":[{"index":0,"delta":{"content":"See"}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"a","arguments":""}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"b","arguments":"{\"x\""}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}

data: {"choices":[{"index":0,"delta":{"content":"!","tool_calls":[{"index":1,"function":{"arguments":":1}"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

"#;
    let (mut raw, mut events) = (Vec::new(), Vec::new());
    toolgate_core::sse::SseDecoder::new(1 << 20)
        .feed(chat.as_bytes(), &mut raw)
        .unwrap();
    let mut decoder = Chat.stream_decoder();
    for event in &raw {
        decoder.decode(event, &mut events).unwrap();
    }
    let stream = encode(Messages, &events);
    insta::assert_snapshot!("stream_from_chat", stream);
    let (again, before) = (
        ModelTurn::from_events(&decode_complete(&stream)),
        ModelTurn::from_events(&events),
    );
    assert_eq!(again.items, before.items);
    assert_eq!(again.finish, Some(FinishReason::ToolCalls));
}

#[test]
fn several_turns_are_encoded_as_one_stream() {
    let turn = |call: &str| {
        let id = String::new();
        let model = String::new();
        let signature = ReasoningProof::Signature("s".to_owned());
        // The last call of each turn has no end event.
        vec![
            TurnEvent::Start { id, model },
            TurnEvent::Reasoning("hm".to_owned()),
            TurnEvent::ReasoningEnd(Some(signature)),
            text("So:"),
            start(0),
            delta(0, call),
            start(1),
            delta(1, call),
            end(0),
            TurnEvent::Finish(FinishReason::ToolCalls),
        ]
    };
    let mut events = turn("{}");
    events.extend(turn("{\"a\":1}"));
    events.extend([text("Done."), TurnEvent::Finish(FinishReason::Stop)]);
    insta::assert_snapshot!("multi_turn_stream", encode(Messages, &events));
}

#[test]
fn error_ends_stream() {
    let failure = ProviderError {
        kind: Some("server_error".to_owned()),
        message: "broken".to_owned(),
        code: None,
    };
    let events = [text("x"), TurnEvent::Error(failure), text("y")];
    let stream = encode(Messages, &events);
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"broken\"}}\n\n";
    assert!(stream.ends_with(error), "{stream}");
    let turn = ModelTurn::from_events(&decode_complete(&stream));
    let failure = turn.error.unwrap();
    assert_eq!(failure.kind.as_deref(), Some("api_error"));
    assert_eq!((failure.message.as_str(), turn.finish), ("broken", None));
}

#[test]
fn cut_off_stream_is_not_done() {
    let at = STREAM.find("event: message_stop").unwrap();
    let (events, done) = decode(&STREAM[..at]).unwrap();
    assert!(!done && events.contains(&TurnEvent::Finish(FinishReason::ToolCalls)));
}

#[test]
fn stream_with_omitted_optional_members_is_decoded() {
    let stream = r#"data: {"type":"content_block_start","content_block":{"type":"text"}}

data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}

event: content_block_start
data: {"index":1,"content_block":{"type":"tool_use","id":"c","name":"t","input":{"a": 1}}}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":null}

data: {"type":"message_stop"}

data: [DONE]

"#;
    let (id, model) = (String::new(), String::new());
    let call = TurnEvent::CallStart {
        index: 0,
        id: "c".to_owned(),
        name: "t".to_owned(),
    };
    let expected = [
        TurnEvent::Start { id, model },
        text("x"),
        call,
        delta(0, "{\"a\":1}"),
        end(0),
        TurnEvent::Finish(FinishReason::ToolCalls),
    ];
    assert_eq!(decode_complete(stream), expected);
}

#[test]
fn unsupported_content_is_named_in_error() {
    for (event, expected) in [
        ("nonsense", "expected"),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result"}}"#,
            "`web_search_tool_result`",
        ),
        (
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"x"}}"#,
            "`compaction_delta`",
        ),
        (
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"x"}}"#,
            "`input_json_delta`",
        ),
        (
            r#"{"type":"content_block_insert","content_block":{"type":"text","text":"x"}}"#,
            "`content_block_insert`",
        ),
    ] {
        let error = decode(&format!("data: {event}\n\n"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Dialect-specific blocks round-trip when the decoder preserves raw content.
#[test]
fn dialect_specific_blocks_are_preserved() {
    let pieces = [
        r#"{"type":"message_start","message":{"id":"m","model":"x","usage":{"input_tokens":1,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\":"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\"q\"}"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","encrypted_content":"e"}]}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Yes."}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location","url":"u"}}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn"},"usage":{"output_tokens":2}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let stream: String = pieces
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    let decode_raw = |stream: &str| {
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let mut bytes = sse::SseDecoder::new(1 << 20);
        bytes.feed(stream.as_bytes(), &mut raw).unwrap();
        let mut decoder = messages::MessagesDecoder::default().preserve_raw();
        for event in &raw {
            decoder.decode(event, &mut events).unwrap();
        }
        events
    };
    let events = decode_raw(&stream);
    let raw: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            TurnEvent::Raw(block) => Some(block.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(raw[0]["input"]["query"], "q");
    assert_eq!(raw[1]["content"][0]["encrypted_content"], "e");
    let again = decode_raw(&encode(Messages, &events));
    assert_eq!(
        ModelTurn::from_events(&again).items,
        ModelTurn::from_events(&events).items
    );
    let annotation = |event: &&TurnEvent| matches!(event, TurnEvent::Annotation(_));
    assert_eq!(again.iter().filter(annotation).count(), 1);
    let whole = messages::encode_response(&head(), &ModelTurn::from_events(&events));
    let whole = messages::decode_response_with_raw(&whole).unwrap();
    assert_eq!(
        ModelTurn::from_events(&whole).items,
        ModelTurn::from_events(&events).items
    );
}

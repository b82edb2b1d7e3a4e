//! Answers that come in pieces.

use toolgate_core::sse;
use toolgate_llm::Dialect::{Chat, Messages};
use toolgate_llm::event::{Failure, Proof};
use toolgate_llm::{Event, Finish, Turn, Wire as _, messages};

use super::answers::ANSWER;
use super::{decode, decoded, encoded, head};

/// As the provider says what [`ANSWER`] says.
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

fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

fn start(index: usize) -> Event {
    Event::CallStart {
        index,
        id: format!("c{index}"),
        name: "t".to_owned(),
    }
}

fn delta(index: usize, arguments: &str) -> Event {
    Event::CallDelta {
        index,
        arguments: arguments.to_owned(),
    }
}

fn end(index: usize) -> Event {
    Event::CallEnd { index }
}

#[test]
fn a_whole_answer_and_its_stream_mean_the_same() {
    let whole = Turn::of(&Messages.events(ANSWER).unwrap());
    let events = decoded(STREAM);
    assert_eq!(Turn::of(&events), whole);
    insta::assert_debug_snapshot!("stream_events", events);
    insta::assert_snapshot!("stream", encoded(Messages, &events));
}

#[test]
fn calls_that_are_interleaved_come_one_after_the_other() {
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
    toolgate_core::sse::Decoder::new(1 << 20)
        .feed(chat.as_bytes(), &mut raw)
        .unwrap();
    let mut decoder = Chat.decoder();
    for event in &raw {
        decoder.take(event, &mut events).unwrap();
    }
    let stream = encoded(Messages, &events);
    insta::assert_snapshot!("stream_of_chat", stream);
    let (again, before) = (Turn::of(&decoded(&stream)), Turn::of(&events));
    assert_eq!(again.items, before.items);
    assert_eq!(again.finish, Some(Finish::Calls));
}

#[test]
fn several_turns_are_one_stream() {
    let turn = |call: &str| {
        let id = String::new();
        let model = String::new();
        let signature = Proof::Signature("s".to_owned());
        // The last call of each turn is not ended by itself.
        vec![
            Event::Start { id, model },
            Event::Reasoning("hm".to_owned()),
            Event::ReasoningEnd(Some(signature)),
            text("So:"),
            start(0),
            delta(0, call),
            start(1),
            delta(1, call),
            end(0),
            Event::Finish(Finish::Calls),
        ]
    };
    let mut events = turn("{}");
    events.extend(turn("{\"a\":1}"));
    events.extend([text("Done."), Event::Finish(Finish::Stop)]);
    insta::assert_snapshot!("stream_of_turns", encoded(Messages, &events));
}

#[test]
fn errors_end_a_stream() {
    let failure = Failure {
        kind: Some("server_error".to_owned()),
        message: "broken".to_owned(),
        code: None,
    };
    let events = [text("x"), Event::Failed(failure), text("y")];
    let stream = encoded(Messages, &events);
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"broken\"}}\n\n";
    assert!(stream.ends_with(error), "{stream}");
    let turn = Turn::of(&decoded(&stream));
    let failure = turn.failure.unwrap();
    assert_eq!(failure.kind.as_deref(), Some("api_error"));
    assert_eq!((failure.message.as_str(), turn.finish), ("broken", None));
}

#[test]
fn a_stream_that_breaks_off_is_not_done() {
    let at = STREAM.find("event: message_stop").unwrap();
    let (events, done) = decode(&STREAM[..at]).unwrap();
    assert!(!done && events.contains(&Event::Finish(Finish::Calls)));
}

#[test]
fn what_providers_leave_out_is_not_missed() {
    let stream = r#"data: {"type":"content_block_start","content_block":{"type":"text"}}

data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}

event: content_block_start
data: {"index":1,"content_block":{"type":"tool_use","id":"c","name":"t","input":{"a": 1}}}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":null}

data: {"type":"message_stop"}

data: [DONE]

"#;
    let (id, model) = (String::new(), String::new());
    let call = Event::CallStart {
        index: 0,
        id: "c".to_owned(),
        name: "t".to_owned(),
    };
    let expected = [
        Event::Start { id, model },
        text("x"),
        call,
        delta(0, "{\"a\":1}"),
        end(0),
        Event::Finish(Finish::Calls),
    ];
    assert_eq!(decoded(stream), expected);
}

#[test]
fn what_is_not_understood_is_named() {
    for (event, what) in [
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
        assert!(error.contains(what), "{error}");
    }
}

/// What only this dialect can say goes through it whole, if that is wanted.
#[test]
fn blocks_of_the_provider_are_kept_as_they_came() {
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
    let kept = |stream: &str| {
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let mut bytes = sse::Decoder::new(1 << 20);
        bytes.feed(stream.as_bytes(), &mut raw).unwrap();
        let mut decoder = messages::Decoder::default().keeping_raw();
        for event in &raw {
            decoder.take(event, &mut events).unwrap();
        }
        events
    };
    let events = kept(&stream);
    let raw: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Raw(block) => Some(block.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(raw[0]["input"]["query"], "q");
    assert_eq!(raw[1]["content"][0]["encrypted_content"], "e");
    let again = kept(&encoded(Messages, &events));
    assert_eq!(Turn::of(&again).items, Turn::of(&events).items);
    let annotation = |event: &&Event| matches!(event, Event::Annotation(_));
    assert_eq!(again.iter().filter(annotation).count(), 1);
    let whole = messages::answer(&head(), &Turn::of(&events));
    let whole = messages::events_with_raw(&whole).unwrap();
    assert_eq!(Turn::of(&whole).items, Turn::of(&events).items);
}

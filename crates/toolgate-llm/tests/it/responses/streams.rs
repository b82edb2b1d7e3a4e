//! Answers that come in pieces.

use serde_json::json;
use toolgate_core::sse;
use toolgate_llm::event::{Failure, Finish, Proof};
use toolgate_llm::turn::Item;
use toolgate_llm::{Event, Turn, chat, responses};

use super::answers::WHOLE;
use super::{decode, decoded, encoded, essence, head, stream};

/// As OpenAI streams the same answer.
const PIECES: &[&str] = &[
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
    let whole = WHOLE.replace('\n', "");
    let last = format!(r#"{{"type":"response.completed","response":{whole}}}"#);
    let mut pieces = PIECES.to_vec();
    pieces.push(&last);
    stream(&pieces)
}

#[test]
fn pieces_mean_what_the_whole_means_at_every_chunking() {
    let whole = Turn::of(&responses::events(WHOLE).unwrap());
    let stream = pieces();
    for size in [1, 2, 3, 7, 64, 1000, stream.len()] {
        let (events, is_done) = decode(&stream, size).unwrap();
        assert!(is_done);
        assert_eq!(Turn::of(&events), whole);
    }
    let (_, is_done) = decode(&super::stream(PIECES), 100).unwrap();
    assert!(!is_done, "a stream without its last event broke off");
}

/// As llama.cpp streams: no places, reasoning as it is, and its end after all else.
#[test]
fn a_server_that_tells_no_places_is_understood() {
    let events = decoded(&stream(&[
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
    let whole = Turn::of(&responses::events(whole).unwrap());
    assert_eq!(essence(&Turn::of(&events)), essence(&whole));
}

#[test]
fn what_comes_without_deltas_is_told_once() {
    let item = r#"{"type":"message","content":[{"type":"output_text","text":"Hi"}]}"#;
    let call =
        r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"add","arguments":"{}"}"#;
    let done = |item: &str| format!(r#"{{"type":"response.output_item.done","item":{item}}}"#);
    let end = format!(r#"{{"type":"response.completed","response":{{"output":[{item},{call}]}}}}"#);
    let expected =
        Turn::of(&responses::events(&format!(r#"{{"output":[{item},{call}]}}"#)).unwrap());
    let items = [done(item), done(call)];
    for data in [vec![end.as_str()], vec![&items[0], &items[1], &end]] {
        assert_eq!(Turn::of(&decoded(&stream(&data))), expected);
    }
}

#[test]
fn errors_in_the_stream_are_failures() {
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
        let failures = decoded(&stream(&data));
        let failures = failures.iter().filter_map(|event| match event {
            Event::Failed(failure) => Some(failure),
            _ => None,
        });
        let expected = Failure {
            kind: kind.map(str::to_owned),
            message: "slow down".to_owned(),
            code: Some(json!("rate_limit_exceeded")),
        };
        assert_eq!(failures.collect::<Vec<_>>(), [&expected], "{data:?}");
    }
}

#[test]
fn content_that_is_not_understood_is_named() {
    for (data, what) in [
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
        assert!(error.to_string().contains(what), "{error}");
    }
    let unknown = stream(&[r#"{"type":"codex.rate_limits","plan":"x"}"#, "", "[DONE]"]);
    assert_eq!(decode(&unknown, 100).unwrap(), (Vec::new(), false));
}

fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

fn call(index: usize, id: &str) -> [Event; 2] {
    let (id, name) = (id.to_owned(), "add".to_owned());
    let arguments = "{}".to_owned();
    [
        Event::CallStart { index, id, name },
        Event::CallDelta { index, arguments },
    ]
}

fn start() -> Event {
    Event::Start {
        id: "x".to_owned(),
        model: "y".to_owned(),
    }
}

#[test]
fn turns_follow_one_another_in_one_stream() {
    let mut events = vec![start(), text("One")];
    events.extend(call(0, "c1"));
    events.extend([Event::CallEnd { index: 0 }, Event::Finish(Finish::Calls)]);
    events.extend([start(), text("Two"), Event::Refusal("No".to_owned())]);
    events.extend(call(0, "c2"));
    events.extend([Event::CallEnd { index: 0 }, Event::Finish(Finish::Stop)]);
    let stream = encoded(&events);
    insta::assert_snapshot!("turns", stream);
    let mut turn = Turn::of(&events);
    turn.finish = Some(Finish::Calls);
    assert_eq!(essence(&Turn::of(&decoded(&stream))), essence(&turn));
}

#[test]
fn calls_are_told_side_by_side_and_cut() {
    let mut events = vec![start(), Event::Reasoning("hm".to_owned())];
    let ([begin, more], [also, too]) = (call(4, "c1"), call(2, "c2"));
    events.extend([begin, also, too, more, text("and")]);
    events.push(Event::Finish(Finish::Length));
    let stream = encoded(&events);
    insta::assert_snapshot!("side_by_side", stream);
    let again = Turn::of(&decoded(&stream));
    assert_eq!(again.items[1..], Turn::of(&events).items[1..]);
    assert_eq!(again.finish, Some(Finish::Length));
}

#[test]
fn calls_without_ids_get_some() {
    let events: Vec<Event> = [call(0, ""), call(1, "")].concat();
    let turn = Turn::of(&decoded(&encoded(&events)));
    let ids: Vec<_> = turn.calls().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_1_0", "call_1_1"]);
    let whole = responses::answer(&head(), &Turn::of(&events));
    assert_eq!(
        Turn::of(&responses::events(&whole).unwrap()).items,
        turn.items
    );
}

#[test]
fn a_failure_ends_the_stream() {
    let failure = Failure {
        kind: Some("overloaded_error".to_owned()),
        message: "busy".to_owned(),
        code: None,
    };
    let stream = encoded(&[
        start(),
        text("Hi"),
        Event::Failed(failure.clone()),
        text("?"),
    ]);
    insta::assert_snapshot!("failed", stream);
    assert_eq!(Turn::of(&decoded(&stream)).failure, Some(failure));
}

#[test]
fn reasoning_keeps_the_id_that_its_provider_knows() {
    let proof = |id: &str| {
        Some(Proof::Encrypted {
            id: id.to_owned(),
            content: Some("gAAA".to_owned()),
        })
    };
    let events = [
        Event::ReasoningStart("rs_a".to_owned()),
        Event::ReasoningEnd(proof("rs_a")),
        Event::ReasoningEnd(proof("rs_b")),
        // Proofs of other providers mean nothing here.
        Event::ReasoningEnd(Some(Proof::Redacted("x".to_owned()))),
        Event::Reasoning("hm".to_owned()),
        Event::ReasoningEnd(Some(Proof::Signature("x".to_owned()))),
    ];
    let turn = Turn::of(&decoded(&encoded(&events)));
    let ids: Vec<_> = turn
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Reasoning {
                proof: Some(Proof::Encrypted { id, content }),
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
    let whole = responses::answer(&head(), &turn);
    let again = Turn::of(&responses::events(&whole).unwrap());
    assert_eq!(essence(&again), essence(&turn));
}

#[test]
fn a_stream_is_said_in_chat_and_back() {
    let (mut encoder, mut chat) = (chat::Encoder::new(head()), String::new());
    for event in decoded(&pieces()) {
        encoder.put(&event, &mut chat);
    }
    encoder.end(&mut chat);
    insta::assert_snapshot!("stream_to_chat", chat);
    let (mut raw, mut events) = (Vec::new(), Vec::new());
    sse::Decoder::new(1 << 20)
        .feed(chat.as_bytes(), &mut raw)
        .unwrap();
    let mut decoder = chat::Decoder::default();
    for event in &raw {
        decoder.take(event, &mut events).unwrap();
    }
    let stream = encoded(&events);
    insta::assert_snapshot!("stream_from_chat", stream);
    let whole = Turn::of(&responses::events(WHOLE).unwrap());
    let again = Turn::of(&decoded(&stream));
    assert_eq!(again.items[1..], whole.items[1..]);
    assert_eq!(again.finish, whole.finish);
}

/// What only this dialect can say goes through it whole, if that is wanted.
#[test]
fn items_of_the_provider_are_kept_as_they_came() {
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
    let kept = |stream: &str| {
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let mut bytes = sse::Decoder::new(1 << 20);
        bytes.feed(stream.as_bytes(), &mut raw).unwrap();
        let mut decoder = responses::Decoder::default().keeping_raw();
        for event in &raw {
            decoder.take(event, &mut events).unwrap();
        }
        events
    };
    let events = kept(&stream(&pieces));
    let (search, cited) = (parsed(search), parsed(cited));
    assert!(events.contains(&Event::Raw(search.clone())), "{events:?}");
    assert!(events.contains(&Event::Annotation(cited.clone())));
    let told = encoded(&events);
    assert_eq!(
        kept(&told)
            .iter()
            .filter(|event| matches!(event, Event::Raw(_) | Event::Annotation(_)))
            .count(),
        2
    );
    let last = told
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .next_back()
        .unwrap();
    let output = parsed(last)["response"]["output"].clone();
    assert_eq!(output[0], search);
    assert_eq!(
        output[1]["content"][0]["annotations"],
        serde_json::Value::Array(vec![cited.clone()])
    );
    let whole =
        json!({"id": "r", "model": "m", "status": "completed", "output": output}).to_string();
    let again = responses::events_with_raw(&whole).unwrap();
    assert_eq!(Turn::of(&again).items, Turn::of(&events).items);
    assert!(!Turn::of(&again).awaits_caller(), "the provider has run it");
}

#[test]
fn calls_in_another_form_are_the_callers_to_answer() {
    let awaits = |items: &str| {
        let body = format!(r#"{{"id":"r","model":"m","status":"completed","output":{items}}}"#);
        Turn::of(&responses::events_with_raw(&body).unwrap()).awaits_caller()
    };
    assert!(awaits(
        r#"[{"type":"custom_tool_call","call_id":"c","name":"x","input":"y"}]"#
    ));
    assert!(awaits(r#"[{"type":"mcp_approval_request","id":"m"}]"#));
    assert!(!awaits(
        r#"[{"type":"shell_call","call_id":"c"},{"type":"shell_call_output","call_id":"c"}]"#
    ));
    assert!(!awaits(
        r#"[{"type":"code_interpreter_call","id":"c","code":"1"}]"#
    ));
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

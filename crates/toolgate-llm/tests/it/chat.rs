//! OpenAI Chat Completions, to and from the hub.

use toolgate_core::sse;
use toolgate_llm::prompt::IgnoredFields;
use toolgate_llm::turn::ResponseHead;
use toolgate_llm::{Dialect, ModelTurn, TurnEvent, WireFormat as _};

fn head() -> ResponseHead {
    ResponseHead {
        id: "chatcmpl-1".to_owned(),
        model: "m".to_owned(),
        created: 7,
        stream_usage: true,
        namespaces: Vec::new(),
    }
}

/// Decodes a complete stream.
fn decode_complete(dialect: Dialect, stream: &str) -> Vec<TurnEvent> {
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    sse::SseDecoder::new(1 << 20)
        .feed(stream.as_bytes(), &mut raw)
        .unwrap();
    let mut decoder = dialect.stream_decoder();
    for event in &raw {
        decoder.decode(event, &mut out).unwrap();
    }
    assert!(decoder.is_done());
    out
}

#[test]
fn response_and_its_stream_decode_to_same_turn() {
    let whole = r#"{"id":"chatcmpl-9","object":"chat.completion","created":1,"model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"Let me see.","refusal":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}},{"id":"c2","type":"function","function":{"name":"sub","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}"#;
    let events = Dialect::Chat.decode_response(whole).unwrap();
    let turn = ModelTurn::from_events(&events);
    assert_eq!(turn.text(), "Let me see.");
    assert_eq!(turn.tool_calls().count(), 2);
    insta::assert_snapshot!("response", Dialect::Chat.encode_response(&head(), &turn));
    let mut encoder = Dialect::Chat.stream_encoder(head());
    let mut stream = String::new();
    events
        .iter()
        .for_each(|event| encoder.encode(event, &mut stream));
    encoder.finish(&mut stream);
    insta::assert_snapshot!("response_stream", stream);
    let again = ModelTurn::from_events(&decode_complete(Dialect::Chat, &stream));
    assert_eq!(
        (&again.items, &again.usage, &again.finish),
        (&turn.items, &turn.usage, &turn.finish)
    );
}

#[test]
fn unsupported_request_fields_are_named_in_error() {
    let ignored = IgnoredFields::default();
    for (body, field) in [
        (
            r#"{"model":"m","messages":[],"logit_bias":{"5":1}}"#,
            "logit_bias",
        ),
        (r#"{"model":"m","messages":[],"n":2}"#, "n"),
        (
            r#"{"model":"m","messages":[],"tools":[{"type":"custom"}]}"#,
            "tools[0].type",
        ),
        (
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}"#,
            "messages[0].content[0].file.file_data",
        ),
        (
            r#"{"model":"m","messages":[{"role":"user","content":"x","name":"bob"}]}"#,
            "messages[0].name",
        ),
    ] {
        let error = Dialect::Chat.decode_request(body, &ignored).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
    let ignoring = IgnoredFields(vec!["logit_bias".to_owned()]);
    let body = r#"{"model":"m","messages":[],"logit_bias":{"5":1},"seed":null}"#;
    Dialect::Chat.decode_request(body, &ignoring).unwrap();
}

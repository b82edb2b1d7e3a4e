//! OpenAI Chat Completions, into the hub and out of it.

use toolgate_core::sse;
use toolgate_llm::prompt::Ignored;
use toolgate_llm::turn::Head;
use toolgate_llm::{Dialect, Event, Turn, Wire as _};

fn head() -> Head {
    Head {
        id: "chatcmpl-1".to_owned(),
        model: "m".to_owned(),
        created: 7,
        stream_usage: true,
        namespaces: Vec::new(),
    }
}

/// The events of a stream.
fn decoded(dialect: Dialect, stream: &str) -> Vec<Event> {
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    sse::Decoder::new(1 << 20)
        .feed(stream.as_bytes(), &mut raw)
        .unwrap();
    let mut decoder = dialect.decoder();
    for event in &raw {
        decoder.take(event, &mut out).unwrap();
    }
    assert!(decoder.is_done());
    out
}

#[test]
fn a_whole_answer_and_its_stream_mean_the_same() {
    let whole = r#"{"id":"chatcmpl-9","object":"chat.completion","created":1,"model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"Let me see.","refusal":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}},{"id":"c2","type":"function","function":{"name":"sub","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}"#;
    let events = Dialect::Chat.events(whole).unwrap();
    let turn = Turn::of(&events);
    assert_eq!(turn.text(), "Let me see.");
    assert_eq!(turn.calls().count(), 2);
    insta::assert_snapshot!("whole", Dialect::Chat.answer(&head(), &turn));
    let mut encoder = Dialect::Chat.encoder(head());
    let mut stream = String::new();
    events
        .iter()
        .for_each(|event| encoder.put(event, &mut stream));
    encoder.end(&mut stream);
    insta::assert_snapshot!("stream", stream);
    let again = Turn::of(&decoded(Dialect::Chat, &stream));
    assert_eq!(
        (&again.items, &again.usage, &again.finish),
        (&turn.items, &turn.usage, &turn.finish)
    );
}

#[test]
fn what_only_this_dialect_can_say_is_named() {
    let ignored = Ignored::default();
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
        let error = Dialect::Chat.read(body, &ignored).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
    let forgiving = Ignored(vec!["logit_bias".to_owned()]);
    let body = r#"{"model":"m","messages":[],"logit_bias":{"5":1},"seed":null}"#;
    Dialect::Chat.read(body, &forgiving).unwrap();
}

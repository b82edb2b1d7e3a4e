//! Whole answers.

use serde_json::json;
use toolgate_llm::event::{Failure, Finish, Proof};
use toolgate_llm::turn::Item;
use toolgate_llm::{Event, Turn, Usage, chat, responses};

use super::{decoded, encoded, essence, head, pretty};

/// An answer with all that an answer can hold.
pub(super) const WHOLE: &str = r#"{"id":"resp_9","object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,"model":"gpt-x",
  "output":[
    {"id":"rs_9","type":"reasoning","summary":[{"type":"summary_text","text":"First."},{"type":"summary_text","text":"Second."}],"encrypted_content":"gAAA"},
    {"id":"msg_9","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Let me see."}]},
    {"id":"fc_9","type":"function_call","status":"completed","arguments":"{\"a\":1}","call_id":"c1","name":"add"},
    {"id":"fc_8","type":"function_call","status":"completed","arguments":"{}","call_id":"c2","name":"sub"}],
  "usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":15}}"#;

#[test]
fn a_whole_answer_and_its_stream_mean_the_same() {
    let events = responses::events(WHOLE).unwrap();
    let turn = Turn::of(&events);
    assert_eq!(turn.finish, Some(Finish::Calls));
    assert_eq!(
        turn.usage,
        Some(Usage {
            input: 10,
            output: 5,
            cached: 4,
            cache_written: 3,
            reasoning: 2,
        })
    );
    assert_eq!(
        turn.items[0],
        Item::Reasoning {
            text: "First.\n\nSecond.".to_owned(),
            proof: Some(Proof::Encrypted {
                id: "rs_9".to_owned(),
                content: Some("gAAA".to_owned()),
            }),
        }
    );
    let whole = responses::answer(&head(), &turn);
    insta::assert_snapshot!("whole", pretty(&whole));
    let again = Turn::of(&responses::events(&whole).unwrap());
    assert_eq!(essence(&again), essence(&turn));
    let stream = encoded(&events);
    insta::assert_snapshot!("stream", stream);
    assert_eq!(essence(&Turn::of(&decoded(&stream))), essence(&turn));
}

#[test]
fn an_answer_is_said_in_chat_and_back() {
    let turn = Turn::of(&responses::events(WHOLE).unwrap());
    let chat = chat::answer(&head(), &turn);
    insta::assert_snapshot!("answer_to_chat", pretty(&chat));
    let turn = Turn::of(&chat::events(&chat).unwrap());
    insta::assert_snapshot!(
        "answer_from_chat",
        pretty(&responses::answer(&head(), &turn))
    );
}

#[test]
fn every_way_to_end_is_known() {
    for (members, finish) in [
        (json!({"status": "completed"}), Finish::Stop),
        (json!({}), Finish::Stop),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            Finish::Length,
        ),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}),
            Finish::Filter,
        ),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "boredom"}}),
            Finish::Other("boredom".to_owned()),
        ),
        (
            json!({"status": "cancelled"}),
            Finish::Other("cancelled".to_owned()),
        ),
    ] {
        let mut body = members;
        body["output"] =
            json!([{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]);
        let turn = Turn::of(&responses::events(&body.to_string()).unwrap());
        assert_eq!(turn.finish, Some(finish), "{body}");
        let again = responses::events(&responses::answer(&head(), &turn)).unwrap();
        assert_eq!(essence(&Turn::of(&again)), essence(&turn));
    }
    let body = r#"{"status":"queued","output":[]}"#;
    let error = responses::events(body).unwrap_err();
    assert!(error.to_string().contains("`queued`"), "{error}");
}

#[test]
fn a_cut_answer_and_a_refusal_look_as_the_api_makes_them() {
    let cut = Turn::of(&[
        Event::Text("a".to_owned()),
        Event::Refusal("no".to_owned()),
        Event::Finish(Finish::Length),
    ]);
    insta::assert_snapshot!("cut", pretty(&responses::answer(&head(), &cut)));
}

#[test]
fn errors_are_failures() {
    let body = r#"{"error":{"message":"no key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#;
    let failure = Failure {
        kind: Some("invalid_request_error".to_owned()),
        message: "no key".to_owned(),
        code: Some(json!("invalid_api_key")),
    };
    let events = responses::events(body).unwrap();
    assert_eq!(events, [Event::Failed(failure.clone())]);
    assert_eq!(responses::error(&failure).to_string(), body);
    let body = r#"{"id":"resp_9","status":"failed","error":{"code":"server_error","message":"oh"},"output":[]}"#;
    let turn = Turn::of(&responses::events(body).unwrap());
    let failure = turn.failure.clone().unwrap();
    assert_eq!(
        (failure.message.as_str(), failure.code),
        ("oh", Some(json!("server_error")))
    );
    let again = responses::events(&responses::answer(&head(), &turn)).unwrap();
    assert_eq!(essence(&Turn::of(&again)), essence(&turn));
}

#[test]
fn what_is_not_understood_is_named() {
    for (output, what) in [
        (
            r#"[{"type":"web_search_call","id":"ws_0"}]"#,
            "web_search_call",
        ),
        (
            r#"[{"type":"message","content":[{"type":"output_audio"}]}]"#,
            "output_audio",
        ),
        ("null", "`output`"),
    ] {
        let error = responses::events(&format!(r#"{{"output":{output}}}"#)).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

//! Whole answers.

use serde_json::json;
use toolgate_llm::Dialect::{Chat, Messages};
use toolgate_llm::event::{Failure, Proof};
use toolgate_llm::turn::Item;
use toolgate_llm::{Event, Finish, Turn, Usage, Wire as _, messages};

use super::{encoded, head, pretty};

pub(super) const ANSWER: &str = r#"{"id":"msg_9","type":"message","role":"assistant","model":"claude-x","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"Let me","citations":null},{"type":"text","text":" see."},{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":1.0},"caller":{"type":"direct"}},{"type":"tool_use","id":"toolu_2","name":"now","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"stop_details":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":5},"output_tokens":50,"output_tokens_details":{"thinking_tokens":20},"service_tier":"standard"}}"#;

#[test]
fn an_answer_is_read() {
    let turn = Turn::of(&Messages.events(ANSWER).unwrap());
    assert_eq!(
        (turn.id.as_str(), turn.model.as_str()),
        ("msg_9", "claude-x")
    );
    assert_eq!(
        turn.usage,
        Some(Usage {
            input: 115,
            output: 50,
            cached: 100,
            cache_written: 5,
            reasoning: 20
        })
    );
    let proofs = turn.items.iter().filter_map(|item| match item {
        Item::Reasoning { proof, .. } => proof.clone(),
        _ => None,
    });
    let expected = [
        Proof::Signature("sig".to_owned()),
        Proof::Redacted("xx".to_owned()),
    ];
    assert_eq!(proofs.collect::<Vec<_>>(), expected);
    insta::assert_snapshot!("answer", pretty(&Messages.answer(&head(), &turn)));
    insta::assert_snapshot!("answer_to_chat", pretty(&Chat.answer(&head(), &turn)));
    let chat = encoded(Chat, &Messages.events(ANSWER).unwrap());
    insta::assert_snapshot!("answer_to_chat_stream", chat);
}

#[test]
fn an_answer_of_chat_is_said() {
    let answer = r#"{"id":"chatcmpl-9","object":"chat.completion","created":1,"model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"Let me see.","refusal":"Or not.","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": 1.0}"}},{"id":"c:2","type":"function","function":{"name":"now","arguments":""}},{"id":"c3","type":"function","function":{"name":"bad","arguments":"{\"a\""}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let events = Chat.events(answer).unwrap();
    let whole = Messages.answer(&head(), &Turn::of(&events));
    insta::assert_snapshot!("answer_of_chat", pretty(&whole));
    insta::assert_snapshot!("answer_of_chat_stream", encoded(Messages, &events));
}

#[test]
fn an_answer_that_says_nothing_is_still_one() {
    let turn = Turn::of(&[Event::Text(String::new())]);
    let expected = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}"#;
    assert_eq!(Messages.answer(&head(), &turn), expected);
    // What only OpenAI can prove, and says nothing.
    let proof = Proof::Encrypted {
        id: "rs_1".to_owned(),
        content: Some("x".to_owned()),
    };
    let turn = Turn::of(&[Event::ReasoningEnd(Some(proof))]);
    assert_eq!(Messages.answer(&head(), &turn), expected);
}

#[test]
fn every_reason_to_stop_is_known() {
    let sequence = || Finish::Sequence(Some("END".to_owned()));
    let other = || Finish::Other("pause_turn".to_owned());
    for (reason, stop, finish, written) in [
        ("end_turn", json!(null), Finish::Stop, "end_turn"),
        ("stop_sequence", json!("END"), sequence(), "stop_sequence"),
        ("max_tokens", json!(null), Finish::Length, "max_tokens"),
        (
            "model_context_window_exceeded",
            json!(null),
            Finish::Length,
            "max_tokens",
        ),
        ("tool_use", json!(null), Finish::Calls, "tool_use"),
        ("refusal", json!(null), Finish::Filter, "refusal"),
        ("pause_turn", json!(null), other(), "pause_turn"),
    ] {
        let body = json!({"content": [], "stop_reason": reason, "stop_sequence": stop});
        let turn = Turn::of(&Messages.events(&body.to_string()).unwrap());
        assert_eq!(turn.finish, Some(finish));
        let answer: serde_json::Value =
            serde_json::from_str(&Messages.answer(&head(), &turn)).unwrap();
        assert_eq!(answer["stop_reason"], written);
        assert_eq!(answer["stop_sequence"], stop);
    }
}

#[test]
fn what_is_not_understood_is_named() {
    for (body, what) in [
        ("nonsense", "expected"),
        (r#"{"type":"message"}"#, "`content`"),
        (
            r#"{"content":[{"type":"server_tool_use"}]}"#,
            "`server_tool_use`",
        ),
    ] {
        let error = Messages.events(body).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn errors_are_read_and_said() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#;
    let failure = Failure {
        kind: Some("overloaded_error".to_owned()),
        message: "Overloaded".to_owned(),
        code: None,
    };
    assert_eq!(
        Messages.events(body).unwrap(),
        [Event::Failed(failure.clone())]
    );
    let said =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert_eq!(messages::error(&failure), said);
    let text = |text: &str| Some(text.to_owned());
    for (kind, code, expected) in [
        (text("invalid_request_error"), None, "invalid_request_error"),
        (
            text("invalid_request_error"),
            Some(json!("invalid_api_key")),
            "authentication_error",
        ),
        (
            text("invalid_request_error"),
            Some(json!("model_not_found")),
            "not_found_error",
        ),
        (
            text("tokens"),
            Some(json!("rate_limit_exceeded")),
            "rate_limit_error",
        ),
        (
            text("insufficient_quota"),
            Some(json!("insufficient_quota")),
            "billing_error",
        ),
        (text("server_error"), None, "api_error"),
        (None, Some(json!(429)), "rate_limit_error"),
        (None, Some(json!("503")), "overloaded_error"),
        (text("something_new"), None, "api_error"),
        (None, None, "api_error"),
    ] {
        let message = "m".to_owned();
        let failure = Failure {
            kind,
            message,
            code,
        };
        assert_eq!(
            messages::error(&failure)["error"]["type"],
            expected,
            "{failure:?}"
        );
    }
}

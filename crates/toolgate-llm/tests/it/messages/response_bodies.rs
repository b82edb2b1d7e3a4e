//! Complete (non-streaming) responses.

use serde_json::json;
use toolgate_llm::Dialect::{Chat, Messages};
use toolgate_llm::event::{ProviderError, ReasoningProof};
use toolgate_llm::turn::TurnItem;
use toolgate_llm::{FinishReason, ModelTurn, TokenUsage, TurnEvent, WireFormat as _, messages};

use super::{encode, head, pretty};

pub(super) const RESPONSE: &str = r#"{"id":"msg_9","type":"message","role":"assistant","model":"claude-x","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"Let me","citations":null},{"type":"text","text":" see."},{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":1.0},"caller":{"type":"direct"}},{"type":"tool_use","id":"toolu_2","name":"now","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"stop_details":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":5},"output_tokens":50,"output_tokens_details":{"thinking_tokens":20},"service_tier":"standard"}}"#;

#[test]
fn response_is_decoded_and_encoded() {
    let turn = ModelTurn::from_events(&Messages.decode_response(RESPONSE).unwrap());
    assert_eq!(
        (turn.id.as_str(), turn.model.as_str()),
        ("msg_9", "claude-x")
    );
    assert_eq!(
        turn.usage,
        Some(TokenUsage {
            input: 115,
            output: 50,
            cached: 100,
            cache_written: 5,
            reasoning: 20
        })
    );
    let proofs = turn.items.iter().filter_map(|item| match item {
        TurnItem::Reasoning { proof, .. } => proof.clone(),
        _ => None,
    });
    let expected = [
        ReasoningProof::Signature("sig".to_owned()),
        ReasoningProof::Redacted("xx".to_owned()),
    ];
    assert_eq!(proofs.collect::<Vec<_>>(), expected);
    insta::assert_snapshot!(
        "response",
        pretty(&Messages.encode_response(&head(), &turn))
    );
    insta::assert_snapshot!(
        "response_to_chat",
        pretty(&Chat.encode_response(&head(), &turn))
    );
    let chat = encode(Chat, &Messages.decode_response(RESPONSE).unwrap());
    insta::assert_snapshot!("response_to_chat_stream", chat);
}

#[test]
fn chat_response_is_encoded() {
    let response = r#"{"id":"chatcmpl-9","object":"chat.completion","created":1,"model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"Let me see.","refusal":"Or not.","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": 1.0}"}},{"id":"c:2","type":"function","function":{"name":"now","arguments":""}},{"id":"c3","type":"function","function":{"name":"bad","arguments":"{\"a\""}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let events = Chat.decode_response(response).unwrap();
    let whole = Messages.encode_response(&head(), &ModelTurn::from_events(&events));
    insta::assert_snapshot!("response_from_chat", pretty(&whole));
    insta::assert_snapshot!("response_from_chat_stream", encode(Messages, &events));
}

#[test]
fn empty_turn_is_encoded_as_empty_message() {
    let turn = ModelTurn::from_events(&[TurnEvent::Text(String::new())]);
    let expected = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}"#;
    assert_eq!(Messages.encode_response(&head(), &turn), expected);
    // Reasoning with an OpenAI proof and no text.
    let proof = ReasoningProof::Encrypted {
        id: "rs_1".to_owned(),
        content: Some("x".to_owned()),
    };
    let turn = ModelTurn::from_events(&[TurnEvent::ReasoningEnd(Some(proof))]);
    assert_eq!(Messages.encode_response(&head(), &turn), expected);
}

#[test]
fn stop_reasons_map_to_finish_reasons_and_back() {
    let sequence = || FinishReason::StopSequence(Some("END".to_owned()));
    let other = || FinishReason::Other("pause_turn".to_owned());
    for (reason, stop, finish, written) in [
        ("end_turn", json!(null), FinishReason::Stop, "end_turn"),
        ("stop_sequence", json!("END"), sequence(), "stop_sequence"),
        (
            "max_tokens",
            json!(null),
            FinishReason::Length,
            "max_tokens",
        ),
        (
            "model_context_window_exceeded",
            json!(null),
            FinishReason::Length,
            "max_tokens",
        ),
        ("tool_use", json!(null), FinishReason::ToolCalls, "tool_use"),
        (
            "refusal",
            json!(null),
            FinishReason::ContentFilter,
            "refusal",
        ),
        ("pause_turn", json!(null), other(), "pause_turn"),
    ] {
        let body = json!({"content": [], "stop_reason": reason, "stop_sequence": stop});
        let turn = ModelTurn::from_events(&Messages.decode_response(&body.to_string()).unwrap());
        assert_eq!(turn.finish, Some(finish));
        let response: serde_json::Value =
            serde_json::from_str(&Messages.encode_response(&head(), &turn)).unwrap();
        assert_eq!(response["stop_reason"], written);
        assert_eq!(response["stop_sequence"], stop);
    }
}

#[test]
fn unsupported_content_is_named_in_error() {
    for (body, expected) in [
        ("nonsense", "expected"),
        (r#"{"type":"message"}"#, "`content`"),
        (
            r#"{"content":[{"type":"server_tool_use"}]}"#,
            "`server_tool_use`",
        ),
    ] {
        let error = Messages.decode_response(body).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn errors_are_decoded_and_encoded() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#;
    let error = ProviderError {
        kind: Some("overloaded_error".to_owned()),
        message: "Overloaded".to_owned(),
        code: None,
    };
    assert_eq!(
        Messages.decode_response(body).unwrap(),
        [TurnEvent::Error(error.clone())]
    );
    let expected =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert_eq!(messages::encode_error(&error), expected);
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
        let error = ProviderError {
            kind,
            message,
            code,
        };
        assert_eq!(
            messages::encode_error(&error)["error"]["type"],
            expected,
            "{error:?}"
        );
    }
}

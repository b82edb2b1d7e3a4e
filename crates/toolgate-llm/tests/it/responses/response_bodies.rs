//! Complete (non-streaming) responses.

use serde_json::json;
use toolgate_llm::event::{FinishReason, ProviderError, ReasoningProof};
use toolgate_llm::turn::TurnItem;
use toolgate_llm::{ModelTurn, TokenUsage, TurnEvent, chat, responses};

use super::{comparable, decode_complete, encode, head, pretty};

/// A response with every kind of output item.
pub(super) const RESPONSE: &str = r#"{"id":"resp_9","object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,"model":"gpt-x",
  "output":[
    {"id":"rs_9","type":"reasoning","summary":[{"type":"summary_text","text":"First."},{"type":"summary_text","text":"Second."}],"encrypted_content":"gAAA"},
    {"id":"msg_9","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Let me see."}]},
    {"id":"fc_9","type":"function_call","status":"completed","arguments":"{\"a\":1}","call_id":"c1","name":"add"},
    {"id":"fc_8","type":"function_call","status":"completed","arguments":"{}","call_id":"c2","name":"sub"}],
  "usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":15}}"#;

#[test]
fn response_and_its_stream_decode_to_same_turn() {
    let events = responses::decode_response(RESPONSE).unwrap();
    let turn = ModelTurn::from_events(&events);
    assert_eq!(turn.finish, Some(FinishReason::ToolCalls));
    assert_eq!(
        turn.usage,
        Some(TokenUsage {
            input: 10,
            output: 5,
            cached: 4,
            cache_written: 3,
            reasoning: 2,
        })
    );
    assert_eq!(
        turn.items[0],
        TurnItem::Reasoning {
            text: "First.\n\nSecond.".to_owned(),
            proof: Some(ReasoningProof::Encrypted {
                id: "rs_9".to_owned(),
                content: Some("gAAA".to_owned()),
            }),
        }
    );
    let whole = responses::encode_response(&head(), &turn);
    insta::assert_snapshot!("response", pretty(&whole));
    let again = ModelTurn::from_events(&responses::decode_response(&whole).unwrap());
    assert_eq!(comparable(&again), comparable(&turn));
    let stream = encode(&events);
    insta::assert_snapshot!("response_stream", stream);
    assert_eq!(
        comparable(&ModelTurn::from_events(&decode_complete(&stream))),
        comparable(&turn)
    );
}

#[test]
fn response_is_translated_to_chat_and_back() {
    let turn = ModelTurn::from_events(&responses::decode_response(RESPONSE).unwrap());
    let chat = chat::encode_response(&head(), &turn);
    insta::assert_snapshot!("response_to_chat", pretty(&chat));
    let turn = ModelTurn::from_events(&chat::decode_response(&chat).unwrap());
    insta::assert_snapshot!(
        "response_from_chat",
        pretty(&responses::encode_response(&head(), &turn))
    );
}

#[test]
fn statuses_map_to_finish_reasons_and_back() {
    for (members, finish) in [
        (json!({"status": "completed"}), FinishReason::Stop),
        (json!({}), FinishReason::Stop),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            FinishReason::Length,
        ),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}),
            FinishReason::ContentFilter,
        ),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "other_reason"}}),
            FinishReason::Other("other_reason".to_owned()),
        ),
        (
            json!({"status": "cancelled"}),
            FinishReason::Other("cancelled".to_owned()),
        ),
    ] {
        let mut body = members;
        body["output"] =
            json!([{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]);
        let turn = ModelTurn::from_events(&responses::decode_response(&body.to_string()).unwrap());
        assert_eq!(turn.finish, Some(finish), "{body}");
        let again =
            responses::decode_response(&responses::encode_response(&head(), &turn)).unwrap();
        assert_eq!(
            comparable(&ModelTurn::from_events(&again)),
            comparable(&turn)
        );
    }
    let body = r#"{"status":"queued","output":[]}"#;
    let error = responses::decode_response(body).unwrap_err();
    assert!(error.to_string().contains("`queued`"), "{error}");
}

#[test]
fn truncated_response_with_refusal_is_incomplete() {
    let truncated = ModelTurn::from_events(&[
        TurnEvent::Text("a".to_owned()),
        TurnEvent::Refusal("no".to_owned()),
        TurnEvent::Finish(FinishReason::Length),
    ]);
    insta::assert_snapshot!(
        "truncated_response",
        pretty(&responses::encode_response(&head(), &truncated))
    );
}

#[test]
fn errors_are_decoded_and_encoded() {
    let body = r#"{"error":{"message":"no key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#;
    let failure = ProviderError {
        kind: Some("invalid_request_error".to_owned()),
        message: "no key".to_owned(),
        code: Some(json!("invalid_api_key")),
    };
    let events = responses::decode_response(body).unwrap();
    assert_eq!(events, [TurnEvent::Error(failure.clone())]);
    assert_eq!(responses::encode_error(&failure).to_string(), body);
    let body = r#"{"id":"resp_9","status":"failed","error":{"code":"server_error","message":"oh"},"output":[]}"#;
    let turn = ModelTurn::from_events(&responses::decode_response(body).unwrap());
    let failure = turn.error.clone().unwrap();
    assert_eq!(
        (failure.message.as_str(), failure.code),
        ("oh", Some(json!("server_error")))
    );
    let again = responses::decode_response(&responses::encode_response(&head(), &turn)).unwrap();
    assert_eq!(
        comparable(&ModelTurn::from_events(&again)),
        comparable(&turn)
    );
}

#[test]
fn unsupported_content_is_named_in_error() {
    for (output, expected) in [
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
        let error = responses::decode_response(&format!(r#"{{"output":{output}}}"#)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

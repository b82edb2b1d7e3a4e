//! Decodes and encodes complete (non-streaming) responses.

use serde_json::{Value, json};

use super::request_encoder::encode_call;
use super::{decode_error, decode_finish_reason, decode_usage, encode_usage, finish_reason};
use crate::event::{FinishReason, ResponseDecodeError, TurnEvent, nameless_call_error};
use crate::prompt::json_object;
use crate::turn::{ModelTurn, ResponseHead, TurnItem};

/// Decodes a response into events.
pub fn decode_response(body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
    let body: Value = serde_json::from_str(body)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
        return Ok(vec![TurnEvent::Error(decode_error(error))]);
    }
    let mut events = vec![TurnEvent::Start {
        id: text(&body["id"]).unwrap_or_default(),
        model: text(&body["model"]).unwrap_or_default(),
    }];
    let choices = body["choices"].as_array().map(Vec::as_slice);
    let [choice] = choices.unwrap_or_default() else {
        return Err(ResponseDecodeError::new(
            "`choices` does not contain exactly one choice",
        ));
    };
    let message = &choice["message"];
    if let Some(reasoning) = decode_reasoning(message) {
        events.extend([
            TurnEvent::Reasoning(reasoning),
            TurnEvent::ReasoningEnd(None),
        ]);
    }
    let content = text(&message["content"]).filter(|text| !text.is_empty());
    events.extend(content.map(TurnEvent::Text));
    let refusal = text(&message["refusal"]).filter(|text| !text.is_empty());
    events.extend(refusal.map(TurnEvent::Refusal));
    let calls = message["tool_calls"].as_array().map(Vec::as_slice);
    for (index, call) in calls.unwrap_or_default().iter().enumerate() {
        let function = &call["function"];
        if function.is_null() {
            return Err(ResponseDecodeError::new("a tool call has no `function`"));
        }
        let name = text(&function["name"]).filter(|name| !name.is_empty());
        let arguments = text(&function["arguments"]).unwrap_or_default();
        events.extend([
            TurnEvent::CallStart {
                index,
                // Some providers send no ids.
                id: text(&call["id"]).unwrap_or_default(),
                name: name.ok_or_else(nameless_call_error)?,
            },
            TurnEvent::CallDelta { index, arguments },
            TurnEvent::CallEnd { index },
        ]);
    }
    if body["usage"].is_object() {
        events.push(TurnEvent::Usage(decode_usage(&body["usage"])));
    }
    let reason = choice["finish_reason"].as_str().unwrap_or("stop");
    events.push(TurnEvent::Finish(decode_finish_reason(reason)));
    Ok(events)
}

/// Returns the reasoning text, under either name that open-weight providers use.
pub(super) fn decode_reasoning(message: &Value) -> Option<String> {
    let text = message["reasoning_content"].as_str();
    let text = text.or(message["reasoning"].as_str());
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

pub fn encode_response(head: &ResponseHead, turn: &ModelTurn) -> String {
    let concat_items = |pick: fn(&TurnItem) -> Option<&str>| {
        let texts: Vec<&str> = turn.items.iter().filter_map(pick).collect();
        (!texts.is_empty()).then(|| Value::from(texts.concat()))
    };
    let content = concat_items(|item| match item {
        TurnItem::Text(text) => Some(text),
        _ => None,
    });
    let refusal = concat_items(|item| match item {
        TurnItem::Refusal(text) => Some(text),
        _ => None,
    });
    let reasoning = concat_items(|item| match item {
        TurnItem::Reasoning { text, .. } => Some(text)
            .filter(|text| !text.is_empty())
            .map(String::as_str),
        _ => None,
    });
    let calls: Vec<Value> = turn.tool_calls().map(encode_call).collect();
    let message = json_object([
        ("role", Some(json!("assistant"))),
        ("content", Some(content.unwrap_or_default())),
        ("refusal", Some(refusal.unwrap_or_default())),
        ("reasoning_content", reasoning),
        (
            "tool_calls",
            (!calls.is_empty()).then_some(Value::Array(calls)),
        ),
    ]);
    let finish = turn.finish.as_ref().unwrap_or(&FinishReason::Stop);
    let body = json_object([
        ("id", Some(json!(head.id))),
        ("object", Some(json!("chat.completion"))),
        ("created", Some(json!(head.created))),
        ("model", Some(json!(head.model))),
        (
            "choices",
            Some(
                json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(finish)}]),
            ),
        ),
        ("usage", turn.usage.as_ref().map(encode_usage)),
    ]);
    body.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_call_without_a_name_is_an_error() {
        let decode = |call: &str| {
            decode_response(&format!(
                r#"{{"choices":[{{"message":{{"tool_calls":[{call}]}}}}]}}"#
            ))
        };
        assert!(decode(r#"{"function":{"name":"f"}}"#).is_ok(), "no id");
        for call in [r#"{"id":"c","function":{}}"#, r#"{"function":{"name":""}}"#] {
            assert!(decode(call).is_err(), "{call}");
        }
    }
}

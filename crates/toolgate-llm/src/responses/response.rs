//! Decodes and encodes complete (non-streaming) responses.

use serde_json::Value;

use super::output::OutputItem;
use super::{ResponseStatus, build_response, decode_usage, final_event, qualify_tool_name};
use crate::chat::decode_error;
use crate::event::{ReasoningProof, ResponseDecodeError, TurnEvent, nameless_call_error};
use crate::turn::{ModelTurn, ResponseHead};

/// Separator between reasoning parts, which are paragraphs.
pub(super) const REASONING_SEPARATOR: &str = "\n\n";

/// Treatment of dialect-specific output items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UnknownItems {
    #[default]
    Reject,
    Preserve,
}

/// Decodes a response into events.
pub fn decode_response(body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
    decode(body, UnknownItems::Reject)
}

/// Decodes a response, passing dialect-specific items through as raw events.
pub fn decode_response_with_raw(body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
    decode(body, UnknownItems::Preserve)
}

fn decode(body: &str, unknown_items: UnknownItems) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
    let body: Value = serde_json::from_str(body)?;
    let Some(items) = body["output"].as_array() else {
        return match body.get("error").filter(|error| !error.is_null()) {
            Some(error) => Ok(vec![TurnEvent::Error(decode_error(error))]),
            None => Err(ResponseDecodeError::new("the response has no `output`")),
        };
    };
    let mut events = vec![TurnEvent::Start {
        id: string_or_empty(&body["id"]),
        model: string_or_empty(&body["model"]),
    }];
    let mut calls = 0;
    for item in items {
        decode_item(item, unknown_items, &mut calls, &mut events)?;
    }
    if body["usage"].is_object() {
        events.push(TurnEvent::Usage(decode_usage(&body["usage"])));
    }
    let status = body["status"].as_str().unwrap_or("completed");
    events.push(final_event(&body, status, calls > 0)?);
    Ok(events)
}

/// Decodes a complete output item. `calls` counts the tool calls decoded so far.
pub(super) fn decode_item(
    item: &Value,
    unknown_items: UnknownItems,
    calls: &mut usize,
    out: &mut Vec<TurnEvent>,
) -> Result<(), ResponseDecodeError> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => decode_message(item, unknown_items, out),
        "reasoning" => {
            let id = string_or_empty(&item["id"]);
            if !id.is_empty() {
                out.push(TurnEvent::ReasoningStart(id));
            }
            let reasoning = reasoning_text(item);
            if !reasoning.is_empty() {
                out.push(TurnEvent::Reasoning(reasoning));
            }
            out.push(TurnEvent::ReasoningEnd(decode_proof(item)));
            Ok(())
        }
        "function_call" => {
            let index = *calls;
            *calls += 1;
            let arguments = string_or_empty(&item["arguments"]);
            out.extend([
                call_start_event(item, index)?,
                TurnEvent::CallDelta { index, arguments },
                TurnEvent::CallEnd { index },
            ]);
            Ok(())
        }
        _ if unknown_items == UnknownItems::Preserve => {
            out.push(TurnEvent::Raw(item.clone()));
            Ok(())
        }
        other => Err(unknown_item_error(other)),
    }
}

/// Decodes the parts of a message.
pub(super) fn decode_message(
    message: &Value,
    unknown_items: UnknownItems,
    out: &mut Vec<TurnEvent>,
) -> Result<(), ResponseDecodeError> {
    for part in array_or_empty(&message["content"]) {
        let (text, event): (_, fn(String) -> TurnEvent) = match part["type"].as_str() {
            Some("output_text") => (&part["text"], TurnEvent::Text),
            Some("refusal") => (&part["refusal"], TurnEvent::Refusal),
            other => return Err(unknown_part_error(other)),
        };
        let text = string_or_empty(text);
        if !text.is_empty() {
            out.push(event(text));
        }
        if unknown_items == UnknownItems::Preserve {
            let annotations = array_or_empty(&part["annotations"]).iter().cloned();
            out.extend(annotations.map(TurnEvent::Annotation));
        }
    }
    Ok(())
}

/// Returns the text of a reasoning item: the reasoning itself for open-weight models, otherwise its
/// summary.
pub(super) fn reasoning_text(item: &Value) -> String {
    let parts = array_or_empty(&item["content"])
        .iter()
        .chain(array_or_empty(&item["summary"]));
    let texts = parts.filter_map(|part| part["text"].as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    texts.join(REASONING_SEPARATOR)
}

pub(super) fn decode_proof(item: &Value) -> Option<ReasoningProof> {
    let non_empty = |value: &Value| Some(string_or_empty(value)).filter(|text| !text.is_empty());
    let content = non_empty(&item["encrypted_content"]);
    let id = non_empty(&item["id"]);
    (id.is_some() || content.is_some()).then(|| ReasoningProof::Encrypted {
        id: id.unwrap_or_default(),
        content,
    })
}

pub(super) fn call_start_event(
    item: &Value,
    index: usize,
) -> Result<TurnEvent, ResponseDecodeError> {
    let id = item["call_id"].as_str().or(item["id"].as_str());
    let name = item["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(nameless_call_error)?;
    Ok(TurnEvent::CallStart {
        index,
        id: id.unwrap_or("").to_owned(),
        name: match item["namespace"].as_str() {
            Some(namespace) => qualify_tool_name(namespace, name),
            None => name.to_owned(),
        },
    })
}

pub(super) fn unknown_item_error(kind: &str) -> ResponseDecodeError {
    ResponseDecodeError::new(format!(
        "output item of type `{kind}` has no equivalent in the caller's dialect"
    ))
}

pub(super) fn unknown_part_error(kind: Option<&str>) -> ResponseDecodeError {
    ResponseDecodeError::new(format!(
        "unsupported message part of type `{}`",
        kind.unwrap_or("null")
    ))
}

pub(super) fn string_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn array_or_empty(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn encode_response(head: &ResponseHead, turn: &ModelTurn) -> String {
    let status = ResponseStatus::from_outcome(turn.finish.as_ref(), turn.error.as_ref());
    let output = OutputItem::from_turn(head, turn, status);
    build_response(head, status, &output, turn.usage.as_ref()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_call_without_a_name_is_an_error() {
        for (name, is_valid) in [
            (r#","name":"f""#, true),
            (r#","name":"""#, false),
            ("", false),
        ] {
            let body = format!(r#"{{"output":[{{"type":"function_call","call_id":"c"{name}}}]}}"#);
            assert_eq!(decode_response(&body).is_ok(), is_valid, "{body}");
        }
    }
}

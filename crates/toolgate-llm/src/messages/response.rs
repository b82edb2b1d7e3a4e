//! Decodes and encodes complete (non-streaming) responses.

use serde_json::{Value, json};

use super::request_encoder::parse_input;
use super::{
    decode_error, decode_stop_reason, decode_usage, encode_usage, stop_reason, stop_sequence,
};
use crate::event::{
    FinishReason, ReasoningProof, ResponseDecodeError, TokenUsage, TurnEvent, nameless_call_error,
};
use crate::prompt::RequestedToolCall;
use crate::turn::{ModelTurn, ResponseHead, TurnItem};

/// Decodes a response into events.
pub fn decode_response(body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
    decode(body, UnknownBlocks::Reject)
}

/// Decodes a response, passing dialect-specific blocks through as raw events.
pub fn decode_response_with_raw(body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
    decode(body, UnknownBlocks::Preserve)
}

/// Treatment of dialect-specific content blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UnknownBlocks {
    #[default]
    Reject,
    Preserve,
}

fn decode(
    body: &str,
    unknown_blocks: UnknownBlocks,
) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
    let body: Value = serde_json::from_str(body)?;
    if let Some(error) = decode_error(&body) {
        return Ok(vec![TurnEvent::Error(error)]);
    }
    let mut events = vec![start_event(&body)];
    let blocks = body["content"].as_array();
    let blocks = blocks.ok_or_else(|| ResponseDecodeError::new("`content` is not an array"))?;
    let mut calls = 0;
    for block in blocks {
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                events.extend(non_empty_string(&block["text"]).map(TurnEvent::Text));
                let citations = block["citations"].as_array().into_iter().flatten();
                let citations = citations
                    .filter(|_| unknown_blocks == UnknownBlocks::Preserve)
                    .cloned();
                events.extend(citations.map(TurnEvent::Annotation));
            }
            "thinking" => {
                events.extend(non_empty_string(&block["thinking"]).map(TurnEvent::Reasoning));
                let proof = non_empty_string(&block["signature"]).map(ReasoningProof::Signature);
                events.push(TurnEvent::ReasoningEnd(proof));
            }
            "redacted_thinking" => events.extend(redacted_event(block)),
            "tool_use" => {
                let index = calls;
                calls += 1;
                let arguments = encode_arguments(&block["input"]);
                events.extend([
                    call_start_event(index, block)?,
                    TurnEvent::CallDelta { index, arguments },
                    TurnEvent::CallEnd { index },
                ]);
            }
            _ if unknown_blocks == UnknownBlocks::Preserve => {
                events.push(TurnEvent::Raw(block.clone()))
            }
            other => return Err(unknown_block_error(other)),
        }
    }
    if body["usage"].is_object() {
        events.push(TurnEvent::Usage(decode_usage(&body["usage"])));
    }
    let finish = decode_stop_reason(&body).unwrap_or(FinishReason::Stop);
    events.push(TurnEvent::Finish(finish));
    Ok(events)
}

/// Returns a string that is present and not empty.
pub(super) fn non_empty_string(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

pub(super) fn start_event(message: &Value) -> TurnEvent {
    TurnEvent::Start {
        id: non_empty_string(&message["id"]).unwrap_or_default(),
        model: non_empty_string(&message["model"]).unwrap_or_default(),
    }
}

pub(super) fn redacted_event(block: &Value) -> Option<TurnEvent> {
    let proof = non_empty_string(&block["data"]).map(ReasoningProof::Redacted)?;
    Some(TurnEvent::ReasoningEnd(Some(proof)))
}

pub(super) fn call_start_event(
    index: usize,
    block: &Value,
) -> Result<TurnEvent, ResponseDecodeError> {
    Ok(TurnEvent::CallStart {
        index,
        id: non_empty_string(&block["id"]).unwrap_or_default(),
        name: non_empty_string(&block["name"]).ok_or_else(nameless_call_error)?,
    })
}

/// Encodes a tool input as the arguments text of a call.
pub(super) fn encode_arguments(input: &Value) -> String {
    match input {
        Value::Null => "{}".to_owned(),
        input => input.to_string(),
    }
}

/// Creates the error for blocks of provider-hosted tools, which no translated request can enable.
pub(super) fn unknown_block_error(kind: &str) -> ResponseDecodeError {
    ResponseDecodeError::new(format!("unsupported content block of type `{kind}`"))
}

pub fn encode_response(head: &ResponseHead, turn: &ModelTurn) -> String {
    let blocks: Vec<Value> = turn.items.iter().flat_map(encode_item).collect();
    let finish = turn.finish.as_ref().unwrap_or(&FinishReason::Stop);
    // The dialect requires the member, so unknown usage is reported as zero.
    let mut message = empty_message(head, &turn.usage.unwrap_or_default());
    message["content"] = Value::Array(blocks);
    message["stop_reason"] = json!(stop_reason(finish));
    message["stop_sequence"] = json!(stop_sequence(finish));
    message.to_string()
}

/// Returns a message without content.
pub(super) fn empty_message(head: &ResponseHead, usage: &TokenUsage) -> Value {
    json!({"id": head.id, "type": "message", "role": "assistant", "model": head.model,
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": encode_usage(usage)})
}

fn encode_item(item: &TurnItem) -> Vec<Value> {
    match item {
        TurnItem::Text(text) | TurnItem::Refusal(text) if text.is_empty() => Vec::new(),
        TurnItem::Text(text) | TurnItem::Refusal(text) => {
            vec![json!({"type": "text", "text": text})]
        }
        TurnItem::Raw(block) => vec![block.clone()],
        TurnItem::Reasoning { text, proof } => encode_reasoning(text, proof.as_ref()),
        TurnItem::ToolCall(call) => vec![
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call_input(call)}),
        ],
    }
}

/// Encodes reasoning. Reasoning with an OpenAI proof goes out unsigned, and redacted reasoning
/// becomes a separate block.
fn encode_reasoning(text: &str, proof: Option<&ReasoningProof>) -> Vec<Value> {
    let signature = match proof {
        Some(ReasoningProof::Signature(signature)) => signature,
        _ => "",
    };
    let mut blocks = Vec::new();
    if !text.is_empty() || !signature.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": text, "signature": signature}));
    }
    if let Some(ReasoningProof::Redacted(data)) = proof {
        blocks.push(json!({"type": "redacted_thinking", "data": data}));
    }
    blocks
}

/// Returns the arguments as an object. Invalid ones are wrapped the way the provider recommends, so
/// that they are not lost.
fn call_input(call: &RequestedToolCall) -> Value {
    parse_input(&call.arguments).unwrap_or_else(|| json!({"INVALID_JSON": call.arguments}))
}

//! Whole answers.

use serde_json::{Value, json};

use super::write::input;
use super::{failure, finish, finish_sequence, finish_word, usage, usage_value};
use crate::event::{BadAnswer, Event, Finish, Proof, Usage};
use crate::prompt::Call;
use crate::turn::{Head, Item, Turn};

/// The events of an answer.
pub fn events(body: &str) -> Result<Vec<Event>, BadAnswer> {
    read(body, Unknown::Refused)
}

/// The same with what only this dialect can say, as it came.
pub fn events_with_raw(body: &str) -> Result<Vec<Event>, BadAnswer> {
    read(body, Unknown::Kept)
}

/// What becomes of what only this dialect can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unknown {
    #[default]
    Refused,
    Kept,
}

fn read(body: &str, unknown: Unknown) -> Result<Vec<Event>, BadAnswer> {
    let body: Value = serde_json::from_str(body)?;
    if let Some(failure) = failure(&body) {
        return Ok(vec![Event::Failed(failure)]);
    }
    let mut events = vec![start(&body)];
    let blocks = body["content"].as_array();
    let blocks = blocks.ok_or_else(|| BadAnswer::new("`content` is not an array"))?;
    let mut calls = 0;
    for block in blocks {
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                events.extend(said(&block["text"]).map(Event::Text));
                let found = block["citations"].as_array().into_iter().flatten();
                let found = found.filter(|_| unknown == Unknown::Kept).cloned();
                events.extend(found.map(Event::Annotation));
            }
            "thinking" => {
                events.extend(said(&block["thinking"]).map(Event::Reasoning));
                let proof = said(&block["signature"]).map(Proof::Signature);
                events.push(Event::ReasoningEnd(proof));
            }
            "redacted_thinking" => events.extend(redacted(block)),
            "tool_use" => {
                let index = calls;
                calls += 1;
                let arguments = arguments(&block["input"]);
                events.extend([
                    call_start(index, block),
                    Event::CallDelta { index, arguments },
                    Event::CallEnd { index },
                ]);
            }
            _ if unknown == Unknown::Kept => events.push(Event::Raw(block.clone())),
            other => return Err(unknown_block(other)),
        }
    }
    if body["usage"].is_object() {
        events.push(Event::Usage(usage(&body["usage"])));
    }
    let finish = finish(&body).unwrap_or(Finish::Stop);
    events.push(Event::Finish(finish));
    Ok(events)
}

/// Text that is there.
pub(super) fn said(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

pub(super) fn start(message: &Value) -> Event {
    Event::Start {
        id: said(&message["id"]).unwrap_or_default(),
        model: said(&message["model"]).unwrap_or_default(),
    }
}

pub(super) fn redacted(block: &Value) -> Option<Event> {
    let proof = said(&block["data"]).map(Proof::Redacted)?;
    Some(Event::ReasoningEnd(Some(proof)))
}

pub(super) fn call_start(index: usize, block: &Value) -> Event {
    Event::CallStart {
        index,
        id: said(&block["id"]).unwrap_or_default(),
        name: said(&block["name"]).unwrap_or_default(),
    }
}

/// An input as the text of a call.
pub(super) fn arguments(input: &Value) -> String {
    match input {
        Value::Null => "{}".to_owned(),
        input => input.to_string(),
    }
}

/// Blocks of the provider's own tools, which no translated request can ask for.
pub(super) fn unknown_block(kind: &str) -> BadAnswer {
    BadAnswer::new(format!("a content block is of the type `{kind}`"))
}

pub fn answer(head: &Head, turn: &Turn) -> String {
    let blocks: Vec<Value> = turn.items.iter().flat_map(item_blocks).collect();
    let finish = turn.finish.as_ref().unwrap_or(&Finish::Stop);
    let mut message = message(head, &turn.usage.unwrap_or_default());
    message["content"] = Value::Array(blocks);
    message["stop_reason"] = json!(finish_word(finish));
    message["stop_sequence"] = json!(finish_sequence(finish));
    message.to_string()
}

/// A message in which nothing is said yet.
pub(super) fn message(head: &Head, usage: &Usage) -> Value {
    json!({"id": head.id, "type": "message", "role": "assistant", "model": head.model,
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": usage_value(usage)})
}

fn item_blocks(item: &Item) -> Vec<Value> {
    match item {
        Item::Text(text) | Item::Refusal(text) if text.is_empty() => Vec::new(),
        Item::Text(text) | Item::Refusal(text) => vec![json!({"type": "text", "text": text})],
        Item::Raw(block) => vec![block.clone()],
        Item::Reasoning { text, proof } => reasoning_blocks(text, proof.as_ref()),
        Item::Call(call) => vec![
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call_input(call)}),
        ],
    }
}

/// What only OpenAI can prove is shown without proof, and reasoning that nobody may read is a
/// block of its own.
fn reasoning_blocks(text: &str, proof: Option<&Proof>) -> Vec<Value> {
    let signature = match proof {
        Some(Proof::Signature(signature)) => signature,
        _ => "",
    };
    let mut blocks = Vec::new();
    if !text.is_empty() || !signature.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": text, "signature": signature}));
    }
    if let Some(Proof::Redacted(data)) = proof {
        blocks.push(json!({"type": "redacted_thinking", "data": data}));
    }
    blocks
}

/// Arguments that are no object cannot stand there; wrapped as the provider itself asks for, they
/// are not lost.
fn call_input(call: &Call) -> Value {
    input(&call.arguments).unwrap_or_else(|| json!({"INVALID_JSON": call.arguments}))
}

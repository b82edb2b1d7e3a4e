//! The messages of a request, and their content blocks.
//!
//! System messages stand apart, users and assistants take turns, tools answer before anything
//! else is said, and no text is empty: a request that does otherwise is refused.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::fields::BadField;
use crate::prompt::{Message, Part, Role, Source, object};

/// What all system messages say, in order: a string if it is one text.
pub(super) fn system(messages: &[Message]) -> Result<Option<Value>, BadField> {
    let mut blocks = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        if message.role != Role::System {
            continue;
        }
        for part in &message.parts {
            match part {
                Part::Text(text) => blocks.extend(text_block(text)),
                part => return Err(misplaced(&place(index), part, "a system message")),
            }
        }
    }
    Ok((!blocks.is_empty()).then(|| content(blocks)))
}

pub(super) fn messages(messages: &[Message]) -> Result<Value, BadField> {
    let mut turns: Vec<(Role, Vec<Value>)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let place = place(index);
        let mut blocks = Vec::new();
        for part in &message.parts {
            blocks.extend(match message.role {
                Role::System => None,
                Role::User => user_block(part, &place)?,
                Role::Assistant => assistant_block(part, &place)?,
            });
        }
        match turns.last_mut() {
            _ if blocks.is_empty() => {}
            Some((role, before)) if *role == message.role => before.extend(blocks),
            _ => turns.push((message.role, blocks)),
        }
    }
    let turns = turns.into_iter().map(|(role, mut blocks)| {
        let role = match role {
            Role::Assistant => "assistant",
            Role::User | Role::System => "user",
        };
        blocks.sort_by_key(|block| block["type"] != "tool_result");
        json!({"role": role, "content": content(blocks)})
    });
    Ok(turns.collect())
}

/// A place among the messages of the hub; where the caller's dialect splits messages, it is near.
fn place(index: usize) -> String {
    format!("messages[{index}]")
}

/// A string if it is one text.
fn content(mut blocks: Vec<Value>) -> Value {
    match blocks.as_mut_slice() {
        [block] if block["type"] == "text" => block["text"].take(),
        _ => Value::Array(blocks),
    }
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn user_block(part: &Part, place: &str) -> Result<Option<Value>, BadField> {
    let Part::Answered {
        id,
        parts,
        is_error,
    } = part
    else {
        return said_block(part, place, "a message of the user");
    };
    let mut blocks = Vec::new();
    for part in parts {
        blocks.extend(said_block(part, place, "the answer of a tool")?);
    }
    Ok(Some(object([
        ("type", Some(json!("tool_result"))),
        ("tool_use_id", Some(json!(tool_id(id)))),
        ("content", (!blocks.is_empty()).then(|| content(blocks))),
        ("is_error", is_error.then_some(Value::Bool(true))),
    ])))
}

fn assistant_block(part: &Part, place: &str) -> Result<Option<Value>, BadField> {
    match part {
        Part::Text(text) | Part::Refusal(text) => Ok(text_block(text)),
        Part::Reasoning => Ok(None),
        Part::Call(call) => {
            // What a model wrote wrongly is shown to it as it wrote it.
            let wrong = || json!({"INVALID_JSON": call.arguments});
            let input = input(&call.arguments).unwrap_or_else(wrong);
            let id = tool_id(&call.id);
            Ok(Some(
                json!({"type": "tool_use", "id": id, "name": call.name, "input": input}),
            ))
        }
        part => Err(misplaced(place, part, "a message of the assistant")),
    }
}

fn said_block(part: &Part, place: &str, whose: &str) -> Result<Option<Value>, BadField> {
    match part {
        Part::Text(text) => Ok(text_block(text)),
        // Every image is looked at closely here, so the detail adds nothing.
        Part::Image { source, .. } => {
            let source = match source {
                Source::Url(url) => json!({"type": "url", "url": url}),
                Source::Data { media_type, data } => base64_source(media_type, data),
            };
            Ok(Some(json!({"type": "image", "source": source})))
        }
        Part::File { source, name } => Ok(Some(object([
            ("type", Some(json!("document"))),
            ("source", Some(document_source(source, place)?)),
            ("title", name.as_deref().map(Value::from)),
        ]))),
        part => Err(misplaced(place, part, whose)),
    }
}

fn document_source(source: &Source, place: &str) -> Result<Value, BadField> {
    let (media_type, data) = match source {
        Source::Url(url) => return Ok(json!({"type": "url", "url": url})),
        Source::Data { media_type, data } => (media_type.as_str(), data),
    };
    if media_type == "application/pdf" {
        return Ok(base64_source(media_type, data));
    }
    let bytes = BASE64_STANDARD.decode(data).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    match text.filter(|_| media_type.starts_with("text/")) {
        Some(text) => Ok(json!({"type": "text", "media_type": "text/plain", "data": text})),
        None => {
            let problem = format!(
                "holds a file of the type `{media_type}`; this provider reads PDF and plain text"
            );
            Err(BadField::new(place, problem))
        }
    }
}

fn base64_source(media_type: &str, data: &str) -> Value {
    json!({"type": "base64", "media_type": media_type, "data": data})
}

/// Arguments as an object, if they are one; a model that has none to give may write nothing.
pub(in crate::messages) fn input(arguments: &str) -> Option<Value> {
    if arguments.trim().is_empty() {
        return Some(json!({}));
    }
    let input: Value = serde_json::from_str(arguments).ok()?;
    input.is_object().then_some(input)
}

/// Ids hold letters, digits, `_` and `-` here. Other providers make others, and a call and its
/// answer must still meet.
fn tool_id(id: &str) -> String {
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    let id = id.chars().map(|char| if fits(char) { char } else { '_' });
    let id: String = id.collect();
    match id.is_empty() {
        true => "_".to_owned(),
        false => id,
    }
}

fn misplaced(place: &str, part: &Part, whose: &str) -> BadField {
    let what = match part {
        Part::Text(_) => "text",
        Part::Image { .. } => "an image",
        Part::File { .. } => "a file",
        Part::Audio { .. } => "audio",
        Part::Refusal(_) => "a refusal",
        Part::Reasoning => "reasoning",
        Part::Call(_) => "a call",
        Part::Answered { .. } => "the answer of a tool",
    };
    let problem = format!("holds {what} in {whose}, which cannot be said to this provider");
    BadField::new(place, problem)
}

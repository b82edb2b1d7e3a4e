//! Encodes the messages of a request and their content blocks.
//!
//! The provider rejects requests unless system messages are separate, user and assistant messages
//! alternate, tool results come first in a message, and no text is empty.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::fields::FieldError;
use crate::prompt::{MediaSource, MessageRole, PromptMessage, PromptPart, json_object};

/// Encodes all system messages in order; a single text becomes a string.
pub(super) fn encode_system(messages: &[PromptMessage]) -> Result<Option<Value>, FieldError> {
    let mut blocks = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        if message.role != MessageRole::System {
            continue;
        }
        for part in &message.parts {
            match part {
                PromptPart::Text(text) => blocks.extend(text_block(text)),
                part => {
                    return Err(misplaced_part_error(
                        &message_path(index),
                        part,
                        "a system message",
                    ));
                }
            }
        }
    }
    Ok((!blocks.is_empty()).then(|| collapse_content(blocks)))
}

pub(super) fn encode_messages(messages: &[PromptMessage]) -> Result<Value, FieldError> {
    let mut turns: Vec<(MessageRole, Vec<Value>)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let path = message_path(index);
        let mut blocks = Vec::new();
        for part in &message.parts {
            blocks.extend(match message.role {
                MessageRole::System => None,
                MessageRole::User => user_block(part, &path)?,
                MessageRole::Assistant => assistant_block(part, &path)?,
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
            MessageRole::Assistant => "assistant",
            MessageRole::User | MessageRole::System => "user",
        };
        blocks.sort_by_key(|block| block["type"] != "tool_result");
        json!({"role": role, "content": collapse_content(blocks)})
    });
    Ok(turns.collect())
}

/// Returns the path of a hub message. It is approximate if the caller's dialect splits messages
/// differently.
fn message_path(index: usize) -> String {
    format!("messages[{index}]")
}

/// Collapses a single text block into a string.
fn collapse_content(mut blocks: Vec<Value>) -> Value {
    match blocks.as_mut_slice() {
        [block] if block["type"] == "text" => block["text"].take(),
        _ => Value::Array(blocks),
    }
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn user_block(part: &PromptPart, path: &str) -> Result<Option<Value>, FieldError> {
    let PromptPart::ToolResult {
        id,
        parts,
        is_error,
    } = part
    else {
        return content_block(part, path, "a user message");
    };
    let mut blocks = Vec::new();
    for part in parts {
        blocks.extend(content_block(part, path, "a tool result")?);
    }
    Ok(Some(json_object([
        ("type", Some(json!("tool_result"))),
        ("tool_use_id", Some(json!(sanitize_tool_id(id)))),
        (
            "content",
            (!blocks.is_empty()).then(|| collapse_content(blocks)),
        ),
        ("is_error", is_error.then_some(Value::Bool(true))),
    ])))
}

fn assistant_block(part: &PromptPart, path: &str) -> Result<Option<Value>, FieldError> {
    match part {
        PromptPart::Text(text) | PromptPart::Refusal(text) => Ok(text_block(text)),
        PromptPart::Reasoning => Ok(None),
        PromptPart::Raw(block) => Ok(Some(block.clone())),
        PromptPart::ToolCall(call) => {
            // Invalid arguments are wrapped, so that the model sees what it wrote.
            let invalid = || json!({"INVALID_JSON": call.arguments});
            let input = parse_input(&call.arguments).unwrap_or_else(invalid);
            let id = sanitize_tool_id(&call.id);
            Ok(Some(
                json!({"type": "tool_use", "id": id, "name": call.name, "input": input}),
            ))
        }
        part => Err(misplaced_part_error(path, part, "an assistant message")),
    }
}

fn content_block(
    part: &PromptPart,
    path: &str,
    container: &str,
) -> Result<Option<Value>, FieldError> {
    match part {
        PromptPart::Text(text) => Ok(text_block(text)),
        // This provider always processes images in full detail.
        PromptPart::Image { source, .. } => {
            let source = match source {
                MediaSource::Url(url) => json!({"type": "url", "url": url}),
                MediaSource::Data { media_type, data } => base64_source(media_type, data),
            };
            Ok(Some(json!({"type": "image", "source": source})))
        }
        PromptPart::File { source, name } => Ok(Some(json_object([
            ("type", Some(json!("document"))),
            ("source", Some(document_source(source, path)?)),
            ("title", name.as_deref().map(Value::from)),
        ]))),
        part => Err(misplaced_part_error(path, part, container)),
    }
}

fn document_source(source: &MediaSource, path: &str) -> Result<Value, FieldError> {
    let (media_type, data) = match source {
        MediaSource::Url(url) => return Ok(json!({"type": "url", "url": url})),
        MediaSource::Data { media_type, data } => (media_type.as_str(), data),
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
                "contains a file of type `{media_type}`; this provider accepts only PDF and plain text"
            );
            Err(FieldError::new(path, problem))
        }
    }
}

fn base64_source(media_type: &str, data: &str) -> Value {
    json!({"type": "base64", "media_type": media_type, "data": data})
}

/// Parses arguments that are a JSON object; empty arguments count as `{}`.
pub(in crate::messages) fn parse_input(arguments: &str) -> Option<Value> {
    if arguments.trim().is_empty() {
        return Some(json!({}));
    }
    let input: Value = serde_json::from_str(arguments).ok()?;
    input.is_object().then_some(input)
}

/// Replaces characters that this provider does not allow in ids. The mapping is deterministic, so a
/// call and its result still match.
fn sanitize_tool_id(id: &str) -> String {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    let id = id
        .chars()
        .map(|char| if is_allowed(char) { char } else { '_' });
    let id: String = id.collect();
    if id.is_empty() { "_".to_owned() } else { id }
}

fn misplaced_part_error(path: &str, part: &PromptPart, container: &str) -> FieldError {
    let what = match part {
        PromptPart::Text(_) => "text",
        PromptPart::Image { .. } => "an image",
        PromptPart::File { .. } => "a file",
        PromptPart::Audio { .. } => "audio",
        PromptPart::Refusal(_) => "a refusal",
        PromptPart::Reasoning => "reasoning",
        PromptPart::ToolCall(_) => "a tool call",
        PromptPart::ToolResult { .. } => "a tool result",
        PromptPart::Raw(_) => "an item of the provider",
    };
    let problem = format!("contains {what} in {container}, which this provider does not support");
    FieldError::new(path, problem)
}

//! Decodes the items of a request's `input`.

use serde_json::{Value, json};

use super::qualify_tool_name;
use crate::fields::{FieldError, FieldReader};
use crate::prompt::{
    IgnoredFields, MediaSource, MessageRole, PromptMessage, PromptPart, RequestedToolCall,
};

pub(super) fn read_input(fields: &mut FieldReader<'_>) -> Result<Vec<PromptMessage>, FieldError> {
    let path = fields.path_of("input");
    let items = match fields.take("input") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => {
            return Ok(vec![PromptMessage::new(
                MessageRole::User,
                vec![PromptPart::Text(text)],
            )]);
        }
        Some(Value::Array(items)) => items,
        Some(_) => return Err(FieldError::new(path, "must be a string or an array")),
    };
    let mut messages: Vec<PromptMessage> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let message = read_item(item, &format!("{path}[{index}]"), fields.ignored_fields())?;
        // One hub message spans several consecutive items of the same role.
        match messages.last_mut() {
            Some(last) if last.role == message.role && message.role != MessageRole::System => {
                last.parts.extend(message.parts);
            }
            _ => messages.push(message),
        }
    }
    Ok(messages)
}

fn read_item(
    item: Value,
    path: &str,
    ignored: &IgnoredFields,
) -> Result<PromptMessage, FieldError> {
    let mut item = FieldReader::new(item, path, ignored)?;
    let kind = item.take_string("type")?;
    let read = match kind.as_deref().unwrap_or("message") {
        "message" => {
            let role = match item.require_string("role")?.as_str() {
                "user" => MessageRole::User,
                "assistant" => MessageRole::Assistant,
                "system" | "developer" => MessageRole::System,
                _ => return Err(FieldError::untranslatable(item.path_of("role"))),
            };
            item.discard(&["phase"]);
            PromptMessage::new(role, read_content(&mut item, "content")?)
        }
        "function_call" => {
            let name = item.require_string("name")?;
            let namespace = item.take_string("namespace")?;
            let call = RequestedToolCall {
                id: item.require_string("call_id")?,
                name: namespace.map_or(name.clone(), |namespace| {
                    qualify_tool_name(&namespace, &name)
                }),
                arguments: item.take_string("arguments")?.unwrap_or_default(),
            };
            PromptMessage::new(MessageRole::Assistant, vec![PromptPart::ToolCall(call)])
        }
        "function_call_output" => {
            let result = PromptPart::ToolResult {
                id: item.require_string("call_id")?,
                parts: read_content(&mut item, "output")?,
                is_error: false,
            };
            item.discard(&["name"]);
            PromptMessage::new(MessageRole::User, vec![result])
        }
        "reasoning" => {
            item.discard(&["summary", "content", "encrypted_content"]);
            PromptMessage::new(MessageRole::Assistant, vec![PromptPart::Reasoning])
        }
        _ => return Err(FieldError::untranslatable(item.path_of("type"))),
    };
    item.allow_only("caller", &[json!({"type": "direct"})])?;
    // Provider-side id and completion status.
    item.discard(&["id", "status"]);
    // Added by SDKs for their own use.
    item.discard(&["parsed_arguments"]);
    item.finish()?;
    Ok(read)
}

fn read_content(item: &mut FieldReader<'_>, name: &str) -> Result<Vec<PromptPart>, FieldError> {
    let path = item.path_of(name);
    let parts = match item.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![PromptPart::Text(text)]),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(FieldError::new(path, "must be a string or an array")),
    };
    let parts = parts.into_iter().enumerate();
    let read = parts
        .map(|(index, part)| read_part(part, &format!("{path}[{index}]"), item.ignored_fields()));
    read.collect()
}

fn read_part(part: Value, path: &str, ignored: &IgnoredFields) -> Result<PromptPart, FieldError> {
    let mut part = FieldReader::new(part, path, ignored)?;
    part.discard(&["prompt_cache_breakpoint"]);
    let kind = part.require_string("type")?;
    let read = match kind.as_str() {
        "input_text" => PromptPart::Text(part.require_string("text")?),
        "output_text" => {
            part.allow_only("annotations", &[json!([])])?;
            part.discard(&["logprobs", "parsed"]);
            PromptPart::Text(part.require_string("text")?)
        }
        "refusal" => PromptPart::Refusal(part.require_string("refusal")?),
        "input_image" => {
            reject_file_id(&mut part)?;
            PromptPart::Image {
                source: MediaSource::from_url(&part.require_string("image_url")?),
                detail: part
                    .take_string("detail")?
                    .filter(|detail| detail != "auto"),
            }
        }
        "input_file" => read_file(&mut part)?,
        "input_audio" => {
            let audio = part.take_object("input_audio")?;
            let mut audio = audio.ok_or_else(|| part.error_at("input_audio", "is missing"))?;
            let read = PromptPart::Audio {
                data: audio.require_string("data")?,
                format: audio.require_string("format")?,
            };
            audio.finish()?;
            read
        }
        _ => return Err(FieldError::untranslatable(part.path_of("type"))),
    };
    part.finish()?;
    Ok(read)
}

fn read_file(part: &mut FieldReader<'_>) -> Result<PromptPart, FieldError> {
    reject_file_id(part)?;
    part.allow_only("detail", &[json!("auto")])?;
    let name = part.take_string("filename")?;
    let source = match part.take_string("file_url")? {
        Some(url) => MediaSource::from_url(&url),
        None => match MediaSource::from_url(&part.require_string("file_data")?) {
            // Other dialects need the media type, which only a `data:` URL carries.
            MediaSource::Url(_) => return Err(part.error_at("file_data", "must be a `data:` URL")),
            data => data,
        },
    };
    Ok(PromptPart::File { source, name })
}

/// Rejects `file_id`, which is valid only at the provider that issued it.
fn reject_file_id(part: &mut FieldReader<'_>) -> Result<(), FieldError> {
    match part.take("file_id") {
        None => Ok(()),
        Some(_) => Err(FieldError::untranslatable(part.path_of("file_id"))),
    }
}

//! Decodes the content blocks of a request.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::fields::{FieldError, FieldReader};
use crate::prompt::{IgnoredFields, MediaSource, PromptPart, RequestedToolCall};

/// Reads a member that is a string or an array of blocks.
pub(super) fn read_content(
    fields: &mut FieldReader<'_>,
    name: &str,
) -> Result<Vec<PromptPart>, FieldError> {
    let path = fields.path_of(name);
    let blocks = match fields.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![PromptPart::Text(text)]),
        Some(Value::Array(blocks)) => blocks,
        Some(_) => return Err(FieldError::new(path, "must be a string or an array")),
    };
    let blocks = blocks.into_iter().enumerate();
    let read = blocks.map(|(index, block)| {
        read_block(block, &format!("{path}[{index}]"), fields.ignored_fields())
    });
    read.collect()
}

fn read_block(block: Value, path: &str, ignored: &IgnoredFields) -> Result<PromptPart, FieldError> {
    let mut block = FieldReader::new(block, path, ignored)?;
    block.discard(&["cache_control"]);
    let kind = block.require_string("type")?;
    let read = match kind.as_str() {
        "text" => {
            block.allow_only("citations", &[json!([])])?;
            PromptPart::Text(block.require_string("text")?)
        }
        "image" => PromptPart::Image {
            source: read_image(&mut block)?,
            detail: None,
        },
        "document" => {
            block.allow_only("citations", &[json!({}), json!({"enabled": false})])?;
            PromptPart::File {
                name: block.take_string("title")?,
                source: read_document(&mut block)?,
            }
        }
        "tool_use" => read_call(&mut block)?,
        "tool_result" => PromptPart::ToolResult {
            id: block.require_string("tool_use_id")?,
            parts: read_content(&mut block, "content")?,
            is_error: block.take_bool("is_error")?.unwrap_or(false),
        },
        // A tool found by tool search; it is already in `tools`.
        "tool_reference" => {
            let name = block.require_string("tool_name")?;
            PromptPart::Text(format!("The tool `{name}` is available."))
        }
        "thinking" => {
            block.discard(&["thinking", "signature"]);
            PromptPart::Reasoning
        }
        "redacted_thinking" => {
            block.discard(&["data"]);
            PromptPart::Reasoning
        }
        _ => return Err(FieldError::untranslatable(block.path_of("type"))),
    };
    block.finish()?;
    Ok(read)
}

fn read_call(block: &mut FieldReader<'_>) -> Result<PromptPart, FieldError> {
    let input = match block.take("input") {
        Some(input @ Value::Object(_)) => input.to_string(),
        _ => return Err(block.error_at("input", "must be an object")),
    };
    block.allow_only("caller", &[json!({"type": "direct"})])?;
    Ok(PromptPart::ToolCall(RequestedToolCall {
        id: block.require_string("id")?,
        name: block.require_string("name")?,
        arguments: input,
    }))
}

fn read_source<'a>(block: &mut FieldReader<'a>) -> Result<(String, FieldReader<'a>), FieldError> {
    let source = block.take_object("source")?;
    let mut source = source.ok_or_else(|| block.error_at("source", "is missing"))?;
    Ok((source.require_string("type")?, source))
}

fn read_image(block: &mut FieldReader<'_>) -> Result<MediaSource, FieldError> {
    let (kind, mut source) = read_source(block)?;
    let read = match kind.as_str() {
        "base64" => read_data(&mut source)?,
        "url" => MediaSource::Url(source.require_string("url")?),
        _ => return Err(FieldError::untranslatable(source.path_of("type"))),
    };
    source.finish()?;
    Ok(read)
}

fn read_document(block: &mut FieldReader<'_>) -> Result<MediaSource, FieldError> {
    let (kind, mut source) = read_source(block)?;
    let read = match kind.as_str() {
        "base64" => read_data(&mut source)?,
        "url" => MediaSource::Url(source.require_string("url")?),
        "text" => MediaSource::Data {
            media_type: source
                .take_string("media_type")?
                .unwrap_or_else(|| "text/plain".to_owned()),
            data: BASE64_STANDARD.encode(source.require_string("data")?),
        },
        _ => return Err(FieldError::untranslatable(source.path_of("type"))),
    };
    source.finish()?;
    Ok(read)
}

fn read_data(source: &mut FieldReader<'_>) -> Result<MediaSource, FieldError> {
    Ok(MediaSource::Data {
        media_type: source.require_string("media_type")?,
        data: source.require_string("data")?,
    })
}

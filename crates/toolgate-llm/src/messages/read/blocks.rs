//! The content blocks of a request.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::fields::{BadField, Fields};
use crate::prompt::{Call, Ignored, Part, Source};

/// A member that is a string, or an array of blocks.
pub(super) fn read_content(fields: &mut Fields<'_>, name: &str) -> Result<Vec<Part>, BadField> {
    let place = fields.place(name);
    let blocks = match fields.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![Part::Text(text)]),
        Some(Value::Array(blocks)) => blocks,
        Some(_) => return Err(BadField::new(place, "must be a string or an array")),
    };
    let blocks = blocks.into_iter().enumerate();
    let read = blocks
        .map(|(index, block)| read_block(block, &format!("{place}[{index}]"), fields.ignored()));
    read.collect()
}

fn read_block(block: Value, at: &str, ignored: &Ignored) -> Result<Part, BadField> {
    let mut block = Fields::of(block, at, ignored)?;
    block.hints(&["cache_control"]);
    let kind = block.need_text("type")?;
    let read = match kind.as_str() {
        "text" => {
            block.only("citations", &[json!([])])?;
            Part::Text(block.need_text("text")?)
        }
        "image" => Part::Image {
            source: read_image(&mut block)?,
            detail: None,
        },
        "document" => {
            block.only("citations", &[json!({}), json!({"enabled": false})])?;
            Part::File {
                name: block.text("title")?,
                source: read_document(&mut block)?,
            }
        }
        "tool_use" => read_call(&mut block)?,
        "tool_result" => Part::Answered {
            id: block.need_text("tool_use_id")?,
            parts: read_content(&mut block, "content")?,
            is_error: block.flag("is_error")?.unwrap_or_default(),
        },
        // A tool that was found; it is among the tools already.
        "tool_reference" => {
            let name = block.need_text("tool_name")?;
            Part::Text(format!("The tool `{name}` can be called."))
        }
        "thinking" => {
            block.hints(&["thinking", "signature"]);
            Part::Reasoning
        }
        "redacted_thinking" => {
            block.hints(&["data"]);
            Part::Reasoning
        }
        _ => return Err(BadField::untranslatable(block.place("type"))),
    };
    block.end()?;
    Ok(read)
}

fn read_call(block: &mut Fields<'_>) -> Result<Part, BadField> {
    let input = match block.take("input") {
        Some(input @ Value::Object(_)) => input.to_string(),
        _ => return Err(block.wrong("input", "must be an object")),
    };
    block.only("caller", &[json!({"type": "direct"})])?;
    Ok(Part::Call(Call {
        id: block.need_text("id")?,
        name: block.need_text("name")?,
        arguments: input,
    }))
}

fn read_source<'a>(block: &mut Fields<'a>) -> Result<(String, Fields<'a>), BadField> {
    let source = block.object("source")?;
    let mut source = source.ok_or_else(|| block.wrong("source", "is missing"))?;
    Ok((source.need_text("type")?, source))
}

fn read_image(block: &mut Fields<'_>) -> Result<Source, BadField> {
    let (kind, mut source) = read_source(block)?;
    let read = match kind.as_str() {
        "base64" => read_data(&mut source)?,
        "url" => Source::Url(source.need_text("url")?),
        _ => return Err(BadField::untranslatable(source.place("type"))),
    };
    source.end()?;
    Ok(read)
}

fn read_document(block: &mut Fields<'_>) -> Result<Source, BadField> {
    let (kind, mut source) = read_source(block)?;
    let read = match kind.as_str() {
        "base64" => read_data(&mut source)?,
        "url" => Source::Url(source.need_text("url")?),
        "text" => Source::Data {
            media_type: source
                .text("media_type")?
                .unwrap_or_else(|| "text/plain".to_owned()),
            data: BASE64_STANDARD.encode(source.need_text("data")?),
        },
        _ => return Err(BadField::untranslatable(source.place("type"))),
    };
    source.end()?;
    Ok(read)
}

fn read_data(source: &mut Fields<'_>) -> Result<Source, BadField> {
    Ok(Source::Data {
        media_type: source.need_text("media_type")?,
        data: source.need_text("data")?,
    })
}

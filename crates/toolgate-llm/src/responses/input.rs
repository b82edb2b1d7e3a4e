//! The items of a request's `input`.

use serde_json::{Value, json};

use super::within;
use crate::fields::{BadField, Fields};
use crate::prompt::{Call, Ignored, Message, Part, Role, Source};

pub(super) fn read_input(fields: &mut Fields<'_>) -> Result<Vec<Message>, BadField> {
    let place = fields.place("input");
    let items = match fields.take("input") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => {
            return Ok(vec![Message::new(Role::User, vec![Part::Text(text)])]);
        }
        Some(Value::Array(items)) => items,
        Some(_) => return Err(BadField::new(place, "must be a string or an array")),
    };
    let mut messages: Vec<Message> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let message = read_item(item, &format!("{place}[{index}]"), fields.ignored())?;
        // What a model made in one turn is several items, and so is what is said to it.
        match messages.last_mut() {
            Some(last) if last.role == message.role && message.role != Role::System => {
                last.parts.extend(message.parts);
            }
            _ => messages.push(message),
        }
    }
    Ok(messages)
}

fn read_item(item: Value, at: &str, ignored: &Ignored) -> Result<Message, BadField> {
    let mut item = Fields::of(item, at, ignored)?;
    let kind = item.text("type")?;
    let read = match kind.as_deref().unwrap_or("message") {
        "message" => {
            let role = match item.need_text("role")?.as_str() {
                "user" => Role::User,
                "assistant" => Role::Assistant,
                "system" | "developer" => Role::System,
                _ => return Err(BadField::untranslatable(item.place("role"))),
            };
            item.hints(&["phase"]);
            Message::new(role, read_content(&mut item, "content")?)
        }
        "function_call" => {
            let name = item.need_text("name")?;
            let namespace = item.text("namespace")?;
            let call = Call {
                id: item.need_text("call_id")?,
                name: namespace.map_or(name.clone(), |namespace| within(&namespace, &name)),
                arguments: item.text("arguments")?.unwrap_or_default(),
            };
            Message::new(Role::Assistant, vec![Part::Call(call)])
        }
        "function_call_output" => {
            let answered = Part::Answered {
                id: item.need_text("call_id")?,
                parts: read_content(&mut item, "output")?,
                is_error: false,
            };
            item.hints(&["name"]);
            Message::new(Role::User, vec![answered])
        }
        "reasoning" => {
            item.hints(&["summary", "content", "encrypted_content"]);
            Message::new(Role::Assistant, vec![Part::Reasoning])
        }
        _ => return Err(BadField::untranslatable(item.place("type"))),
    };
    item.only("caller", &[json!({"type": "direct"})])?;
    // Under which name the provider knew it, and that it was complete.
    item.hints(&["id", "status"]);
    // What SDKs note down for themselves.
    item.hints(&["parsed_arguments"]);
    item.end()?;
    Ok(read)
}

fn read_content(item: &mut Fields<'_>, name: &str) -> Result<Vec<Part>, BadField> {
    let place = item.place(name);
    let parts = match item.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![Part::Text(text)]),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(BadField::new(place, "must be a string or an array")),
    };
    let parts = parts.into_iter().enumerate();
    let read =
        parts.map(|(index, part)| read_part(part, &format!("{place}[{index}]"), item.ignored()));
    read.collect()
}

fn read_part(part: Value, at: &str, ignored: &Ignored) -> Result<Part, BadField> {
    let mut part = Fields::of(part, at, ignored)?;
    part.hints(&["prompt_cache_breakpoint"]);
    let kind = part.need_text("type")?;
    let read = match kind.as_str() {
        "input_text" => Part::Text(part.need_text("text")?),
        "output_text" => {
            part.only("annotations", &[json!([])])?;
            part.hints(&["logprobs", "parsed"]);
            Part::Text(part.need_text("text")?)
        }
        "refusal" => Part::Refusal(part.need_text("refusal")?),
        "input_image" => {
            foreign(&mut part)?;
            Part::Image {
                source: Source::read(&part.need_text("image_url")?),
                detail: part.text("detail")?.filter(|detail| detail != "auto"),
            }
        }
        "input_file" => read_file(&mut part)?,
        "input_audio" => {
            let audio = part.object("input_audio")?;
            let mut audio = audio.ok_or_else(|| part.wrong("input_audio", "is missing"))?;
            let read = Part::Audio {
                data: audio.need_text("data")?,
                format: audio.need_text("format")?,
            };
            audio.end()?;
            read
        }
        _ => return Err(BadField::untranslatable(part.place("type"))),
    };
    part.end()?;
    Ok(read)
}

fn read_file(part: &mut Fields<'_>) -> Result<Part, BadField> {
    foreign(part)?;
    part.only("detail", &[json!("auto")])?;
    let name = part.text("filename")?;
    let source = match part.text("file_url")? {
        Some(url) => Source::read(&url),
        None => match Source::read(&part.need_text("file_data")?) {
            // What kind of file it is has to be told elsewhere.
            Source::Url(_) => return Err(part.wrong("file_data", "must be a `data:` URL")),
            data => data,
        },
    };
    Ok(Part::File { source, name })
}

/// A file that was given to a provider is known to that one only.
fn foreign(part: &mut Fields<'_>) -> Result<(), BadField> {
    match part.take("file_id") {
        None => Ok(()),
        Some(_) => Err(BadField::untranslatable(part.place("file_id"))),
    }
}

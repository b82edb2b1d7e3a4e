//! What a request asks for.

use serde_json::{Value, json};

use crate::fields::{BadField, Fields, foreign_tool};
use crate::prompt::{
    Call, Choice, Effort, Format, Ignored, Limits, Message, Part, Prompt, Role, Sampling, Source,
    Tool,
};

/// What SDKs note down of an answer for themselves, and send back with it.
const PARSED: &[&str] = &["parsed", "parsed_arguments"];

pub fn read(body: &str, ignored: &Ignored) -> Result<Prompt, BadField> {
    let body: Value = serde_json::from_str(body)
        .map_err(|error| BadField::new("body", format!("is not JSON: {error}")))?;
    let mut fields = Fields::of(body, "", ignored)?;
    let mut messages = Vec::new();
    for (index, message) in fields
        .list("messages")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        messages.push(read_message(
            message,
            &format!("messages[{index}]"),
            ignored,
        )?);
    }
    let mut tools = Vec::new();
    for (index, tool) in fields
        .list("tools")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        tools.extend(read_tool(tool, &format!("tools[{index}]"), ignored)?);
    }
    let prompt = Prompt {
        model: fields.need_text("model")?,
        messages: merged(messages),
        tools,
        choice: read_choice(&mut fields)?,
        parallel: fields.flag("parallel_tool_calls")?,
        limits: read_limits(&mut fields)?,
        sampling: read_sampling(&mut fields)?,
        format: read_format(&mut fields)?,
        effort: fields.text("reasoning_effort")?.map(Effort::Word),
        user: fields.text("user")?,
        stream: fields.flag("stream")?.unwrap_or_default(),
        stream_usage: read_stream_options(&mut fields)?,
    };
    // One answer, kept by nobody, as text: what every provider does.
    fields.only("n", &[json!(1)])?;
    fields.only("store", &[json!(false)])?;
    fields.only("logprobs", &[json!(false)])?;
    fields.only("logit_bias", &[json!({})])?;
    fields.only("modalities", &[json!(["text"])])?;
    fields.only("service_tier", &[json!("auto"), json!("default")])?;
    fields.only("verbosity", &[json!("medium")])?;
    fields.only("metadata", &[json!({})])?;
    fields.hints(&[
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
    ]);
    fields.end()?;
    Ok(prompt)
}

fn read_stream_options(fields: &mut Fields<'_>) -> Result<bool, BadField> {
    let Some(mut options) = fields.object("stream_options")? else {
        return Ok(false);
    };
    let usage = options.flag("include_usage")?.unwrap_or_default();
    options.hints(&["include_obfuscation"]);
    options.end()?;
    Ok(usage)
}

fn read_limits(fields: &mut Fields<'_>) -> Result<Limits, BadField> {
    let older = fields.number("max_tokens")?;
    let newer = fields.number("max_completion_tokens")?;
    let stop = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(stops) => serde_json::from_value(stops)
            .map_err(|_| fields.wrong("stop", "must be a string or an array of strings"))?,
    };
    Ok(Limits {
        max_tokens: newer.or(older),
        stop,
    })
}

fn read_sampling(fields: &mut Fields<'_>) -> Result<Sampling, BadField> {
    Ok(Sampling {
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        top_k: fields.number("top_k")?,
        frequency_penalty: fields.number("frequency_penalty")?,
        presence_penalty: fields.number("presence_penalty")?,
        seed: fields.number("seed")?,
    })
}

fn read_format(fields: &mut Fields<'_>) -> Result<Option<Format>, BadField> {
    let Some(mut format) = fields.object("response_format")? else {
        return Ok(None);
    };
    let kind = format.need_text("type")?;
    let read = match kind.as_str() {
        "text" => None,
        "json_object" => Some(Format::Json),
        "json_schema" => {
            let schema = format.object("json_schema")?;
            let mut schema = schema.ok_or_else(|| format.wrong("json_schema", "is missing"))?;
            let read = Format::Schema {
                name: schema.need_text("name")?,
                description: schema.text("description")?,
                schema: schema.take("schema").unwrap_or_else(|| json!({})),
                strict: schema.flag("strict")?,
            };
            schema.end()?;
            Some(read)
        }
        _ => return Err(BadField::untranslatable(format.place("type"))),
    };
    format.end()?;
    Ok(read)
}

fn read_choice(fields: &mut Fields<'_>) -> Result<Option<Choice>, BadField> {
    let place = fields.place("tool_choice");
    let ignored = fields.ignored();
    match fields.take("tool_choice") {
        None => Ok(None),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(Some(Choice::Auto)),
            "none" => Ok(Some(Choice::None)),
            "required" => Ok(Some(Choice::Required)),
            _ => Err(BadField::untranslatable(place)),
        },
        Some(named) => {
            let mut named = Fields::of(named, &place, ignored)?;
            if named.need_text("type")? != "function" {
                return Err(BadField::untranslatable(named.place("type")));
            }
            let function = named.object("function")?;
            let mut function = function.ok_or_else(|| named.wrong("function", "is missing"))?;
            Ok(Some(Choice::Named(function.need_text("name")?)))
        }
    }
}

/// Nothing if a tool may be left away.
fn read_tool(tool: Value, at: &str, ignored: &Ignored) -> Result<Option<Tool>, BadField> {
    let mut tool = Fields::of(tool, at, ignored)?;
    match tool.need_text("type")?.as_str() {
        "function" => {}
        kind if ignored.has(kind) => return Ok(None),
        kind => return Err(foreign_tool(tool.place("type"), kind)),
    }
    let function = tool.object("function")?;
    let mut function = function.ok_or_else(|| tool.wrong("function", "is missing"))?;
    let read = Tool {
        name: function.need_text("name")?,
        description: function.text("description")?,
        parameters: function.take("parameters"),
        strict: function.flag("strict")?,
    };
    function.end()?;
    tool.hints(&["cache_control"]);
    tool.end()?;
    Ok(Some(read))
}

fn read_message(message: Value, at: &str, ignored: &Ignored) -> Result<Message, BadField> {
    let mut message = Fields::of(message, at, ignored)?;
    message.hints(&["cache_control"]);
    let role = message.need_text("role")?;
    let read = match role.as_str() {
        "system" | "developer" => Message::new(Role::System, read_content(&mut message)?),
        "user" => Message::new(Role::User, read_content(&mut message)?),
        "tool" => {
            let answered = Part::Answered {
                id: message.need_text("tool_call_id")?,
                parts: read_content(&mut message)?,
                is_error: message.flag("is_error")?.unwrap_or_default(),
            };
            message.hints(&["name"]);
            Message::new(Role::User, vec![answered])
        }
        "assistant" => Message::new(Role::Assistant, read_assistant(&mut message)?),
        _ => return Err(BadField::untranslatable(message.place("role"))),
    };
    message.end()?;
    Ok(read)
}

fn read_assistant(message: &mut Fields<'_>) -> Result<Vec<Part>, BadField> {
    let mut parts = Vec::new();
    for name in ["reasoning_content", "reasoning", "reasoning_details"] {
        if message.take(name).is_some() && parts.is_empty() {
            parts.push(Part::Reasoning);
        }
    }
    parts.extend(read_content(message)?);
    parts.extend(message.text("refusal")?.map(Part::Refusal));
    // What SDKs send back of an answer although it says nothing.
    message.only("function_call", &[])?;
    message.only("audio", &[])?;
    message.only("annotations", &[json!([])])?;
    message.hints(PARSED);
    let calls = message.list("tool_calls")?.unwrap_or_default();
    for (index, call) in calls.into_iter().enumerate() {
        let at = message.place(&format!("tool_calls[{index}]"));
        let mut call = Fields::of(call, &at, message.ignored())?;
        call.hints(&["index"]);
        if call.text("type")?.is_some_and(|kind| kind != "function") {
            return Err(BadField::untranslatable(call.place("type")));
        }
        let id = call.need_text("id")?;
        let function = call.object("function")?;
        let mut function = function.ok_or_else(|| call.wrong("function", "is missing"))?;
        parts.push(Part::Call(Call {
            id,
            name: function.need_text("name")?,
            arguments: function.text("arguments")?.unwrap_or_default(),
        }));
        function.hints(PARSED);
        function.end()?;
        call.end()?;
    }
    Ok(parts)
}

fn read_content(message: &mut Fields<'_>) -> Result<Vec<Part>, BadField> {
    let place = message.place("content");
    let items = match message.take("content") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![Part::Text(text)]),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(BadField::new(place, "must be a string or an array")),
    };
    let items = items.into_iter().enumerate();
    let read =
        items.map(|(index, item)| read_part(item, &format!("{place}[{index}]"), message.ignored()));
    read.collect()
}

fn read_part(part: Value, at: &str, ignored: &Ignored) -> Result<Part, BadField> {
    let mut part = Fields::of(part, at, ignored)?;
    part.hints(&["cache_control"]);
    let kind = part.need_text("type")?;
    let missing = |part: &Fields<'_>, name: &str| part.wrong(name, "is missing");
    let read = match kind.as_str() {
        "text" => Part::Text(part.need_text("text")?),
        "refusal" => Part::Refusal(part.need_text("refusal")?),
        "image_url" => {
            let image = part.object("image_url")?;
            let mut image = image.ok_or_else(|| missing(&part, "image_url"))?;
            let read = Part::Image {
                source: Source::read(&image.need_text("url")?),
                detail: image.text("detail")?.filter(|detail| detail != "auto"),
            };
            image.end()?;
            read
        }
        "input_audio" => {
            let audio = part.object("input_audio")?;
            let mut audio = audio.ok_or_else(|| missing(&part, "input_audio"))?;
            let read = Part::Audio {
                data: audio.need_text("data")?,
                format: audio.need_text("format")?,
            };
            audio.end()?;
            read
        }
        "file" => {
            let file = part.object("file")?;
            let mut file = file.ok_or_else(|| missing(&part, "file"))?;
            let read = Part::File {
                name: file.text("filename")?,
                source: Source::read(&file.need_text("file_data")?),
            };
            file.end()?; // a `file_id` is known to its own provider only
            read
        }
        _ => return Err(BadField::untranslatable(part.place("type"))),
    };
    part.end()?;
    Ok(read)
}

/// Several answers of tools, and what the user says to them, are one message elsewhere.
fn merged(messages: Vec<Message>) -> Vec<Message> {
    let mut merged: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match merged.last_mut() {
            Some(last) if last.role == Role::User && message.role == Role::User => {
                last.parts.extend(message.parts);
            }
            _ => merged.push(message),
        }
    }
    merged
}

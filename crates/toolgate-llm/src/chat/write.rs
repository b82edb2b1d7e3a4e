//! A request in this dialect.

use serde_json::{Value, json};

use crate::fields::BadField;
use crate::prompt::{
    Call, Choice, Effort, Format, Message, Part, Prompt, Role, Source, Tool, object,
};

/// Messages as they stand in a request.
pub(crate) fn items(said: &[Message]) -> Result<Vec<Value>, BadField> {
    let mut messages = Vec::new();
    for message in said {
        write_message(message, &mut messages)?;
    }
    Ok(messages)
}

pub fn write(prompt: &Prompt) -> Result<String, BadField> {
    let messages = items(&prompt.messages)?;
    if prompt.sampling.top_k.is_some() {
        return Err(BadField::untranslatable("top_k"));
    }
    let numbers = |number: &Option<serde_json::Number>| number.clone().map(Value::Number);
    let tools: Vec<Value> = prompt.tools.iter().map(tool).collect();
    let body = object([
        ("model", Some(json!(prompt.model))),
        ("messages", Some(Value::Array(messages))),
        ("tools", (!tools.is_empty()).then_some(Value::Array(tools))),
        ("tool_choice", prompt.choice.as_ref().map(choice)),
        ("parallel_tool_calls", prompt.parallel.map(Value::Bool)),
        ("max_completion_tokens", numbers(&prompt.limits.max_tokens)),
        (
            "stop",
            (!prompt.limits.stop.is_empty()).then(|| json!(prompt.limits.stop)),
        ),
        ("temperature", numbers(&prompt.sampling.temperature)),
        ("top_p", numbers(&prompt.sampling.top_p)),
        (
            "frequency_penalty",
            numbers(&prompt.sampling.frequency_penalty),
        ),
        (
            "presence_penalty",
            numbers(&prompt.sampling.presence_penalty),
        ),
        ("seed", numbers(&prompt.sampling.seed)),
        ("response_format", prompt.format.as_ref().map(format)),
        ("reasoning_effort", effort(prompt.effort.as_ref())),
        ("user", prompt.user.as_deref().map(Value::from)),
        ("stream", prompt.stream.then_some(Value::Bool(true))),
        (
            "stream_options",
            prompt.stream.then(|| json!({"include_usage": true})),
        ),
    ]);
    Ok(body.to_string())
}

fn effort(effort: Option<&Effort>) -> Option<Value> {
    match effort? {
        // Models that do not reason refuse the word.
        Effort::Off => None,
        effort => Some(json!(effort.word())),
    }
}

fn choice(choice: &Choice) -> Value {
    match choice {
        Choice::Auto => json!("auto"),
        Choice::None => json!("none"),
        Choice::Required => json!("required"),
        Choice::Named(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn format(format: &Format) -> Value {
    match format {
        Format::Json => json!({"type": "json_object"}),
        Format::Schema {
            name,
            description,
            schema,
            strict,
        } => {
            let schema = object([
                ("name", Some(json!(name))),
                ("description", description.as_deref().map(Value::from)),
                ("schema", Some(schema.clone())),
                ("strict", strict.map(Value::Bool)),
            ]);
            json!({"type": "json_schema", "json_schema": schema})
        }
    }
}

fn tool(tool: &Tool) -> Value {
    let function = object([
        ("name", Some(json!(tool.name))),
        ("description", tool.description.as_deref().map(Value::from)),
        ("parameters", tool.parameters.clone()),
        ("strict", tool.strict.map(Value::Bool)),
    ]);
    json!({"type": "function", "function": function})
}

/// One message of the hub is several here: tools answer in messages of their own.
fn write_message(message: &Message, out: &mut Vec<Value>) -> Result<(), BadField> {
    match message.role {
        Role::System => out.push(json!({"role": "system", "content": content(&message.parts)?})),
        Role::Assistant => out.extend(assistant(&message.parts)?),
        Role::User => {
            let mut said = Vec::new();
            for part in &message.parts {
                match part {
                    Part::Answered { id, parts, .. } => {
                        // Only text can be a tool's answer here; the rest is said by the user.
                        let is_text = |part: &&Part| matches!(part, Part::Text(_));
                        let (texts, others): (Vec<_>, Vec<_>) = parts.iter().partition(is_text);
                        let text = content(texts)?;
                        out.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
                        said.extend(others);
                    }
                    part => said.push(part),
                }
            }
            if !said.is_empty() {
                out.push(json!({"role": "user", "content": content(said)?}));
            }
        }
    }
    Ok(())
}

/// Nothing if the model did nothing but reason.
fn assistant(parts: &[Part]) -> Result<Option<Value>, BadField> {
    let calls = parts.iter().filter_map(|part| match part {
        Part::Call(call) => Some(call_value(call)),
        _ => None,
    });
    let calls: Vec<Value> = calls.collect();
    let said = |part: &&Part| !matches!(part, Part::Call(_) | Part::Reasoning);
    let said: Vec<&Part> = parts.iter().filter(said).collect();
    if said.is_empty() && calls.is_empty() {
        return Ok(None);
    }
    Ok(Some(object([
        ("role", Some(json!("assistant"))),
        (
            "content",
            (!said.is_empty()).then(|| content(said)).transpose()?,
        ),
        (
            "tool_calls",
            (!calls.is_empty()).then_some(Value::Array(calls)),
        ),
    ])))
}

pub(super) fn call_value(call: &Call) -> Value {
    json!({"id": call.id, "type": "function",
        "function": {"name": call.name, "arguments": call.arguments}})
}

/// A string if it is one text, else parts.
fn content<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<Value, BadField> {
    let parts: Vec<&Part> = parts.into_iter().collect();
    match parts.as_slice() {
        [] => Ok(json!("")),
        [Part::Text(text)] => Ok(json!(text)),
        parts => {
            let parts: Result<Vec<Value>, BadField> =
                parts.iter().map(|part| content_part(part)).collect();
            Ok(Value::Array(parts?))
        }
    }
}

fn content_part(part: &Part) -> Result<Value, BadField> {
    Ok(match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Refusal(text) => json!({"type": "refusal", "refusal": text}),
        Part::Image { source, detail } => {
            let image = object([
                ("url", Some(json!(source.url()))),
                ("detail", detail.as_deref().map(Value::from)),
            ]);
            json!({"type": "image_url", "image_url": image})
        }
        Part::Audio { data, format } => {
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
        }
        Part::File {
            source: Source::Url(_),
            ..
        } => {
            let problem =
                "holds a file by its URL, which this provider does not take; send its data";
            return Err(BadField::new("messages", problem));
        }
        Part::File { source, name } => {
            let file = object([
                ("filename", name.as_deref().map(Value::from)),
                ("file_data", Some(json!(source.url()))),
            ]);
            json!({"type": "file", "file": file})
        }
        Part::Reasoning | Part::Call(_) | Part::Answered { .. } => {
            return Err(BadField::new(
                "messages",
                "hold a part at a place where it cannot stand",
            ));
        }
    })
}

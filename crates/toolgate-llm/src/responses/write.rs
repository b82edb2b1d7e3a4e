//! A request in this dialect.

use serde_json::{Number, Value, json};

use crate::fields::BadField;
use crate::prompt::{Choice, Effort, Format, Message, Part, Prompt, Role, Source, Tool, object};

/// Messages as they stand in a request.
pub(crate) fn items(said: &[Message]) -> Result<Vec<Value>, BadField> {
    let mut input = Vec::new();
    for message in said {
        write_message(message, &mut input)?;
    }
    Ok(input)
}

pub fn write(prompt: &Prompt) -> Result<String, BadField> {
    refuse_unsayable(prompt)?;
    // Instructions alone are no request.
    let (instructions, said) = match prompt.messages.as_slice() {
        [first, said @ ..] if !said.is_empty() => match (first.role, first.parts.as_slice()) {
            (Role::System, [Part::Text(text)]) => (Some(json!(text)), said),
            _ => (None, prompt.messages.as_slice()),
        },
        messages => (None, messages),
    };
    let input = items(said)?;
    let numbers = |number: &Option<Number>| number.clone().map(Value::Number);
    let tools: Vec<Value> = prompt.tools.iter().map(tool).collect();
    let body = object([
        ("model", Some(json!(prompt.model))),
        ("instructions", instructions),
        ("input", Some(Value::Array(input))),
        ("tools", (!tools.is_empty()).then_some(Value::Array(tools))),
        ("tool_choice", prompt.choice.as_ref().map(choice)),
        ("parallel_tool_calls", prompt.parallel.map(Value::Bool)),
        ("max_output_tokens", numbers(&prompt.limits.max_tokens)),
        ("temperature", numbers(&prompt.sampling.temperature)),
        ("top_p", numbers(&prompt.sampling.top_p)),
        (
            "text",
            prompt
                .format
                .as_ref()
                .map(|it| json!({"format": format(it)})),
        ),
        ("reasoning", reasoning(prompt.effort.as_ref())),
        ("user", prompt.user.as_deref().map(Value::from)),
        // No other dialect lets an answer be kept by the provider.
        ("store", Some(Value::Bool(false))),
        ("stream", prompt.stream.then_some(Value::Bool(true))),
    ]);
    Ok(body.to_string())
}

fn refuse_unsayable(prompt: &Prompt) -> Result<(), BadField> {
    let sampling = &prompt.sampling;
    let asked = [
        ("stop", !prompt.limits.stop.is_empty()),
        ("top_k", sampling.top_k.is_some()),
        ("frequency_penalty", sampling.frequency_penalty.is_some()),
        ("presence_penalty", sampling.presence_penalty.is_some()),
        ("seed", sampling.seed.is_some()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((name, _)) => Err(BadField::untranslatable(*name)),
        None => Ok(()),
    }
}

fn reasoning(effort: Option<&Effort>) -> Option<Value> {
    match effort? {
        // Models that do not reason refuse the word.
        Effort::Off => None,
        effort => Some(json!({"effort": effort.word()})),
    }
}

fn choice(choice: &Choice) -> Value {
    match choice {
        Choice::Auto => json!("auto"),
        Choice::None => json!("none"),
        Choice::Required => json!("required"),
        Choice::Named(name) => json!({"type": "function", "name": name}),
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
        } => object([
            ("type", Some(json!("json_schema"))),
            ("name", Some(json!(name))),
            ("description", description.as_deref().map(Value::from)),
            ("schema", Some(schema.clone())),
            ("strict", strict.map(Value::Bool)),
        ]),
    }
}

fn tool(tool: &Tool) -> Value {
    let parameters = tool.parameters.clone();
    let nothing = || json!({"type": "object", "properties": {}});
    object([
        ("type", Some(json!("function"))),
        ("name", Some(json!(tool.name))),
        ("description", tool.description.as_deref().map(Value::from)),
        ("parameters", Some(parameters.unwrap_or_else(nothing))),
        // A tool of which nothing is said would be strict here, and only here.
        ("strict", Some(json!(tool.strict.unwrap_or_default()))),
    ])
}

/// One message of the hub is several items here: calls and their answers are items of their own.
fn write_message(message: &Message, out: &mut Vec<Value>) -> Result<(), BadField> {
    let mut said = Vec::new();
    for part in &message.parts {
        let item = match part {
            Part::Reasoning => continue,
            Part::Call(call) => json!({"type": "function_call", "call_id": call.id,
                "name": call.name, "arguments": call.arguments}),
            Part::Answered { id, parts, .. } => json!({"type": "function_call_output",
                "call_id": id, "output": content(&parts.iter().collect::<Vec<_>>(), Role::User)?}),
            part => {
                said.push(part);
                // Several parts of what a model said must have an id; one text need not.
                if message.role == Role::Assistant {
                    write_said(message.role, &mut said, out)?;
                }
                continue;
            }
        };
        write_said(message.role, &mut said, out)?;
        out.push(item);
    }
    write_said(message.role, &mut said, out)
}

fn write_said(role: Role, said: &mut Vec<&Part>, out: &mut Vec<Value>) -> Result<(), BadField> {
    let word = match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    if !said.is_empty() {
        let content = content(said, role)?;
        out.push(json!({"type": "message", "role": word, "content": content}));
        said.clear();
    }
    Ok(())
}

/// A string if it is one text, else parts.
fn content(parts: &[&Part], role: Role) -> Result<Value, BadField> {
    match parts {
        [] => Ok(json!("")),
        [Part::Text(text)] => Ok(json!(text)),
        parts => {
            let parts: Result<Vec<Value>, BadField> =
                parts.iter().map(|part| content_part(part, role)).collect();
            Ok(Value::Array(parts?))
        }
    }
}

fn content_part(part: &Part, role: Role) -> Result<Value, BadField> {
    Ok(match (part, role) {
        (Part::Refusal(text), Role::Assistant) => json!({"type": "refusal", "refusal": text}),
        (Part::Text(text), _) => json!({"type": "input_text", "text": text}),
        (Part::Image { source, detail }, Role::User | Role::System) => {
            json!({"type": "input_image", "image_url": source.url(),
                "detail": detail.as_deref().unwrap_or("auto")})
        }
        (Part::File { source, name }, Role::User | Role::System) => file(source, name.as_deref()),
        (Part::Audio { .. }, _) => return Err(BadField::untranslatable("input_audio")),
        _ => {
            return Err(BadField::new(
                "input",
                "holds a part at a place where it cannot stand",
            ));
        }
    })
}

/// A name must stand with data, and must not stand with a URL.
fn file(source: &Source, name: Option<&str>) -> Value {
    match source {
        Source::Url(url) => json!({"type": "input_file", "file_url": url}),
        Source::Data { media_type, .. } => {
            let usual = match media_type.as_str() {
                "application/pdf" => "file.pdf",
                "text/plain" => "file.txt",
                _ => "file",
            };
            json!({"type": "input_file", "filename": name.unwrap_or(usual),
                "file_data": source.url()})
        }
    }
}

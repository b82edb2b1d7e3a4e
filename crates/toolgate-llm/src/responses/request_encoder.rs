//! Encodes prompts as requests.

use serde_json::{Number, Value, json};

use crate::fields::FieldError;
use crate::prompt::{
    MediaSource, MessageRole, Prompt, PromptMessage, PromptPart, PromptTool, ReasoningEffort,
    ResponseFormat, ToolChoice, json_object,
};

/// Encodes messages as the items of `input`.
pub(crate) fn encode_messages(messages: &[PromptMessage]) -> Result<Vec<Value>, FieldError> {
    let mut input = Vec::new();
    for message in messages {
        encode_message(message, &mut input)?;
    }
    Ok(input)
}

pub fn encode_request(prompt: &Prompt) -> Result<String, FieldError> {
    check_supported(prompt)?;
    // A request needs input, so a lone system message stays in `input`.
    let (instructions, messages) = match prompt.messages.as_slice() {
        [first, rest @ ..] if !rest.is_empty() => match (first.role, first.parts.as_slice()) {
            (MessageRole::System, [PromptPart::Text(text)]) => (Some(json!(text)), rest),
            _ => (None, prompt.messages.as_slice()),
        },
        messages => (None, messages),
    };
    let input = encode_messages(messages)?;
    let numbers = |number: &Option<Number>| number.clone().map(Value::Number);
    let tools: Vec<Value> = prompt.tools.iter().map(encode_tool).collect();
    let body = json_object([
        ("model", Some(json!(prompt.model))),
        ("instructions", instructions),
        ("input", Some(Value::Array(input))),
        ("tools", (!tools.is_empty()).then_some(Value::Array(tools))),
        (
            "tool_choice",
            prompt.tool_choice.as_ref().map(encode_tool_choice),
        ),
        (
            "parallel_tool_calls",
            prompt.parallel_tool_calls.map(Value::Bool),
        ),
        ("max_output_tokens", numbers(&prompt.limits.max_tokens)),
        ("temperature", numbers(&prompt.sampling.temperature)),
        ("top_p", numbers(&prompt.sampling.top_p)),
        ("text", encode_text_settings(prompt)),
        ("include", encode_include(prompt.effort.as_ref())),
        ("reasoning", encode_reasoning(prompt.effort.as_ref())),
        ("metadata", prompt.openai.metadata.clone()),
        ("user", prompt.user.as_deref().map(Value::from)),
        // Other dialects cannot request storage, and the default here is to store.
        ("store", Some(Value::Bool(false))),
        ("stream", prompt.stream.then_some(Value::Bool(true))),
    ]);
    Ok(body.to_string())
}

fn check_supported(prompt: &Prompt) -> Result<(), FieldError> {
    let sampling = &prompt.sampling;
    let unsupported = [
        ("stop", !prompt.limits.stop.is_empty()),
        ("top_k", sampling.top_k.is_some()),
        ("frequency_penalty", sampling.frequency_penalty.is_some()),
        ("presence_penalty", sampling.presence_penalty.is_some()),
        ("seed", sampling.seed.is_some()),
    ];
    match unsupported.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(FieldError::untranslatable(*name)),
        None => Ok(()),
    }
}

fn encode_reasoning(effort: Option<&ReasoningEffort>) -> Option<Value> {
    match effort? {
        // Models without reasoning reject the field.
        ReasoningEffort::Off => None,
        effort => Some(json!({"effort": effort.as_level()})),
    }
}

/// Requests the encrypted reasoning: the provider does not store it, and accepts it back only in this form.
/// Models without reasoning reject the request.
fn encode_include(effort: Option<&ReasoningEffort>) -> Option<Value> {
    let reasons = effort.is_some_and(|effort| *effort != ReasoningEffort::Off);
    reasons.then(|| json!(["reasoning.encrypted_content"]))
}

fn encode_tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "name": name}),
        ToolChoice::Allowed { tools, mode } => {
            let tools = tools
                .iter()
                .map(|name| json!({"type": "function", "name": name}));
            json!({"type": "allowed_tools", "mode": mode.as_str(),
                "tools": tools.collect::<Vec<_>>()})
        }
    }
}

fn encode_text_settings(prompt: &Prompt) -> Option<Value> {
    let format = prompt.format.as_ref().map(encode_format);
    let verbosity = prompt.openai.verbosity.as_deref().map(Value::from);
    (format.is_some() || verbosity.is_some())
        .then(|| json_object([("format", format), ("verbosity", verbosity)]))
}

fn encode_format(format: &ResponseFormat) -> Value {
    match format {
        ResponseFormat::Json => json!({"type": "json_object"}),
        ResponseFormat::Schema {
            name,
            description,
            schema,
            strict,
        } => json_object([
            ("type", Some(json!("json_schema"))),
            ("name", Some(json!(name))),
            ("description", description.as_deref().map(Value::from)),
            ("schema", Some(schema.clone())),
            ("strict", strict.map(Value::Bool)),
        ]),
    }
}

fn encode_tool(tool: &PromptTool) -> Value {
    let parameters = tool.parameters.clone();
    let empty_schema = || json!({"type": "object", "properties": {}});
    json_object([
        ("type", Some(json!("function"))),
        ("name", Some(json!(tool.name))),
        ("description", tool.description.as_deref().map(Value::from)),
        ("parameters", Some(parameters.unwrap_or_else(empty_schema))),
        // Strict is the default only in this dialect.
        ("strict", Some(json!(tool.strict.unwrap_or(false)))),
    ])
}

/// Encodes one hub message as several items: calls and their results are separate items here.
fn encode_message(message: &PromptMessage, out: &mut Vec<Value>) -> Result<(), FieldError> {
    let mut pending = Vec::new();
    for part in &message.parts {
        let item = match part {
            PromptPart::Reasoning => continue,
            PromptPart::Raw(item) => item.clone(),
            PromptPart::ToolCall(call) => json!({"type": "function_call", "call_id": call.id,
                "name": call.name, "arguments": call.arguments}),
            PromptPart::ToolResult { id, parts, .. } => json!({"type": "function_call_output",
                "call_id": id, "output": encode_content(&parts.iter().collect::<Vec<_>>(), MessageRole::User)?}),
            part => {
                pending.push(part);
                // Assistant messages with several parts need an id; single texts do not.
                if message.role == MessageRole::Assistant {
                    flush_message(message.role, &mut pending, out)?;
                }
                continue;
            }
        };
        flush_message(message.role, &mut pending, out)?;
        out.push(item);
    }
    flush_message(message.role, &mut pending, out)
}

fn flush_message(
    role: MessageRole,
    pending: &mut Vec<&PromptPart>,
    out: &mut Vec<Value>,
) -> Result<(), FieldError> {
    let role_name = match role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
    };
    if !pending.is_empty() {
        let content = encode_content(pending, role)?;
        out.push(json!({"type": "message", "role": role_name, "content": content}));
        pending.clear();
    }
    Ok(())
}

/// Encodes content as a string if it is a single text, otherwise as an array of parts.
fn encode_content(parts: &[&PromptPart], role: MessageRole) -> Result<Value, FieldError> {
    match parts {
        [] => Ok(json!("")),
        [PromptPart::Text(text)] => Ok(json!(text)),
        parts => {
            let parts: Result<Vec<Value>, FieldError> =
                parts.iter().map(|part| encode_part(part, role)).collect();
            Ok(Value::Array(parts?))
        }
    }
}

fn encode_part(part: &PromptPart, role: MessageRole) -> Result<Value, FieldError> {
    Ok(match (part, role) {
        (PromptPart::Refusal(text), MessageRole::Assistant) => {
            json!({"type": "refusal", "refusal": text})
        }
        (PromptPart::Text(text), _) => json!({"type": "input_text", "text": text}),
        (PromptPart::Image { source, detail }, MessageRole::User | MessageRole::System) => {
            json!({"type": "input_image", "image_url": source.to_url(),
                "detail": detail.as_deref().unwrap_or("auto")})
        }
        (PromptPart::File { source, name }, MessageRole::User | MessageRole::System) => {
            encode_file(source, name.as_deref())
        }
        (PromptPart::Audio { .. }, _) => return Err(FieldError::untranslatable("input_audio")),
        _ => {
            return Err(FieldError::new(
                "input",
                "contains a content part that is not allowed in this position",
            ));
        }
    })
}

/// Encodes a file. The API requires a name with data and rejects one with a URL.
fn encode_file(source: &MediaSource, name: Option<&str>) -> Value {
    match source {
        MediaSource::Url(url) => json!({"type": "input_file", "file_url": url}),
        MediaSource::Data { media_type, .. } => {
            let default_name = match media_type.as_str() {
                "application/pdf" => "file.pdf",
                "text/plain" => "file.txt",
                _ => "file",
            };
            json!({"type": "input_file", "filename": name.unwrap_or(default_name),
                "file_data": source.to_url()})
        }
    }
}

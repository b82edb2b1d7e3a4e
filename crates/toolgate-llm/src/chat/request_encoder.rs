//! Encodes prompts as requests.

use serde_json::{Value, json};
use toolgate_core::config::provider::MaxTokensField;

use crate::fields::FieldError;
use crate::prompt::{
    MediaSource, MessageRole, Prompt, PromptMessage, PromptPart, PromptTool, ReasoningEffort,
    RequestedToolCall, ResponseFormat, ToolChoice, json_object,
};

/// Encodes messages as the items of `messages`.
pub(crate) fn encode_messages(messages: &[PromptMessage]) -> Result<Vec<Value>, FieldError> {
    let mut encoded = Vec::new();
    for message in messages {
        encode_message(message, &mut encoded)?;
    }
    Ok(encoded)
}

pub fn encode_request(prompt: &Prompt) -> Result<String, FieldError> {
    let messages = encode_messages(&prompt.messages)?;
    if prompt.sampling.top_k.is_some() {
        return Err(FieldError::untranslatable("top_k"));
    }
    let numbers = |number: &Option<serde_json::Number>| number.clone().map(Value::Number);
    let tools: Vec<Value> = prompt.tools.iter().map(encode_tool).collect();
    let max_tokens_field = match prompt.limits.max_tokens_field {
        MaxTokensField::MaxTokens => "max_tokens",
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
    };
    let body = json_object([
        ("model", Some(json!(prompt.model))),
        ("messages", Some(Value::Array(messages))),
        ("tools", (!tools.is_empty()).then_some(Value::Array(tools))),
        (
            "tool_choice",
            prompt.tool_choice.as_ref().map(encode_tool_choice),
        ),
        (
            "parallel_tool_calls",
            prompt.parallel_tool_calls.map(Value::Bool),
        ),
        (max_tokens_field, numbers(&prompt.limits.max_tokens)),
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
        ("response_format", prompt.format.as_ref().map(encode_format)),
        ("reasoning_effort", encode_effort(prompt.effort.as_ref())),
        (
            "verbosity",
            prompt.openai.verbosity.as_deref().map(Value::from),
        ),
        ("metadata", prompt.openai.metadata.clone()),
        ("user", prompt.user.as_deref().map(Value::from)),
        ("stream", prompt.stream.then_some(Value::Bool(true))),
        (
            "stream_options",
            prompt.stream.then(|| json!({"include_usage": true})),
        ),
    ]);
    Ok(body.to_string())
}

fn encode_effort(effort: Option<&ReasoningEffort>) -> Option<Value> {
    match effort? {
        // Models without reasoning reject the field.
        ReasoningEffort::Off => None,
        effort => Some(json!(effort.as_level())),
    }
}

fn encode_tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
        ToolChoice::Allowed { tools, mode } => {
            let tools = tools
                .iter()
                .map(|name| json!({"type": "function", "function": {"name": name}}));
            json!({"type": "allowed_tools", "allowed_tools": {
                "mode": mode.as_str(), "tools": tools.collect::<Vec<_>>()}})
        }
    }
}

fn encode_format(format: &ResponseFormat) -> Value {
    match format {
        ResponseFormat::Json => json!({"type": "json_object"}),
        ResponseFormat::Schema {
            name,
            description,
            schema,
            strict,
        } => {
            let schema = json_object([
                ("name", Some(json!(name))),
                ("description", description.as_deref().map(Value::from)),
                ("schema", Some(schema.clone())),
                ("strict", strict.map(Value::Bool)),
            ]);
            json!({"type": "json_schema", "json_schema": schema})
        }
    }
}

fn encode_tool(tool: &PromptTool) -> Value {
    let function = json_object([
        ("name", Some(json!(tool.name))),
        ("description", tool.description.as_deref().map(Value::from)),
        ("parameters", tool.parameters.clone()),
        ("strict", tool.strict.map(Value::Bool)),
    ]);
    json!({"type": "function", "function": function})
}

/// Encodes one hub message as one or more messages: each tool result is a separate message here.
fn encode_message(message: &PromptMessage, out: &mut Vec<Value>) -> Result<(), FieldError> {
    match message.role {
        MessageRole::System => {
            out.push(json!({"role": "system", "content": encode_content(&message.parts)?}))
        }
        MessageRole::Assistant => out.extend(encode_assistant(&message.parts)?),
        MessageRole::User => {
            let mut content_parts = Vec::new();
            for part in &message.parts {
                match part {
                    PromptPart::ToolResult { id, parts, .. } => {
                        // Tool messages carry only text, so other parts move to a user message.
                        let is_text = |part: &&PromptPart| matches!(part, PromptPart::Text(_));
                        let (texts, others): (Vec<_>, Vec<_>) = parts.iter().partition(is_text);
                        let text = encode_content(texts)?;
                        out.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
                        content_parts.extend(others);
                    }
                    part => content_parts.push(part),
                }
            }
            if !content_parts.is_empty() {
                out.push(json!({"role": "user", "content": encode_content(content_parts)?}));
            }
        }
    }
    Ok(())
}

/// Encodes an assistant message; `None` if it holds only reasoning.
fn encode_assistant(parts: &[PromptPart]) -> Result<Option<Value>, FieldError> {
    if let [PromptPart::Raw(message)] = parts {
        return Ok(Some(message.clone()));
    }
    let calls = parts.iter().filter_map(|part| match part {
        PromptPart::ToolCall(call) => Some(encode_call(call)),
        _ => None,
    });
    let calls: Vec<Value> = calls.collect();
    let is_content =
        |part: &&PromptPart| !matches!(part, PromptPart::ToolCall(_) | PromptPart::Reasoning);
    let content_parts: Vec<&PromptPart> = parts.iter().filter(is_content).collect();
    if content_parts.is_empty() && calls.is_empty() {
        return Ok(None);
    }
    Ok(Some(json_object([
        ("role", Some(json!("assistant"))),
        (
            "content",
            (!content_parts.is_empty())
                .then(|| encode_content(content_parts))
                .transpose()?,
        ),
        (
            "tool_calls",
            (!calls.is_empty()).then_some(Value::Array(calls)),
        ),
    ])))
}

pub(super) fn encode_call(call: &RequestedToolCall) -> Value {
    json!({"id": call.id, "type": "function",
        "function": {"name": call.name, "arguments": call.arguments}})
}

/// Encodes content as a string if it is a single text, otherwise as an array of parts.
fn encode_content<'a>(
    parts: impl IntoIterator<Item = &'a PromptPart>,
) -> Result<Value, FieldError> {
    let parts: Vec<&PromptPart> = parts.into_iter().collect();
    match parts.as_slice() {
        [] => Ok(json!("")),
        [PromptPart::Text(text)] => Ok(json!(text)),
        parts => {
            let parts: Result<Vec<Value>, FieldError> =
                parts.iter().map(|part| encode_part(part)).collect();
            Ok(Value::Array(parts?))
        }
    }
}

fn encode_part(part: &PromptPart) -> Result<Value, FieldError> {
    Ok(match part {
        PromptPart::Text(text) => json!({"type": "text", "text": text}),
        PromptPart::Refusal(text) => json!({"type": "refusal", "refusal": text}),
        PromptPart::Image { source, detail } => {
            let image = json_object([
                ("url", Some(json!(source.to_url()))),
                ("detail", detail.as_deref().map(Value::from)),
            ]);
            json!({"type": "image_url", "image_url": image})
        }
        PromptPart::Audio { data, format } => {
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
        }
        PromptPart::File {
            source: MediaSource::Url(_),
            ..
        } => {
            let problem = "contains a file URL, which this provider does not accept; send the file data instead";
            return Err(FieldError::new("messages", problem));
        }
        PromptPart::File { source, name } => {
            let file = json_object([
                ("filename", name.as_deref().map(Value::from)),
                ("file_data", Some(json!(source.to_url()))),
            ]);
            json!({"type": "file", "file": file})
        }
        PromptPart::Reasoning
        | PromptPart::ToolCall(_)
        | PromptPart::ToolResult { .. }
        | PromptPart::Raw(_) => {
            return Err(FieldError::new(
                "messages",
                "contains a content part that is not allowed in this position",
            ));
        }
    })
}

//! Decodes requests into prompts.

use serde_json::{Value, json};

use crate::fields::{FieldError, FieldReader, provider_tool_error};
use crate::prompt::{
    AllowedToolsMode, IgnoredFields, MediaSource, MessageRole, OpenAiSettings, Prompt,
    PromptMessage, PromptPart, PromptTool, ReasoningEffort, RequestedToolCall, ResponseFormat,
    ResponseLimits, Sampling, ToolChoice,
};

/// Fields that SDKs add to a response for their own use and send back with it.
const SDK_PARSED_FIELDS: &[&str] = &["parsed", "parsed_arguments"];

pub fn decode_request(body: &str, ignored: &IgnoredFields) -> Result<Prompt, FieldError> {
    let body: Value = serde_json::from_str(body)
        .map_err(|error| FieldError::new("body", format!("is not JSON: {error}")))?;
    let mut fields = FieldReader::new(body, "", ignored)?;
    let mut messages = Vec::new();
    for (index, message) in fields
        .take_array("messages")?
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
        .take_array("tools")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        tools.extend(read_tool(tool, &format!("tools[{index}]"), ignored)?);
    }
    let prompt = Prompt {
        model: fields.require_string("model")?,
        messages: merge_user_messages(messages),
        tools,
        tool_choice: read_choice(&mut fields)?,
        parallel_tool_calls: fields.take_bool("parallel_tool_calls")?,
        limits: read_limits(&mut fields)?,
        sampling: read_sampling(&mut fields)?,
        format: read_format(&mut fields)?,
        effort: fields
            .take_string("reasoning_effort")?
            .map(ReasoningEffort::Level),
        openai: OpenAiSettings {
            verbosity: fields
                .take_string("verbosity")?
                .filter(|verbosity| verbosity != "medium"),
            metadata: fields.take_raw_object("metadata")?,
        },
        user: fields.take_string("user")?,
        stream: fields.take_bool("stream")?.unwrap_or(false),
        stream_usage: read_stream_options(&mut fields)?,
    };
    // Values that every provider supports: a single text choice that is not stored.
    fields.allow_only("n", &[json!(1)])?;
    fields.allow_only("store", &[json!(false)])?;
    fields.allow_only("logprobs", &[json!(false)])?;
    fields.allow_only("logit_bias", &[json!({})])?;
    fields.allow_only("modalities", &[json!(["text"])])?;
    fields.allow_only("service_tier", &[json!("auto"), json!("default")])?;
    fields.discard(&[
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
    ]);
    fields.finish()?;
    Ok(prompt)
}

fn read_stream_options(fields: &mut FieldReader<'_>) -> Result<bool, FieldError> {
    let Some(mut options) = fields.take_object("stream_options")? else {
        return Ok(false);
    };
    let usage = options.take_bool("include_usage")?.unwrap_or(false);
    options.discard(&["include_obfuscation"]);
    options.finish()?;
    Ok(usage)
}

fn read_limits(fields: &mut FieldReader<'_>) -> Result<ResponseLimits, FieldError> {
    let legacy = fields.take_number("max_tokens")?;
    let current = fields.take_number("max_completion_tokens")?;
    let stop = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(stops) => serde_json::from_value(stops)
            .map_err(|_| fields.error_at("stop", "must be a string or an array of strings"))?,
    };
    Ok(ResponseLimits {
        max_tokens: current.or(legacy),
        stop,
        ..ResponseLimits::default()
    })
}

fn read_sampling(fields: &mut FieldReader<'_>) -> Result<Sampling, FieldError> {
    Ok(Sampling {
        temperature: fields.take_number("temperature")?,
        top_p: fields.take_number("top_p")?,
        top_k: fields.take_number("top_k")?,
        frequency_penalty: fields.take_number("frequency_penalty")?,
        presence_penalty: fields.take_number("presence_penalty")?,
        seed: fields.take_number("seed")?,
    })
}

fn read_format(fields: &mut FieldReader<'_>) -> Result<Option<ResponseFormat>, FieldError> {
    let Some(mut format) = fields.take_object("response_format")? else {
        return Ok(None);
    };
    let kind = format.require_string("type")?;
    let read = match kind.as_str() {
        "text" => None,
        "json_object" => Some(ResponseFormat::Json),
        "json_schema" => {
            let schema = format.take_object("json_schema")?;
            let mut schema = schema.ok_or_else(|| format.error_at("json_schema", "is missing"))?;
            let read = ResponseFormat::Schema {
                name: schema.require_string("name")?,
                description: schema.take_string("description")?,
                schema: schema.take("schema").unwrap_or_else(|| json!({})),
                strict: schema.take_bool("strict")?,
            };
            schema.finish()?;
            Some(read)
        }
        _ => return Err(FieldError::untranslatable(format.path_of("type"))),
    };
    format.finish()?;
    Ok(read)
}

fn read_choice(fields: &mut FieldReader<'_>) -> Result<Option<ToolChoice>, FieldError> {
    let path = fields.path_of("tool_choice");
    let ignored = fields.ignored_fields();
    match fields.take("tool_choice") {
        None => Ok(None),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(Some(ToolChoice::Auto)),
            "none" => Ok(Some(ToolChoice::None)),
            "required" => Ok(Some(ToolChoice::Required)),
            _ => Err(FieldError::untranslatable(path)),
        },
        Some(named) => {
            let mut named = FieldReader::new(named, &path, ignored)?;
            match named.require_string("type")?.as_str() {
                "function" => {}
                "allowed_tools" => return read_allowed_tools(&mut named).map(Some),
                _ => return Err(FieldError::untranslatable(named.path_of("type"))),
            }
            let function = named.take_object("function")?;
            let mut function = function.ok_or_else(|| named.error_at("function", "is missing"))?;
            Ok(Some(ToolChoice::Named(function.require_string("name")?)))
        }
    }
}

fn read_allowed_tools(choice: &mut FieldReader<'_>) -> Result<ToolChoice, FieldError> {
    let allowed = choice.take_object("allowed_tools")?;
    let mut allowed = allowed.ok_or_else(|| choice.error_at("allowed_tools", "is missing"))?;
    let mode = AllowedToolsMode::parse(&allowed.require_string("mode")?);
    let mode = mode.ok_or_else(|| FieldError::untranslatable(allowed.path_of("mode")))?;
    let mut names = Vec::new();
    for (index, tool) in allowed
        .take_array("tools")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let path = allowed.path_of(&format!("tools[{index}]"));
        let mut tool = FieldReader::new(tool, &path, choice.ignored_fields())?;
        if tool.require_string("type")? != "function" {
            return Err(FieldError::untranslatable(tool.path_of("type")));
        }
        let function = tool.take_object("function")?;
        let mut function = function.ok_or_else(|| tool.error_at("function", "is missing"))?;
        names.push(function.require_string("name")?);
    }
    Ok(ToolChoice::Allowed { tools: names, mode })
}

/// Reads a tool; `None` if its type is ignored by configuration.
fn read_tool(
    tool: Value,
    path: &str,
    ignored: &IgnoredFields,
) -> Result<Option<PromptTool>, FieldError> {
    let mut tool = FieldReader::new(tool, path, ignored)?;
    match tool.require_string("type")?.as_str() {
        "function" => {}
        kind if ignored.contains(kind) => return Ok(None),
        kind => return Err(provider_tool_error(tool.path_of("type"), kind)),
    }
    let function = tool.take_object("function")?;
    let mut function = function.ok_or_else(|| tool.error_at("function", "is missing"))?;
    let read = PromptTool {
        name: function.require_string("name")?,
        description: function.take_string("description")?,
        parameters: function.take("parameters"),
        strict: function.take_bool("strict")?,
    };
    function.finish()?;
    tool.discard(&["cache_control"]);
    tool.finish()?;
    Ok(Some(read))
}

fn read_message(
    message: Value,
    path: &str,
    ignored: &IgnoredFields,
) -> Result<PromptMessage, FieldError> {
    let mut message = FieldReader::new(message, path, ignored)?;
    message.discard(&["cache_control"]);
    let role = message.require_string("role")?;
    let read = match role.as_str() {
        "system" | "developer" => {
            PromptMessage::new(MessageRole::System, read_content(&mut message)?)
        }
        "user" => PromptMessage::new(MessageRole::User, read_content(&mut message)?),
        "tool" => {
            let result = PromptPart::ToolResult {
                id: message.require_string("tool_call_id")?,
                parts: read_content(&mut message)?,
                is_error: message.take_bool("is_error")?.unwrap_or(false),
            };
            message.discard(&["name"]);
            PromptMessage::new(MessageRole::User, vec![result])
        }
        "assistant" => PromptMessage::new(MessageRole::Assistant, read_assistant(&mut message)?),
        _ => return Err(FieldError::untranslatable(message.path_of("role"))),
    };
    message.finish()?;
    Ok(read)
}

fn read_assistant(message: &mut FieldReader<'_>) -> Result<Vec<PromptPart>, FieldError> {
    let mut parts = Vec::new();
    for name in ["reasoning_content", "reasoning", "reasoning_details"] {
        if message.take(name).is_some() && parts.is_empty() {
            parts.push(PromptPart::Reasoning);
        }
    }
    parts.extend(read_content(message)?);
    parts.extend(message.take_string("refusal")?.map(PromptPart::Refusal));
    // SDKs send these members of a response back even when they are empty.
    message.allow_only("function_call", &[])?;
    message.allow_only("audio", &[])?;
    message.allow_only("annotations", &[json!([])])?;
    message.discard(SDK_PARSED_FIELDS);
    let calls = message.take_array("tool_calls")?.unwrap_or_default();
    for (index, call) in calls.into_iter().enumerate() {
        let path = message.path_of(&format!("tool_calls[{index}]"));
        let mut call = FieldReader::new(call, &path, message.ignored_fields())?;
        call.discard(&["index"]);
        if call
            .take_string("type")?
            .is_some_and(|kind| kind != "function")
        {
            return Err(FieldError::untranslatable(call.path_of("type")));
        }
        let id = call.require_string("id")?;
        let function = call.take_object("function")?;
        let mut function = function.ok_or_else(|| call.error_at("function", "is missing"))?;
        parts.push(PromptPart::ToolCall(RequestedToolCall {
            id,
            name: function.require_string("name")?,
            arguments: function.take_string("arguments")?.unwrap_or_default(),
        }));
        function.discard(SDK_PARSED_FIELDS);
        function.finish()?;
        call.finish()?;
    }
    Ok(parts)
}

fn read_content(message: &mut FieldReader<'_>) -> Result<Vec<PromptPart>, FieldError> {
    let path = message.path_of("content");
    let items = match message.take("content") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![PromptPart::Text(text)]),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(FieldError::new(path, "must be a string or an array")),
    };
    let items = items.into_iter().enumerate();
    let read = items.map(|(index, item)| {
        read_part(item, &format!("{path}[{index}]"), message.ignored_fields())
    });
    read.collect()
}

fn read_part(part: Value, path: &str, ignored: &IgnoredFields) -> Result<PromptPart, FieldError> {
    let mut part = FieldReader::new(part, path, ignored)?;
    part.discard(&["cache_control"]);
    let kind = part.require_string("type")?;
    let missing = |part: &FieldReader<'_>, name: &str| part.error_at(name, "is missing");
    let read = match kind.as_str() {
        "text" => PromptPart::Text(part.require_string("text")?),
        "refusal" => PromptPart::Refusal(part.require_string("refusal")?),
        "image_url" => {
            let image = part.take_object("image_url")?;
            let mut image = image.ok_or_else(|| missing(&part, "image_url"))?;
            let read = PromptPart::Image {
                source: MediaSource::from_url(&image.require_string("url")?),
                detail: image
                    .take_string("detail")?
                    .filter(|detail| detail != "auto"),
            };
            image.finish()?;
            read
        }
        "input_audio" => {
            let audio = part.take_object("input_audio")?;
            let mut audio = audio.ok_or_else(|| missing(&part, "input_audio"))?;
            let read = PromptPart::Audio {
                data: audio.require_string("data")?,
                format: audio.require_string("format")?,
            };
            audio.finish()?;
            read
        }
        "file" => {
            let file = part.take_object("file")?;
            let mut file = file.ok_or_else(|| missing(&part, "file"))?;
            let read = PromptPart::File {
                name: file.take_string("filename")?,
                source: MediaSource::from_url(&file.require_string("file_data")?),
            };
            file.finish()?; // a `file_id` is valid only at the provider that issued it
            read
        }
        _ => return Err(FieldError::untranslatable(part.path_of("type"))),
    };
    part.finish()?;
    Ok(read)
}

/// Merges consecutive user messages: other dialects put tool results and the user text that
/// follows them into one message.
fn merge_user_messages(messages: Vec<PromptMessage>) -> Vec<PromptMessage> {
    let mut merged: Vec<PromptMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        match merged.last_mut() {
            Some(last) if last.role == MessageRole::User && message.role == MessageRole::User => {
                last.parts.extend(message.parts);
            }
            _ => merged.push(message),
        }
    }
    merged
}

//! Decodes requests into prompts.

mod blocks;

use serde_json::{Value, json};

use super::LOST_THREAD_FIELD;
use crate::body::RequestBody;
use crate::fields::{FieldError, FieldReader, provider_tool_error};
use crate::prompt::{
    IgnoredFields, MessageRole, OpenAiSettings, Prompt, PromptMessage, PromptTool, ReasoningEffort,
    ResponseFormat, ResponseLimits, Sampling, ToolChoice,
};

pub fn decode_request(body: &str, ignored: &IgnoredFields) -> Result<Prompt, FieldError> {
    let body: Value = serde_json::from_str(body)
        .map_err(|error| FieldError::new("body", format!("is not JSON: {error}")))?;
    let mut fields = FieldReader::new(body, "", ignored)?;
    let (choice, parallel) = read_choice(&mut fields)?;
    let config = read_output_config(&mut fields)?;
    let stream = fields.take_bool("stream")?.unwrap_or(false);
    let prompt = Prompt {
        model: fields.require_string("model")?,
        messages: read_messages(&mut fields)?,
        tools: read_tools(&mut fields)?,
        tool_choice: choice,
        parallel_tool_calls: parallel,
        limits: read_limits(&mut fields)?,
        sampling: Sampling {
            temperature: fields.take_number("temperature")?,
            top_p: fields.take_number("top_p")?,
            top_k: fields.take_number("top_k")?,
            ..Sampling::default()
        },
        format: config.format,
        effort: read_effort(&mut fields, config.effort.as_deref())?,
        openai: OpenAiSettings::default(),
        user: read_user(&mut fields)?,
        stream,
        stream_usage: stream,
    };
    // Other values select capacity tiers that only this provider has.
    fields.allow_only("service_tier", &[json!("auto"), json!("standard_only")])?;
    fields.allow_only("speed", &[json!("standard")])?;
    fields.allow_only("mcp_servers", &[json!([])])?;
    read_context_management(&mut fields)?;
    read_thread(&mut fields)?;
    // Caching does not change the meaning of the request.
    fields.discard(&["cache_control"]);
    fields.finish()?;
    Ok(prompt)
}

/// Reads the edits of the context. Only those of thinking mean nothing to other providers, which never
/// receive that of earlier turns.
fn read_context_management(fields: &mut FieldReader<'_>) -> Result<(), FieldError> {
    if fields.ignored_fields().contains("context_management") {
        fields.discard(&["context_management"]);
    }
    let Some(mut management) = fields.take_object("context_management")? else {
        return Ok(());
    };
    let edits = management.take_array("edits")?.unwrap_or_default();
    for (index, edit) in edits.iter().enumerate() {
        let kind = edit["type"].as_str().unwrap_or_default();
        if !kind.starts_with("clear_thinking_") {
            let path = management.path_of(&format!("edits[{index}]"));
            return Err(FieldError::untranslatable(path));
        }
    }
    management.finish()
}

/// Reads the thread of a conversation. No other provider holds one: a request that starts one has all
/// messages and needs none, and a request that continues one gets the error upon which SDKs send the
/// whole conversation.
fn read_thread(fields: &mut FieldReader<'_>) -> Result<(), FieldError> {
    let Some(mut thread) = fields.take_object("thread")? else {
        return Ok(());
    };
    match thread.require_string("type")?.as_str() {
        "create" => thread.finish(),
        "continue" => Err(lost_thread_error()),
        _ => Err(FieldError::untranslatable(thread.path_of("type"))),
    }
}

fn lost_thread_error() -> FieldError {
    let problem = "refers to a thread that does not exist for this caller; send the whole conversation with `thread: {\"type\": \"create\"}`";
    FieldError::new(LOST_THREAD_FIELD, problem)
}

/// Checks that a request does not continue a thread that the provider holds.
pub fn check_new_thread(body: &RequestBody) -> Result<(), FieldError> {
    let thread: Option<Value> = body
        .get("thread")
        .and_then(|thread| serde_json::from_str(thread).ok());
    match thread {
        Some(thread) if thread["type"] == "continue" => Err(lost_thread_error()),
        _ => Ok(()),
    }
}

/// Settings from `output_config`.
struct OutputConfig {
    format: Option<ResponseFormat>,
    effort: Option<String>,
}

fn read_output_config(fields: &mut FieldReader<'_>) -> Result<OutputConfig, FieldError> {
    let Some(mut config) = fields.take_object("output_config")? else {
        let (format, effort) = (None, None);
        return Ok(OutputConfig { format, effort });
    };
    let effort = config.take_string("effort")?;
    let effort = effort.filter(|_| !fields.ignored_fields().contains("effort"));
    let mut format = None;
    if let Some(mut requested) = config.take_object("format")? {
        if requested.require_string("type")? != "json_schema" {
            return Err(FieldError::untranslatable(requested.path_of("type")));
        }
        let schema = requested.take("schema");
        format = Some(ResponseFormat::Schema {
            // Schemas are unnamed here, but other dialects require a name.
            name: "output".to_owned(),
            description: None,
            schema: schema.ok_or_else(|| requested.error_at("schema", "is missing"))?,
            // This dialect always enforces the schema.
            strict: Some(true),
        });
        requested.finish()?;
    }
    config.finish()?;
    Ok(OutputConfig { format, effort })
}

fn read_effort(
    fields: &mut FieldReader<'_>,
    effort: Option<&str>,
) -> Result<Option<ReasoningEffort>, FieldError> {
    if fields.ignored_fields().contains("thinking") {
        fields.discard(&["thinking"]);
    }
    let level = effort.map(|effort| ReasoningEffort::Level(effort.to_owned()));
    let Some(mut thinking) = fields.take_object("thinking")? else {
        return Ok(level);
    };
    // Affects only how much of the reasoning is shown.
    thinking.discard(&["display"]);
    let read = match thinking.require_string("type")?.as_str() {
        "enabled" => {
            let budget = thinking.take_number("budget_tokens")?;
            let budget = budget.and_then(|budget| budget.as_u64());
            let budget = budget.ok_or_else(|| {
                thinking.error_at("budget_tokens", "must be present and an integer")
            })?;
            // With an effort, the budget is only an upper bound.
            level.unwrap_or(ReasoningEffort::Tokens(budget))
        }
        // The model decides, which is also the default elsewhere.
        "adaptive" => match level {
            Some(level) => level,
            None => {
                thinking.finish()?;
                return Ok(None);
            }
        },
        // Without reasoning, effort controls the length of the response, which no other dialect
        // supports; `high` is the default.
        "disabled" if effort.is_some_and(|effort| effort != "high") => {
            return Err(FieldError::untranslatable("output_config.effort"));
        }
        "disabled" => ReasoningEffort::Off,
        _ => return Err(FieldError::untranslatable(thinking.path_of("type"))),
    };
    thinking.finish()?;
    Ok(Some(read))
}

fn read_limits(fields: &mut FieldReader<'_>) -> Result<ResponseLimits, FieldError> {
    let stop = match fields.take("stop_sequences") {
        None => Vec::new(),
        Some(stops) => serde_json::from_value(stops)
            .map_err(|_| fields.error_at("stop_sequences", "must be an array of strings"))?,
    };
    Ok(ResponseLimits {
        max_tokens: fields.take_number("max_tokens")?,
        stop,
        ..ResponseLimits::default()
    })
}

fn read_user(fields: &mut FieldReader<'_>) -> Result<Option<String>, FieldError> {
    let Some(mut metadata) = fields.take_object("metadata")? else {
        return Ok(None);
    };
    let user = metadata.take_string("user_id")?;
    metadata.finish()?;
    Ok(user)
}

/// Reads the tool choice and whether parallel tool calls are allowed.
fn read_choice(
    fields: &mut FieldReader<'_>,
) -> Result<(Option<ToolChoice>, Option<bool>), FieldError> {
    let Some(mut requested) = fields.take_object("tool_choice")? else {
        return Ok((None, None));
    };
    let choice = match requested.require_string("type")?.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(requested.require_string("name")?),
        _ => return Err(FieldError::untranslatable(requested.path_of("type"))),
    };
    let single = requested.take_bool("disable_parallel_tool_use")?;
    requested.finish()?;
    Ok((Some(choice), single.map(|single| !single)))
}

fn read_tools(fields: &mut FieldReader<'_>) -> Result<Vec<PromptTool>, FieldError> {
    let tools = fields.take_array("tools")?.unwrap_or_default();
    let tools = tools.into_iter().enumerate();
    let read = tools.map(|(index, tool)| {
        let mut tool = FieldReader::new(tool, &format!("tools[{index}]"), fields.ignored_fields())?;
        // Every other type is a tool hosted by the provider.
        match tool.take_string("type")?.as_deref() {
            None | Some("custom") => {}
            Some(kind) if fields.ignored_fields().contains(kind) => return Ok(None),
            Some(kind) => return Err(provider_tool_error(tool.path_of("type"), kind)),
        }
        let read = PromptTool {
            name: tool.require_string("name")?,
            description: tool.take_string("description")?,
            parameters: tool.take("input_schema"),
            strict: tool.take_bool("strict")?,
        };
        tool.allow_only("allowed_callers", &[json!(["direct"])])?;
        tool.allow_only("input_examples", &[json!([])])?;
        // Tools with deferred loading are simply available from the start.
        tool.discard(&["cache_control", "eager_input_streaming", "defer_loading"]);
        tool.finish()?;
        Ok(Some(read))
    });
    let read: Result<Vec<Option<PromptTool>>, FieldError> = read.collect();
    Ok(read?.into_iter().flatten().collect())
}

/// Reads `system`, which precedes all messages, and `messages`.
fn read_messages(fields: &mut FieldReader<'_>) -> Result<Vec<PromptMessage>, FieldError> {
    let mut read = Vec::new();
    let system = blocks::read_content(fields, "system")?;
    if !system.is_empty() {
        read.push(PromptMessage::new(MessageRole::System, system));
    }
    let messages = fields.take_array("messages")?;
    let messages = messages.ok_or_else(|| fields.error_at("messages", "is missing"))?;
    for (index, message) in messages.into_iter().enumerate() {
        let path = format!("messages[{index}]");
        let mut message = FieldReader::new(message, &path, fields.ignored_fields())?;
        let role = match message.require_string("role")?.as_str() {
            "user" => MessageRole::User,
            "assistant" => MessageRole::Assistant,
            "system" => MessageRole::System,
            _ => return Err(FieldError::untranslatable(message.path_of("role"))),
        };
        let parts = blocks::read_content(&mut message, "content")?;
        message.discard(&["cache_control"]);
        message.finish()?;
        match read.last_mut() {
            // The provider itself merges consecutive messages of one role.
            Some(last) if last.role == role && role != MessageRole::System => {
                last.parts.extend(parts)
            }
            _ => read.push(PromptMessage::new(role, parts)),
        }
    }
    Ok(read)
}

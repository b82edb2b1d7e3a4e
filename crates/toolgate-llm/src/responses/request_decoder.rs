//! Decodes requests into prompts.

use serde_json::{Value, json};

use super::input::read_input;
use super::qualify_tool_name;
use crate::fields::{FieldError, FieldReader, provider_tool_error};
use crate::prompt::{
    AllowedToolsMode, IgnoredFields, MessageRole, OpenAiSettings, Prompt, PromptMessage,
    PromptPart, PromptTool, ReasoningEffort, ResponseFormat, ResponseLimits, Sampling, ToolChoice,
};

pub fn decode_request(body: &str, ignored: &IgnoredFields) -> Result<Prompt, FieldError> {
    let body: Value = serde_json::from_str(body)
        .map_err(|error| FieldError::new("body", format!("is not JSON: {error}")))?;
    let mut fields = FieldReader::new(body, "", ignored)?;
    let instructions = fields
        .take_string("instructions")?
        .filter(|text| !text.is_empty());
    let instructions = instructions
        .map(|text| PromptMessage::new(MessageRole::System, vec![PromptPart::Text(text)]));
    let mut messages: Vec<PromptMessage> = instructions.into_iter().collect();
    messages.extend(read_input(&mut fields)?);
    let tools = fields.take_array("tools")?.unwrap_or_default();
    let tools = tools.into_iter().enumerate();
    let tools: Result<Vec<Vec<PromptTool>>, FieldError> = tools
        .map(|(index, tool)| read_tool(tool, &format!("tools[{index}]"), ignored))
        .collect();
    let TextSettings { format, verbosity } = read_text_settings(&mut fields)?;
    let prompt = Prompt {
        model: fields.require_string("model")?,
        messages,
        tools: tools?.concat(),
        tool_choice: read_choice(&mut fields)?,
        parallel_tool_calls: fields.take_bool("parallel_tool_calls")?,
        limits: ResponseLimits {
            max_tokens: fields.take_number("max_output_tokens")?,
            ..ResponseLimits::default()
        },
        sampling: Sampling {
            temperature: fields.take_number("temperature")?,
            top_p: fields.take_number("top_p")?,
            ..Sampling::default()
        },
        format,
        effort: read_effort(&mut fields)?,
        openai: OpenAiSettings {
            verbosity,
            metadata: fields.take_raw_object("metadata")?,
        },
        user: fields.take_string("user")?,
        stream: fields.take_bool("stream")?.unwrap_or(false),
        // Streams always end with the usage in this dialect.
        stream_usage: true,
    };
    read_harmless(&mut fields)?;
    fields.finish()?;
    Ok(prompt)
}

/// Reads members whose allowed values match the defaults of every provider.
fn read_harmless(fields: &mut FieldReader<'_>) -> Result<(), FieldError> {
    fields.allow_only("store", &[json!(false)])?;
    fields.allow_only("background", &[json!(false)])?;
    fields.allow_only("service_tier", &[json!("auto"), json!("default")])?;
    fields.allow_only("top_logprobs", &[json!(0)])?;
    fields.allow_only("truncation", &[json!("disabled"), json!("auto")])?;
    let include = fields.take_array("include")?.unwrap_or_default();
    for (index, name) in include.iter().enumerate() {
        if name != "reasoning.encrypted_content" && !fields.ignored_fields().contains("include") {
            let path = fields.path_of(&format!("include[{index}]"));
            return Err(FieldError::untranslatable(path));
        }
    }
    fields.discard(&[
        "client_metadata",
        // Limits provider-hosted tools, which are never translated.
        "max_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "stream_options",
    ]);
    Ok(())
}

fn read_effort(fields: &mut FieldReader<'_>) -> Result<Option<ReasoningEffort>, FieldError> {
    let Some(mut reasoning) = fields.take_object("reasoning")? else {
        return Ok(None);
    };
    let effort = reasoning.take_string("effort")?.map(ReasoningEffort::Level);
    reasoning.allow_only("mode", &[json!("standard")])?;
    reasoning.discard(&["summary", "generate_summary", "context"]);
    reasoning.finish()?;
    Ok(effort)
}

/// Settings from `text`.
#[derive(Default)]
struct TextSettings {
    format: Option<ResponseFormat>,
    verbosity: Option<String>,
}

fn read_text_settings(fields: &mut FieldReader<'_>) -> Result<TextSettings, FieldError> {
    let Some(mut text) = fields.take_object("text")? else {
        return Ok(TextSettings::default());
    };
    let verbosity = text.take_string("verbosity")?;
    let format = text.take_object("format")?.map(read_format).transpose()?;
    text.finish()?;
    Ok(TextSettings {
        format: format.flatten(),
        verbosity: verbosity.filter(|verbosity| verbosity != "medium"),
    })
}

fn read_format(mut format: FieldReader<'_>) -> Result<Option<ResponseFormat>, FieldError> {
    let kind = format.require_string("type")?;
    let read = match kind.as_str() {
        "text" => None,
        "json_object" => Some(ResponseFormat::Json),
        "json_schema" => Some(ResponseFormat::Schema {
            name: format.require_string("name")?,
            description: format.take_string("description")?,
            schema: format.take("schema").unwrap_or_else(|| json!({})),
            strict: format.take_bool("strict")?,
        }),
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
            let name = named.require_string("name")?;
            named.finish()?;
            Ok(Some(ToolChoice::Named(name)))
        }
    }
}

fn read_allowed_tools(choice: &mut FieldReader<'_>) -> Result<ToolChoice, FieldError> {
    let mode = AllowedToolsMode::parse(&choice.require_string("mode")?);
    let mode = mode.ok_or_else(|| FieldError::untranslatable(choice.path_of("mode")))?;
    let mut names = Vec::new();
    for (index, tool) in choice
        .take_array("tools")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let path = choice.path_of(&format!("tools[{index}]"));
        let mut tool = FieldReader::new(tool, &path, choice.ignored_fields())?;
        if tool.require_string("type")? != "function" {
            return Err(FieldError::untranslatable(tool.path_of("type")));
        }
        names.push(tool.require_string("name")?);
    }
    Ok(ToolChoice::Allowed { tools: names, mode })
}

/// Reads one `tools` entry: one tool, none if its type is ignored, or those of a namespace.
fn read_tool(
    tool: Value,
    path: &str,
    ignored: &IgnoredFields,
) -> Result<Vec<PromptTool>, FieldError> {
    let mut tool = FieldReader::new(tool, path, ignored)?;
    match tool.require_string("type")?.as_str() {
        "function" => {}
        "namespace" => return read_namespace(&mut tool),
        // Codex always sends it, also to models that cannot search.
        "web_search" => return Ok(Vec::new()),
        kind if ignored.contains(kind) => return Ok(Vec::new()),
        kind => return Err(provider_tool_error(tool.path_of("type"), kind)),
    }
    let read = PromptTool {
        name: tool.require_string("name")?,
        description: tool.take_string("description")?,
        parameters: tool.take("parameters"),
        // Strict is the default only in this dialect, so `false` needs no translation.
        strict: tool.take_bool("strict")?.filter(|strict| *strict),
    };
    tool.allow_only("allowed_callers", &[json!(["direct"])])?;
    // Tools with deferred loading are simply available from the start.
    tool.discard(&["defer_loading"]);
    tool.finish()?;
    Ok(vec![read])
}

/// Reads the tools of a namespace, in which Codex groups the tools of an MCP server. Other dialects
/// get qualified names; [`crate::turn::ResponseHead::namespaces`] maps them back.
fn read_namespace(namespace: &mut FieldReader<'_>) -> Result<Vec<PromptTool>, FieldError> {
    let name = namespace.require_string("name")?;
    let tools = namespace.take_array("tools")?.unwrap_or_default();
    let mut read = Vec::new();
    for (index, tool) in tools.into_iter().enumerate() {
        let path = namespace.path_of(&format!("tools[{index}]"));
        let inner = read_tool(tool, &path, namespace.ignored_fields())?;
        read.extend(inner.into_iter().map(|tool| PromptTool {
            name: qualify_tool_name(&name, &tool.name),
            ..tool
        }));
    }
    Ok(read)
}

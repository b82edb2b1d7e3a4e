//! What a request asks for.

use serde_json::{Value, json};

use super::input::read_input;
use super::within;
use crate::fields::{BadField, Fields, foreign_tool};
use crate::prompt::{
    Choice, Effort, Format, Ignored, Limits, Message, Part, Prompt, Role, Sampling, Tool,
};

pub fn read(body: &str, ignored: &Ignored) -> Result<Prompt, BadField> {
    let body: Value = serde_json::from_str(body)
        .map_err(|error| BadField::new("body", format!("is not JSON: {error}")))?;
    let mut fields = Fields::of(body, "", ignored)?;
    let instructions = fields.text("instructions")?.filter(|text| !text.is_empty());
    let instructions = instructions.map(|text| Message::new(Role::System, vec![Part::Text(text)]));
    let mut messages: Vec<Message> = instructions.into_iter().collect();
    messages.extend(read_input(&mut fields)?);
    let tools = fields.list("tools")?.unwrap_or_default();
    let tools = tools.into_iter().enumerate();
    let tools: Result<Vec<Vec<Tool>>, BadField> = tools
        .map(|(index, tool)| read_tool(tool, &format!("tools[{index}]"), ignored))
        .collect();
    let prompt = Prompt {
        model: fields.need_text("model")?,
        messages,
        tools: tools?.concat(),
        choice: read_choice(&mut fields)?,
        parallel: fields.flag("parallel_tool_calls")?,
        limits: Limits {
            max_tokens: fields.number("max_output_tokens")?,
            stop: Vec::new(),
        },
        sampling: Sampling {
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            ..Sampling::default()
        },
        format: read_format(&mut fields)?,
        effort: read_effort(&mut fields)?,
        user: fields.text("user")?,
        stream: fields.flag("stream")?.unwrap_or_default(),
        // Here that is no choice.
        stream_usage: true,
    };
    read_harmless(&mut fields)?;
    fields.end()?;
    Ok(prompt)
}

/// What every provider does, and what changes nothing.
fn read_harmless(fields: &mut Fields<'_>) -> Result<(), BadField> {
    fields.only("store", &[json!(false)])?;
    fields.only("background", &[json!(false)])?;
    fields.only("metadata", &[json!({})])?;
    fields.only("service_tier", &[json!("auto"), json!("default")])?;
    fields.only("top_logprobs", &[json!(0)])?;
    fields.only("truncation", &[json!("disabled"), json!("auto")])?;
    let include = fields.list("include")?.unwrap_or_default();
    for (index, name) in include.iter().enumerate() {
        if name != "reasoning.encrypted_content" && !fields.ignored().has("include") {
            let place = fields.place(&format!("include[{index}]"));
            return Err(BadField::untranslatable(place));
        }
    }
    fields.hints(&[
        "client_metadata",
        // It bounds the tools of the provider, and there are none.
        "max_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "stream_options",
    ]);
    Ok(())
}

fn read_effort(fields: &mut Fields<'_>) -> Result<Option<Effort>, BadField> {
    let Some(mut reasoning) = fields.object("reasoning")? else {
        return Ok(None);
    };
    let effort = reasoning.text("effort")?.map(Effort::Word);
    reasoning.only("mode", &[json!("standard")])?;
    reasoning.hints(&["summary", "generate_summary", "context"]);
    reasoning.end()?;
    Ok(effort)
}

fn read_format(fields: &mut Fields<'_>) -> Result<Option<Format>, BadField> {
    let Some(mut text) = fields.object("text")? else {
        return Ok(None);
    };
    text.only("verbosity", &[json!("medium")])?;
    let format = text.object("format")?;
    text.end()?;
    let Some(mut format) = format else {
        return Ok(None);
    };
    let kind = format.need_text("type")?;
    let read = match kind.as_str() {
        "text" => None,
        "json_object" => Some(Format::Json),
        "json_schema" => Some(Format::Schema {
            name: format.need_text("name")?,
            description: format.text("description")?,
            schema: format.take("schema").unwrap_or_else(|| json!({})),
            strict: format.flag("strict")?,
        }),
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
            let name = named.need_text("name")?;
            named.end()?;
            Ok(Some(Choice::Named(name)))
        }
    }
}

/// The tools that one entry stands for: one, none if it may be left away, or those of a namespace.
fn read_tool(tool: Value, at: &str, ignored: &Ignored) -> Result<Vec<Tool>, BadField> {
    let mut tool = Fields::of(tool, at, ignored)?;
    match tool.need_text("type")?.as_str() {
        "function" => {}
        "namespace" => return read_namespace(&mut tool),
        kind if ignored.has(kind) => return Ok(Vec::new()),
        kind => return Err(foreign_tool(tool.place("type"), kind)),
    }
    let read = Tool {
        name: tool.need_text("name")?,
        description: tool.text("description")?,
        parameters: tool.take("parameters"),
        // Only here it has to be said that a tool is not strict.
        strict: tool.flag("strict")?.filter(|strict| *strict),
    };
    tool.only("allowed_callers", &[json!(["direct"])])?;
    // One that would be loaded later is there at once.
    tool.hints(&["defer_loading"]);
    tool.end()?;
    Ok(vec![read])
}

/// Tools that a client wraps, as Codex does with those of an MCP server. Others know them by one
/// name; [`crate::turn::Head::namespaces`] leads back.
fn read_namespace(namespace: &mut Fields<'_>) -> Result<Vec<Tool>, BadField> {
    let name = namespace.need_text("name")?;
    let tools = namespace.list("tools")?.unwrap_or_default();
    let mut read = Vec::new();
    for (index, tool) in tools.into_iter().enumerate() {
        let place = namespace.place(&format!("tools[{index}]"));
        let inner = read_tool(tool, &place, namespace.ignored())?;
        read.extend(inner.into_iter().map(|tool| Tool {
            name: within(&name, &tool.name),
            ..tool
        }));
    }
    Ok(read)
}

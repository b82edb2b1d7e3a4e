//! What a request asks for.

mod blocks;

use serde_json::{Value, json};

use crate::fields::{BadField, Fields, foreign_tool};
use crate::prompt::{
    Choice, Effort, Format, Ignored, Limits, Message, Prompt, Role, Sampling, Tool,
};

pub fn read(body: &str, ignored: &Ignored) -> Result<Prompt, BadField> {
    let body: Value = serde_json::from_str(body)
        .map_err(|error| BadField::new("body", format!("is not JSON: {error}")))?;
    let mut fields = Fields::of(body, "", ignored)?;
    let (choice, parallel) = read_choice(&mut fields)?;
    let config = read_output(&mut fields)?;
    let stream = fields.flag("stream")?.unwrap_or_default();
    let prompt = Prompt {
        model: fields.need_text("model")?,
        messages: read_messages(&mut fields)?,
        tools: read_tools(&mut fields)?,
        choice,
        parallel,
        limits: read_limits(&mut fields)?,
        sampling: Sampling {
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            top_k: fields.number("top_k")?,
            ..Sampling::default()
        },
        format: config.format,
        effort: read_effort(&mut fields, config.effort.as_deref())?,
        user: read_user(&mut fields)?,
        stream,
        stream_usage: stream,
    };
    // Which of its capacities a provider uses is its own affair.
    fields.only("service_tier", &[json!("auto"), json!("standard_only")])?;
    fields.only("speed", &[json!("standard")])?;
    fields.only("mcp_servers", &[json!([])])?;
    // How long a conversation may get is the provider's own business.
    fields.hints(&["cache_control", "context_management"]);
    fields.end()?;
    Ok(prompt)
}

/// What `output_config` asks for.
struct Output {
    format: Option<Format>,
    effort: Option<String>,
}

fn read_output(fields: &mut Fields<'_>) -> Result<Output, BadField> {
    let Some(mut config) = fields.object("output_config")? else {
        let (format, effort) = (None, None);
        return Ok(Output { format, effort });
    };
    let effort = config.text("effort")?;
    let effort = effort.filter(|_| !fields.ignored().has("effort"));
    let mut format = None;
    if let Some(mut asked) = config.object("format")? {
        if asked.need_text("type")? != "json_schema" {
            return Err(BadField::untranslatable(asked.place("type")));
        }
        let schema = asked.take("schema");
        format = Some(Format::Schema {
            // Schemas have no names here; other dialects want one.
            name: "output".to_owned(),
            description: None,
            schema: schema.ok_or_else(|| asked.wrong("schema", "is missing"))?,
            // An answer is always held to the schema.
            strict: Some(true),
        });
        asked.end()?;
    }
    config.end()?;
    Ok(Output { format, effort })
}

fn read_effort(fields: &mut Fields<'_>, effort: Option<&str>) -> Result<Option<Effort>, BadField> {
    if fields.ignored().has("thinking") {
        fields.hints(&["thinking"]);
    }
    let word = effort.map(|effort| Effort::Word(effort.to_owned()));
    let Some(mut thinking) = fields.object("thinking")? else {
        return Ok(word);
    };
    // How much of the reasoning is shown; how much there is does not depend on it.
    thinking.hints(&["display"]);
    let read = match thinking.need_text("type")?.as_str() {
        "enabled" => {
            let budget = thinking.number("budget_tokens")?;
            let budget = budget.and_then(|budget| budget.as_u64());
            let budget = budget.ok_or_else(|| {
                thinking.wrong("budget_tokens", "must be there and be a whole number")
            })?;
            // The budget is no more than a bound where an effort is asked for.
            word.unwrap_or(Effort::Tokens(budget))
        }
        // As much as the model likes, which is what models do if nothing is said.
        "adaptive" => match word {
            Some(word) => word,
            None => {
                thinking.end()?;
                return Ok(None);
            }
        },
        // Without reasoning the effort is about the length of what is said, which only this
        // dialect can ask for; `high` asks for nothing.
        "disabled" if effort.is_some_and(|effort| effort != "high") => {
            return Err(BadField::untranslatable("output_config.effort"));
        }
        "disabled" => Effort::Off,
        _ => return Err(BadField::untranslatable(thinking.place("type"))),
    };
    thinking.end()?;
    Ok(Some(read))
}

fn read_limits(fields: &mut Fields<'_>) -> Result<Limits, BadField> {
    let stop = match fields.take("stop_sequences") {
        None => Vec::new(),
        Some(stops) => serde_json::from_value(stops)
            .map_err(|_| fields.wrong("stop_sequences", "must be an array of strings"))?,
    };
    Ok(Limits {
        max_tokens: fields.number("max_tokens")?,
        stop,
    })
}

fn read_user(fields: &mut Fields<'_>) -> Result<Option<String>, BadField> {
    let Some(mut metadata) = fields.object("metadata")? else {
        return Ok(None);
    };
    let user = metadata.text("user_id")?;
    metadata.end()?;
    Ok(user)
}

/// Which tools must be called, and whether several may be.
fn read_choice(fields: &mut Fields<'_>) -> Result<(Option<Choice>, Option<bool>), BadField> {
    let Some(mut asked) = fields.object("tool_choice")? else {
        return Ok((None, None));
    };
    let choice = match asked.need_text("type")?.as_str() {
        "auto" => Choice::Auto,
        "any" => Choice::Required,
        "none" => Choice::None,
        "tool" => Choice::Named(asked.need_text("name")?),
        _ => return Err(BadField::untranslatable(asked.place("type"))),
    };
    let single = asked.flag("disable_parallel_tool_use")?;
    asked.end()?;
    Ok((Some(choice), single.map(|single| !single)))
}

fn read_tools(fields: &mut Fields<'_>) -> Result<Vec<Tool>, BadField> {
    let tools = fields.list("tools")?.unwrap_or_default();
    let tools = tools.into_iter().enumerate();
    let read = tools.map(|(index, tool)| {
        let mut tool = Fields::of(tool, &format!("tools[{index}]"), fields.ignored())?;
        // Every other type is a tool of the provider's own.
        match tool.text("type")?.as_deref() {
            None | Some("custom") => {}
            Some(kind) if fields.ignored().has(kind) => return Ok(None),
            Some(kind) => return Err(foreign_tool(tool.place("type"), kind)),
        }
        let read = Tool {
            name: tool.need_text("name")?,
            description: tool.text("description")?,
            parameters: tool.take("input_schema"),
            strict: tool.flag("strict")?,
        };
        tool.only("allowed_callers", &[json!(["direct"])])?;
        tool.only("input_examples", &[json!([])])?;
        // One that would be loaded later is there at once.
        tool.hints(&["cache_control", "eager_input_streaming", "defer_loading"]);
        tool.end()?;
        Ok(Some(read))
    });
    let read: Result<Vec<Option<Tool>>, BadField> = read.collect();
    Ok(read?.into_iter().flatten().collect())
}

/// `system` comes before all messages.
fn read_messages(fields: &mut Fields<'_>) -> Result<Vec<Message>, BadField> {
    let mut read = Vec::new();
    let system = blocks::read_content(fields, "system")?;
    if !system.is_empty() {
        read.push(Message::new(Role::System, system));
    }
    let messages = fields.list("messages")?;
    let messages = messages.ok_or_else(|| fields.wrong("messages", "is missing"))?;
    for (index, message) in messages.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        let mut message = Fields::of(message, &at, fields.ignored())?;
        let role = match message.need_text("role")?.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => return Err(BadField::untranslatable(message.place("role"))),
        };
        let parts = blocks::read_content(&mut message, "content")?;
        message.hints(&["cache_control"]);
        message.end()?;
        match read.last_mut() {
            // The provider itself takes these as one.
            Some(last) if last.role == role && role != Role::System => last.parts.extend(parts),
            _ => read.push(Message::new(role, parts)),
        }
    }
    Ok(read)
}

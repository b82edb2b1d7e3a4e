//! Encodes prompts as requests.

mod blocks;

pub(super) use blocks::parse_input;

use std::borrow::Cow;

use serde_json::{Number, Value, json};

use crate::fields::FieldError;
use crate::prompt::{
    AllowedToolsMode, MessageRole, Prompt, PromptMessage, PromptPart, PromptTool, ResponseFormat,
    ToolChoice, json_object,
};

/// `max_tokens` if the caller sets no limit; this dialect requires one.
const DEFAULT_MAX_TOKENS: u64 = 4096;
/// Stands for JSON mode.
const JSON_INSTRUCTION: &str =
    "Respond with a single JSON object and nothing else: no other text, and no Markdown around it.";
/// Minimum thinking budget that the provider accepts.
const MIN_THINKING_BUDGET: u64 = 1024;
/// Minimum `top_p` that the provider accepts with thinking.
const MIN_THINKING_TOP_P: f64 = 0.95;

/// Encodes messages as the items of `messages`.
pub(crate) fn encode_messages(messages: &[PromptMessage]) -> Result<Vec<Value>, FieldError> {
    match blocks::encode_messages(messages)? {
        Value::Array(messages) => Ok(messages),
        other => Ok(vec![other]),
    }
}

pub fn encode_request(prompt: &Prompt) -> Result<String, FieldError> {
    for (name, is_set) in [
        ("verbosity", prompt.openai.verbosity.is_some()),
        ("metadata", prompt.openai.metadata.is_some()),
    ] {
        if is_set {
            return Err(FieldError::untranslatable(name));
        }
    }
    let prompt = &*express_without_openai_features(prompt);
    let thinking = choose_thinking(prompt)?;
    check_sampling(prompt, thinking)?;
    let blank = |stop: &String| stop.trim().is_empty();
    if prompt.limits.stop.iter().any(blank) {
        let problem = "must not be blank for this provider";
        return Err(FieldError::new("stop", problem));
    }
    let number = |number: &Option<Number>| number.clone().map(Value::Number);
    // Only the default of 1 gets here with thinking, and the provider rejects the field then.
    let temperature = prompt.sampling.temperature.clone();
    let temperature = temperature.filter(|_| !thinking.is_some_and(Thinking::is_on));
    let max_tokens = prompt.limits.max_tokens.clone();
    let stops = &prompt.limits.stop;
    let tools: Vec<Value> = prompt.tools.iter().map(encode_tool).collect();
    let body = json_object([
        ("model", Some(json!(prompt.model))),
        (
            "max_tokens",
            Some(max_tokens.map_or_else(|| json!(default_max_tokens(thinking)), Value::Number)),
        ),
        ("system", blocks::encode_system(&prompt.messages)?),
        ("messages", Some(blocks::encode_messages(&prompt.messages)?)),
        ("tools", (!tools.is_empty()).then_some(Value::Array(tools))),
        ("tool_choice", encode_tool_choice(prompt)),
        (
            "stop_sequences",
            (!stops.is_empty()).then(|| json!(prompt.limits.stop)),
        ),
        ("temperature", temperature.map(Value::Number)),
        ("top_p", number(&prompt.sampling.top_p)),
        ("top_k", number(&prompt.sampling.top_k)),
        ("thinking", thinking.map(encode_thinking)),
        (
            "output_config",
            encode_output_config(prompt.format.as_ref(), thinking)?,
        ),
        (
            "metadata",
            prompt.user.as_ref().map(|user| json!({"user_id": user})),
        ),
        ("stream", prompt.stream.then_some(Value::Bool(true))),
    ]);
    Ok(body.to_string())
}

/// Expresses what this dialect has no fields for: JSON mode as an instruction, and a choice among some
/// tools by leaving out the others.
fn express_without_openai_features(prompt: &Prompt) -> Cow<'_, Prompt> {
    let mut prompt = Cow::Borrowed(prompt);
    if prompt.format == Some(ResponseFormat::Json) {
        let instruction = vec![PromptPart::Text(JSON_INSTRUCTION.to_owned())];
        let prompt = prompt.to_mut();
        prompt.format = None;
        prompt
            .messages
            .push(PromptMessage::new(MessageRole::System, instruction));
    }
    if let Some(ToolChoice::Allowed { tools, mode }) = prompt.tool_choice.clone() {
        let prompt = prompt.to_mut();
        prompt.tools.retain(|tool| tools.contains(&tool.name));
        prompt.tool_choice = Some(match mode {
            AllowedToolsMode::Auto => ToolChoice::Auto,
            AllowedToolsMode::Required => ToolChoice::Required,
        });
    }
    prompt
}

#[derive(Clone, Copy)]
enum Thinking {
    Budget(u64),
    /// The model decides, guided by an effort level.
    Adaptive(&'static str),
    Off,
}

impl Thinking {
    fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// Returns whether a model decides on its own how much to think instead of taking a budget: Claude
/// 4.6 and later.
fn has_adaptive_thinking(model: &str) -> bool {
    let Some(name) = model
        .rsplit('/')
        .next()
        .filter(|name| name.starts_with("claude"))
    else {
        return false;
    };
    // Longer numbers are release dates, not versions.
    let numbers = name.split(['-', '.']).map(|part| match part.len() {
        1 | 2 => part.parse::<u32>().ok(),
        _ => None,
    });
    let mut numbers = numbers
        .skip_while(Option::is_none)
        .map_while(|number| number);
    // A name without a minor version means `.0`, one without any version is older than all others.
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (4, 6)
}

/// Chooses the thinking mode. Levels are approximate and budgets are upper bounds, so both yield to
/// the caller's `max_tokens`.
fn choose_thinking(prompt: &Prompt) -> Result<Option<Thinking>, FieldError> {
    let Some(effort) = &prompt.effort else {
        return Ok(None);
    };
    let Some(tokens) = effort.budget_tokens() else {
        return Ok(Some(Thinking::Off));
    };
    if is_tool_continuation(prompt) && !has_original_thinking(prompt) {
        return Ok(None);
    }
    if let Some(ToolChoice::Required | ToolChoice::Named(_)) = prompt.tool_choice {
        let problem = "cannot force a tool call while reasoning is enabled for this provider";
        return Err(FieldError::new("tool_choice", problem));
    }
    if has_adaptive_thinking(&prompt.model) {
        let level = match effort.as_level() {
            "minimal" | "low" => "low",
            "medium" => "medium",
            "xhigh" | "max" => "max",
            _ => "high",
        };
        return Ok(Some(Thinking::Adaptive(level)));
    }
    let tokens = tokens.max(MIN_THINKING_BUDGET);
    let Some(max_tokens) = &prompt.limits.max_tokens else {
        return Ok(Some(Thinking::Budget(tokens)));
    };
    match max_tokens.as_u64() {
        Some(max) if tokens < max => Ok(Some(Thinking::Budget(tokens))),
        Some(max) if MIN_THINKING_BUDGET < max => {
            Ok(Some(Thinking::Budget((max / 2).max(MIN_THINKING_BUDGET))))
        }
        _ => {
            let problem = format!(
                "must be an integer above {MIN_THINKING_BUDGET} while reasoning is enabled for this provider"
            );
            Err(FieldError::new("max_tokens", problem))
        }
    }
}

/// Returns whether the last message contains tool results. The provider then requires the thinking
/// that led to the calls, which is not translated, so such requests go out without thinking unless it is there
/// in its original form.
fn is_tool_continuation(prompt: &Prompt) -> bool {
    let mut messages = prompt.messages.iter().rev();
    let last = messages.find(|message| message.role != MessageRole::System);
    last.is_some_and(|message| {
        let mut parts = message.parts.iter();
        parts.any(|part| matches!(part, PromptPart::ToolResult { .. }))
    })
}

/// Returns whether the model's last turn contains the thinking that led to its calls.
fn has_original_thinking(prompt: &Prompt) -> bool {
    let mut messages = prompt.messages.iter().rev();
    let last = messages.find(|message| message.role == MessageRole::Assistant);
    let is_thinking = |part: &PromptPart| {
        matches!(part, PromptPart::Raw(block)
            if block["type"] == "thinking" || block["type"] == "redacted_thinking")
    };
    last.is_some_and(|message| message.parts.iter().any(is_thinking))
}

fn default_max_tokens(thinking: Option<Thinking>) -> u64 {
    match thinking {
        Some(Thinking::Budget(tokens)) => tokens.saturating_add(DEFAULT_MAX_TOKENS),
        Some(Thinking::Adaptive(_)) => 4 * DEFAULT_MAX_TOKENS,
        Some(Thinking::Off) | None => DEFAULT_MAX_TOKENS,
    }
}

fn encode_thinking(thinking: Thinking) -> Value {
    match thinking {
        Thinking::Budget(tokens) => json!({"type": "enabled", "budget_tokens": tokens}),
        Thinking::Adaptive(_) => json!({"type": "adaptive"}),
        Thinking::Off => json!({"type": "disabled"}),
    }
}

fn check_sampling(prompt: &Prompt, thinking: Option<Thinking>) -> Result<(), FieldError> {
    let sampling = &prompt.sampling;
    for (name, number) in [
        ("frequency_penalty", &sampling.frequency_penalty),
        ("presence_penalty", &sampling.presence_penalty),
        ("seed", &sampling.seed),
    ] {
        // A penalty of zero is the default.
        let harmless = |number: &Number| name != "seed" && number.as_f64() == Some(0.0);
        if number.as_ref().is_some_and(|number| !harmless(number)) {
            return Err(FieldError::untranslatable(name));
        }
    }
    let unsupported = |name: &str, problem: &str| {
        let problem = format!("{problem} for this provider");
        Err(FieldError::new(name, problem))
    };
    let value = |number: &Option<Number>| number.as_ref().and_then(Number::as_f64);
    let temperature = value(&sampling.temperature);
    if temperature.is_some_and(|temperature| temperature > 1.0) {
        return unsupported("temperature", "must be at most 1");
    }
    if !thinking.is_some_and(Thinking::is_on) {
        return Ok(());
    }
    if temperature.is_some_and(|temperature| temperature < 1.0) {
        return unsupported("temperature", "must be 1 while reasoning is enabled");
    }
    if sampling.top_k.is_some() {
        return unsupported("top_k", "cannot be set while reasoning is enabled");
    }
    if value(&sampling.top_p).is_some_and(|top_p| top_p < MIN_THINKING_TOP_P) {
        return unsupported("top_p", "must be at least 0.95 while reasoning is enabled");
    }
    Ok(())
}

fn encode_tool_choice(prompt: &Prompt) -> Option<Value> {
    let single = prompt.parallel_tool_calls.map(|parallel| json!(!parallel));
    let choice = |kind: &str, name: Option<&String>| {
        json_object([
            ("type", Some(json!(kind))),
            ("name", name.map(|name| json!(name))),
            ("disable_parallel_tool_use", single.clone()),
        ])
    };
    match &prompt.tool_choice {
        // The provider rejects the field without tools, and these values would change nothing.
        None | Some(ToolChoice::Auto | ToolChoice::None) if prompt.tools.is_empty() => None,
        None => (prompt.parallel_tool_calls == Some(false)).then(|| choice("auto", None)),
        // The latter was replaced before.
        Some(ToolChoice::Auto | ToolChoice::Allowed { .. }) => Some(choice("auto", None)),
        Some(ToolChoice::Required) => Some(choice("any", None)),
        Some(ToolChoice::None) => Some(json!({"type": "none"})),
        Some(ToolChoice::Named(name)) => Some(choice("tool", Some(name))),
    }
}

fn encode_tool(tool: &PromptTool) -> Value {
    let mut schema = tool.parameters.clone().unwrap_or_else(|| json!({}));
    if let Some(schema) = schema.as_object_mut() {
        // Arguments are always objects, but only this dialect requires the schema to say so.
        schema.entry("type").or_insert_with(|| json!("object"));
    }
    json_object([
        ("name", Some(json!(tool.name))),
        ("description", tool.description.as_deref().map(Value::from)),
        ("input_schema", Some(schema)),
        ("strict", tool.strict.map(Value::Bool)),
    ])
}

/// Encodes the response format and, for adaptive thinking, the effort level.
fn encode_output_config(
    format: Option<&ResponseFormat>,
    thinking: Option<Thinking>,
) -> Result<Option<Value>, FieldError> {
    let effort = match thinking {
        Some(Thinking::Adaptive(level)) => Some(json!(level)),
        _ => None,
    };
    let format = format.map(encode_format).transpose()?;
    Ok((format.is_some() || effort.is_some())
        .then(|| json_object([("format", format), ("effort", effort)])))
}

/// Encodes a schema. It has no name or description here, so the description moves into the schema.
fn encode_format(format: &ResponseFormat) -> Result<Value, FieldError> {
    let ResponseFormat::Schema {
        schema,
        description,
        ..
    } = format
    else {
        return Err(FieldError::untranslatable("response_format"));
    };
    let mut schema = schema.clone();
    if let (Some(schema), Some(description)) = (schema.as_object_mut(), description) {
        let description = || json!(description);
        schema.entry("description").or_insert_with(description);
    }
    Ok(json!({"type": "json_schema", "schema": schema}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claude_models_from_4_6_have_adaptive_thinking() {
        for (model, adaptive) in [
            ("claude-opus-4-7", true),
            ("claude-sonnet-4-6-20260201", true),
            ("anthropic/claude-sonnet-5", true),
            ("claude-opus-4-20250514", false),
            ("claude-3-7-sonnet-20250219", false),
            ("claude-haiku-4-5", false),
            ("claude-sonnet-4.5", false),
            ("custom-9-9", false),
        ] {
            assert_eq!(has_adaptive_thinking(model), adaptive, "{model}");
        }
    }
}

//! A request in this dialect.

mod blocks;

pub(super) use blocks::input;

use serde_json::{Number, Value, json};

use crate::fields::BadField;
use crate::prompt::{Choice, Format, Message, Part, Prompt, Role, Tool, object};

/// How long an answer may be if nobody says; it must be said here.
const MAX_TOKENS: u64 = 4096;
/// The least that may be thought.
const LEAST_BUDGET: u64 = 1024;
/// The least `top_p` that goes with thinking.
const LEAST_TOP_P: f64 = 0.95;

/// Messages as they stand in a request.
pub(crate) fn items(said: &[Message]) -> Result<Vec<Value>, BadField> {
    match blocks::messages(said)? {
        Value::Array(messages) => Ok(messages),
        other => Ok(vec![other]),
    }
}

pub fn write(prompt: &Prompt) -> Result<String, BadField> {
    let thinking = thinking(prompt)?;
    sampling_can_be_said(prompt, thinking)?;
    let blank = |stop: &String| stop.trim().is_empty();
    if prompt.limits.stop.iter().any(blank) {
        let problem = "must hold more than white space, says this provider";
        return Err(BadField::new("stop", problem));
    }
    let number = |number: &Option<Number>| number.clone().map(Value::Number);
    // One is what it is anyway, and refused beside thinking.
    let temperature = prompt.sampling.temperature.clone();
    let temperature = temperature.filter(|_| !thinking.is_some_and(Thinking::is_on));
    let max_tokens = prompt.limits.max_tokens.clone();
    let stops = &prompt.limits.stop;
    let tools: Vec<Value> = prompt.tools.iter().map(tool).collect();
    let body = object([
        ("model", Some(json!(prompt.model))),
        (
            "max_tokens",
            Some(max_tokens.map_or_else(|| json!(default_tokens(thinking)), Value::Number)),
        ),
        ("system", blocks::system(&prompt.messages)?),
        ("messages", Some(blocks::messages(&prompt.messages)?)),
        ("tools", (!tools.is_empty()).then_some(Value::Array(tools))),
        ("tool_choice", tool_choice(prompt)),
        (
            "stop_sequences",
            (!stops.is_empty()).then(|| json!(prompt.limits.stop)),
        ),
        ("temperature", temperature.map(Value::Number)),
        ("top_p", number(&prompt.sampling.top_p)),
        ("top_k", number(&prompt.sampling.top_k)),
        ("thinking", thinking.map(thinking_value)),
        (
            "output_config",
            output_config(prompt.format.as_ref(), thinking)?,
        ),
        (
            "metadata",
            prompt.user.as_ref().map(|user| json!({"user_id": user})),
        ),
        ("stream", prompt.stream.then_some(Value::Bool(true))),
    ]);
    Ok(body.to_string())
}

#[derive(Clone, Copy)]
enum Thinking {
    Budget(u64),
    /// As much as the model likes, with a word for how much that should be.
    Adaptive(&'static str),
    Off,
}

impl Thinking {
    fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// Whether a model takes no budget but decides itself how much to think: Claude from 4.6 on.
fn is_adaptive(model: &str) -> bool {
    let Some(name) = model
        .rsplit('/')
        .next()
        .filter(|name| name.starts_with("claude"))
    else {
        return false;
    };
    // A date is no version.
    let numbers = name.split(['-', '.']).map(|part| match part.len() {
        1 | 2 => part.parse::<u32>().ok(),
        _ => None,
    });
    let mut numbers = numbers
        .skip_while(Option::is_none)
        .map_while(|number| number);
    let version = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    version >= (4, 6)
}

/// How much may be thought. Words are about a measure, and a number is a bound, so both give way
/// to the length that the answer may have.
fn thinking(prompt: &Prompt) -> Result<Option<Thinking>, BadField> {
    let Some(effort) = &prompt.effort else {
        return Ok(None);
    };
    let Some(tokens) = effort.tokens() else {
        return Ok(Some(Thinking::Off));
    };
    if goes_on_after_tools(prompt) {
        return Ok(None);
    }
    if let Some(Choice::Required | Choice::Named(_)) = prompt.choice {
        let problem = "cannot force a call while reasoning is asked for, says this provider";
        return Err(BadField::new("tool_choice", problem));
    }
    if is_adaptive(&prompt.model) {
        let word = match effort.word() {
            "minimal" | "low" => "low",
            "medium" => "medium",
            "xhigh" | "max" => "max",
            _ => "high",
        };
        return Ok(Some(Thinking::Adaptive(word)));
    }
    let tokens = tokens.max(LEAST_BUDGET);
    let Some(most) = &prompt.limits.max_tokens else {
        return Ok(Some(Thinking::Budget(tokens)));
    };
    match most.as_u64() {
        Some(most) if tokens < most => Ok(Some(Thinking::Budget(tokens))),
        Some(most) if LEAST_BUDGET < most => {
            Ok(Some(Thinking::Budget((most / 2).max(LEAST_BUDGET))))
        }
        _ => {
            let problem = format!(
                "must be a whole number above {LEAST_BUDGET} while reasoning is asked for, says this provider"
            );
            Err(BadField::new("max_tokens", problem))
        }
    }
}

/// A turn that goes on with the answers of tools must show the thinking that led to the calls,
/// and earlier reasoning is not told: such a request is taken only without thinking.
fn goes_on_after_tools(prompt: &Prompt) -> bool {
    let mut said = prompt.messages.iter().rev();
    let last = said.find(|message| message.role != Role::System);
    last.is_some_and(|message| {
        let mut parts = message.parts.iter();
        parts.any(|part| matches!(part, Part::Answered { .. }))
    })
}

fn default_tokens(thinking: Option<Thinking>) -> u64 {
    match thinking {
        Some(Thinking::Budget(tokens)) => tokens.saturating_add(MAX_TOKENS),
        Some(Thinking::Adaptive(_)) => 4 * MAX_TOKENS,
        Some(Thinking::Off) | None => MAX_TOKENS,
    }
}

fn thinking_value(thinking: Thinking) -> Value {
    match thinking {
        Thinking::Budget(tokens) => json!({"type": "enabled", "budget_tokens": tokens}),
        Thinking::Adaptive(_) => json!({"type": "adaptive"}),
        Thinking::Off => json!({"type": "disabled"}),
    }
}

fn sampling_can_be_said(prompt: &Prompt, thinking: Option<Thinking>) -> Result<(), BadField> {
    let sampling = &prompt.sampling;
    for (name, number) in [
        ("frequency_penalty", &sampling.frequency_penalty),
        ("presence_penalty", &sampling.presence_penalty),
        ("seed", &sampling.seed),
    ] {
        // No penalty is what it is anyway.
        let harmless = |number: &Number| name != "seed" && number.as_f64() == Some(0.0);
        if number.as_ref().is_some_and(|number| !harmless(number)) {
            return Err(BadField::untranslatable(name));
        }
    }
    let wrong = |name: &str, problem: &str| {
        let problem = format!("{problem}, says this provider");
        Err(BadField::new(name, problem))
    };
    let value = |number: &Option<Number>| number.as_ref().and_then(Number::as_f64);
    let temperature = value(&sampling.temperature);
    if temperature.is_some_and(|temperature| temperature > 1.0) {
        return wrong("temperature", "must be at most 1");
    }
    if !thinking.is_some_and(Thinking::is_on) {
        return Ok(());
    }
    if temperature.is_some_and(|temperature| temperature < 1.0) {
        return wrong("temperature", "must be 1 while reasoning is asked for");
    }
    if sampling.top_k.is_some() {
        return wrong("top_k", "cannot be set while reasoning is asked for");
    }
    if value(&sampling.top_p).is_some_and(|top_p| top_p < LEAST_TOP_P) {
        return wrong(
            "top_p",
            "must be at least 0.95 while reasoning is asked for",
        );
    }
    Ok(())
}

fn tool_choice(prompt: &Prompt) -> Option<Value> {
    let single = prompt.parallel.map(|parallel| json!(!parallel));
    let choice = |word: &str, name: Option<&String>| {
        object([
            ("type", Some(json!(word))),
            ("name", name.map(|name| json!(name))),
            ("disable_parallel_tool_use", single.clone()),
        ])
    };
    match &prompt.choice {
        // Without tools it may not stand there, and changes nothing.
        None | Some(Choice::Auto | Choice::None) if prompt.tools.is_empty() => None,
        None => (prompt.parallel == Some(false)).then(|| choice("auto", None)),
        Some(Choice::Auto) => Some(choice("auto", None)),
        Some(Choice::Required) => Some(choice("any", None)),
        Some(Choice::None) => Some(json!({"type": "none"})),
        Some(Choice::Named(name)) => Some(choice("tool", Some(name))),
    }
}

fn tool(tool: &Tool) -> Value {
    let mut schema = tool.parameters.clone().unwrap_or_else(|| json!({}));
    if let Some(schema) = schema.as_object_mut() {
        // Arguments are an object everywhere, and here it must be said.
        schema.entry("type").or_insert_with(|| json!("object"));
    }
    object([
        ("name", Some(json!(tool.name))),
        ("description", tool.description.as_deref().map(Value::from)),
        ("input_schema", Some(schema)),
        ("strict", tool.strict.map(Value::Bool)),
    ])
}

/// What the answer must look like, and how much is to be thought, where a word says that.
fn output_config(
    format: Option<&Format>,
    thinking: Option<Thinking>,
) -> Result<Option<Value>, BadField> {
    let effort = match thinking {
        Some(Thinking::Adaptive(word)) => Some(json!(word)),
        _ => None,
    };
    let format = format.map(output_format).transpose()?;
    Ok((format.is_some() || effort.is_some())
        .then(|| object([("format", format), ("effort", effort)])))
}

/// A schema has no name here; what describes it can stand in the schema itself.
fn output_format(format: &Format) -> Result<Value, BadField> {
    let Format::Schema {
        schema,
        description,
        ..
    } = format
    else {
        return Err(BadField::untranslatable("response_format"));
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
    fn newer_models_think_as_much_as_they_like() {
        for (model, adaptive) in [
            ("claude-opus-4-7", true),
            ("claude-sonnet-4-6-20260201", true),
            ("anthropic/claude-sonnet-5", true),
            ("claude-opus-4-20250514", false),
            ("claude-3-7-sonnet-20250219", false),
            ("claude-haiku-4-5", false),
            ("claude-sonnet-4.5", false),
            ("mine-9-9", false),
        ] {
            assert_eq!(is_adaptive(model), adaptive, "{model}");
        }
    }
}

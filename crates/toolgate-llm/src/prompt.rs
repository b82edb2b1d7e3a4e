//! Dialect-neutral model requests. Used only for requests that are translated; a request that goes
//! out in its own dialect keeps its bytes.

use serde_json::{Map, Number, Value};
use toolgate_core::config::provider::MaxTokensField;

/// A model request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    pub model: String,
    pub messages: Vec<PromptMessage>,
    pub tools: Vec<PromptTool>,
    pub tool_choice: Option<ToolChoice>,
    /// Whether the model may call several tools in one turn.
    pub parallel_tool_calls: Option<bool>,
    pub limits: ResponseLimits,
    pub sampling: Sampling,
    pub format: Option<ResponseFormat>,
    pub effort: Option<ReasoningEffort>,
    /// Settings that only OpenAI's dialects have.
    pub openai: OpenAiSettings,
    /// End-user identifier passed to the provider.
    pub user: Option<String>,
    pub stream: bool,
    /// Whether a stream ends with the usage, in dialects where that is optional.
    pub stream_usage: bool,
}

/// Limits on the length of the response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseLimits {
    pub max_tokens: Option<Number>,
    /// Field in which Chat Completions states the limit; it depends on the provider.
    pub max_tokens_field: MaxTokensField,
    pub stop: Vec<String>,
}

/// Settings that only OpenAI's dialects have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenAiSettings {
    /// Requested length of the response, unless it is the default.
    pub verbosity: Option<String>,
    /// The caller's notes on the request.
    pub metadata: Option<Value>,
}

/// Sampling parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    pub top_k: Option<Number>,
    pub frequency_penalty: Option<Number>,
    pub presence_penalty: Option<Number>,
    pub seed: Option<Number>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    pub role: MessageRole,
    pub parts: Vec<PromptPart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRole {
    /// Instructions from the application: `system` and `developer`.
    System,
    /// User input and tool results.
    User,
    Assistant,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PromptPart {
    Text(String),
    Image {
        source: MediaSource,
        /// Requested level of detail.
        detail: Option<String>,
    },
    File {
        source: MediaSource,
        name: Option<String>,
    },
    Audio {
        data: String,
        format: String,
    },
    Refusal(String),
    /// The model's reasoning in an earlier turn. Its text is dropped, since a provider of another
    /// dialect cannot verify the proof that comes with it.
    Reasoning,
    ToolCall(RequestedToolCall),
    ToolResult {
        id: String,
        parts: Vec<Self>,
        is_error: bool,
    },
    /// Part of a turn in the dialect of the provider that receives the prompt, unmodified: an assistant message
    /// (Chat), an item (Responses) or a content block (Messages).
    Raw(Value),
}

/// A tool call requested by a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedToolCall {
    pub id: String,
    pub name: String,
    /// JSON exactly as the model wrote it; not necessarily valid.
    pub arguments: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaSource {
    Url(String),
    Data {
        media_type: String,
        /// Base64-encoded.
        data: String,
    },
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptTool {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub parameters: Option<Value>,
    pub strict: Option<bool>,
}

/// Constraint on which tools the model calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    Required,
    Named(String),
    /// Some of the tools in the request.
    Allowed {
        tools: Vec<String>,
        mode: AllowedToolsMode,
    },
}

/// Whether the model must call one of the allowed tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedToolsMode {
    Auto,
    Required,
}

impl AllowedToolsMode {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "required" => Some(Self::Required),
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Required => "required",
        }
    }
}

/// Required format of the response.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseFormat {
    /// Any JSON object.
    Json,
    Schema {
        name: String,
        description: Option<String>,
        schema: Value,
        strict: Option<bool>,
    },
}

/// Requested amount of reasoning.
#[derive(Clone, Debug, PartialEq)]
pub enum ReasoningEffort {
    /// A named level: `minimal`, `low`, `medium`, `high` or one specific to the provider.
    Level(String),
    /// A budget in tokens.
    Tokens(u64),
    Off,
}

/// Fields that may be dropped in translation, from the provider's `ignore_fields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields(pub Vec<String>);

impl IgnoredFields {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|ignored| ignored == name)
    }
}

impl Prompt {
    /// Drops the ignored fields, so that no dialect rejects them later.
    #[must_use]
    pub(crate) fn without_fields(mut self, ignored: &IgnoredFields) -> Self {
        let Sampling {
            temperature,
            top_p,
            top_k,
            frequency_penalty,
            presence_penalty,
            seed,
        } = &mut self.sampling;
        for (name, number) in [
            ("temperature", temperature),
            ("top_p", top_p),
            ("top_k", top_k),
            ("frequency_penalty", frequency_penalty),
            ("presence_penalty", presence_penalty),
            ("seed", seed),
        ] {
            if ignored.contains(name) {
                *number = None;
            }
        }
        if ignored.contains("stop") || ignored.contains("stop_sequences") {
            self.limits.stop.clear();
        }
        if ignored.contains("response_format") {
            self.format = None;
        }
        if ignored.contains("verbosity") {
            self.openai.verbosity = None;
        }
        if ignored.contains("metadata") {
            self.openai.metadata = None;
        }
        self
    }
}

impl PromptMessage {
    pub(crate) fn new(role: MessageRole, parts: Vec<PromptPart>) -> Self {
        Self { role, parts }
    }
}

impl MediaSource {
    /// Parses a URL; a base64 `data:` URL becomes inline data.
    pub(crate) fn from_url(url: &str) -> Self {
        let data = url.strip_prefix("data:");
        let data = data.and_then(|rest| rest.split_once(";base64,"));
        match data {
            Some((media_type, data)) => Self::Data {
                media_type: media_type.to_owned(),
                data: data.to_owned(),
            },
            None => Self::Url(url.to_owned()),
        }
    }

    /// Returns a URL, encoding inline data as a `data:` URL.
    pub(crate) fn to_url(&self) -> String {
        match self {
            Self::Url(url) => url.clone(),
            Self::Data { media_type, data } => format!("data:{media_type};base64,{data}"),
        }
    }
}

impl ReasoningEffort {
    /// Returns a named level; a token budget maps to the closest one.
    pub(crate) fn as_level(&self) -> &str {
        match self {
            Self::Level(level) => level,
            Self::Off => "none",
            Self::Tokens(..=2048) => "low",
            Self::Tokens(..=16384) => "medium",
            Self::Tokens(_) => "high",
        }
    }

    /// Returns a token budget, or `None` if reasoning is off.
    pub(crate) fn budget_tokens(&self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Tokens(tokens) => Some(*tokens),
            Self::Level(level) => match level.as_str() {
                "none" => None,
                "minimal" | "low" => Some(1024),
                "high" => Some(16384),
                "xhigh" | "max" => Some(32768),
                _ => Some(4096),
            },
        }
    }
}

/// Builds a JSON object from the members that have a value.
pub(crate) fn json_object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let present = members.into_iter();
    let present = present.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<String, Value>>())
}

//! What a request asks of a model, in the words of no dialect. Only for requests that are
//! translated: one that goes out in its own dialect keeps its bytes.

use serde_json::{Map, Number, Value};

/// A request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    pub model: String,
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub choice: Option<Choice>,
    /// Whether several tools may be called in one turn.
    pub parallel: Option<bool>,
    pub limits: Limits,
    pub sampling: Sampling,
    pub format: Option<Format>,
    pub effort: Option<Effort>,
    /// Who the end user is, for the provider's eyes.
    pub user: Option<String>,
    pub stream: bool,
    /// Whether a stream ends with the usage, where that is a choice.
    pub stream_usage: bool,
}

/// How long an answer may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub max_tokens: Option<Number>,
    pub stop: Vec<String>,
}

/// How an answer is drawn.
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
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What whoever wrote the program says: `system` and `developer`.
    System,
    /// What the user says, and what tools answered.
    User,
    Assistant,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Image {
        source: Source,
        /// How closely to look.
        detail: Option<String>,
    },
    File {
        source: Source,
        name: Option<String>,
    },
    Audio {
        data: String,
        format: String,
    },
    Refusal(String),
    /// The model's own reasoning of an earlier turn. It is not told to a provider of another
    /// dialect: what proves it means nothing there.
    Reasoning,
    Call(Call),
    Answered {
        id: String,
        parts: Vec<Self>,
        is_error: bool,
    },
}

/// A tool call that a model asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// JSON, as the model wrote it.
    pub arguments: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Url(String),
    Data {
        media_type: String,
        /// In base64.
        data: String,
    },
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// A JSON schema.
    pub parameters: Option<Value>,
    pub strict: Option<bool>,
}

/// Which tools must be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Auto,
    None,
    Required,
    Named(String),
}

/// What an answer must look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Any JSON object.
    Json,
    Schema {
        name: String,
        description: Option<String>,
        schema: Value,
        strict: Option<bool>,
    },
}

/// How much to reason.
#[derive(Clone, Debug, PartialEq)]
pub enum Effort {
    /// `minimal`, `low`, `medium`, `high` and what else there is.
    Word(String),
    /// At most so many tokens.
    Tokens(u64),
    Off,
}

/// Fields that a provider's settings say are not missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(pub Vec<String>);

impl Ignored {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|ignored| ignored == name)
    }
}

impl Prompt {
    /// Without what may be lost, so that no dialect stumbles over it.
    #[must_use]
    pub(crate) fn without(mut self, ignored: &Ignored) -> Self {
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
            if ignored.has(name) {
                *number = None;
            }
        }
        if ignored.has("stop") || ignored.has("stop_sequences") {
            self.limits.stop.clear();
        }
        if ignored.has("response_format") {
            self.format = None;
        }
        self
    }
}

impl Message {
    pub(crate) fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts }
    }
}

impl Source {
    /// A URL, or the data of a `data:` URL.
    pub(crate) fn read(url: &str) -> Self {
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

    /// As a URL, with data in it if need be.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Url(url) => url.clone(),
            Self::Data { media_type, data } => format!("data:{media_type};base64,{data}"),
        }
    }
}

impl Effort {
    /// As a word; a number of tokens becomes the word for about so many.
    pub(crate) fn word(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Off => "none",
            Self::Tokens(..=2048) => "low",
            Self::Tokens(..=16384) => "medium",
            Self::Tokens(_) => "high",
        }
    }

    /// As a number of tokens; none if it is off.
    pub(crate) fn tokens(&self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Tokens(tokens) => Some(*tokens),
            Self::Word(word) => match word.as_str() {
                "none" => None,
                "minimal" | "low" => Some(1024),
                "high" => Some(16384),
                "xhigh" | "max" => Some(32768),
                _ => Some(4096),
            },
        }
    }
}

/// An object with the members that are there.
pub(crate) fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let there = members.into_iter();
    let there = there.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect::<Map<String, Value>>())
}

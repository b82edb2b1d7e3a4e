//! Checked configuration of model providers, and the built-in presets.

use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::Tls;
use crate::secret::Secret;

/// API of a model provider.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Dialect {
    /// OpenAI Chat Completions.
    #[serde(rename = "openai")]
    Chat,
    /// OpenAI Responses.
    #[serde(rename = "responses")]
    Responses,
    /// Anthropic Messages.
    #[serde(rename = "anthropic")]
    Messages,
}

/// Model providers, aliases and prices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    pub providers: Vec<ProviderConfig>,
    /// Models by alias: the first is used, the others are fallbacks in order.
    pub aliases: IndexMap<String, Vec<String>>,
    /// Provider for model names without a provider prefix.
    pub default_provider: Option<String>,
    /// Prices by model pattern, as written by users.
    pub prices: IndexMap<String, ModelPrice>,
}

/// A model provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderConfig {
    pub name: String,
    /// The preset that supplies its defaults.
    pub preset: Option<&'static Preset>,
    pub base_url: Url,
    pub auth: ProviderAuth,
    /// Supported dialects, the preferred one first.
    pub dialects: Vec<Dialect>,
    pub keys: Vec<ProviderKey>,
    pub models: Vec<String>,
    pub network: ProviderNetwork,
    pub requests: RequestSettings,
}

/// Form in which a provider expects its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// Request fields that may be dropped in translation.
    pub ignore_fields: Vec<String>,
    /// Whether `$ref` must be inlined in tool schemas.
    pub flat_schemas: bool,
    pub max_tokens_field: MaxTokensField,
}

/// Field of a chat completion request that limits the length of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// The original field, which every compatible server knows. OpenAI's reasoning models reject it.
    #[default]
    MaxTokens,
    /// OpenAI's current field. Some providers reject or ignore it.
    MaxCompletionTokens,
}

/// Header in which the API key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderAuth {
    /// `Authorization: Bearer`.
    Bearer,
    /// `x-api-key`.
    XApiKey,
    /// `api-key`.
    ApiKey,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProviderKey {
    pub name: String,
    pub value: Secret,
    /// `None` means all models.
    pub models: Option<Vec<String>>,
    pub weight: f64,
}

/// Network settings of a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderNetwork {
    pub headers: IndexMap<String, Secret>,
    /// Names of headers that callers may set, in lower case.
    pub allowed_extra_headers: Vec<String>,
    pub timeout: Duration,
    pub max_retries: u32,
    pub proxy: Proxy,
    pub tls: Tls,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// Uses the standard proxy environment variables.
    #[default]
    Environment,
    None,
    Url {
        url: Secret,
        user: Option<(Secret, Secret)>,
    },
}

/// Price per million tokens, in millionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelPrice {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cache_write: u64,
}

/// Built-in defaults of a well-known provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// Empty if every customer has a different URL.
    pub base_url: &'static str,
    pub dialects: &'static [Dialect],
    pub auth: ProviderAuth,
    /// Environment variable of the API key; empty if none is needed.
    pub key_variable: &'static str,
}

const CHAT: &[Dialect] = &[Dialect::Chat];
const OPENAI: &[Dialect] = &[Dialect::Chat, Dialect::Responses];

#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    preset("openai", "https://api.openai.com/v1", OPENAI, ProviderAuth::Bearer, "OPENAI_API_KEY"),
    preset("anthropic", "https://api.anthropic.com/v1", &[Dialect::Messages], ProviderAuth::XApiKey, "ANTHROPIC_API_KEY"),
    preset("azure", "", OPENAI, ProviderAuth::ApiKey, "AZURE_OPENAI_API_KEY"),
    preset("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", CHAT, ProviderAuth::Bearer, "GEMINI_API_KEY"),
    preset("groq", "https://api.groq.com/openai/v1", CHAT, ProviderAuth::Bearer, "GROQ_API_KEY"),
    preset("mistral", "https://api.mistral.ai/v1", CHAT, ProviderAuth::Bearer, "MISTRAL_API_KEY"),
    preset("deepseek", "https://api.deepseek.com/v1", CHAT, ProviderAuth::Bearer, "DEEPSEEK_API_KEY"),
    preset("xai", "https://api.x.ai/v1", CHAT, ProviderAuth::Bearer, "XAI_API_KEY"),
    preset("openrouter", "https://openrouter.ai/api/v1", CHAT, ProviderAuth::Bearer, "OPENROUTER_API_KEY"),
    preset("together", "https://api.together.xyz/v1", CHAT, ProviderAuth::Bearer, "TOGETHER_API_KEY"),
    preset("fireworks", "https://api.fireworks.ai/inference/v1", CHAT, ProviderAuth::Bearer, "FIREWORKS_API_KEY"),
    preset("cerebras", "https://api.cerebras.ai/v1", CHAT, ProviderAuth::Bearer, "CEREBRAS_API_KEY"),
    preset("ollama", "http://127.0.0.1:11434/v1", CHAT, ProviderAuth::Bearer, ""),
    preset("vllm", "http://127.0.0.1:8000/v1", CHAT, ProviderAuth::Bearer, ""),
    preset("lmstudio", "http://127.0.0.1:1234/v1", CHAT, ProviderAuth::Bearer, ""),
    preset("llamacpp", "http://127.0.0.1:8080/v1", CHAT, ProviderAuth::Bearer, ""),
];

/// Presets that have documented `max_completion_tokens`.
const COMPLETION_TOKEN_PRESETS: [&str; 6] =
    ["openai", "azure", "gemini", "groq", "xai", "cerebras"];

/// Prefixes of model names that belong to one vendor, and its presets in the order to try them.
/// Models with open weights, such as `gpt-oss` or `llama`, have many hosts and are not listed.
#[rustfmt::skip]
const MODEL_PREFIXES: &[(&[&str], &[&str])] = &[
    (&["openai", "azure"], &[
        "gpt-3", "gpt-4", "gpt-5", "gpt-6", "gpt-audio", "gpt-image", "gpt-realtime", "chatgpt-", "ft:gpt-", "o1-", "o3-",
        "o4-", "codex-", "computer-use-", "text-embedding-3-", "text-embedding-ada-", "text-moderation-",
        "omni-moderation-", "dall-e-", "tts-1-", "whisper-1", "davinci-", "babbage-", "sora-",
    ]),
    (&["anthropic"], &["claude-"]),
    (&["gemini"], &["gemini-", "imagen-", "veo-"]),
    (&["mistral"], &[
        "mistral-", "ministral-", "magistral-", "codestral-", "devstral-", "pixtral-", "voxtral-", "open-mistral-",
        "open-mixtral-",
    ]),
    (&["deepseek"], &["deepseek-"]),
    (&["xai"], &["grok-"]),
];

const fn preset(
    name: &'static str,
    base_url: &'static str,
    dialects: &'static [Dialect],
    auth: ProviderAuth,
    variable: &'static str,
) -> Preset {
    Preset {
        name,
        base_url,
        dialects,
        auth,
        key_variable: variable,
    }
}

impl Default for ProviderNetwork {
    fn default() -> Self {
        Self {
            headers: IndexMap::new(),
            allowed_extra_headers: Vec::new(),
            timeout: Duration::from_secs(600),
            max_retries: 2,
            proxy: Proxy::default(),
            tls: Tls::default(),
        }
    }
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// Path of the endpoint, relative to the provider's base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
        }
    }

    /// Name in configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "openai",
            Self::Responses => "responses",
            Self::Messages => "anthropic",
        }
    }
}

impl Preset {
    /// Finds a preset by name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Returns the names of the presets whose vendor makes a model, as far as its name tells.
    pub fn vendors_of(model: &str) -> &'static [&'static str] {
        let is_prefix =
            |prefix: &&str| model.starts_with(prefix) || model == prefix.trim_end_matches('-');
        let mut families = MODEL_PREFIXES.iter();
        let family = families.find(|(_, prefixes)| prefixes.iter().any(is_prefix));
        family.map_or(&[], |(presets, _)| presets)
    }

    /// Returns the form in which the provider expects its requests.
    pub fn requests(&self) -> RequestSettings {
        RequestSettings {
            ignore_fields: Vec::new(),
            // It rejects `$ref` in tool schemas.
            flat_schemas: self.name == "gemini",
            max_tokens_field: if COMPLETION_TOKEN_PRESETS.contains(&self.name) {
                MaxTokensField::MaxCompletionTokens
            } else {
                MaxTokensField::MaxTokens
            },
        }
    }

    /// Provider to use if none is configured and the API key is set in the environment. `None` if
    /// every customer has a different URL.
    pub fn to_provider(&'static self) -> Option<ProviderConfig> {
        let key = ProviderKey {
            name: self.key_variable.to_owned(),
            value: Secret::Env(self.key_variable.to_owned()),
            models: None,
            weight: 1.0,
        };
        Some(ProviderConfig {
            name: self.name.to_owned(),
            preset: Some(self),
            base_url: Url::parse(self.base_url).ok()?,
            auth: self.auth,
            dialects: self.dialects.to_vec(),
            keys: vec![key],
            models: Vec::new(),
            network: ProviderNetwork::default(),
            requests: self.requests(),
        })
    }
}

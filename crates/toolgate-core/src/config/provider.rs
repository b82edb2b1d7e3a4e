//! Model providers, as the program uses them.

use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::Tls;
use crate::secret::Secret;

/// A way to talk to a model.
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

/// All that concerns models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Models {
    pub providers: Vec<Provider>,
    /// Names that stand for models: the first is asked, the others if it fails.
    pub aliases: IndexMap<String, Vec<String>>,
    /// The provider of models that name none.
    pub default_provider: Option<String>,
    /// By model, as users write it.
    pub prices: IndexMap<String, Price>,
}

/// Somebody who has models.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    pub name: String,
    pub base_url: Url,
    pub auth: Auth,
    /// What it speaks, the preferred one first.
    pub dialects: Vec<Dialect>,
    pub keys: Vec<ProviderKey>,
    pub models: Vec<String>,
    pub network: Network,
    /// Fields that may be lost in translation.
    pub ignore_fields: Vec<String>,
    /// Whether schemas of tools must do without references.
    pub flat_schemas: bool,
}

/// How a key is shown to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
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
    /// None for all.
    pub models: Option<Vec<String>>,
    pub weight: f64,
}

/// How a provider is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub headers: IndexMap<String, Secret>,
    pub timeout: Duration,
    pub max_retries: u32,
    pub proxy: Proxy,
    pub tls: Tls,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// What the environment says.
    #[default]
    Environment,
    None,
    Url {
        url: Secret,
        user: Option<(Secret, Secret)>,
    },
}

/// What a million tokens cost, in millionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cache_write: u64,
}

/// What is known of a provider by its name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    pub name: &'static str,
    /// Empty where everybody has one of their own.
    pub base_url: &'static str,
    pub dialects: &'static [Dialect],
    pub auth: Auth,
    /// The variable in which its key is found; empty where none is needed.
    pub variable: &'static str,
}

const CHAT: &[Dialect] = &[Dialect::Chat];
const OPENAI: &[Dialect] = &[Dialect::Chat, Dialect::Responses];

#[rustfmt::skip]
pub const PRESETS: &[Preset] = &[
    preset("openai", "https://api.openai.com/v1", OPENAI, Auth::Bearer, "OPENAI_API_KEY"),
    preset("anthropic", "https://api.anthropic.com/v1", &[Dialect::Messages], Auth::XApiKey, "ANTHROPIC_API_KEY"),
    preset("azure", "", OPENAI, Auth::ApiKey, "AZURE_OPENAI_API_KEY"),
    preset("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", CHAT, Auth::Bearer, "GEMINI_API_KEY"),
    preset("groq", "https://api.groq.com/openai/v1", CHAT, Auth::Bearer, "GROQ_API_KEY"),
    preset("mistral", "https://api.mistral.ai/v1", CHAT, Auth::Bearer, "MISTRAL_API_KEY"),
    preset("deepseek", "https://api.deepseek.com/v1", CHAT, Auth::Bearer, "DEEPSEEK_API_KEY"),
    preset("xai", "https://api.x.ai/v1", CHAT, Auth::Bearer, "XAI_API_KEY"),
    preset("openrouter", "https://openrouter.ai/api/v1", CHAT, Auth::Bearer, "OPENROUTER_API_KEY"),
    preset("together", "https://api.together.xyz/v1", CHAT, Auth::Bearer, "TOGETHER_API_KEY"),
    preset("fireworks", "https://api.fireworks.ai/inference/v1", CHAT, Auth::Bearer, "FIREWORKS_API_KEY"),
    preset("cerebras", "https://api.cerebras.ai/v1", CHAT, Auth::Bearer, "CEREBRAS_API_KEY"),
    preset("ollama", "http://127.0.0.1:11434/v1", CHAT, Auth::Bearer, ""),
    preset("vllm", "http://127.0.0.1:8000/v1", CHAT, Auth::Bearer, ""),
    preset("lmstudio", "http://127.0.0.1:1234/v1", CHAT, Auth::Bearer, ""),
    preset("llamacpp", "http://127.0.0.1:8080/v1", CHAT, Auth::Bearer, ""),
];

const fn preset(
    name: &'static str,
    base_url: &'static str,
    dialects: &'static [Dialect],
    auth: Auth,
    variable: &'static str,
) -> Preset {
    Preset {
        name,
        base_url,
        dialects,
        auth,
        variable,
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            headers: IndexMap::new(),
            timeout: Duration::from_secs(600),
            max_retries: 2,
            proxy: Proxy::default(),
            tls: Tls::default(),
        }
    }
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// Where requests go, below a provider's base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
        }
    }

    /// As it is written in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "openai",
            Self::Responses => "responses",
            Self::Messages => "anthropic",
        }
    }
}

impl Preset {
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Whether it takes no references in schemas of tools.
    pub fn flat_schemas(&self) -> bool {
        self.name == "gemini"
    }

    /// The provider that there is when its key is in the environment and nothing is configured.
    pub fn provider(&self) -> Option<Provider> {
        let key = ProviderKey {
            name: self.variable.to_owned(),
            value: Secret::Env(self.variable.to_owned()),
            models: None,
            weight: 1.0,
        };
        Some(Provider {
            name: self.name.to_owned(),
            base_url: Url::parse(self.base_url).ok()?,
            auth: self.auth,
            dialects: self.dialects.to_vec(),
            keys: vec![key],
            models: Vec::new(),
            network: Network::default(),
            ignore_fields: Vec::new(),
            flat_schemas: self.flat_schemas(),
        })
    }
}

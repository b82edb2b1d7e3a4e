//! Model providers, as users write them: short, or in the spelling of Bifrost.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::TlsConfig;
use crate::config::duration::Span;
use crate::config::provider::Dialect;
use crate::secret::Secret;

/// A model provider. One that is named like a preset (`openai`, `anthropic`, `groq`, …) needs nothing but a key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderTable {
    /// The preset whose address and dialect hold where nothing else is said. Default the one of the same name.
    pub preset: Option<String>,
    /// Where it is, with its `/v1`, as SDKs write it.
    pub base_url: Option<String>,
    /// Its key, best as `env.NAME`.
    pub api_key: Option<Secret>,
    /// Several keys, in the spelling of Bifrost; one is drawn for each request.
    pub keys: Vec<ProviderKeyTable>,
    /// What it speaks: `openai` (chat completions), `responses`, `anthropic`; one or several. Default `openai`.
    pub dialect: Option<DialectNames>,
    /// The models that it has. Shown by `/v1/models`, and found by their names alone.
    pub models: Vec<String>,
    /// Headers sent with every request.
    pub headers: IndexMap<String, Secret>,
    /// How long a request may take. Default `10m`.
    pub timeout: Option<Span>,
    /// How often a request is tried again that failed before its first byte. Default 2.
    #[schemars(range(max = 10))]
    pub max_retries: Option<u32>,
    /// A proxy on the way to it: `http://`, `https://` or `socks5://` with user and password, if need be.
    pub proxy: Option<Secret>,
    /// TLS settings.
    pub tls: TlsConfig,
    /// Fields of requests that may be lost when a request is translated into its dialect.
    pub ignore_fields: Vec<String>,
    /// Writes schemas of tools without `$ref`, for providers that do not take it. Default `false`, but for `gemini`.
    pub flat_schemas: Option<bool>,
    /// `false` keeps the entry without using it. Default `true`.
    pub enabled: Option<bool>,
    /// Network settings in the spelling of Bifrost.
    pub network_config: Option<NetworkConfig>,
    /// A proxy in the spelling of Bifrost.
    pub proxy_config: Option<ProxyConfig>,
    /// A provider that is none of the presets, in the spelling of Bifrost.
    pub custom_provider_config: Option<CustomProviderConfig>,
}

/// One key of a provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderKeyTable {
    /// What it is called in figures.
    pub name: Option<String>,
    /// The key itself, best as `env.NAME`.
    pub value: Secret,
    /// The models that it is for; `["*"]` or nothing for all.
    #[serde(default)]
    pub models: Vec<String>,
    /// How often it is drawn, compared with the others. Default 1.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub weight: Option<f64>,
    /// `false` keeps the key without using it. Default `true`.
    pub enabled: Option<bool>,
}

/// One dialect or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DialectNames {
    One(Dialect),
    Several(Vec<Dialect>),
}

/// Network settings of a provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// Where it is, without `/v1`.
    pub base_url: Option<String>,
    /// Headers sent with every request.
    pub extra_headers: IndexMap<String, Secret>,
    /// How long a request may take, in seconds.
    pub default_request_timeout_in_seconds: Option<u64>,
    /// How often a request is tried again.
    #[schemars(range(max = 10))]
    pub max_retries: Option<u32>,
    /// Accept any certificate. Only for tests.
    pub insecure_skip_verify: bool,
    /// PEM text of an additional certificate authority.
    pub ca_cert_pem: Option<Secret>,
}

/// A proxy on the way to a provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyConfig {
    /// `none`, `http`, `socks5`, or `environment` for the variables that name one.
    #[serde(rename = "type")]
    pub kind: ProxyKind,
    /// Where it is.
    pub url: Option<Secret>,
    /// Who asks it.
    pub username: Option<Secret>,
    /// The password.
    pub password: Option<Secret>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ProxyKind {
    None,
    Http,
    Socks5,
    Environment,
}

/// A provider that is none of the presets.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomProviderConfig {
    /// The preset that it is like: `openai` or `anthropic`.
    pub base_provider_type: String,
    /// Whether it needs no key.
    #[serde(default)]
    pub is_key_less: bool,
}

/// What a million tokens of a model cost, in US dollars.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PriceTable {
    /// Tokens of the prompt.
    #[schemars(range(min = 0))]
    pub input: f64,
    /// Tokens of the answer.
    #[schemars(range(min = 0))]
    pub output: f64,
    /// Tokens of the prompt that were read from a cache. Default as `input`.
    #[schemars(range(min = 0))]
    pub cached_input: Option<f64>,
    /// Tokens of the prompt that were written into a cache. Default as `input`.
    #[schemars(range(min = 0))]
    pub cache_write: Option<f64>,
}

//! Serde types of model providers, in Toolgate's short format and in Bifrost's.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::TlsConfig;
use crate::config::duration::ConfigDuration;
use crate::config::provider::{Dialect, MaxTokensField};
use crate::secret::Secret;

/// A model provider. If it is named after a preset (`openai`, `anthropic`, `groq`, …), it only needs a key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderTable {
    /// Preset that supplies the default URL and dialect. Default: the preset with the provider's name.
    pub preset: Option<String>,
    /// Base URL including `/v1`, as in SDKs.
    pub base_url: Option<String>,
    /// API key, preferably as `env.NAME`.
    pub api_key: Option<Secret>,
    /// Multiple API keys, in Bifrost's format. One is chosen at random for each request.
    pub keys: Vec<ProviderKeyTable>,
    /// Supported APIs, one or several: `openai` (chat completions), `responses`, `anthropic`. Default `openai`.
    pub dialect: Option<DialectNames>,
    /// Models of the provider. They are listed by `/v1/models` and can be requested without the provider prefix.
    pub models: Vec<String>,
    /// Headers sent with every request.
    pub headers: IndexMap<String, Secret>,
    /// Headers that callers may set at the provider: `x-bf-eh-NAME` in their request is sent as `NAME`. Credentials cannot be listed. Default: none.
    pub allowed_extra_headers: Vec<String>,
    /// Timeout of a request. Default `10m`.
    pub timeout: Option<ConfigDuration>,
    /// Maximum number of retries of a request that fails before the first byte of the response. Default 2.
    #[schemars(range(max = 10))]
    pub max_retries: Option<u32>,
    /// Proxy URL: `http://`, `https://` or `socks5://`, optionally with user and password.
    pub proxy: Option<Secret>,
    /// TLS settings.
    pub tls: TlsConfig,
    /// Request fields that may be dropped when a request is translated to the provider's dialect.
    pub ignore_fields: Vec<String>,
    /// Inlines `$ref` in tool schemas, for providers that do not support it. Default `false`, except for `gemini`.
    pub flat_schemas: Option<bool>,
    /// Field that limits the length of a response in translated chat completions: `max_tokens` or `max_completion_tokens`.
    /// Default `max_tokens`, except for `openai`, `azure`, `gemini`, `groq`, `xai` and `cerebras`.
    pub max_tokens_field: Option<MaxTokensField>,
    /// `false` disables the provider without removing it. Default `true`.
    pub enabled: Option<bool>,
    /// Network settings, in Bifrost's format.
    pub network_config: Option<NetworkConfig>,
    /// Proxy settings, in Bifrost's format.
    pub proxy_config: Option<ProxyConfig>,
    /// Settings of a provider that is not a preset, in Bifrost's format.
    pub custom_provider_config: Option<CustomProviderConfig>,
}

/// API key of a provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderKeyTable {
    /// Name of the key in usage statistics.
    pub name: Option<String>,
    /// Key value, preferably as `env.NAME`.
    pub value: Secret,
    /// Models that the key is used for. Absent or `["*"]` means all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Relative probability of choosing this key. Default 1.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub weight: Option<f64>,
    /// `false` disables the key without removing it. Default `true`.
    pub enabled: Option<bool>,
}

/// A single dialect or a list of dialects.
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
    /// Base URL without `/v1`.
    pub base_url: Option<String>,
    /// Headers sent with every request.
    pub extra_headers: IndexMap<String, Secret>,
    /// Timeout of a request, in seconds.
    pub default_request_timeout_in_seconds: Option<u64>,
    /// Maximum number of retries.
    #[schemars(range(max = 10))]
    pub max_retries: Option<u32>,
    /// Accepts any certificate. Use for tests only.
    pub insecure_skip_verify: bool,
    /// Additional CA certificate, as PEM text.
    pub ca_cert_pem: Option<Secret>,
}

/// Proxy used to reach a provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyConfig {
    /// Proxy type: `none`, `http`, `socks5`, or `environment` to use the standard proxy variables.
    #[serde(rename = "type")]
    pub kind: ProxyKind,
    /// URL of the proxy.
    pub url: Option<Secret>,
    /// User name for the proxy.
    pub username: Option<Secret>,
    /// Password for the proxy.
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

/// Settings of a provider that is not a preset.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomProviderConfig {
    /// Preset whose API the provider implements: `openai` or `anthropic`.
    pub base_provider_type: String,
    /// `true` if the provider needs no API key.
    #[serde(default)]
    pub is_key_less: bool,
}

/// Price of a model per million tokens, in US dollars.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PriceTable {
    /// Input tokens.
    #[schemars(range(min = 0))]
    pub input: f64,
    /// Output tokens.
    #[schemars(range(min = 0))]
    pub output: f64,
    /// Input tokens read from a cache. Default: the price of `input`.
    #[schemars(range(min = 0))]
    pub cached_input: Option<f64>,
    /// Input tokens written to a cache. Default: the price of `input`.
    #[schemars(range(min = 0))]
    pub cache_write: Option<f64>,
}

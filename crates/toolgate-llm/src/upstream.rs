//! Provider connections: address, keys, and retries where they are safe.
//!
//! A request is retried only before the first byte of a response arrives, so that callers never
//! receive anything twice.

mod client;
mod key;

use std::time::Duration;

use bytes::Bytes;
pub use client::ProviderClients;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use key::{ProviderKey, auth_header, choose_by_weight};
use reqwest::{Client, Request, Response};
use toolgate_core::config::Dialect;
use toolgate_core::config::provider::{MaxTokensField, ProviderConfig};
use toolgate_core::secret::UnsetVariable;
use url::Url;

use crate::prompt::IgnoredFields;

/// Delay before the first retry; doubles with each further one.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(8);
/// Longest `Retry-After` that is honoured; beyond it the response is returned as is.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// A configured provider, ready for requests.
#[derive(Debug)]
pub struct Upstream {
    pub name: String,
    /// Name of the preset that supplies its defaults.
    pub preset: Option<&'static str>,
    pub dialects: Vec<Dialect>,
    pub models: Vec<String>,
    /// Fields that may be dropped in translation.
    pub ignored: IgnoredFields,
    /// Whether references in tool schemas must be inlined.
    pub flat_schemas: bool,
    pub max_tokens_field: MaxTokensField,
    /// Names of headers that callers may set, in lower case.
    pub allowed_extra_headers: Vec<String>,
    base_url: Url,
    /// Parsed request URLs by path, one per dialect.
    urls: Vec<(&'static str, Url)>,
    client: Client,
    headers: HeaderMap,
    keys: Vec<ProviderKey>,
    max_retries: u32,
}

/// A request to a provider.
#[derive(Clone, Debug)]
pub struct ProviderRequest<'a> {
    pub method: Method,
    /// Path below the base URL, including any query.
    pub path: &'a str,
    pub dialect: Dialect,
    /// Model by which a key is chosen.
    pub model: &'a str,
    pub body: Bytes,
    /// Type of the body; `None` for a request without one.
    pub content_type: Option<HeaderValue>,
    /// Caller headers to forward.
    pub headers: HeaderMap,
}

/// Error returned when a provider cannot be set up; fixing it requires a configuration change.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Unset(#[from] UnsetVariable),
    #[error("header `{0}` has a name or value that HTTP does not allow")]
    Header(String),
    #[error("`ca_cert_pem` contains no PEM certificate")]
    NoCertificate,
    #[error("`ca_cert_pem` is invalid: {}", root_cause(.0))]
    InvalidCertificate(reqwest::Error),
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// Error returned when a provider sends no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("provider `{provider}` has no key for model `{model}`")]
    NoKey { provider: String, model: String },
    #[error("provider `{provider}` timed out")]
    Timeout { provider: String },
    /// The cause goes to the log only, since it may reveal network details to callers.
    #[error("provider `{provider}` could not be reached")]
    Unreachable {
        provider: String,
        #[source]
        cause: reqwest::Error,
    },
}

impl Upstream {
    /// Creates an upstream. Keys whose environment variable is not set are skipped.
    pub fn new(
        provider: &ProviderConfig,
        env: &dyn Fn(&str) -> Option<String>,
        clients: &ProviderClients,
    ) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &provider.network.headers {
            let (name, value) = parse_header(name, &value.resolve(env)?)?;
            headers.insert(name, value);
        }
        let mut keys = Vec::new();
        for key in &provider.keys {
            let Ok(value) = key.value.resolve(env) else {
                tracing::warn!(provider = %provider.name, key = %key.name, "skipping provider key without a value");
                continue;
            };
            keys.push(ProviderKey {
                name: key.name.clone(),
                header: Some(auth_header(provider.auth, &value)?),
                models: key.models.clone(),
                weight: key.weight,
            });
        }
        Ok(Self {
            name: provider.name.clone(),
            preset: provider.preset.map(|preset| preset.name),
            dialects: provider.dialects.clone(),
            models: provider.models.clone(),
            ignored: IgnoredFields(provider.requests.ignore_fields.clone()),
            flat_schemas: provider.requests.flat_schemas,
            max_tokens_field: provider.requests.max_tokens_field,
            allowed_extra_headers: provider.network.allowed_extra_headers.clone(),
            urls: [Dialect::Chat, Dialect::Responses, Dialect::Messages]
                .into_iter()
                .map(|dialect| dialect.path())
                .filter_map(|path| Some((path, join_url(&provider.base_url, path).parse().ok()?)))
                .collect(),
            base_url: provider.base_url.clone(),
            client: clients.get(provider, env)?,
            headers,
            keys: if provider.keys.is_empty() {
                vec![ProviderKey {
                    name: String::new(),
                    header: None,
                    models: None,
                    weight: 1.0,
                }]
            } else {
                keys
            },
            max_retries: provider.network.max_retries,
        })
    }

    /// Returns the dialect for a request: its own if the provider supports it, otherwise the
    /// provider's first.
    pub fn dialect_for(&self, requested: Dialect) -> Dialect {
        if self.dialects.contains(&requested) {
            requested
        } else {
            self.dialects.first().copied().unwrap_or(Dialect::Chat)
        }
    }

    pub fn base_url(&self) -> &str {
        self.base_url.as_str()
    }

    /// Returns the names of the keys.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        let authenticated = self.keys.iter().filter(|key| key.header.is_some());
        authenticated.map(|key| key.name.as_str())
    }

    /// Returns whether the provider offers endpoints of OpenAI's API besides the dialects.
    pub fn has_openai_endpoints(&self) -> bool {
        let mut dialects = self.dialects.iter();
        dialects.any(|dialect| matches!(dialect, Dialect::Chat | Dialect::Responses))
    }

    /// Returns the host name or address.
    pub fn host(&self) -> Option<&str> {
        self.base_url.host_str()
    }

    pub fn port(&self) -> Option<u16> {
        self.base_url.port_or_known_default()
    }

    /// Returns whether there is a usable key.
    pub fn has_key(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns whether the configuration names a model as one of this provider.
    pub fn lists_model(&self, model: &str) -> bool {
        let mut key_models = self.keys.iter().filter_map(|key| key.models.as_ref());
        self.models.iter().any(|known| known == model)
            || key_models.any(|models| models.iter().any(|known| known == model))
    }

    /// Returns whether a key may be used for a model.
    pub fn has_key_for(&self, model: &str) -> bool {
        self.keys.iter().any(|key| key.is_for(model))
    }

    /// Returns the models that the configuration names, if it names all that can be used.
    pub fn listed_models(&self) -> Option<Vec<String>> {
        if !self.models.is_empty() {
            return Some(self.models.clone());
        }
        let restricted: Option<Vec<&Vec<String>>> =
            self.keys.iter().map(|key| key.models.as_ref()).collect();
        let mut models: Vec<String> = Vec::new();
        for model in restricted?.into_iter().flatten() {
            if !models.contains(model) {
                models.push(model.clone());
            }
        }
        Some(models)
    }

    /// Sends a request, retrying failures where that is safe. A response with an error status is not
    /// an error.
    pub async fn send(&self, outgoing: &ProviderRequest<'_>) -> Result<Response, SendError> {
        let mut tried: Vec<&str> = Vec::new();
        loop {
            let key = self.choose_key(outgoing.model, &tried)?;
            tried.push(&key.name);
            let response = self.send_once(outgoing, key).await;
            let tries = u32::try_from(tried.len()).unwrap_or(u32::MAX);
            if tries > self.max_retries || !is_retryable(&response) {
                return response.map_err(|cause| self.send_error(cause));
            }
            let Some(delay) = retry_delay(&response, tries) else {
                return response.map_err(|cause| self.send_error(cause));
            };
            tracing::debug!(provider = %self.name, ?delay, "retrying provider request");
            // Releases the connection for the next attempt.
            drop(response);
            tokio::time::sleep(delay).await;
        }
    }

    /// Sends a GET request, such as for the list of models.
    pub async fn get(&self, path: &str) -> Result<Response, SendError> {
        let key = self.choose_key("", &[])?;
        let mut headers = self.headers.clone();
        headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        headers.extend(key.header.clone());
        let url = join_url(&self.base_url, path);
        let request = self.client.get(url).headers(headers);
        request.send().await.map_err(|cause| self.send_error(cause))
    }

    async fn send_once(
        &self,
        outgoing: &ProviderRequest<'_>,
        key: &ProviderKey,
    ) -> Result<Response, reqwest::Error> {
        let mut headers = outgoing.headers.clone();
        if let Some(content_type) = &outgoing.content_type {
            headers.insert(CONTENT_TYPE, content_type.clone());
        }
        if outgoing.dialect == Dialect::Messages && !headers.contains_key(ANTHROPIC_VERSION) {
            headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        }
        headers.extend(self.headers.clone());
        headers.extend(key.header.clone());
        let known = self.urls.iter().find(|(path, _)| *path == outgoing.path);
        let mut request = match known {
            Some((_, url)) => Request::new(outgoing.method.clone(), url.clone()),
            None => {
                let url = join_url(&self.base_url, outgoing.path);
                self.client.request(outgoing.method.clone(), url).build()?
            }
        };
        *request.headers_mut() = headers;
        if outgoing.method != Method::GET {
            *request.body_mut() = Some(outgoing.body.clone().into());
        }
        self.client.execute(request).await
    }

    /// Chooses a key by weight, preferring keys that have not been tried yet.
    fn choose_key(&self, model: &str, tried: &[&str]) -> Result<&ProviderKey, SendError> {
        let usable = self.keys.iter().filter(|key| key.is_for(model));
        let matching: Vec<&ProviderKey> = usable.collect();
        let untried: Vec<&ProviderKey> = matching
            .iter()
            .copied()
            .filter(|key| !tried.contains(&key.name.as_str()))
            .collect();
        let choice = if untried.is_empty() {
            matching
        } else {
            untried
        };
        choose_by_weight(&choice).ok_or_else(|| SendError::NoKey {
            provider: self.name.clone(),
            model: model.to_owned(),
        })
    }

    fn send_error(&self, cause: reqwest::Error) -> SendError {
        let provider = self.name.clone();
        if cause.is_timeout() {
            SendError::Timeout { provider }
        } else {
            SendError::Unreachable {
                provider,
                cause: cause.without_url(),
            }
        }
    }
}

/// Returns the innermost cause; the outer ones only say that building failed.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn join_url(base: &Url, path: &str) -> String {
    format!("{}{path}", base.as_str().trim_end_matches('/'))
}

fn is_retryable(response: &Result<Response, reqwest::Error>) -> bool {
    match response {
        Ok(response) => matches!(response.status().as_u16(), 408 | 429 | 500..),
        // A slow request would most likely time out again.
        Err(error) => !error.is_timeout() || error.is_connect(),
    }
}

/// Returns the delay that the provider requests, otherwise an exponential one with jitter; `None` if
/// the provider requests more than [`MAX_RETRY_AFTER`].
fn retry_delay(response: &Result<Response, reqwest::Error>, tries: u32) -> Option<Duration> {
    let headers = response.as_ref().ok().map(Response::headers);
    let number = |name: HeaderName| -> Option<f64> {
        let value = headers?.get(name)?.to_str().ok()?;
        value.parse().ok().filter(|number| *number >= 0.0)
    };
    let millis = number(HeaderName::from_static("retry-after-ms")).map(|millis| millis / 1e3);
    let requested = millis.or_else(|| number(RETRY_AFTER));
    match requested.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(delay) => (delay <= MAX_RETRY_AFTER).then_some(delay),
        None => {
            let doubled = INITIAL_RETRY_DELAY.saturating_mul(1 << (tries - 1).min(10));
            let jitter = rand::random_range(0.5..=1.0);
            Some(doubled.min(MAX_RETRY_DELAY).mul_f64(jitter))
        }
    }
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), SetupError> {
    let invalid = || SetupError::Header(name.to_owned());
    let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok((HeaderName::try_from(name).map_err(|_| invalid())?, value))
}

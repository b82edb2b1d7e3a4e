//! A provider that can be asked: its address, its keys, and another try where that is safe.
//!
//! A request is repeated only before the first byte of an answer has come, so that no one hears
//! anything twice.

mod client;

use std::time::Duration;

use bytes::Bytes;
pub use client::Clients;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::{Client, Request, Response};
use toolgate_core::config::Dialect;
use toolgate_core::config::provider::{Auth, Provider};
use toolgate_core::secret::Unset;
use url::Url;

use crate::prompt::Ignored;

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// A provider that wants to be left alone for longer is not waited for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// A provider, ready to be asked.
#[derive(Debug)]
pub struct Upstream {
    pub name: String,
    pub dialects: Vec<Dialect>,
    pub models: Vec<String>,
    /// Fields that may be lost in translation.
    pub ignored: Ignored,
    /// Whether schemas of tools must do without references.
    pub flat_schemas: bool,
    base_url: Url,
    /// Where each dialect's requests go, read once.
    urls: Vec<(&'static str, Url)>,
    client: Client,
    headers: HeaderMap,
    keys: Vec<Key>,
    max_retries: u32,
}

/// A key whose value is known.
#[derive(Debug)]
struct Key {
    name: String,
    /// None for providers that need none.
    header: Option<(HeaderName, HeaderValue)>,
    models: Option<Vec<String>>,
    weight: f64,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Below the base URL, with a query if there is one.
    pub path: &'a str,
    pub dialect: Dialect,
    /// By which a key is chosen.
    pub model: &'a str,
    pub body: Bytes,
    /// Headers of the caller that are passed on.
    pub headers: HeaderMap,
}

/// Why a provider cannot be used; only a change of the configuration helps.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Unset(#[from] Unset),
    #[error("header `{0}` has a value that HTTP does not allow")]
    Header(String),
    #[error("`ca_cert_pem` holds no certificate in PEM form")]
    Certificate,
    #[error("the HTTP client cannot be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// Why a provider did not answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("provider `{provider}` has no key for model `{model}`")]
    NoKey { provider: String, model: String },
    #[error("provider `{provider}` did not answer in time")]
    Timeout { provider: String },
    /// The cause is for those who run the gateway.
    #[error("provider `{provider}` could not be reached")]
    Unreachable {
        provider: String,
        #[source]
        cause: reqwest::Error,
    },
}

impl Upstream {
    /// Makes ready; a key whose variable is not set is left out.
    pub fn new(
        provider: &Provider,
        env: &dyn Fn(&str) -> Option<String>,
        clients: &Clients,
    ) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &provider.network.headers {
            let (name, value) = header(name, &value.resolve(env)?)?;
            headers.insert(name, value);
        }
        let mut keys = Vec::new();
        for key in &provider.keys {
            let Ok(value) = key.value.resolve(env) else {
                tracing::warn!(provider = %provider.name, key = %key.name, "a key is not set");
                continue;
            };
            keys.push(Key {
                name: key.name.clone(),
                header: Some(auth_header(provider.auth, &value)?),
                models: key.models.clone(),
                weight: key.weight,
            });
        }
        Ok(Self {
            name: provider.name.clone(),
            dialects: provider.dialects.clone(),
            models: provider.models.clone(),
            ignored: Ignored(provider.ignore_fields.clone()),
            flat_schemas: provider.flat_schemas,
            urls: [Dialect::Chat, Dialect::Responses, Dialect::Messages]
                .into_iter()
                .map(|dialect| dialect.path())
                .filter_map(|path| Some((path, below(&provider.base_url, path).parse().ok()?)))
                .collect(),
            base_url: provider.base_url.clone(),
            client: clients.get(provider, env)?,
            headers,
            keys: match provider.keys.is_empty() {
                true => vec![Key {
                    name: String::new(),
                    header: None,
                    models: None,
                    weight: 1.0,
                }],
                false => keys,
            },
            max_retries: provider.network.max_retries,
        })
    }

    /// The dialect in which a request goes out: its own if that is spoken.
    pub fn speaks(&self, wanted: Dialect) -> Dialect {
        match self.dialects.contains(&wanted) {
            true => wanted,
            false => self.dialects.first().copied().unwrap_or(Dialect::Chat),
        }
    }

    pub fn base_url(&self) -> &str {
        self.base_url.as_str()
    }

    /// The names of its keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let named = self.keys.iter().filter(|key| key.header.is_some());
        named.map(|key| key.name.as_str())
    }

    /// The name or address of its host.
    pub fn host(&self) -> Option<&str> {
        self.base_url.host_str()
    }

    pub fn port(&self) -> Option<u16> {
        self.base_url.port_or_known_default()
    }

    /// Whether there is a key to ask it with.
    pub fn has_key(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Sends a request, again if it failed and may be repeated. An answer with an error status
    /// is an answer.
    pub async fn send(&self, outgoing: &Outgoing<'_>) -> Result<Response, SendError> {
        let mut tried: Vec<&str> = Vec::new();
        loop {
            let key = self.key(outgoing.model, &tried)?;
            tried.push(&key.name);
            let answer = self.try_with(outgoing, key).await;
            let tries = u32::try_from(tried.len()).unwrap_or(u32::MAX);
            if tries > self.max_retries || !may_repeat(&answer) {
                return answer.map_err(|cause| self.failed(cause));
            }
            let Some(wait) = wait(&answer, tries) else {
                return answer.map_err(|cause| self.failed(cause));
            };
            tracing::debug!(provider = %self.name, ?wait, "once more");
            // Its connection can serve the next try.
            drop(answer);
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks for something that is no model call.
    pub async fn get(&self, path: &str) -> Result<Response, SendError> {
        let key = self.key("", &[])?;
        let mut headers = self.headers.clone();
        headers.insert(VERSION, HeaderValue::from_static("2023-06-01"));
        headers.extend(key.header.clone());
        let url = below(&self.base_url, path);
        let request = self.client.get(url).headers(headers);
        request.send().await.map_err(|cause| self.failed(cause))
    }

    async fn try_with(
        &self,
        outgoing: &Outgoing<'_>,
        key: &Key,
    ) -> Result<Response, reqwest::Error> {
        let mut headers = outgoing.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if outgoing.dialect == Dialect::Messages && !headers.contains_key(VERSION) {
            headers.insert(VERSION, HeaderValue::from_static("2023-06-01"));
        }
        headers.extend(self.headers.clone());
        headers.extend(key.header.clone());
        let known = self.urls.iter().find(|(path, _)| *path == outgoing.path);
        let mut request = match known {
            Some((_, url)) => Request::new(Method::POST, url.clone()),
            None => self
                .client
                .post(below(&self.base_url, outgoing.path))
                .build()?,
        };
        *request.headers_mut() = headers;
        *request.body_mut() = Some(outgoing.body.clone().into());
        self.client.execute(request).await
    }

    /// Draws a key by weight, one that was not tried yet if there is one.
    fn key(&self, model: &str, tried: &[&str]) -> Result<&Key, SendError> {
        let fits = |key: &&Key| {
            let models = key.models.as_ref();
            models.is_none_or(|models| model.is_empty() || models.iter().any(|own| own == model))
        };
        let fitting: Vec<&Key> = self.keys.iter().filter(fits).collect();
        let fresh = fitting.iter().copied();
        let fresh: Vec<&Key> = fresh
            .filter(|key| !tried.contains(&key.name.as_str()))
            .collect();
        let choice = match fresh.is_empty() {
            true => fitting,
            false => fresh,
        };
        drawn(&choice).ok_or_else(|| SendError::NoKey {
            provider: self.name.clone(),
            model: model.to_owned(),
        })
    }

    fn failed(&self, cause: reqwest::Error) -> SendError {
        let provider = self.name.clone();
        match cause.is_timeout() {
            true => SendError::Timeout { provider },
            false => SendError::Unreachable {
                provider,
                cause: cause.without_url(),
            },
        }
    }
}

fn below(base: &Url, path: &str) -> String {
    format!("{}{path}", base.as_str().trim_end_matches('/'))
}

fn drawn<'a>(keys: &[&'a Key]) -> Option<&'a Key> {
    let total: f64 = keys.iter().map(|key| key.weight).sum();
    if keys.len() < 2 || total <= 0.0 {
        return keys.first().copied();
    }
    let mut at = rand::random_range(0.0..total);
    for key in keys {
        if at < key.weight {
            return Some(key);
        }
        at -= key.weight;
    }
    keys.last().copied()
}

fn may_repeat(answer: &Result<Response, reqwest::Error>) -> bool {
    match answer {
        Ok(response) => matches!(response.status().as_u16(), 408 | 429 | 500..),
        // One that took too long once would again.
        Err(error) => !error.is_timeout() || error.is_connect(),
    }
}

/// As long as the provider says, else twice as long each time; none if that is too long.
fn wait(answer: &Result<Response, reqwest::Error>, tries: u32) -> Option<Duration> {
    let headers = answer.as_ref().ok().map(Response::headers);
    let number = |name: HeaderName| -> Option<f64> {
        let value = headers?.get(name)?.to_str().ok()?;
        value.parse().ok().filter(|number| *number >= 0.0)
    };
    let millis = number(HeaderName::from_static("retry-after-ms")).map(|millis| millis / 1e3);
    let asked = millis.or_else(|| number(RETRY_AFTER));
    match asked.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(asked) => (asked <= LONGEST_ASKED).then_some(asked),
        None => {
            let doubled = FIRST_WAIT.saturating_mul(1 << (tries - 1).min(10));
            let jitter = rand::random_range(0.5..=1.0);
            Some(doubled.min(LONGEST_WAIT).mul_f64(jitter))
        }
    }
}

fn auth_header(auth: Auth, key: &str) -> Result<(HeaderName, HeaderValue), SetupError> {
    match auth {
        Auth::Bearer => header(AUTHORIZATION.as_str(), &format!("Bearer {key}")),
        Auth::XApiKey => header("x-api-key", key),
        Auth::ApiKey => header("api-key", key),
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), SetupError> {
    let invalid = || SetupError::Header(name.to_owned());
    let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok((HeaderName::try_from(name).map_err(|_| invalid())?, value))
}

//! The configured providers, and the resolution of model names to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use indexmap::IndexMap;
use serde::Deserialize;
use tokio::sync::Mutex;
use toolgate_core::config::provider::PRESETS;
use toolgate_core::config::{self, Dialect};
use toolgate_core::secret::mask_url;
use toolgate_llm::FieldError;
use toolgate_llm::event::ResponseDecodeError;
use toolgate_llm::price::Prices;
use toolgate_llm::upstream::{ProviderClients, SendError, Upstream};
use toolgate_mcp::Environment;

use super::{ModelError, ModelName, ProviderStatus};

/// Fallback models a request may specify.
const MAX_FALLBACKS: usize = 8;
/// Time for which the providers' model lists are cached.
const MODEL_LIST_TTL: Duration = Duration::from_secs(60);
/// Timeout for listing the models of one provider.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Immutable snapshot of all providers, aliases and prices.
#[derive(Debug)]
pub(super) struct ModelTable {
    upstreams: Vec<Arc<Upstream>>,
    aliases: IndexMap<String, Vec<String>>,
    default_provider: Option<String>,
    pub(super) prices: Prices,
    /// Cached model list with the time it was fetched.
    listed_models: Mutex<Option<(Instant, Vec<ModelName>)>>,
}

/// A model at a provider.
#[derive(Clone, Debug)]
pub(crate) struct ModelTarget {
    pub(crate) upstream: Arc<Upstream>,
    /// Model name as the provider knows it.
    pub(crate) model: String,
}

impl ModelTarget {
    /// Returns the dialect to use with the provider for a request in `caller_dialect`.
    pub(super) fn provider_dialect(&self, caller_dialect: Dialect) -> Dialect {
        self.upstream.dialect_for(caller_dialect)
    }

    pub(super) fn qualified_name(&self) -> String {
        format!("{}/{}", self.upstream.name, self.model)
    }
}

impl ModelTable {
    pub(super) fn new(
        models: &config::ModelSettings,
        environment: &Environment,
        clients: &ProviderClients,
    ) -> Self {
        let env = |name: &str| environment.get(name);
        let is_set = |name: &str| !name.is_empty() && env(name).is_some_and(|key| !key.is_empty());
        let from_environment = PRESETS.iter().filter(|preset| is_set(preset.key_variable));
        let providers = if models.providers.is_empty() {
            from_environment
                .filter_map(|preset| preset.to_provider())
                .collect()
        } else {
            models.providers.clone()
        };
        let mut upstreams = Vec::new();
        for provider in &providers {
            match Upstream::new(provider, &env, clients) {
                Ok(upstream) => upstreams.push(Arc::new(upstream)),
                Err(error) => {
                    tracing::error!(provider = %provider.name, %error, "failed to set up provider");
                }
            }
        }
        Self {
            upstreams,
            aliases: models.aliases.clone(),
            default_provider: models.default_provider.clone(),
            prices: Prices::new(models),
            listed_models: Mutex::default(),
        }
    }

    /// Resolves a name and its fallbacks to at least one target, in the order to try them.
    pub(super) fn resolve(
        &self,
        name: &str,
        fallbacks: Option<&str>,
    ) -> Result<Vec<ModelTarget>, ModelError> {
        let mut targets = self.resolve_name(name)?;
        let fallbacks: Vec<String> = fallbacks
            .and_then(|fallbacks| serde_json::from_str(fallbacks).ok())
            .unwrap_or_default();
        if fallbacks.len() > MAX_FALLBACKS {
            return Err(ModelError::Field(FieldError {
                field: "fallbacks".to_owned(),
                problem: format!("has more than {MAX_FALLBACKS} models"),
            }));
        }
        for name in &fallbacks {
            targets.extend(self.resolve_name(name)?);
        }
        if targets.is_empty() {
            Err(self.unknown_model(name))
        } else {
            Ok(targets)
        }
    }

    /// Resolves a model name or an alias. A `provider/model` name takes precedence over an alias.
    fn resolve_name(&self, name: &str) -> Result<Vec<ModelTarget>, ModelError> {
        let alias = self.aliases.get(name);
        match alias.filter(|_| self.resolve_qualified(name).is_none()) {
            Some(names) => names.iter().map(|name| self.resolve_model(name)).collect(),
            None => Ok(vec![self.resolve_model(name)?]),
        }
    }

    /// Resolves a name of the form `provider/model`.
    fn resolve_qualified(&self, name: &str) -> Option<ModelTarget> {
        let (provider, model) = name.split_once('/')?;
        let upstream = self.upstream(provider)?;
        Some(target(upstream, model))
    }

    fn resolve_model(&self, name: &str) -> Result<ModelTarget, ModelError> {
        if let Some(target) = self.resolve_qualified(name) {
            return Ok(target);
        }
        if let Some(provider) = &self.default_provider {
            let upstream = self
                .upstream(provider)
                .ok_or_else(|| self.unknown_model(name))?;
            return Ok(target(upstream, name));
        }
        let found = match self.upstreams.as_slice() {
            _ if name.contains('/') => None,
            [only] => Some(only),
            several => several
                .iter()
                .find(|upstream| upstream.models.iter().any(|model| model == name)),
        };
        found
            .map(|upstream| target(upstream, name))
            .ok_or_else(|| self.unknown_model(name))
    }

    fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    fn unknown_model(&self, name: &str) -> ModelError {
        let names: Vec<&str> = self
            .upstreams
            .iter()
            .map(|upstream| upstream.name.as_str())
            .collect();
        let hint = if names.is_empty() {
            "no provider is configured; set OPENAI_API_KEY or ANTHROPIC_API_KEY, or add `[providers.NAME]`".to_owned()
        } else {
            format!(
                "write it as `provider/model` with one of the providers {}",
                names.join(", ")
            )
        };
        ModelError::UnknownModel {
            name: name.to_owned(),
            hint,
        }
    }

    pub(super) fn providers(&self) -> Vec<ProviderStatus> {
        let status = |upstream: &Arc<Upstream>| ProviderStatus {
            name: upstream.name.clone(),
            base_url: mask_url(upstream.base_url()),
            dialects: upstream.dialects.clone(),
            models: upstream.models.clone(),
            keys: upstream.key_names().map(str::to_owned).collect(),
            ready: upstream.has_key(),
        };
        self.upstreams.iter().map(status).collect()
    }

    /// Lists the aliases and the models of all providers.
    pub(super) async fn list(&self) -> Vec<ModelName> {
        let aliases = self.aliases.keys().map(|alias| ModelName {
            name: alias.clone(),
            provider: "toolgate".to_owned(),
        });
        let mut cached = self.listed_models.lock().await;
        let fresh = cached
            .as_ref()
            .filter(|(fetched_at, _)| fetched_at.elapsed() < MODEL_LIST_TTL);
        let names = match fresh {
            Some((_, names)) => names.clone(),
            None => {
                let requests = self.upstreams.iter().map(|upstream| list_models(upstream));
                let names = join_all(requests).await.concat();
                *cached = Some((Instant::now(), names.clone()));
                names
            }
        };
        aliases.chain(names).collect()
    }
}

fn target(upstream: &Arc<Upstream>, model: &str) -> ModelTarget {
    ModelTarget {
        upstream: Arc::clone(upstream),
        model: model.to_owned(),
    }
}

/// Returns the configured models of a provider, or those it lists itself. A provider that does not
/// respond has none, so that the others can still be listed.
async fn list_models(upstream: &Upstream) -> Vec<ModelName> {
    let ids = if upstream.models.is_empty() && upstream.has_key() {
        fetch_model_ids(upstream).await.unwrap_or_else(|error| {
            tracing::warn!(provider = upstream.name, %error, "could not list the models of a provider");
            Vec::new()
        })
    } else {
        upstream.models.clone()
    };
    let names = ids.into_iter().map(|id| ModelName {
        name: format!("{}/{id}", upstream.name),
        provider: upstream.name.clone(),
    });
    names.collect()
}

/// Fetches the ids of the models that a provider lists.
async fn fetch_model_ids(upstream: &Upstream) -> Result<Vec<String>, ModelError> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
    }
    let fetch = async {
        let response = upstream.get("/models").await?;
        super::response::read_body(response).await
    };
    let body = tokio::time::timeout(MODEL_LIST_TIMEOUT, fetch).await;
    let body = body.unwrap_or_else(|_| {
        Err(ModelError::Send(SendError::Timeout {
            provider: upstream.name.clone(),
        }))
    })?;
    let list: List = serde_json::from_slice(&body).map_err(ResponseDecodeError::from)?;
    Ok(list.data.into_iter().map(|model| model.id).collect())
}

/// Returns whether the `fallbacks` member is a list of model names; any other value is
/// passed on to the provider.
pub(super) fn is_fallbacks(json: &str) -> bool {
    serde_json::from_str::<Vec<String>>(json).is_ok()
}

/// Returns whether another provider may succeed; an invalid request fails everywhere.
pub(super) fn may_fall_back(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 408 | 429 | 500..)
}

//! The configured providers, and the resolution of model names to them.

use std::sync::Arc;

use futures_util::future::join_all;
use indexmap::IndexMap;
use toolgate_core::config::provider::{PRESETS, Preset};
use toolgate_core::config::{self, Dialect};
use toolgate_core::nearest::find_nearest;
use toolgate_core::secret::mask_url;
use toolgate_llm::FieldError;
use toolgate_llm::price::Prices;
use toolgate_llm::upstream::{ProviderClients, Upstream};
use toolgate_mcp::Environment;

use super::model_list::ModelList;
use super::{ModelError, ModelName, ProviderStatus};

/// Fallback models a request may specify.
const MAX_FALLBACKS: usize = 8;

/// Immutable snapshot of all providers, aliases and prices.
#[derive(Debug)]
pub(super) struct ModelTable {
    upstreams: Vec<Arc<Upstream>>,
    aliases: IndexMap<String, Vec<String>>,
    default_provider: Option<String>,
    pub(super) prices: Prices,
    lists: Vec<ModelList>,
}

/// A model at a provider.
#[derive(Clone, Debug)]
pub(crate) struct ModelTarget {
    pub(crate) upstream: Arc<Upstream>,
    /// Model name as the provider knows it.
    pub(crate) model: String,
}

/// What a request says about its model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedModel<'a> {
    pub(super) name: &'a str,
    /// Name or preset of the provider to use if `name` has none.
    pub(super) provider: Option<&'a str>,
    /// Models to try next, as a JSON list.
    pub(super) fallbacks: Option<&'a str>,
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
            lists: upstreams.iter().cloned().map(ModelList::new).collect(),
            upstreams,
            aliases: models.aliases.clone(),
            default_provider: models.default_provider.clone(),
            prices: Prices::new(models),
        }
    }

    /// Resolves a name and its fallbacks to at least one target, in the order to try them.
    pub(super) fn resolve(&self, request: &NamedModel<'_>) -> Result<Vec<ModelTarget>, ModelError> {
        let mut targets = self.resolve_name(request.name, request.provider)?;
        let fallbacks: Vec<String> = request
            .fallbacks
            .and_then(|fallbacks| serde_json::from_str(fallbacks).ok())
            .unwrap_or_default();
        if fallbacks.len() > MAX_FALLBACKS {
            return Err(ModelError::Field(FieldError {
                field: "fallbacks".to_owned(),
                problem: format!("has more than {MAX_FALLBACKS} models"),
            }));
        }
        for name in &fallbacks {
            targets.extend(self.resolve_name(name, request.provider)?);
        }
        if targets.is_empty() {
            Err(self.unknown_model(request.name))
        } else {
            Ok(targets)
        }
    }

    /// Resolves a model name or an alias. A `provider/model` name takes precedence over an alias.
    fn resolve_name(
        &self,
        name: &str,
        provider: Option<&str>,
    ) -> Result<Vec<ModelTarget>, ModelError> {
        let alias = self.aliases.get(name);
        if let Some(names) = alias.filter(|_| self.resolve_qualified(name).is_none()) {
            return names.iter().map(|name| self.resolve_model(name)).collect();
        }
        let target = match provider.filter(|_| !name.contains('/')) {
            Some(provider) => target(self.provider_or_preset(provider, name)?, name),
            None => self.resolve_model(name)?,
        };
        Ok(vec![target])
    }

    /// Finds the provider that a request names apart from its model.
    fn provider_or_preset(&self, name: &str, model: &str) -> Result<&Arc<Upstream>, ModelError> {
        let has_preset = |upstream: &&Arc<Upstream>| upstream.preset == Some(name);
        let found = self.upstream(name);
        found
            .or_else(|| self.upstreams.iter().find(has_preset))
            .ok_or_else(|| self.unknown_model(&format!("{name}/{model}")))
    }

    /// Finds the provider of a response that it has stored, if its name was not recorded.
    pub(super) fn only_responses_provider(&self) -> Option<&Arc<Upstream>> {
        let stores = |upstream: &&Arc<Upstream>| upstream.dialects.contains(&Dialect::Responses);
        let mut upstreams = self.upstreams.iter().filter(stores);
        let only = upstreams.next();
        only.filter(|_| upstreams.next().is_none())
    }

    /// Resolves a name of the form `provider/model`.
    fn resolve_qualified(&self, name: &str) -> Option<ModelTarget> {
        let (provider, model) = name.split_once('/')?;
        let upstream = self.upstream(provider)?;
        Some(target(upstream, model))
    }

    /// Resolves a name that is no alias: by its provider, by the models that the configuration names,
    /// and without a provider by `default_provider`, the only provider, or the vendor's name.
    fn resolve_model(&self, name: &str) -> Result<ModelTarget, ModelError> {
        if let Some(target) = self.resolve_qualified(name) {
            return Ok(target);
        }
        let upstream = match self.find_listed(name) {
            Some(upstream) => Some(upstream),
            // Its first part is meant to be a provider, and a misspelt one must not reach another.
            None if name.contains('/') => None,
            None => self.route_by_name(name),
        };
        upstream
            .map(|upstream| target(upstream, name))
            .ok_or_else(|| self.unknown_model(name))
    }

    /// Finds the provider whose configuration names a model; the default provider comes first.
    fn find_listed(&self, model: &str) -> Option<&Arc<Upstream>> {
        let default = self.default_provider.as_deref();
        let default = default.and_then(|name| self.upstream(name));
        let mut upstreams = default.into_iter().chain(&self.upstreams);
        upstreams.find(|upstream| upstream.lists_model(model))
    }

    /// Chooses the provider of a model whose name has no provider and that no configuration names.
    fn route_by_name(&self, model: &str) -> Option<&Arc<Upstream>> {
        if let Some(name) = &self.default_provider {
            let default = self.upstream(name)?;
            if default.has_key_for(model) || self.upstreams.len() == 1 {
                return Some(default);
            }
        }
        if let [only] = self.upstreams.as_slice() {
            return Some(only);
        }
        Preset::vendors_of(model).iter().find_map(|vendor| {
            let mut upstreams = self.upstreams.iter();
            upstreams
                .find(|upstream| upstream.preset == Some(*vendor) && upstream.has_key_for(model))
        })
    }

    pub(super) fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
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
        } else if let Some(suggestion) = suggest(name, &names) {
            format!("did you mean `{suggestion}`?")
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
        let lists = self.lists.iter().map(|list| async move {
            let names = list.ids().await.into_iter().map(|id| ModelName {
                name: format!("{}/{id}", list.provider()),
                provider: list.provider().to_owned(),
            });
            names.collect::<Vec<_>>()
        });
        aliases.chain(join_all(lists).await.concat()).collect()
    }
}

/// Suggests a name with the provider that is most similar to the one in `name`.
fn suggest(name: &str, providers: &[&str]) -> Option<String> {
    let (provider, model) = name.split_once('/')?;
    let nearest = find_nearest(provider, providers.iter().copied())?;
    Some(format!("{nearest}/{model}"))
}

fn target(upstream: &Arc<Upstream>, model: &str) -> ModelTarget {
    ModelTarget {
        upstream: Arc::clone(upstream),
        model: model.to_owned(),
    }
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

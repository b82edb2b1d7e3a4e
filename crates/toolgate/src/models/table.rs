//! Providers, and which of them a model's name means.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use indexmap::IndexMap;
use serde::Deserialize;
use tokio::sync::Mutex;
use toolgate_core::config::provider::PRESETS;
use toolgate_core::config::{self, Dialect};
use toolgate_core::secret::mask_url;
use toolgate_llm::BadField;
use toolgate_llm::price::Prices;
use toolgate_llm::upstream::{Clients, Upstream};
use toolgate_mcp::Environment;

use super::{ModelError, ModelName, ProviderStatus};

/// Models that a request may bring to be asked instead.
const MOST_FALLBACKS: usize = 8;
/// How long what providers listed is taken for true.
const LISTED_FOR: Duration = Duration::from_secs(60);
/// How long a provider may take to list its models.
const LISTED: Duration = Duration::from_secs(5);

/// All providers, at one time.
#[derive(Debug)]
pub(super) struct Table {
    upstreams: Vec<Arc<Upstream>>,
    aliases: IndexMap<String, Vec<String>>,
    default_provider: Option<String>,
    pub(super) prices: Prices,
    /// What providers that name no models said they have.
    found: Mutex<Option<(Instant, Vec<ModelName>)>>,
}

/// A model at a provider.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) upstream: Arc<Upstream>,
    /// As the provider knows it.
    pub(crate) model: String,
}

impl Target {
    pub(super) fn spoken(&self, wanted: Dialect) -> Dialect {
        self.upstream.speaks(wanted)
    }

    pub(super) fn shown(&self) -> String {
        format!("{}/{}", self.upstream.name, self.model)
    }
}

impl Table {
    pub(super) fn new(
        models: &config::Models,
        environment: &Environment,
        clients: &Clients,
    ) -> Self {
        let env = |name: &str| environment.get(name);
        let is_set = |name: &str| !name.is_empty() && env(name).is_some_and(|key| !key.is_empty());
        let from_environment = PRESETS.iter().filter(|preset| is_set(preset.variable));
        let providers = match models.providers.is_empty() {
            true => from_environment
                .filter_map(|preset| preset.provider())
                .collect(),
            false => models.providers.clone(),
        };
        let mut upstreams = Vec::new();
        for provider in &providers {
            match Upstream::new(provider, &env, clients) {
                Ok(upstream) => upstreams.push(Arc::new(upstream)),
                Err(error) => {
                    tracing::error!(provider = %provider.name, %error, "the provider cannot be used");
                }
            }
        }
        Self {
            upstreams,
            aliases: models.aliases.clone(),
            default_provider: models.default_provider.clone(),
            prices: Prices::new(models),
            found: Mutex::default(),
        }
    }

    /// The models that a name means, in the order in which they are asked; at least one.
    pub(super) fn resolve(
        &self,
        name: &str,
        fallbacks: Option<&str>,
    ) -> Result<Vec<Target>, ModelError> {
        let mut targets = self.named_or_alias(name)?;
        let fallbacks: Vec<String> = fallbacks
            .and_then(|fallbacks| serde_json::from_str(fallbacks).ok())
            .unwrap_or_default();
        if fallbacks.len() > MOST_FALLBACKS {
            return Err(ModelError::Field(BadField {
                field: "fallbacks".to_owned(),
                problem: format!("has more than {MOST_FALLBACKS} models"),
            }));
        }
        for name in &fallbacks {
            targets.extend(self.named_or_alias(name)?);
        }
        match targets.is_empty() {
            true => Err(self.unknown(name)),
            false => Ok(targets),
        }
    }

    /// One model, or those that an alias stands for.
    fn named_or_alias(&self, name: &str) -> Result<Vec<Target>, ModelError> {
        let alias = self.aliases.get(name);
        match alias.filter(|_| self.named(name).is_none()) {
            Some(names) => names.iter().map(|name| self.one(name)).collect(),
            None => Ok(vec![self.one(name)?]),
        }
    }

    /// A name that begins with a provider's.
    fn named(&self, name: &str) -> Option<Target> {
        let (provider, model) = name.split_once('/')?;
        let upstream = self.upstream(provider)?;
        Some(target(upstream, model))
    }

    fn one(&self, name: &str) -> Result<Target, ModelError> {
        if let Some(target) = self.named(name) {
            return Ok(target);
        }
        if let Some(provider) = &self.default_provider {
            let upstream = self.upstream(provider).ok_or_else(|| self.unknown(name))?;
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
            .ok_or_else(|| self.unknown(name))
    }

    fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    fn unknown(&self, name: &str) -> ModelError {
        let names: Vec<&str> = self
            .upstreams
            .iter()
            .map(|upstream| upstream.name.as_str())
            .collect();
        let hint = match names.is_empty() {
            true => "no provider is configured; set OPENAI_API_KEY or ANTHROPIC_API_KEY, or add `[providers.NAME]`".to_owned(),
            false => format!("write it as `provider/model` with one of the providers {}", names.join(", ")),
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
            keys: upstream.keys().map(str::to_owned).collect(),
            ready: upstream.has_key(),
        };
        self.upstreams.iter().map(status).collect()
    }

    /// Aliases, and the models that providers have.
    pub(super) async fn list(&self) -> Vec<ModelName> {
        let aliases = self.aliases.keys().map(|alias| ModelName {
            name: alias.clone(),
            provider: "toolgate".to_owned(),
        });
        let mut found = self.found.lock().await;
        let fresh = found.as_ref().filter(|(at, _)| at.elapsed() < LISTED_FOR);
        let names = match fresh {
            Some((_, names)) => names.clone(),
            None => {
                let asked = self.upstreams.iter().map(|upstream| listed(upstream));
                let names = join_all(asked).await.concat();
                *found = Some((Instant::now(), names.clone()));
                names
            }
        };
        aliases.chain(names).collect()
    }
}

fn target(upstream: &Arc<Upstream>, model: &str) -> Target {
    Target {
        upstream: Arc::clone(upstream),
        model: model.to_owned(),
    }
}

/// The models of a provider: those that are configured, else those that it lists.
async fn listed(upstream: &Upstream) -> Vec<ModelName> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
    }
    let ask = async {
        let response = upstream.get("/models").await.ok()?;
        let body = super::answer::whole(response).await.ok()?;
        serde_json::from_slice::<List>(&body).ok()
    };
    let ids = match upstream.models.is_empty() && upstream.has_key() {
        true => {
            let list = tokio::time::timeout(LISTED, ask).await.ok().flatten();
            let models = list.into_iter().flat_map(|list| list.data);
            models.map(|model| model.id).collect()
        }
        false => upstream.models.clone(),
    };
    let names = ids.into_iter().map(|id| ModelName {
        name: format!("{}/{id}", upstream.name),
        provider: upstream.name.clone(),
    });
    names.collect()
}

/// Whether `fallbacks` is what we mean by it: names of models.
pub(super) fn is_fallbacks(json: &str) -> bool {
    serde_json::from_str::<Vec<String>>(json).is_ok()
}

/// Whether another provider may do better; a request that is wrong is wrong everywhere.
pub(super) fn may_fall_back(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 408 | 429 | 500..)
}

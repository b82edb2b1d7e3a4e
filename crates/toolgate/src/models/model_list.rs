//! The models that a provider offers: those that the configuration names, or those it lists itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::Mutex;
use toolgate_llm::event::ResponseDecodeError;
use toolgate_llm::upstream::{SendError, Upstream};

use super::ModelError;

/// Time for which a provider's list is cached.
const LIST_TTL: Duration = Duration::from_secs(60);
/// Delay after a failed look-up before the next one.
const RETRY_DELAY: Duration = Duration::from_secs(2);
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Cached list of a provider's models.
#[derive(Debug)]
pub(super) struct ModelList {
    upstream: Arc<Upstream>,
    cached: Mutex<Option<CachedList>>,
}

#[derive(Debug)]
struct CachedList {
    ids: Vec<String>,
    valid_until: Instant,
}

impl ModelList {
    pub(super) fn new(upstream: Arc<Upstream>) -> Self {
        Self {
            upstream,
            cached: Mutex::default(),
        }
    }

    pub(super) fn provider(&self) -> &str {
        &self.upstream.name
    }

    /// Returns the ids of the provider's models. While it does not respond, they are those of its last
    /// list, so that the models of other providers can still be listed.
    pub(super) async fn ids(&self) -> Vec<String> {
        if let Some(listed) = self.upstream.listed_models() {
            return listed;
        }
        if !self.upstream.has_key() {
            return Vec::new();
        }
        // Concurrent requests wait for one look-up.
        let mut cached = self.cached.lock().await;
        if let Some(list) = &*cached
            && Instant::now() < list.valid_until
        {
            return list.ids.clone();
        }
        let list = match fetch_ids(&self.upstream).await {
            Ok(ids) => CachedList {
                ids,
                valid_until: Instant::now() + LIST_TTL,
            },
            Err(error) => {
                tracing::warn!(provider = self.upstream.name, %error, "could not list the models of a provider");
                CachedList {
                    ids: cached.take().map(|list| list.ids).unwrap_or_default(),
                    valid_until: Instant::now() + RETRY_DELAY,
                }
            }
        };
        cached.insert(list).ids.clone()
    }
}

/// Fetches the ids of the models that a provider lists.
async fn fetch_ids(upstream: &Upstream) -> Result<Vec<String>, ModelError> {
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
    let body = tokio::time::timeout(LIST_TIMEOUT, fetch).await;
    let body = body.unwrap_or_else(|_| {
        Err(ModelError::Send(SendError::Timeout {
            provider: upstream.name.clone(),
        }))
    })?;
    let list: List = serde_json::from_slice(&body).map_err(ResponseDecodeError::from)?;
    Ok(list.data.into_iter().map(|model| model.id).collect())
}

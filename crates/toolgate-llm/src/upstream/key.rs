//! Keys of a provider, and the choice of one for a request.

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use toolgate_core::config::provider::ProviderAuth;

use super::{SetupError, parse_header};

/// A key with its resolved value.
#[derive(Debug)]
pub(super) struct ProviderKey {
    pub(super) name: String,
    /// `None` for providers without authentication.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    pub(super) models: Option<Vec<String>>,
    pub(super) weight: f64,
}

impl ProviderKey {
    /// Returns whether the key may be used for a model. An empty name stands for any model.
    pub(super) fn is_for(&self, model: &str) -> bool {
        let models = self.models.as_ref();
        models.is_none_or(|models| model.is_empty() || models.iter().any(|known| known == model))
    }
}

/// Chooses a key at random, by weight.
pub(super) fn choose_by_weight<'a>(keys: &[&'a ProviderKey]) -> Option<&'a ProviderKey> {
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

/// Returns the header in which a key is sent.
pub(super) fn auth_header(
    auth: ProviderAuth,
    key: &str,
) -> Result<(HeaderName, HeaderValue), SetupError> {
    match auth {
        ProviderAuth::Bearer => parse_header(AUTHORIZATION.as_str(), &format!("Bearer {key}")),
        ProviderAuth::XApiKey => parse_header("x-api-key", key),
        ProviderAuth::ApiKey => parse_header("api-key", key),
    }
}

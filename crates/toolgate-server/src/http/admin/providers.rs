//! `/api/providers`: model providers. API keys are never returned.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use toolgate::models::ProviderStatus;
use utoipa::ToSchema;

use super::Deleted;
use super::page::PageParams;
use super::resource::{self, AdminResource};
use crate::configuration::{ConfigSnapshot, ConfigSource, ConfigTable};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiObject, ApiPath, ApiQuery};

/// A model provider.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ProviderView {
    name: String,
    base_url: String,
    /// API dialects that the provider supports: `openai`, `responses`, `anthropic`.
    dialects: Vec<&'static str>,
    /// Models configured for the provider.
    models: Vec<String>,
    /// Names of the provider's keys, without the keys themselves.
    keys: Vec<String>,
    /// Whether the provider can be used: it has a key with a known value, or needs none.
    ready: bool,
    /// `file`, `api`, or `environment` if it was enabled by a key in an environment variable.
    source: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProviderPage {
    providers: Vec<ProviderView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List all providers, ordered by name.
#[utoipa::path(get, path = "/api/providers", tag = "api", params(PageParams), responses((status = 200, body = ProviderPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(page): ApiQuery<PageParams>,
) -> Result<Json<ProviderPage>, ApiError> {
    let (providers, next_cursor) = resource::list(&app, &page)?;
    Ok(Json(ProviderPage {
        providers,
        next_cursor,
    }))
}

/// Create or replace a provider. The body has the fields of `[providers.NAME]` in the configuration.
#[utoipa::path(put, path = "/api/providers/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = ProviderView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
    ApiObject(entry): ApiObject,
) -> Result<Json<ProviderView>, ApiError> {
    resource::replace(&app, &name, entry).await.map(Json)
}

/// Delete a provider.
#[utoipa::path(delete, path = "/api/providers/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<Deleted>, ApiError> {
    resource::remove::<ProviderView>(&app, name).await.map(Json)
}

impl AdminResource for ProviderView {
    const TABLE: ConfigTable = ConfigTable::Providers;
    // The view has none of the entry's fields, so it is never sent back.
    const READ_ONLY_FIELDS: &'static [&'static str] = &[];

    fn name(&self) -> &str {
        &self.name
    }

    fn all(app: &App, snapshot: &ConfigSnapshot) -> Vec<Self> {
        let configured = &snapshot.config.models.providers;
        let view = |provider: ProviderStatus| {
            let is_configured = configured.iter().any(|known| known.name == provider.name);
            let source = match snapshot.entry_source(Self::TABLE, &provider.name) {
                ConfigSource::Api if !is_configured => "environment",
                source => source.as_str(),
            };
            let dialects = provider.dialects.iter();
            Self {
                name: provider.name,
                base_url: provider.base_url,
                dialects: dialects.map(|dialect| dialect.as_str()).collect(),
                models: provider.models,
                keys: provider.keys,
                ready: provider.ready,
                source,
            }
        };
        let providers = app.gateway().models().providers();
        providers.into_iter().map(view).collect()
    }

    fn not_found(_: &str) -> ApiError {
        ApiError::bad_request("the provider was stored but cannot be used; see the gateway's log")
    }
}

//! `/api/providers`: model providers. API keys are never returned.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Serialize;
use serde_json::Value;
use toolgate::models::ProviderStatus;
use utoipa::ToSchema;

use super::Deleted;
use super::changes::parse_object;
use super::page::PageParams;
use crate::configuration::{ConfigSource, ConfigTable, EntryChange};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

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
    next_cursor: Option<String>,
}

/// List all providers, ordered by name.
#[utoipa::path(get, path = "/api/providers", tag = "api", params(PageParams), responses((status = 200, body = ProviderPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<PageParams>, QueryRejection>,
) -> Result<Json<ProviderPage>, ApiError> {
    let Query(page) = page?;
    let mut providers = provider_views(&app);
    providers.sort_by(|a, b| a.name.cmp(&b.name));
    let (providers, next_cursor) =
        page.paginate(providers.into_iter(), |provider| provider.name.clone())?;
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
    name: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ProviderView>, ApiError> {
    let Path(name) = name?;
    let mut entry = parse_object(&body?)?;
    entry.retain(|_, value| !value.is_null());
    let change = EntryChange::Replace(Value::Object(entry));
    app.configuration()
        .change_entry(ConfigTable::Providers, &name, change)
        .await?;
    let found = provider_views(&app)
        .into_iter()
        .find(|provider| provider.name == name);
    found.map(Json).ok_or_else(|| {
        ApiError::bad_request("the provider was stored but cannot be used; see the gateway's log")
    })
}

/// Delete a provider.
#[utoipa::path(delete, path = "/api/providers/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let table = ConfigTable::Providers;
    app.configuration()
        .change_entry(table, &name, EntryChange::Remove)
        .await?;
    Ok(Json(Deleted { deleted: name }))
}

fn provider_views(app: &App) -> Vec<ProviderView> {
    let snapshot = app.configuration().snapshot();
    let in_files = snapshot.names_in_files.get(&ConfigTable::Providers);
    let configured = &snapshot.config.models.providers;
    let view = |provider: ProviderStatus| {
        let is_configured = configured.iter().any(|known| known.name == provider.name);
        let source = if in_files.is_some_and(|names| names.contains(&provider.name)) {
            ConfigSource::File.as_str()
        } else if is_configured {
            ConfigSource::Api.as_str()
        } else {
            "environment"
        };
        ProviderView {
            name: provider.name,
            base_url: provider.base_url,
            dialects: provider
                .dialects
                .iter()
                .map(|dialect| dialect.as_str())
                .collect(),
            models: provider.models,
            keys: provider.keys,
            ready: provider.ready,
            source,
        }
    };
    let providers = app.gateway().models().providers();
    providers.into_iter().map(view).collect()
}

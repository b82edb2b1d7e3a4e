//! `/api/providers`: where models come from. Keys are never shown.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Serialize;
use serde_json::Value;
use toolgate::models::ProviderStatus;
use utoipa::ToSchema;

use super::Deleted;
use super::changes::object;
use super::page::Page;
use crate::configuration::{Named, Put, Source};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// A model provider.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ProviderView {
    name: String,
    base_url: String,
    /// What it speaks: `openai`, `responses`, `anthropic`.
    dialects: Vec<&'static str>,
    /// The models that are configured for it.
    models: Vec<String>,
    /// The names of its keys; the keys themselves are not shown.
    keys: Vec<String>,
    /// Whether it can be asked: it has a key whose value is known, or needs none.
    ready: bool,
    /// `file`, `api`, or `environment` for those whose keys were found there.
    source: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProviderPage {
    providers: Vec<ProviderView>,
    next_cursor: Option<String>,
}

/// All providers.
#[utoipa::path(get, path = "/api/providers", tag = "api", params(Page), responses((status = 200, body = ProviderPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ProviderPage>, ApiError> {
    let Query(page) = page?;
    let mut all = all(&app);
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let (providers, next_cursor) = page.cut(all.into_iter(), |provider| provider.name.clone())?;
    Ok(Json(ProviderPage {
        providers,
        next_cursor,
    }))
}

/// Add a provider, or replace one: what stands in `[providers.NAME]`, as JSON.
#[utoipa::path(put, path = "/api/providers/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = ProviderView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ProviderView>, ApiError> {
    let Path(name) = name?;
    let mut entry = object(&body?)?;
    entry.retain(|_, value| !value.is_null());
    let put = Put::Whole(Value::Object(entry));
    app.configuration()
        .put(Named::Providers, &name, put)
        .await?;
    let found = all(&app).into_iter().find(|provider| provider.name == name);
    found
        .map(Json)
        .ok_or_else(|| ApiError::bad_request("it is kept, but cannot be used; the log says why"))
}

/// Remove a provider.
#[utoipa::path(delete, path = "/api/providers/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let table = Named::Providers;
    app.configuration().put(table, &name, Put::Remove).await?;
    Ok(Json(Deleted { deleted: name }))
}

fn all(app: &App) -> Vec<ProviderView> {
    let published = app.configuration().published();
    let in_files = published.in_files.get(&Named::Providers);
    let configured = &published.config.models.providers;
    let view = |provider: ProviderStatus| {
        let is_configured = configured.iter().any(|known| known.name == provider.name);
        let source = match in_files.is_some_and(|names| names.contains(&provider.name)) {
            true => Source::File.as_str(),
            false if is_configured => Source::Api.as_str(),
            false => "environment",
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

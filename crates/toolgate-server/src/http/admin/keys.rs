//! `/api/keys`: the keys of callers. A key is shown once, when it is made; only its hash is kept.

use std::time::SystemTime;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use rand::distr::{Alphanumeric, SampleString as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::config::Key;
use toolgate_core::hash::sha256;
use toolgate_core::rate::Budget;
use utoipa::ToSchema;

use super::changes::object;
use super::page::Page;
use super::{Deleted, time};
use crate::configuration::{Named, Put, Source};
use crate::http::App;
use crate::http::auth::{KEY_LENGTH, PREFIX};
use crate::http::error::{ApiError, ErrorBody};

/// A caller's key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeyView {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) enabled: bool,
    pub(crate) expires_at: Option<String>,
    pub(crate) expired: bool,
    pub(crate) roles: Vec<String>,
    /// Tools that it may use; null for no restriction.
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) rate_limit: Option<String>,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) budget: Option<BudgetView>,
    /// `file` or `api`; keys of a file are changed there.
    pub(crate) source: String,
}

/// What a key may use up.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BudgetView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per: Option<String>,
}

/// A key that was just made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewKey {
    /// The key itself. It is not shown again.
    pub(crate) key: String,
    pub(crate) entry: KeyView,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeyPage {
    pub(crate) keys: Vec<KeyView>,
    pub(crate) next_cursor: Option<String>,
}

/// All keys, without the keys themselves.
#[utoipa::path(get, path = "/api/keys", tag = "api", params(Page), responses((status = 200, body = KeyPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<KeyPage>, ApiError> {
    let Query(page) = page?;
    let mut keys = all(&app);
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    let (keys, next_cursor) = page.cut(keys.into_iter(), |key| key.name.clone())?;
    Ok(Json(KeyPage { keys, next_cursor }))
}

/// Make a key. Fields are those of `[keys.NAME]` in the configuration, but for `key` and `sha256`.
#[utoipa::path(post, path = "/api/keys", tag = "api", request_body = Object,
    responses((status = 201, body = NewKey), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<NewKey>), ApiError> {
    let mut entry = object(&body?)?;
    let name = match entry.shift_remove("name") {
        Some(Value::String(name)) => name,
        _ => return Err(ApiError::bad_request("`name` is missing")),
    };
    own_fields(&entry)?;
    let key = new_key();
    entry.insert("sha256".to_owned(), sha256(&key).into());
    let put = Put::New(Value::Object(entry));
    app.configuration().put(Named::Keys, &name, put).await?;
    let entry = find(&app, &name)?;
    Ok((StatusCode::CREATED, Json(NewKey { key, entry })))
}

/// One key.
#[utoipa::path(get, path = "/api/keys/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = KeyView), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<KeyView>, ApiError> {
    let Path(name) = name?;
    Ok(Json(find(&app, &name)?))
}

/// Change a key: fields that are sent replace, `null` removes.
#[utoipa::path(put, path = "/api/keys/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = KeyView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn patch(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<KeyView>, ApiError> {
    let Path(name) = name?;
    let mut patch = object(&body?)?;
    // What GET shows may be sent back.
    for shown in ["name", "expired", "source"] {
        patch.shift_remove(shown);
    }
    own_fields(&patch)?;
    let put = Put::Patch(patch);
    app.configuration().put(Named::Keys, &name, put).await?;
    Ok(Json(find(&app, &name)?))
}

/// Make a new key in the place of the old one, which ends at once.
#[utoipa::path(post, path = "/api/keys/{name}/rotate", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = NewKey), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn rotate(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<NewKey>, ApiError> {
    let Path(name) = name?;
    let key = new_key();
    let mut patch = Map::new();
    patch.insert("sha256".to_owned(), sha256(&key).into());
    let put = Put::Patch(patch);
    app.configuration().put(Named::Keys, &name, put).await?;
    let entry = find(&app, &name)?;
    Ok(Json(NewKey { key, entry }))
}

/// Remove a key, and what was granted to it.
#[utoipa::path(delete, path = "/api/keys/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let put = Put::Remove;
    app.configuration().put(Named::Keys, &name, put).await?;
    Ok(Json(Deleted { deleted: name }))
}

fn all(app: &App) -> Vec<KeyView> {
    let published = app.configuration().published();
    let in_files = published.in_files.get(&Named::Keys);
    let keys = published.config.keys.iter();
    keys.map(|key| {
        let source = match in_files.is_some_and(|names| names.contains(&key.name)) {
            true => Source::File,
            false => Source::Api,
        };
        KeyView::new(key, source)
    })
    .collect()
}

fn find(app: &App, name: &str) -> Result<KeyView, ApiError> {
    let found = all(app).into_iter().find(|key| key.name == name);
    found.ok_or_else(|| ApiError::not_found(format!("no key is called `{name}`; see /api/keys")))
}

impl KeyView {
    fn new(key: &Key, source: Source) -> Self {
        let expires_at = key.expires_at;
        Self {
            name: key.name.clone(),
            description: key.description.clone(),
            enabled: key.enabled,
            expires_at: expires_at.map(|end| time(toolgate::store::millis(end))),
            expired: expires_at.is_some_and(|end| end <= SystemTime::now()),
            roles: key.roles.clone(),
            tools: key.tools.clone(),
            rate_limit: key.limits.rate.map(|rate| rate.to_string()),
            max_in_flight: key.limits.max_in_flight,
            budget: key.limits.budget.map(BudgetView::new),
            source: source.as_str().to_owned(),
        }
    }
}

impl BudgetView {
    #[allow(
        clippy::cast_precision_loss,
        reason = "it is shown, and budgets are small"
    )]
    fn new(budget: Budget) -> Self {
        Self {
            calls: budget.calls,
            usd: budget.micro_usd.map(|micro| micro as f64 / 1e6),
            per: budget.per.map(|per| per.as_str().to_owned()),
        }
    }
}

/// The key itself is the gateway's to choose.
fn own_fields(entry: &Map<String, Value>) -> Result<(), ApiError> {
    match ["key", "sha256"]
        .into_iter()
        .find(|key| entry.contains_key(*key))
    {
        Some(key) => Err(ApiError::bad_request(format!(
            "`{key}` cannot be chosen here: the gateway makes the key and shows it once"
        ))),
        None => Ok(()),
    }
}

fn new_key() -> String {
    let random = Alphanumeric.sample_string(&mut rand::rng(), KEY_LENGTH);
    format!("{PREFIX}{random}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_long_and_differ() {
        let (one, two) = (new_key(), new_key());
        assert_eq!(one.len(), 46);
        assert_ne!(one, two);
        assert!(own_fields(json!({"sha256": "x"}).as_object().unwrap()).is_err());
    }
}

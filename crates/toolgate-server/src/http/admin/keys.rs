//! `/api/keys`: caller keys. A key is shown once, when it is created; only its hash is stored.

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rand::distr::{Alphanumeric, SampleString as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::config::{Approver, KeyConfig, NameOwner, ToolInjection};
use toolgate_core::hash::sha256_hex;
use toolgate_core::rate::Budget;
use utoipa::ToSchema;

use super::page::PageParams;
use super::resource::{self, AdminResource};
use super::{Deleted, format_time};
use crate::configuration::{ConfigSnapshot, ConfigSource, ConfigTable};
use crate::http::App;
use crate::http::auth::{KEY_LENGTH, KEY_PREFIX};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiObject, ApiPath, ApiQuery};

/// A caller's key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeyView {
    pub(crate) name: String,
    #[schema(required)]
    pub(crate) description: Option<String>,
    pub(crate) enabled: bool,
    #[schema(required)]
    pub(crate) expires_at: Option<String>,
    pub(crate) expired: bool,
    pub(crate) roles: Vec<String>,
    /// Patterns of tools that the key may use; null means no restriction.
    #[schema(required)]
    pub(crate) tools: Option<Vec<String>>,
    /// Whether requests to models may contain tools that the provider runs; null if that follows from the
    /// key's tools and the permissions.
    #[schema(required)]
    pub(crate) provider_tools: Option<bool>,
    /// Tools that are added to the key's model requests: `all`, `auto` or `none`; absent if the default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub(crate) inject: Option<ToolInjection>,
    /// Who may approve the key's calls; null leaves it to rules, servers and the default.
    #[schema(value_type = Option<Vec<String>>, required)]
    pub(crate) approval_by: Option<Vec<Approver>>,
    #[schema(required)]
    pub(crate) rate_limit: Option<String>,
    #[schema(required)]
    pub(crate) max_in_flight: Option<usize>,
    #[schema(required)]
    pub(crate) budget: Option<BudgetView>,
    /// `file` or `api`. Keys defined in a file can only be changed there.
    pub(crate) source: String,
    /// Names in `tools` that match no server or tool, and so grant nothing.
    pub(crate) problems: Vec<String>,
}

/// Budget of a key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BudgetView {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) per: Option<String>,
}

/// A newly created key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewKey {
    /// The secret key. It is not shown again.
    pub(crate) key: String,
    pub(crate) entry: KeyView,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeyPage {
    pub(crate) keys: Vec<KeyView>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// List all keys, without their secrets.
#[utoipa::path(get, path = "/api/keys", tag = "api", params(PageParams), responses((status = 200, body = KeyPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(page): ApiQuery<PageParams>,
) -> Result<Json<KeyPage>, ApiError> {
    let (keys, next_cursor) = resource::list(&app, &page)?;
    Ok(Json(KeyPage { keys, next_cursor }))
}

/// Create a key. The body has `name` and the fields of `[keys.NAME]` in the configuration, except `key`
/// and `sha256`.
#[utoipa::path(post, path = "/api/keys", tag = "api", request_body = Object,
    responses((status = 201, body = NewKey), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    ApiObject(mut entry): ApiObject,
) -> Result<(StatusCode, Json<NewKey>), ApiError> {
    let Some(Value::String(name)) = entry.shift_remove("name") else {
        return Err(ApiError::bad_request("`name` is missing"));
    };
    reject_secret_fields(&entry)?;
    let key = new_key();
    entry.insert("sha256".to_owned(), sha256_hex(&key).into());
    let entry = resource::create(&app, &name, entry).await?;
    Ok((StatusCode::CREATED, Json(NewKey { key, entry })))
}

/// Get a key.
#[utoipa::path(get, path = "/api/keys/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = KeyView), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<KeyView>, ApiError> {
    resource::get(&app, &name).map(Json)
}

/// Change a key. Only the fields sent are changed; `null` removes a field.
#[utoipa::path(put, path = "/api/keys/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = KeyView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn patch(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
    ApiObject(fields): ApiObject,
) -> Result<Json<KeyView>, ApiError> {
    reject_secret_fields(&fields)?;
    resource::patch(&app, &name, fields).await.map(Json)
}

/// Replace a key's secret. The old secret stops working immediately.
#[utoipa::path(post, path = "/api/keys/{name}/rotate", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = NewKey), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn rotate(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<NewKey>, ApiError> {
    let key = new_key();
    let mut fields = Map::new();
    fields.insert("sha256".to_owned(), sha256_hex(&key).into());
    let entry = resource::patch(&app, &name, fields).await?;
    Ok(Json(NewKey { key, entry }))
}

/// Delete a key and all grants to it.
#[utoipa::path(delete, path = "/api/keys/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<Deleted>, ApiError> {
    resource::remove::<KeyView>(&app, name).await.map(Json)
}

impl AdminResource for KeyView {
    const TABLE: ConfigTable = ConfigTable::Keys;
    const READ_ONLY_FIELDS: &'static [&'static str] = &["name", "expired", "source", "problems"];

    fn name(&self) -> &str {
        &self.name
    }

    fn all(app: &App, snapshot: &ConfigSnapshot) -> Vec<Self> {
        let catalog = app.gateway().catalog();
        let view = |key: &KeyConfig| {
            let owner = NameOwner::Key(key.name.clone());
            Self {
                problems: snapshot.name_problems(&catalog, &owner),
                ..Self::new(key, snapshot.entry_source(Self::TABLE, &key.name))
            }
        };
        snapshot.config.keys.iter().map(view).collect()
    }

    fn not_found(name: &str) -> ApiError {
        ApiError::not_found(format!("no key named `{name}`; see /api/keys"))
    }
}

impl KeyView {
    fn new(key: &KeyConfig, source: ConfigSource) -> Self {
        let expires_at = key.expires_at;
        Self {
            name: key.name.clone(),
            description: key.description.clone(),
            enabled: key.enabled,
            expires_at: expires_at.map(|end| format_time(toolgate::store::unix_millis(end))),
            expired: expires_at.is_some_and(|end| end <= SystemTime::now()),
            roles: key.roles.clone(),
            tools: key.tools.clone(),
            provider_tools: key.provider_tools,
            inject: key.inject,
            approval_by: key.approval_by.map(|by| by.iter().collect()),
            rate_limit: key.limits.rate.map(|rate| rate.to_string()),
            max_in_flight: key.limits.max_in_flight,
            budget: key.limits.budget.map(BudgetView::new),
            source: source.as_str().to_owned(),
            problems: Vec::new(),
        }
    }
}

impl BudgetView {
    #[allow(
        clippy::cast_precision_loss,
        reason = "the value is only displayed, and budgets are small"
    )]
    fn new(budget: Budget) -> Self {
        Self {
            calls: budget.calls,
            usd: budget.micro_usd.map(|micro| micro as f64 / 1e6),
            per: budget.per.map(|per| per.as_str().to_owned()),
        }
    }
}

/// Rejects fields that would set the secret: only the gateway generates keys.
fn reject_secret_fields(entry: &Map<String, Value>) -> Result<(), ApiError> {
    match ["key", "sha256"]
        .into_iter()
        .find(|key| entry.contains_key(*key))
    {
        Some(key) => Err(ApiError::bad_request(format!(
            "`{key}` cannot be set: the gateway generates the key and shows it once"
        ))),
        None => Ok(()),
    }
}

fn new_key() -> String {
    let random = Alphanumeric.sample_string(&mut rand::rng(), KEY_LENGTH);
    format!("{KEY_PREFIX}{random}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generated_keys_are_long_and_unique() {
        let (one, two) = (new_key(), new_key());
        assert_eq!(one.len(), 46);
        assert_ne!(one, two);
        assert!(reject_secret_fields(json!({"sha256": "x"}).as_object().unwrap()).is_err());
    }
}

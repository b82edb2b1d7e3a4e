//! `/api/roles`: named sets of tools that keys can be given.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::config::RoleConfig;
use utoipa::ToSchema;

use super::Deleted;
use super::changes::parse_object;
use super::page::PageParams;
use crate::configuration::{ConfigSource, ConfigTable, EntryChange};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// A role.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RoleView {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// Patterns of tools that keys with this role may use; null means no restriction.
    pub(crate) tools: Option<Vec<String>>,
    /// Names of the keys that have this role.
    pub(crate) keys: Vec<String>,
    /// `file` or `api`. Roles defined in a file can only be changed there.
    pub(crate) source: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RolePage {
    roles: Vec<RoleView>,
    next_cursor: Option<String>,
}

/// List all roles, ordered by name.
#[utoipa::path(get, path = "/api/roles", tag = "api", params(PageParams), responses((status = 200, body = RolePage)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<PageParams>, QueryRejection>,
) -> Result<Json<RolePage>, ApiError> {
    let Query(page) = page?;
    let mut roles = role_views(&app);
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    let (roles, next_cursor) = page.paginate(roles.into_iter(), |role| role.name.clone())?;
    Ok(Json(RolePage { roles, next_cursor }))
}

/// Get a role.
#[utoipa::path(get, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = RoleView), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<RoleView>, ApiError> {
    let Path(name) = name?;
    Ok(Json(find_role(&app, &name)?))
}

/// Create or replace a role: `{"description": …, "tools": ["github.*"]}`.
#[utoipa::path(put, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = RoleView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<RoleView>, ApiError> {
    let Path(name) = name?;
    let mut entry = parse_object(&body?)?;
    // Accept the output of GET as input: drop its read-only fields.
    for read_only in ["name", "keys", "source"] {
        entry.shift_remove(read_only);
    }
    entry.retain(|_, value| !value.is_null());
    let change = EntryChange::Replace(Value::Object(entry));
    app.configuration()
        .change_entry(ConfigTable::Roles, &name, change)
        .await?;
    Ok(Json(find_role(&app, &name)?))
}

/// Delete a role. Fails while a key has it.
#[utoipa::path(delete, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let change = EntryChange::Remove;
    app.configuration()
        .change_entry(ConfigTable::Roles, &name, change)
        .await?;
    Ok(Json(Deleted { deleted: name }))
}

fn role_views(app: &App) -> Vec<RoleView> {
    let snapshot = app.configuration().snapshot();
    let in_files = snapshot.names_in_files.get(&ConfigTable::Roles);
    let view = |role: &RoleConfig| {
        let source = if in_files.is_some_and(|names| names.contains(&role.name)) {
            ConfigSource::File
        } else {
            ConfigSource::Api
        };
        let keys = snapshot.config.keys.iter();
        let keys = keys.filter(|key| key.roles.contains(&role.name));
        RoleView {
            name: role.name.clone(),
            description: role.description.clone(),
            tools: role.tools.clone(),
            keys: keys.map(|key| key.name.clone()).collect(),
            source: source.as_str().to_owned(),
        }
    };
    snapshot.config.roles.iter().map(view).collect()
}

fn find_role(app: &App, name: &str) -> Result<RoleView, ApiError> {
    let found = role_views(app).into_iter().find(|role| role.name == name);
    found.ok_or_else(|| ApiError::not_found(format!("no role named `{name}`; see /api/roles")))
}

//! `/api/roles`: named sets of tools.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::config::Role;
use utoipa::ToSchema;

use super::Deleted;
use super::changes::object;
use super::page::Page;
use crate::configuration::{Named, Put, Source};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// A role.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RoleView {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// Tools that keys with this role may use; null for no restriction.
    pub(crate) tools: Option<Vec<String>>,
    /// Keys that have it.
    pub(crate) keys: Vec<String>,
    /// `file` or `api`; roles of a file are changed there.
    pub(crate) source: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RolePage {
    roles: Vec<RoleView>,
    next_cursor: Option<String>,
}

/// All roles.
#[utoipa::path(get, path = "/api/roles", tag = "api", params(Page), responses((status = 200, body = RolePage)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<RolePage>, ApiError> {
    let Query(page) = page?;
    let mut roles = all(&app);
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    let (roles, next_cursor) = page.cut(roles.into_iter(), |role| role.name.clone())?;
    Ok(Json(RolePage { roles, next_cursor }))
}

/// One role.
#[utoipa::path(get, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = RoleView), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<RoleView>, ApiError> {
    let Path(name) = name?;
    Ok(Json(find(&app, &name)?))
}

/// Make a role, or replace one: `{"description": …, "tools": ["github.*"]}`.
#[utoipa::path(put, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = RoleView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<RoleView>, ApiError> {
    let Path(name) = name?;
    let mut entry = object(&body?)?;
    // What GET shows may be sent back.
    for shown in ["name", "keys", "source"] {
        entry.shift_remove(shown);
    }
    entry.retain(|_, value| !value.is_null());
    let put = Put::Whole(Value::Object(entry));
    app.configuration().put(Named::Roles, &name, put).await?;
    Ok(Json(find(&app, &name)?))
}

/// Remove a role that no key has.
#[utoipa::path(delete, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let put = Put::Remove;
    app.configuration().put(Named::Roles, &name, put).await?;
    Ok(Json(Deleted { deleted: name }))
}

fn all(app: &App) -> Vec<RoleView> {
    let published = app.configuration().published();
    let in_files = published.in_files.get(&Named::Roles);
    let view = |role: &Role| {
        let source = match in_files.is_some_and(|names| names.contains(&role.name)) {
            true => Source::File,
            false => Source::Api,
        };
        let keys = published.config.keys.iter();
        let keys = keys.filter(|key| key.roles.contains(&role.name));
        RoleView {
            name: role.name.clone(),
            description: role.description.clone(),
            tools: role.tools.clone(),
            keys: keys.map(|key| key.name.clone()).collect(),
            source: source.as_str().to_owned(),
        }
    };
    published.config.roles.iter().map(view).collect()
}

fn find(app: &App, name: &str) -> Result<RoleView, ApiError> {
    let found = all(app).into_iter().find(|role| role.name == name);
    found.ok_or_else(|| ApiError::not_found(format!("no role is called `{name}`; see /api/roles")))
}

//! `/api/roles`: named sets of tools that keys can be given.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use toolgate_core::config::{NameOwner, RoleConfig};
use utoipa::ToSchema;

use super::Deleted;
use super::page::PageParams;
use super::resource::{self, AdminResource};
use crate::configuration::{ConfigSnapshot, ConfigTable};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiObject, ApiPath, ApiQuery};

/// A role.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RoleView {
    pub(crate) name: String,
    #[schema(required)]
    pub(crate) description: Option<String>,
    /// Patterns of tools that keys with this role may use; null means no restriction.
    #[schema(required)]
    pub(crate) tools: Option<Vec<String>>,
    /// Names of the keys that have this role.
    pub(crate) keys: Vec<String>,
    /// `file` or `api`. Roles defined in a file can only be changed there.
    pub(crate) source: String,
    /// Names in `tools` that match no server or tool, and so grant nothing.
    pub(crate) problems: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RolePage {
    roles: Vec<RoleView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List all roles, ordered by name.
#[utoipa::path(get, path = "/api/roles", tag = "api", params(PageParams), responses((status = 200, body = RolePage)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(page): ApiQuery<PageParams>,
) -> Result<Json<RolePage>, ApiError> {
    let (roles, next_cursor) = resource::list(&app, &page)?;
    Ok(Json(RolePage { roles, next_cursor }))
}

/// Get a role.
#[utoipa::path(get, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = RoleView), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<RoleView>, ApiError> {
    resource::get(&app, &name).map(Json)
}

/// Create or replace a role: `{"description": …, "tools": ["github.*"]}`.
#[utoipa::path(put, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = RoleView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
    ApiObject(entry): ApiObject,
) -> Result<Json<RoleView>, ApiError> {
    resource::replace(&app, &name, entry).await.map(Json)
}

/// Delete a role. Fails while a key has it.
#[utoipa::path(delete, path = "/api/roles/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<Deleted>, ApiError> {
    resource::remove::<RoleView>(&app, name).await.map(Json)
}

impl AdminResource for RoleView {
    const TABLE: ConfigTable = ConfigTable::Roles;
    const READ_ONLY_FIELDS: &'static [&'static str] = &["name", "keys", "source", "problems"];

    fn name(&self) -> &str {
        &self.name
    }

    fn all(app: &App, snapshot: &ConfigSnapshot) -> Vec<Self> {
        let catalog = app.gateway().catalog();
        let view = |role: &RoleConfig| {
            let keys = snapshot.config.keys.iter();
            let keys = keys.filter(|key| key.roles.contains(&role.name));
            Self {
                name: role.name.clone(),
                description: role.description.clone(),
                tools: role.tools.clone(),
                keys: keys.map(|key| key.name.clone()).collect(),
                source: snapshot
                    .entry_source(Self::TABLE, &role.name)
                    .as_str()
                    .to_owned(),
                problems: snapshot.name_problems(&catalog, &NameOwner::Role(role.name.clone())),
            }
        };
        snapshot.config.roles.iter().map(view).collect()
    }

    fn not_found(name: &str) -> ApiError {
        ApiError::not_found(format!("no role named `{name}`; see /api/roles"))
    }
}

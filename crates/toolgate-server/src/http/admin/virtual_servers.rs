//! `/api/virtual-servers`: named subsets of the tools, each served as an MCP server at `/mcp/v/{name}`.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use toolgate_core::config::{NameOwner, VirtualServer};
use utoipa::ToSchema;

use super::Deleted;
use super::page::PageParams;
use super::resource::{self, AdminResource};
use crate::configuration::{ConfigSnapshot, ConfigTable};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiObject, ApiPath, ApiQuery};

/// A virtual server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct VirtualServerView {
    name: String,
    #[schema(required)]
    description: Option<String>,
    /// Patterns of the tools it exposes.
    tools: Vec<String>,
    /// Path of its MCP endpoint.
    path: String,
    /// `file` or `api`. Virtual servers defined in a file can only be changed there.
    source: &'static str,
    /// Names in `tools` that match no server or tool.
    problems: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VirtualServerPage {
    virtual_servers: Vec<VirtualServerView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List all virtual servers, ordered by name.
#[utoipa::path(get, path = "/api/virtual-servers", tag = "api", params(PageParams), responses((status = 200, body = VirtualServerPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(page): ApiQuery<PageParams>,
) -> Result<Json<VirtualServerPage>, ApiError> {
    let (virtual_servers, next_cursor) = resource::list(&app, &page)?;
    Ok(Json(VirtualServerPage {
        virtual_servers,
        next_cursor,
    }))
}

/// Create or replace a virtual server: `{"description": …, "tools": ["web.*"]}`.
#[utoipa::path(put, path = "/api/virtual-servers/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = VirtualServerView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
    ApiObject(entry): ApiObject,
) -> Result<Json<VirtualServerView>, ApiError> {
    resource::replace(&app, &name, entry).await.map(Json)
}

/// Delete a virtual server.
#[utoipa::path(delete, path = "/api/virtual-servers/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<Deleted>, ApiError> {
    resource::remove::<VirtualServerView>(&app, name)
        .await
        .map(Json)
}

impl AdminResource for VirtualServerView {
    const TABLE: ConfigTable = ConfigTable::VirtualServers;
    const READ_ONLY_FIELDS: &'static [&'static str] = &["name", "path", "source", "problems"];

    fn name(&self) -> &str {
        &self.name
    }

    fn all(app: &App, snapshot: &ConfigSnapshot) -> Vec<Self> {
        let catalog = app.gateway().catalog();
        let view = |server: &VirtualServer| Self {
            name: server.name.clone(),
            description: server.description.clone(),
            tools: server.tools.clone(),
            path: format!("/mcp/v/{}", server.name),
            source: snapshot.entry_source(Self::TABLE, &server.name).as_str(),
            problems: snapshot
                .name_problems(&catalog, &NameOwner::VirtualServer(server.name.clone())),
        };
        snapshot.config.virtual_servers.iter().map(view).collect()
    }

    fn not_found(_: &str) -> ApiError {
        ApiError::not_found("the virtual server was deleted concurrently")
    }
}

//! `/api/virtual-servers`: named subsets of the tools, each served as an MCP server at `/mcp/v/{name}`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Serialize;
use serde_json::Value;
use toolgate_core::config::VirtualServer;
use utoipa::ToSchema;

use super::Deleted;
use super::changes::parse_object;
use super::page::PageParams;
use crate::configuration::{ConfigSource, ConfigTable, EntryChange};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// A virtual server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct VirtualServerView {
    name: String,
    description: Option<String>,
    /// Patterns of the tools it exposes.
    tools: Vec<String>,
    /// Path of its MCP endpoint.
    path: String,
    /// `file` or `api`. Virtual servers defined in a file can only be changed there.
    source: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VirtualServerPage {
    virtual_servers: Vec<VirtualServerView>,
    next_cursor: Option<String>,
}

/// List all virtual servers, ordered by name.
#[utoipa::path(get, path = "/api/virtual-servers", tag = "api", params(PageParams), responses((status = 200, body = VirtualServerPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<PageParams>, QueryRejection>,
) -> Result<Json<VirtualServerPage>, ApiError> {
    let Query(page) = page?;
    let mut servers = virtual_server_views(&app);
    servers.sort_by(|a, b| a.name.cmp(&b.name));
    let (virtual_servers, next_cursor) =
        page.paginate(servers.into_iter(), |server| server.name.clone())?;
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
    name: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<VirtualServerView>, ApiError> {
    let Path(name) = name?;
    let mut entry = parse_object(&body?)?;
    // Accept the output of GET as input: drop its read-only fields.
    for read_only in ["name", "path", "source"] {
        entry.shift_remove(read_only);
    }
    entry.retain(|_, value| !value.is_null());
    let change = EntryChange::Replace(Value::Object(entry));
    let table = ConfigTable::VirtualServers;
    app.configuration()
        .change_entry(table, &name, change)
        .await?;
    let found = virtual_server_views(&app)
        .into_iter()
        .find(|server| server.name == name);
    found
        .map(Json)
        .ok_or_else(|| ApiError::not_found("the virtual server was deleted concurrently"))
}

/// Delete a virtual server.
#[utoipa::path(delete, path = "/api/virtual-servers/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let table = ConfigTable::VirtualServers;
    app.configuration()
        .change_entry(table, &name, EntryChange::Remove)
        .await?;
    Ok(Json(Deleted { deleted: name }))
}

fn virtual_server_views(app: &App) -> Vec<VirtualServerView> {
    let snapshot = app.configuration().snapshot();
    let in_files = snapshot.names_in_files.get(&ConfigTable::VirtualServers);
    let view = |server: &VirtualServer| {
        let source = if in_files.is_some_and(|names| names.contains(&server.name)) {
            ConfigSource::File
        } else {
            ConfigSource::Api
        };
        VirtualServerView {
            name: server.name.clone(),
            description: server.description.clone(),
            tools: server.tools.clone(),
            path: format!("/mcp/v/{}", server.name),
            source: source.as_str(),
        }
    };
    snapshot.config.virtual_servers.iter().map(view).collect()
}

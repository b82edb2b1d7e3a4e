//! `/api/virtual-servers`: named subsets of the tools, each an MCP server at `/mcp/v/{name}`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Serialize;
use serde_json::Value;
use toolgate_core::config::VirtualServer;
use utoipa::ToSchema;

use super::Deleted;
use super::changes::object;
use super::page::Page;
use crate::configuration::{Named, Put, Source};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// A virtual server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct VirtualServerView {
    name: String,
    description: Option<String>,
    /// Patterns over tools.
    tools: Vec<String>,
    /// Where MCP clients find it.
    path: String,
    /// `file` or `api`; those of a file are changed there.
    source: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VirtualServerPage {
    virtual_servers: Vec<VirtualServerView>,
    next_cursor: Option<String>,
}

/// All virtual servers.
#[utoipa::path(get, path = "/api/virtual-servers", tag = "api", params(Page), responses((status = 200, body = VirtualServerPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<VirtualServerPage>, ApiError> {
    let Query(page) = page?;
    let mut servers = all(&app);
    servers.sort_by(|a, b| a.name.cmp(&b.name));
    let (virtual_servers, next_cursor) =
        page.cut(servers.into_iter(), |server| server.name.clone())?;
    Ok(Json(VirtualServerPage {
        virtual_servers,
        next_cursor,
    }))
}

/// Make a virtual server, or replace one: `{"description": …, "tools": ["web.*"]}`.
#[utoipa::path(put, path = "/api/virtual-servers/{name}", tag = "api", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, body = VirtualServerView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<VirtualServerView>, ApiError> {
    let Path(name) = name?;
    let mut entry = object(&body?)?;
    // What GET shows may be sent back.
    for shown in ["name", "path", "source"] {
        entry.shift_remove(shown);
    }
    entry.retain(|_, value| !value.is_null());
    let put = Put::Whole(Value::Object(entry));
    let table = Named::VirtualServers;
    app.configuration().put(table, &name, put).await?;
    let found = all(&app).into_iter().find(|server| server.name == name);
    found
        .map(Json)
        .ok_or_else(|| ApiError::not_found("it is gone again"))
}

/// Remove a virtual server.
#[utoipa::path(delete, path = "/api/virtual-servers/{name}", tag = "api", params(("name" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let table = Named::VirtualServers;
    app.configuration().put(table, &name, Put::Remove).await?;
    Ok(Json(Deleted { deleted: name }))
}

fn all(app: &App) -> Vec<VirtualServerView> {
    let published = app.configuration().published();
    let in_files = published.in_files.get(&Named::VirtualServers);
    let view = |server: &VirtualServer| {
        let source = match in_files.is_some_and(|names| names.contains(&server.name)) {
            true => Source::File,
            false => Source::Api,
        };
        VirtualServerView {
            name: server.name.clone(),
            description: server.description.clone(),
            tools: server.tools.clone(),
            path: format!("/mcp/v/{}", server.name),
            source: source.as_str(),
        }
    };
    published.config.virtual_servers.iter().map(view).collect()
}

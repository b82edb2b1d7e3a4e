//! The routes that change servers and settings while the gateway runs.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::config::{Document, Format, import};
use utoipa::{IntoParams, ToSchema};

use super::Deleted;
use super::clients::{ClientEntry, find};
use crate::configuration::{ChangeError, Verify};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AddParams {
    /// Connect first, and answer 422 without storing if that fails.
    verify: Option<bool>,
}

/// What came of trying a server out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestResult {
    ok: bool,
    error: Option<String>,
    protocol_version: Option<String>,
    tools: Vec<String>,
}

/// What became of each server in an imported file.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImportResult {
    pub(crate) servers: Vec<ImportLine>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImportLine {
    pub(crate) name: String,
    /// `created`, `exists` or `invalid`.
    pub(crate) outcome: String,
    /// Why it was not created, and what could not be taken over as it was.
    pub(crate) notes: Vec<String>,
}

/// Settings of tool execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolManagerView {
    /// Rounds of tool calls that an agent may take.
    max_agent_depth: u32,
    /// Bound on one tool call, in seconds.
    tool_execution_timeout: f64,
    /// Whether model requests get tools only if they have a filter header.
    disable_auto_tool_inject: bool,
    /// How code mode lays out its stubs: `server` or `tool`.
    code_mode_binding_level: String,
}

/// Add a server; it is connected at once and kept over restarts.
#[utoipa::path(post, path = "/api/mcp/client", tag = "api", params(AddParams), request_body = Object,
    responses((status = 201, body = ClientEntry), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    params: Result<Query<AddParams>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<ClientEntry>), ApiError> {
    let Query(params) = params?;
    let verify = if params.verify == Some(true) {
        Verify::Yes
    } else {
        Verify::No
    };
    let name = app
        .configuration()
        .add(Value::Object(object(&body?)?), verify)
        .await?;
    Ok((StatusCode::CREATED, Json(find(&app, &name)?)))
}

/// Change a server: only the keys that are sent, `null` removes one, a masked secret stays.
#[utoipa::path(put, path = "/api/mcp/client/{id}", tag = "api", request_body = Object,
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 200, body = ClientEntry), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn patch(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ClientEntry>, ApiError> {
    let Path(id) = id?;
    let name = app.configuration().patch(id, object(&body?)?).await?;
    Ok(Json(find(&app, &name)?))
}

/// Remove a server; one from the file stays removed until the file changes its entry.
#[utoipa::path(delete, path = "/api/mcp/client/{id}", tag = "api",
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(id) = id?;
    let deleted = app.configuration().remove(id).await?;
    Ok(Json(Deleted { deleted }))
}

/// Open a new connection to a server; calls under way get 2 s to end.
#[utoipa::path(post, path = "/api/mcp/client/{id}/reconnect", tag = "api",
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 202, body = ClientEntry), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn reconnect(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
) -> Result<(StatusCode, Json<ClientEntry>), ApiError> {
    let Path(id) = id?;
    let entry = super::clients::entry(&app, &id)?;
    if entry.status().state == toolgate::State::Disabled {
        let message = format!(
            "server `{id}` is disabled; enable it with PUT /api/mcp/client/{id} {{\"disabled\": false}}"
        );
        return Err(ApiError::new(StatusCode::CONFLICT, "disabled", message));
    }
    entry.reconnect();
    Ok((StatusCode::ACCEPTED, Json(find(&app, &id)?)))
}

/// Connect to a server for a moment, to see what it would offer; nothing is stored.
#[utoipa::path(post, path = "/api/mcp/client/test", tag = "api", request_body = Object,
    responses((status = 200, body = TestResult), (status = 400, body = ErrorBody)))]
pub(crate) async fn test(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<TestResult>, ApiError> {
    let mut entry = object(&body?)?;
    entry.entry("name").or_insert_with(|| "test".into());
    let result = match app.configuration().test(entry.into()).await? {
        Ok(tried) => TestResult {
            ok: true,
            error: None,
            protocol_version: Some(tried.version),
            tools: tried.tools,
        },
        Err(error) => TestResult {
            ok: false,
            error: Some(error),
            protocol_version: None,
            tools: Vec::new(),
        },
    };
    Ok(Json(result))
}

/// Add the servers of a settings file of Claude Desktop, Claude Code, Cursor or VS Code.
#[utoipa::path(post, path = "/api/mcp/import", tag = "api", request_body = Object,
    responses((status = 200, body = ImportResult), (status = 400, body = ErrorBody)))]
pub(crate) async fn import(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ImportResult>, ApiError> {
    let body = body?;
    let text =
        std::str::from_utf8(&body).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
    let document = Document::parse("import", Format::Json, text);
    let found =
        import::read(&document).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let mut servers = Vec::new();
    for server in found {
        let mut notes = server.notes;
        let outcome = match app.configuration().add(server.entry, Verify::No).await {
            Ok(_) => "created",
            Err(ChangeError::Exists(_)) => "exists",
            Err(ChangeError::Invalid(reasons)) => {
                notes.extend(reasons);
                "invalid"
            }
            Err(error) => return Err(error.into()),
        };
        servers.push(ImportLine {
            name: server.name,
            outcome: outcome.to_owned(),
            notes,
        });
    }
    Ok(Json(ImportResult { servers }))
}

/// The settings of tool execution.
#[utoipa::path(get, path = "/api/settings/mcp/tool-manager-config", tag = "api",
    responses((status = 200, body = ToolManagerView)))]
pub(crate) async fn tool_manager(State(app): State<App>) -> Json<ToolManagerView> {
    let published = app.configuration().published();
    Json(ToolManagerView {
        max_agent_depth: published.config.tool_manager.max_agent_depth,
        tool_execution_timeout: published
            .config
            .tool_manager
            .tool_execution_timeout
            .as_secs_f64(),
        disable_auto_tool_inject: !published.config.tool_manager.inject_tools,
        code_mode_binding_level: published
            .config
            .tool_manager
            .binding_level
            .as_str()
            .to_owned(),
    })
}

/// Change the settings of tool execution: only the keys that are sent, `null` goes back to the file's.
#[utoipa::path(put, path = "/api/settings/mcp/tool-manager-config", tag = "api", request_body = Object,
    responses((status = 200, body = ToolManagerView), (status = 400, body = ErrorBody)))]
pub(crate) async fn set_tool_manager(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ToolManagerView>, ApiError> {
    app.configuration()
        .set_tool_manager(object(&body?)?)
        .await?;
    Ok(tool_manager(State(app)).await)
}

pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("send a JSON object: {error}")))
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let (status, code) = match &error {
            ChangeError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            ChangeError::Missing(_) => (StatusCode::NOT_FOUND, "not_found"),
            ChangeError::Exists(_) | ChangeError::Conflict(_) => (StatusCode::CONFLICT, "exists"),
            ChangeError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid_configuration"),
            ChangeError::Unverified(_) => (StatusCode::UNPROCESSABLE_ENTITY, "unverified"),
            ChangeError::Store(error) => {
                tracing::error!(%error, "the store failed");
                let message = "the change could not be stored; the gateway's log says why";
                return Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store", message);
            }
            ChangeError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        };
        Self::new(status, code, error.to_string())
    }
}

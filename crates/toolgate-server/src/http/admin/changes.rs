//! Routes that change servers and settings at runtime.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate::audit::AdminAction;
use toolgate_core::config::{ConfigFormat, Document, import};
use utoipa::{IntoParams, ToSchema};

use super::clients::{ClientEntry, client_entry, find_server};
use super::{Deleted, format_duration};
use crate::actor::current_actor;
use crate::configuration::{ChangeError, ConnectionTest, ProbeOutcome};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiBytes, ApiObject, ApiPath, ApiQuery};
use crate::http::schema::BindingLevelSchema;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AddParams {
    /// Connect to the server first; if that fails, respond with 422 and store nothing.
    verify: Option<bool>,
}

/// Result of a test connection.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestResult {
    ok: bool,
    #[schema(required)]
    error: Option<String>,
    #[schema(required)]
    protocol_version: Option<String>,
    tools: Vec<String>,
}

/// Outcome for each server in an imported file.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImportResult {
    pub(crate) servers: Vec<ImportLine>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImportLine {
    pub(crate) name: String,
    pub(crate) outcome: ImportOutcome,
    /// Why the server was not created, and which settings were changed or dropped.
    pub(crate) notes: Vec<String>,
}

/// Outcome for one server of an imported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ImportOutcome {
    Created,
    /// A server with this name is configured already.
    Exists,
    Invalid,
}

impl ImportOutcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Exists => "exists",
            Self::Invalid => "invalid",
        }
    }
}

/// Tool execution settings.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolManagerView {
    /// Maximum number of tool-calling rounds in an agent run.
    max_agent_depth: u32,
    /// Timeout of a tool call, such as `30s`.
    tool_execution_timeout: String,
    /// If true, tools are added to model requests only when a filter header is sent.
    disable_auto_tool_inject: bool,
    /// Layout of code mode's stub files: one per server or one per tool.
    #[schema(value_type = BindingLevelSchema)]
    code_mode_binding_level: &'static str,
}

/// Add a server. The gateway connects to it immediately and keeps it across restarts.
#[utoipa::path(post, path = "/api/mcp/client", tag = "api", params(AddParams), request_body = Object,
    responses((status = 201, body = ClientEntry), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    ApiQuery(params): ApiQuery<AddParams>,
    ApiObject(entry): ApiObject,
) -> Result<(StatusCode, Json<ClientEntry>), ApiError> {
    let verify = if params.verify == Some(true) {
        ConnectionTest::Required
    } else {
        ConnectionTest::Skipped
    };
    let name = app
        .configuration()
        .add_server(Value::Object(entry), verify)
        .await?;
    Ok((StatusCode::CREATED, Json(client_entry(&app, &name).await?)))
}

/// Change a server. Only the keys sent are changed; `null` removes a key; masked secrets are kept.
#[utoipa::path(put, path = "/api/mcp/client/{id}", tag = "api", request_body = Object,
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 200, body = ClientEntry), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn patch(
    State(app): State<App>,
    ApiPath(id): ApiPath<String>,
    ApiObject(patch): ApiObject,
) -> Result<Json<ClientEntry>, ApiError> {
    let name = app.configuration().patch_server(id, patch).await?;
    Ok(Json(client_entry(&app, &name).await?))
}

/// Remove a server. A server defined in a file stays removed until its entry in the file changes.
#[utoipa::path(delete, path = "/api/mcp/client/{id}", tag = "api",
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Deleted>, ApiError> {
    let deleted = app.configuration().remove_server(id).await?;
    Ok(Json(Deleted { deleted }))
}

/// Reconnect to a server. Calls in flight have 2 s to finish.
#[utoipa::path(post, path = "/api/mcp/client/{id}/reconnect", tag = "api",
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 202, body = ClientEntry), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn reconnect(
    State(app): State<App>,
    ApiPath(id): ApiPath<String>,
) -> Result<(StatusCode, Json<ClientEntry>), ApiError> {
    let entry = find_server(&app, &id)?;
    if entry.status().state == toolgate::ServerState::Disabled {
        let message = format!(
            "server `{id}` is disabled; enable it with PUT /api/mcp/client/{id} {{\"disabled\": false}}"
        );
        return Err(ApiError::new(StatusCode::CONFLICT, "disabled", message));
    }
    let name = entry.server.name.as_str();
    let action = AdminAction::new(&current_actor(), "server.reconnect", name);
    app.gateway()
        .audit()
        .record_action(action)
        .await
        .map_err(ChangeError::from)?;
    entry.reconnect();
    Ok((StatusCode::ACCEPTED, Json(client_entry(&app, &id).await?)))
}

/// Test the connection to a server and list its tools, without storing anything.
#[utoipa::path(post, path = "/api/mcp/client/test", tag = "api", request_body = Object,
    responses((status = 200, body = TestResult), (status = 400, body = ErrorBody)))]
pub(crate) async fn test(
    State(app): State<App>,
    ApiObject(mut entry): ApiObject,
) -> Result<Json<TestResult>, ApiError> {
    entry.entry("name").or_insert_with(|| "test".into());
    let result = match app.configuration().probe_server(entry.into()).await? {
        ProbeOutcome::Connected(probe) => TestResult {
            ok: true,
            error: None,
            protocol_version: Some(probe.version),
            tools: probe.tools,
        },
        ProbeOutcome::Failed(error) => TestResult {
            ok: false,
            error: Some(error),
            protocol_version: None,
            tools: Vec::new(),
        },
    };
    Ok(Json(result))
}

/// Import the servers from a settings file of Claude Desktop, Claude Code, Cursor or VS Code.
#[utoipa::path(post, path = "/api/mcp/import", tag = "api", request_body = Object,
    responses((status = 200, body = ImportResult), (status = 400, body = ErrorBody)))]
pub(crate) async fn import(
    State(app): State<App>,
    ApiBytes(body): ApiBytes,
) -> Result<Json<ImportResult>, ApiError> {
    let text = std::str::from_utf8(&body)
        .map_err(|_| ApiError::bad_request("the body is not valid UTF-8"))?;
    let document = Document::parse("import", ConfigFormat::Json, text);
    let imported = import::read_servers(&document)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let mut servers = Vec::new();
    for server in imported {
        let mut notes = server.notes;
        let outcome = match app
            .configuration()
            .add_server(server.entry, ConnectionTest::Skipped)
            .await
        {
            Ok(_) => ImportOutcome::Created,
            Err(ChangeError::Exists(_)) => ImportOutcome::Exists,
            Err(ChangeError::Invalid(reasons)) => {
                notes.extend(reasons);
                ImportOutcome::Invalid
            }
            Err(error) => return Err(error.into()),
        };
        servers.push(ImportLine {
            name: server.name,
            outcome,
            notes,
        });
    }
    Ok(Json(ImportResult { servers }))
}

/// Get the tool execution settings.
#[utoipa::path(get, path = "/api/settings/mcp/tool-manager-config", tag = "api",
    responses((status = 200, body = ToolManagerView)))]
pub(crate) async fn tool_manager(State(app): State<App>) -> Json<ToolManagerView> {
    let snapshot = app.configuration().snapshot();
    Json(ToolManagerView {
        max_agent_depth: snapshot.config.tool_manager.max_agent_depth,
        tool_execution_timeout: format_duration(
            snapshot.config.tool_manager.tool_execution_timeout,
        ),
        disable_auto_tool_inject: !snapshot.config.tool_manager.inject_tools,
        code_mode_binding_level: snapshot.config.tool_manager.binding_level.as_str(),
    })
}

/// Change the tool execution settings. Only the keys sent are changed; `null` restores the file's value.
#[utoipa::path(put, path = "/api/settings/mcp/tool-manager-config", tag = "api", request_body = Object,
    responses((status = 200, body = ToolManagerView), (status = 400, body = ErrorBody)))]
pub(crate) async fn set_tool_manager(
    State(app): State<App>,
    ApiObject(patch): ApiObject,
) -> Result<Json<ToolManagerView>, ApiError> {
    app.configuration().set_tool_manager(patch).await?;
    Ok(tool_manager(State(app)).await)
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let (status, code) = match &error {
            ChangeError::NotFound(_) | ChangeError::Missing(_) => {
                (StatusCode::NOT_FOUND, "not_found")
            }
            ChangeError::Exists(_) | ChangeError::Conflict(_) => (StatusCode::CONFLICT, "exists"),
            ChangeError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid_configuration"),
            ChangeError::Unverified(_) => (StatusCode::UNPROCESSABLE_ENTITY, "unverified"),
            ChangeError::Store(error) => {
                tracing::error!(%error, "the store failed");
                return Self::from_store(error);
            }
            ChangeError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        };
        Self::new(status, code, error.to_string())
    }
}

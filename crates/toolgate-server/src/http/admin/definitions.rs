//! `/api/mcp/definitions`: definitions of tools that changed or look suspicious, and trust in them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate::definitions::{
    DefinitionChange, DefinitionReport, DefinitionState, ReadDefinition, TrustError,
};
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::scan::Suspicion;
use utoipa::{IntoParams, ToSchema};

use super::format_time;
use crate::actor::current_actor;
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiBytes, ApiQuery};

/// Definitions, ordered by server and tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DefinitionList {
    definitions: Vec<DefinitionEntry>,
}

/// A definition, and what is known about it.
#[derive(Debug, Serialize, ToSchema)]
struct DefinitionEntry {
    server: String,
    tool: String,
    /// Name that models see.
    alias: String,
    #[schema(value_type = DefinitionStateSchema)]
    state: &'static str,
    /// With the state `shadowing`, the tool of another server that has the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    shadows: Option<String>,
    /// Whether the tool is hidden until its definition is trusted.
    hidden: bool,
    findings: Vec<FindingEntry>,
    /// Hash of the definition, for `/api/mcp/definitions/trust`.
    hash: String,
    /// When the trusted definition was trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    trusted_at: Option<String>,
    /// Who trusted it; absent if it was trusted because it was seen for the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    trusted_by: Option<String>,
    /// Differences from the trusted definition, or from that of the tool with the same name.
    changes: Vec<ChangeEntry>,
}

/// Whether a definition is trusted.
#[derive(ToSchema)]
#[schema(as = DefinitionState, rename_all = "snake_case")]
#[allow(dead_code, reason = "only describes the API")]
enum DefinitionStateSchema {
    /// Seen for the first time, and about to be trusted.
    New,
    Trusted,
    /// Another definition of the tool is trusted.
    Changed,
    /// A server that was known before added it, with the name of another server's tool.
    Shadowing,
}

/// Suspicious text in a definition.
#[derive(Debug, Serialize, ToSchema)]
struct FindingEntry {
    #[schema(value_type = SuspicionSchema)]
    kind: Suspicion,
    /// JSON pointer to the text in the definition.
    place: String,
    message: String,
}

/// Kind of suspicious text.
#[derive(ToSchema)]
#[schema(as = Suspicion, rename_all = "snake_case")]
#[allow(dead_code, reason = "only describes the API")]
enum SuspicionSchema {
    HiddenText,
    Instructions,
    ForeignTool,
    LookAlike,
}

/// A part of a definition that differs.
#[derive(Debug, Serialize, ToSchema)]
struct ChangeEntry {
    /// JSON pointer to the part.
    place: String,
    /// Absent if the part was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    before: Option<Value>,
    /// Absent if the part was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    after: Option<Value>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DefinitionFilter {
    /// `true` lists all definitions, not only those that changed or look suspicious.
    #[serde(default)]
    all: bool,
}

/// Definitions to trust: all of them or none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustRequest {
    definitions: Vec<TrustedEntry>,
}

/// A definition that was read.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TrustedEntry {
    server: String,
    tool: String,
    /// `hash` of the definition that was read. If it has changed since, nothing is trusted.
    hash: String,
}

/// List definitions of tools that an administrator should read: those that changed since they were
/// trusted, that have the name of another server's tool, or that contain suspicious text.
#[utoipa::path(get, path = "/api/mcp/definitions", tag = "api", params(DefinitionFilter),
    responses((status = 200, body = DefinitionList)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(filter): ApiQuery<DefinitionFilter>,
) -> Result<Json<DefinitionList>, ApiError> {
    let definitions = app.gateway().tools().definitions();
    let reports = if filter.all {
        definitions.list().await
    } else {
        definitions.list_unreviewed().await
    };
    let reports = reports.map_err(ChangeError::Store)?;
    Ok(Json(DefinitionList {
        definitions: reports.into_iter().map(DefinitionEntry::new).collect(),
    }))
}

/// Trust definitions of tools. Tools that were hidden because of their definitions become visible.
#[utoipa::path(post, path = "/api/mcp/definitions/trust", tag = "api", request_body = TrustRequest,
    responses((status = 200, body = DefinitionList, description = "the definitions that still should be read"),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn trust(
    State(app): State<App>,
    ApiBytes(body): ApiBytes,
) -> Result<Json<DefinitionList>, ApiError> {
    let request: TrustRequest = serde_json::from_slice(&body).map_err(|error| {
        let form = r#"{"definitions": [{"server": "…", "tool": "…", "hash": "…"}]}"#;
        ApiError::bad_request(format!("the body must be {form}: {error}"))
    })?;
    let read: Result<Vec<ReadDefinition>, ApiError> = request
        .definitions
        .into_iter()
        .map(TrustedEntry::parse)
        .collect();
    let definitions = app.gateway().tools().definitions();
    definitions.trust(&current_actor(), &read?).await?;
    let filter = DefinitionFilter { all: false };
    list(State(app), ApiQuery(filter)).await
}

impl TrustedEntry {
    fn parse(self) -> Result<ReadDefinition, ApiError> {
        let server = ServerName::parse(&self.server)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(ReadDefinition {
            tool: ToolId {
                server,
                tool: ToolName::new(&self.tool),
            },
            hash: self.hash,
        })
    }
}

impl From<TrustError> for ApiError {
    fn from(error: TrustError) -> Self {
        match error {
            TrustError::Unknown(_) => Self::not_found(error.to_string()),
            TrustError::Store(error) => ChangeError::Store(error).into(),
            _ => Self::new(
                StatusCode::CONFLICT,
                "definition_changed",
                error.to_string(),
            ),
        }
    }
}

impl DefinitionEntry {
    fn new(report: DefinitionReport) -> Self {
        let findings = report.findings.into_iter().map(|finding| FindingEntry {
            kind: finding.suspicion,
            place: finding.place,
            message: finding.what,
        });
        Self {
            server: report.tool.server.to_string(),
            tool: report.tool.tool.to_string(),
            alias: report.alias.to_string(),
            state: report.state.as_str(),
            shadows: match &report.state {
                DefinitionState::Shadowing(other) => Some(other.to_string()),
                _ => None,
            },
            hidden: report.is_hidden,
            findings: findings.collect(),
            hash: report.hash,
            trusted_at: report.trusted_at.map(format_time),
            trusted_by: report.trusted_by,
            changes: report.changes.into_iter().map(ChangeEntry::new).collect(),
        }
    }
}

impl ChangeEntry {
    fn new(change: DefinitionChange) -> Self {
        Self {
            place: change.place,
            before: change.before,
            after: change.after,
        }
    }
}

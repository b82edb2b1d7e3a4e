//! `/api/mcp/tools`: the tools in scope, as defined by their servers, and their version history.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolgate::store::StoreError;
use toolgate::{CallError, Caller, Gateway};
use toolgate_core::catalog::{CatalogEntry, Resolution};
use toolgate_core::policy::{Decision, Verdict};
use toolgate_core::scope::Filters;
use utoipa::{IntoParams, ToSchema};

use super::format_time;
use super::page::PageParams;
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiPath, ApiQuery};
use crate::http::schema::VerdictSchema;

/// A tool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToolEntry {
    /// Name that models see.
    pub(crate) alias: String,
    pub(crate) server: String,
    /// Name that the server uses.
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) description: Option<String>,
    #[schema(value_type = Object)]
    pub(crate) input_schema: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub(crate) output_schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub(crate) annotations: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    pub(crate) icons: Option<Box<RawValue>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub(crate) meta: Option<Box<RawValue>>,
    /// The definition as the server sent it, if it was malformed and had to be repaired.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub(crate) sent: Option<Box<RawValue>>,
    /// SHA-256 of the definition as the server sent it.
    pub(crate) hash: String,
    #[schema(value_type = VerdictSchema)]
    pub(crate) verdict: Verdict,
    /// Config key that determined the verdict.
    pub(crate) because: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToolPage {
    pub(crate) tools: Vec<ToolEntry>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// Definitions of a tool, most recently seen first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionList {
    versions: Vec<VersionEntry>,
}

#[derive(Debug, Serialize, ToSchema)]
struct VersionEntry {
    hash: String,
    /// Whether this is the current definition.
    current: bool,
    first_seen: String,
    /// When this definition last became current.
    last_seen: String,
    /// As the server sent it.
    #[schema(value_type = Object)]
    definition: Box<RawValue>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ToolFilter {
    /// Only tools of this server.
    server: Option<String>,
    /// Only tools with this text in their name or description.
    search: Option<String>,
    /// Maximum number of items to return, up to 1000. Defaults to 100.
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List all tools in scope, ordered by alias.
#[utoipa::path(get, path = "/api/mcp/tools", tag = "api", params(ToolFilter),
    responses((status = 200, body = ToolPage), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(filter): ApiQuery<ToolFilter>,
) -> Result<Json<ToolPage>, ApiError> {
    let page = PageParams {
        limit: filter.limit,
        cursor: filter.cursor.clone(),
    };
    let mut tools = tools_in_scope(app.gateway(), &Caller::http())?;
    tools.retain(|tool| filter.matches(tool));
    tools.sort_by(|a, b| a.alias.cmp(&b.alias));
    let (tools, next_cursor) = page.paginate(tools.into_iter(), |tool| tool.alias.clone())?;
    Ok(Json(ToolPage { tools, next_cursor }))
}

/// List all definitions that a tool has had.
#[utoipa::path(get, path = "/api/mcp/tools/{alias}/versions", tag = "api",
    params(("alias" = String, Path, description = "the tool's name, in any style")),
    responses((status = 200, body = VersionList), (status = 404, body = ErrorBody)))]
pub(crate) async fn versions(
    State(app): State<App>,
    ApiPath(alias): ApiPath<String>,
) -> Result<Json<VersionList>, ApiError> {
    let catalog = app.gateway().catalog();
    let Resolution::Found(entry) = catalog.resolve(&alias, |_| true) else {
        return Err(ApiError::not_found(format!(
            "no tool named `{alias}`; see /api/mcp/tools"
        )));
    };
    let versions = app
        .gateway()
        .tools()
        .versions(&entry.tool.id)
        .await
        .map_err(ChangeError::Store)?;
    let versions = versions.into_iter().map(|version| {
        let definition = RawValue::from_string(version.definition);
        Ok(VersionEntry {
            current: version.hash == entry.tool.hash,
            hash: version.hash,
            first_seen: format_time(version.first_seen),
            last_seen: format_time(version.last_seen),
            definition: definition.map_err(|_| ChangeError::Store(StoreError::Unreadable))?,
        })
    });
    let versions: Result<_, ChangeError> = versions.collect();
    Ok(Json(VersionList {
        versions: versions?,
    }))
}

/// Returns all tools that a caller may use.
pub(crate) fn tools_in_scope(
    gateway: &Gateway,
    caller: &Caller,
) -> Result<Vec<ToolEntry>, CallError> {
    let scope = gateway.scope(caller, &Filters::default())?;
    let tools = scope.tools();
    Ok(tools
        .map(|(entry, judgement)| ToolEntry::new(entry, judgement.decision()))
        .collect())
}

impl ToolEntry {
    fn new(entry: &CatalogEntry, decision: &Decision) -> Self {
        let view = entry.tool.view();
        let id = &entry.tool.id;
        let to_owned = |raw: Option<&RawValue>| raw.map(ToOwned::to_owned);
        Self {
            alias: entry.alias.to_string(),
            server: id.server.to_string(),
            name: id.tool.to_string(),
            title: view.title.map(Into::into),
            description: view.description.map(Into::into),
            input_schema: to_owned(view.input_schema).unwrap_or_else(any_object),
            output_schema: to_owned(view.output_schema),
            annotations: to_owned(view.annotations),
            icons: to_owned(view.icons),
            meta: to_owned(view.meta),
            sent: to_owned(entry.tool.unrepaired_definition()),
            hash: entry.tool.hash.clone(),
            verdict: decision.verdict,
            because: decision.decided_by.to_string(),
        }
    }
}

impl ToolFilter {
    fn matches(&self, tool: &ToolEntry) -> bool {
        let server_matches = self
            .server
            .as_ref()
            .is_none_or(|server| *server == tool.server);
        let text_matches = self.search.as_ref().is_none_or(|text| {
            let text = text.to_lowercase();
            let description = tool.description.as_deref().unwrap_or_default();
            tool.alias.to_lowercase().contains(&text) || description.to_lowercase().contains(&text)
        });
        server_matches && text_matches
    }
}

/// Input schema of a tool that does not define one.
fn any_object() -> Box<RawValue> {
    RawValue::from_string(r#"{"type":"object"}"#.to_owned())
        .unwrap_or_else(|_| RawValue::NULL.to_owned())
}

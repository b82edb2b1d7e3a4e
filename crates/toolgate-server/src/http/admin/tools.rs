//! `/api/mcp/tools`: the tools in scope, as their servers defined them.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolgate::{CallError, Caller, Gateway};
use toolgate_core::catalog::{Entry, Resolution};
use toolgate_core::policy::{Decision, Verdict};
use toolgate_core::scope::Filters;
use utoipa::{IntoParams, ToSchema};

use super::page::Page;
use super::time;
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// A tool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToolEntry {
    /// The name that models see.
    pub(crate) alias: String,
    pub(crate) server: String,
    /// The name that the server gave.
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[schema(value_type = Object)]
    pub(crate) input_schema: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) output_schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) annotations: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub(crate) icons: Option<Box<RawValue>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) meta: Option<Box<RawValue>>,
    /// SHA-256 of the definition.
    pub(crate) hash: String,
    /// `allow`, `manual` or `ask`.
    #[schema(value_type = String)]
    pub(crate) verdict: Verdict,
    /// The config key that decided.
    pub(crate) because: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToolPage {
    pub(crate) tools: Vec<ToolEntry>,
    pub(crate) next_cursor: Option<String>,
}

/// The definitions of a tool, the one seen last first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionList {
    versions: Vec<VersionEntry>,
}

#[derive(Debug, Serialize, ToSchema)]
struct VersionEntry {
    hash: String,
    /// Whether it is the one in force.
    current: bool,
    first_seen: String,
    /// When it last came into force.
    last_seen: String,
    #[schema(value_type = Object)]
    definition: Box<RawValue>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// Only tools of this server.
    server: Option<String>,
    /// Only tools with this text in their name or description.
    search: Option<String>,
    /// How many to answer with, at most 1000. Default 100.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// All tools in scope, in a stable order.
#[utoipa::path(get, path = "/api/mcp/tools", tag = "api", params(Filter),
    responses((status = 200, body = ToolPage), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<ToolPage>, ApiError> {
    let Query(filter) = filter?;
    let page = Page {
        limit: filter.limit,
        cursor: filter.cursor.clone(),
    };
    let mut tools = all(app.gateway(), &Caller::http())?;
    tools.retain(|tool| filter.admits(tool));
    tools.sort_by(|a, b| a.alias.cmp(&b.alias));
    let (tools, next_cursor) = page.cut(tools.into_iter(), |tool| tool.alias.clone())?;
    Ok(Json(ToolPage { tools, next_cursor }))
}

/// Every definition that a tool has had.
#[utoipa::path(get, path = "/api/mcp/tools/{alias}/versions", tag = "api",
    params(("alias" = String, Path, description = "the tool's name, in any style")),
    responses((status = 200, body = VersionList), (status = 404, body = ErrorBody)))]
pub(crate) async fn versions(
    State(app): State<App>,
    alias: Result<Path<String>, PathRejection>,
) -> Result<Json<VersionList>, ApiError> {
    let Path(alias) = alias?;
    let catalog = app.gateway().catalog();
    let Resolution::Found(entry) = catalog.resolve(&alias, |_| true) else {
        return Err(ApiError::not_found(format!(
            "no tool is called `{alias}`; see /api/mcp/tools"
        )));
    };
    let versions = app
        .gateway()
        .versions(&entry.tool.id)
        .await
        .map_err(ChangeError::Store)?;
    let versions = versions.into_iter().map(|version| VersionEntry {
        current: version.hash == entry.tool.hash,
        hash: version.hash,
        first_seen: time(version.first_seen),
        last_seen: time(version.last_seen),
        definition: RawValue::from_string(version.definition).unwrap_or_else(|_| any_object()),
    });
    Ok(Json(VersionList {
        versions: versions.collect(),
    }))
}

/// Every tool that a caller may use.
pub(crate) fn all(gateway: &Gateway, caller: &Caller) -> Result<Vec<ToolEntry>, CallError> {
    let scope = gateway.scope(caller, &Filters::default())?;
    let tools = scope.tools();
    Ok(tools
        .map(|(entry, judgement)| ToolEntry::new(entry, judgement.decision()))
        .collect())
}

impl ToolEntry {
    fn new(entry: &Entry, decision: &Decision) -> Self {
        let view = entry.tool.view();
        let id = &entry.tool.id;
        let own = |raw: Option<&RawValue>| raw.map(ToOwned::to_owned);
        Self {
            alias: entry.alias.to_string(),
            server: id.server.to_string(),
            name: id.tool.to_string(),
            title: view.title.map(Into::into),
            description: view.description.map(Into::into),
            input_schema: own(view.input_schema).unwrap_or_else(any_object),
            output_schema: own(view.output_schema),
            annotations: own(view.annotations),
            icons: own(view.icons),
            meta: own(view.meta),
            hash: entry.tool.hash.clone(),
            verdict: decision.verdict,
            because: decision.because.to_string(),
        }
    }
}

impl Filter {
    fn admits(&self, tool: &ToolEntry) -> bool {
        let named = self
            .server
            .as_ref()
            .is_none_or(|server| *server == tool.server);
        let found = self.search.as_ref().is_none_or(|text| {
            let text = text.to_lowercase();
            let described = tool.description.as_deref().unwrap_or_default();
            tool.alias.to_lowercase().contains(&text) || described.to_lowercase().contains(&text)
        });
        named && found
    }
}

/// What a tool without a schema takes.
fn any_object() -> Box<RawValue> {
    RawValue::from_string(r#"{"type":"object"}"#.to_owned())
        .unwrap_or_else(|_| RawValue::NULL.to_owned())
}

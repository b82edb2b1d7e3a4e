//! `GET /api/mcp/tools/explain`: why a tool is or is not visible to a caller.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use toolgate::engine::Explanation;
use toolgate::{CallError, Caller, Gateway};
use toolgate_core::scope::{Filters, GateResult, UnmatchedFilter};
use utoipa::{IntoParams, ToSchema};

use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::ApiQuery;
use crate::http::schema::{ServerStateSchema, VerdictSchema};
use crate::http::{App, request};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExplainParams {
    /// Tool name, in any style. Send either `tool` or `server`.
    pub(crate) tool: Option<String>,
    /// Server name or id: summarizes the visibility of all its tools.
    pub(crate) server: Option<String>,
    /// Name of the caller's key. Defaults to a caller without a key.
    pub(crate) key: Option<String>,
    /// Overrides the header `x-bf-mcp-include-clients`.
    pub(crate) include_clients: Option<String>,
    /// Overrides the header `x-bf-mcp-exclude-clients`.
    pub(crate) exclude_clients: Option<String>,
    /// Overrides the header `x-bf-mcp-include-tools`.
    pub(crate) include_tools: Option<String>,
    /// Overrides the header `x-bf-mcp-exclude-tools`.
    pub(crate) exclude_tools: Option<String>,
}

/// Explains why a tool is or is not visible.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ExplanationView {
    /// Name that models see; null if no server currently offers the tool.
    #[schema(required)]
    pub(crate) alias: Option<String>,
    #[schema(required)]
    pub(crate) server: Option<String>,
    #[schema(required)]
    pub(crate) tool: Option<String>,
    pub(crate) visible: bool,
    /// Null if the tool is not visible.
    #[schema(value_type = Option<VerdictSchema>, required)]
    pub(crate) verdict: Option<String>,
    /// Key of the first step that hides the tool.
    #[schema(required)]
    pub(crate) hidden_by: Option<String>,
    pub(crate) steps: Vec<StepView>,
    /// Names in the filters that match nothing that exists for the caller.
    pub(crate) unmatched_filters: Vec<UnmatchedFilterView>,
}

/// A name in a filter that matches nothing that exists for the caller.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct UnmatchedFilterView {
    pub(crate) header: String,
    pub(crate) name: String,
    /// Similar name that exists.
    #[schema(required)]
    pub(crate) suggestion: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct StepView {
    /// Config key, rule or header that decides this step.
    pub(crate) key: String,
    pub(crate) passes: bool,
    /// What the step decided, in words.
    pub(crate) says: String,
}

/// Summarizes the visibility of a server's tools.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerExplanation {
    server: String,
    #[schema(value_type = ServerStateSchema)]
    state: String,
    #[schema(required)]
    reason: Option<String>,
    /// Number of tools that the server offers.
    offered: usize,
    /// Number of tools that the caller sees.
    visible: usize,
    /// Number of tools hidden by each step.
    hidden_by: BTreeMap<String, usize>,
    /// Names in the filters that match nothing that exists for the caller.
    unmatched_filters: Vec<UnmatchedFilterView>,
}

/// Explanation of a tool or of a server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explained)]
#[serde(untagged)]
pub(crate) enum ExplainResponse {
    Tool(ExplanationView),
    Server(ServerExplanation),
}

/// Explain step by step why a tool is or is not visible to a caller, or summarize a server's tools.
#[utoipa::path(get, path = "/api/mcp/tools/explain", tag = "api", params(ExplainParams),
    responses((status = 200, body = ExplainResponse), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn explain(
    State(app): State<App>,
    ApiQuery(params): ApiQuery<ExplainParams>,
    headers: HeaderMap,
) -> Result<Json<ExplainResponse>, ApiError> {
    let sent = request::parse_filters(&headers)?;
    let caller = params.caller();
    let filters = params.filters(sent);
    let explained = match (&params.tool, &params.server) {
        (Some(tool), None) => ExplainResponse::Tool(
            explain_tool(app.gateway(), &caller, &filters, tool).map_err(explain_error)?,
        ),
        (None, Some(server)) => {
            ExplainResponse::Server(explain_server(&app, &caller, &filters, server)?)
        }
        _ => return Err(ApiError::bad_request("send either `tool` or `server`")),
    };
    Ok(Json(explained))
}

pub(crate) fn explain_tool(
    gateway: &Gateway,
    caller: &Caller,
    filters: &Filters,
    tool: &str,
) -> Result<ExplanationView, CallError> {
    let explanation = gateway.tools().explain(caller, filters, tool)?;
    Ok(ExplanationView::new(explanation))
}

fn explain_server(
    app: &App,
    caller: &Caller,
    filters: &Filters,
    server: &str,
) -> Result<ServerExplanation, ApiError> {
    let entries = app.gateway().servers().list();
    let entry = entries
        .iter()
        .find(|entry| entry.server.name.as_str() == server || entry.server.id == server)
        .ok_or_else(|| {
            ApiError::not_found(format!(
                "no server with id or name `{server}`; see /api/mcp/clients"
            ))
        })?;
    let name = &entry.server.name;
    let status = entry.status();
    let catalog = app.gateway().catalog();
    let tools = catalog
        .tools()
        .iter()
        .filter(|entry| entry.tool.id.server == *name);
    let scope = app
        .gateway()
        .scope(caller, filters)
        .map_err(explain_error)?;
    let unmatched = scope.unmatched_filters();
    let mut hidden_by: BTreeMap<String, usize> = BTreeMap::new();
    let (mut offered, mut visible) = (0, 0);
    for entry in tools {
        offered += 1;
        let explained =
            explain_tool(app.gateway(), caller, filters, &entry.alias).map_err(explain_error)?;
        match explained.hidden_by {
            Some(key) => *hidden_by.entry(key).or_default() += 1,
            None => visible += 1,
        }
    }
    Ok(ServerExplanation {
        server: name.to_string(),
        state: status.state.as_str().to_owned(),
        reason: status.reason.clone(),
        offered,
        visible,
        hidden_by,
        unmatched_filters: unmatched.iter().cloned().map(Into::into).collect(),
    })
}

impl ExplainParams {
    fn caller(&self) -> Caller {
        match &self.key {
            Some(key) => Caller::http().with_key(key),
            None => Caller::http(),
        }
    }

    fn filters(&self, sent: Filters) -> Filters {
        let list = |text: &Option<String>| Filters::parse_list(text.as_deref());
        Filters {
            include_clients: list(&self.include_clients).or(sent.include_clients),
            exclude_clients: list(&self.exclude_clients).or(sent.exclude_clients),
            include_tools: list(&self.include_tools).or(sent.include_tools),
            exclude_tools: list(&self.exclude_tools).or(sent.exclude_tools),
            ..sent
        }
    }
}

impl ExplanationView {
    fn new(explanation: Explanation) -> Self {
        let Explanation {
            tool,
            alias,
            visible,
            verdict,
            steps,
            unmatched_filters,
        } = explanation;
        let hiding = steps.iter().find(|step| !step.passes);
        Self {
            alias,
            server: tool.as_ref().map(|tool| tool.server.to_string()),
            tool: tool.map(|tool| tool.tool.to_string()),
            visible,
            verdict: verdict.map(|verdict| verdict.as_str().to_owned()),
            hidden_by: hiding.map(|step| step.key.clone()),
            steps: steps.into_iter().map(StepView::from).collect(),
            unmatched_filters: unmatched_filters.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<GateResult> for StepView {
    fn from(step: GateResult) -> Self {
        let GateResult {
            key,
            passes,
            explanation: says,
        } = step;
        Self { key, passes, says }
    }
}

impl From<UnmatchedFilter> for UnmatchedFilterView {
    fn from(unmatched: UnmatchedFilter) -> Self {
        Self {
            header: unmatched.header.to_owned(),
            name: unmatched.text,
            suggestion: unmatched.suggestion,
        }
    }
}

fn explain_error(error: CallError) -> ApiError {
    match error {
        CallError::InvalidKey(key) => {
            let message = format!("key `{key}` does not exist or is not valid; see /api/keys");
            ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
        }
        error => ApiError::bad_request(error.to_string()),
    }
}

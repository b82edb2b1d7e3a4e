//! `GET /api/mcp/tools/explain`: why a caller sees a tool, or misses it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use toolgate::engine::Explanation;
use toolgate::{CallError, Caller, Gateway};
use toolgate_core::scope::{Filters, Step};
use utoipa::{IntoParams, ToSchema};

use crate::http::error::{ApiError, ErrorBody};
use crate::http::{App, request};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Params {
    /// The tool, in any name style.
    pub(crate) tool: Option<String>,
    /// Or a server: what becomes of each of its tools.
    pub(crate) server: Option<String>,
    /// The name of the caller's key; without it, a caller who needs none.
    pub(crate) key: Option<String>,
    /// As `x-bf-mcp-include-clients`, which is honoured too.
    pub(crate) include_clients: Option<String>,
    pub(crate) exclude_clients: Option<String>,
    pub(crate) include_tools: Option<String>,
    pub(crate) exclude_tools: Option<String>,
}

/// Why a tool is visible, or is not.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ExplanationView {
    /// The name that models see; null if no server offers it now.
    pub(crate) alias: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) visible: bool,
    /// `allow`, `manual` or `ask`, if it is visible.
    pub(crate) verdict: Option<String>,
    /// The first step that hides it.
    pub(crate) hidden_by: Option<String>,
    pub(crate) steps: Vec<StepView>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct StepView {
    /// The config key, rule or header that decides.
    pub(crate) key: String,
    pub(crate) passes: bool,
    pub(crate) says: String,
}

/// What becomes of a server's tools.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerExplanation {
    server: String,
    state: String,
    reason: Option<String>,
    /// Tools that the server offers.
    offered: usize,
    /// Tools that the caller sees.
    visible: usize,
    /// How many each step hides.
    hidden_by: BTreeMap<String, usize>,
}

/// Either of them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Explained {
    Tool(ExplanationView),
    Server(ServerExplanation),
}

/// Why a caller sees or misses a tool, step by step; or what becomes of a server's tools.
#[utoipa::path(get, path = "/api/mcp/tools/explain", tag = "api", params(Params),
    responses((status = 200, body = Explained), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn explain(
    State(app): State<App>,
    params: Result<Query<Params>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Json<Explained>, ApiError> {
    let Query(params) = params?;
    let sent = request::filters(&headers)?;
    let caller = params.caller();
    let filters = params.filters(sent);
    let explained = match (&params.tool, &params.server) {
        (Some(tool), None) => {
            Explained::Tool(of_tool(app.gateway(), &caller, &filters, tool).map_err(refused)?)
        }
        (None, Some(server)) => Explained::Server(of_server(&app, &caller, &filters, server)?),
        _ => return Err(ApiError::bad_request("say either `tool` or `server`")),
    };
    Ok(Json(explained))
}

pub(crate) fn of_tool(
    gateway: &Gateway,
    caller: &Caller,
    filters: &Filters,
    tool: &str,
) -> Result<ExplanationView, CallError> {
    let explanation = gateway.explain(caller, filters, tool)?;
    Ok(ExplanationView::new(explanation))
}

fn of_server(
    app: &App,
    caller: &Caller,
    filters: &Filters,
    server: &str,
) -> Result<ServerExplanation, ApiError> {
    let entries = app.gateway().servers();
    let entry = entries
        .iter()
        .find(|entry| entry.server.name.as_str() == server || entry.server.id == server)
        .ok_or_else(|| {
            ApiError::not_found(format!(
                "no server has the id or name `{server}`; see /api/mcp/clients"
            ))
        })?;
    let name = &entry.server.name;
    let status = entry.status();
    let catalog = app.gateway().catalog();
    let own = catalog
        .tools()
        .iter()
        .filter(|entry| entry.tool.id.server == *name);
    let mut hidden_by: BTreeMap<String, usize> = BTreeMap::new();
    let (mut offered, mut visible) = (0, 0);
    for entry in own {
        offered += 1;
        let explained = of_tool(app.gateway(), caller, filters, &entry.alias).map_err(refused)?;
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
    })
}

impl Params {
    fn caller(&self) -> Caller {
        match &self.key {
            Some(key) => Caller::http().with_key(key),
            None => Caller::http(),
        }
    }

    fn filters(&self, sent: Filters) -> Filters {
        let list = |text: &Option<String>| Filters::list(text.as_deref());
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
        }
    }
}

impl From<Step> for StepView {
    fn from(step: Step) -> Self {
        let Step { key, passes, says } = step;
        Self { key, passes, says }
    }
}

fn refused(error: CallError) -> ApiError {
    match error {
        CallError::KeyGone(key) => {
            let message = format!("no key called `{key}` is valid; see /api/keys");
            ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
        }
        error => ApiError::bad_request(error.to_string()),
    }
}

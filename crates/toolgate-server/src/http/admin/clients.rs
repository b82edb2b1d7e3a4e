//! `/api/mcp/clients`: the servers, how they are and why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Serialize;
use serde_json::value::RawValue;
use toolgate::registry::Entry;
use toolgate::{Caller, State as ServerState};
use toolgate_core::catalog::{Kind, Offer};
use toolgate_core::config::{Flavour, Link, Protocol, Server};
use toolgate_core::policy::{ToolList, Verdict};
use toolgate_core::scope::{Filters, Scope};
use toolgate_core::secret::{Secret, mask_arguments};
use utoipa::ToSchema;

use super::page::Page;
use super::stats::FiguresView;
use crate::configuration::{Published, Source};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// A server: what was configured, how it is, what it offers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClientEntry {
    config: ClientView,
    /// `connecting`, `healthy`, `degraded`, `unavailable`, `asleep`, `needs_auth`, `disabled` or `error`.
    #[schema(value_type = String)]
    state: ServerState,
    /// Why it is not healthy.
    reason: Option<String>,
    /// Since when it has been in this state.
    since: String,
    next_try_at: Option<String>,
    last_error: Option<String>,
    /// The last words of its process on standard error.
    stderr_tail: Option<String>,
    /// Protocol revision agreed on.
    protocol_version: Option<String>,
    #[schema(value_type = Option<Object>)]
    server_info: Option<Box<RawValue>>,
    instructions: Option<String>,
    tools: Vec<ToolLine>,
    resources: Vec<String>,
    resource_templates: Vec<String>,
    prompts: Vec<String>,
    /// What it offers that could not be used.
    problems: Vec<ProblemLine>,
    /// `file`, `api` or `file+api`; none for a server of the embedding program.
    #[schema(value_type = Option<String>)]
    source: Option<Source>,
    /// Calls under way.
    in_flight: usize,
    figures: FiguresView,
}

/// A server's configuration, secrets masked.
#[derive(Debug, Serialize, ToSchema)]
struct ClientView {
    name: String,
    client_id: String,
    /// `stdio`, `http`, `sse` or `inprocess`.
    connection_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_string: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdio_config: Option<StdioView>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed_extra_headers: Vec<String>,
    tools_to_execute: Vec<String>,
    tools_to_auto_execute: Vec<String>,
    /// Seconds, where it is not the tool manager's.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_execution_timeout: Option<f64>,
    max_in_flight: usize,
    max_queue: usize,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_stop: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<String>,
    is_ping_available: bool,
    #[schema(value_type = String)]
    protocol: Protocol,
    disabled: bool,
    /// Whether its tools are shown to scripts instead of each to the model.
    is_code_mode_client: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct StdioView {
    command: String,
    args: Vec<String>,
    envs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ToolLine {
    name: String,
    alias: String,
    /// `allow`, `manual`, `ask`, or `hidden` if no caller can see it.
    verdict: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct ProblemLine {
    /// `tool`, `resource`, `template` or `prompt`.
    #[schema(value_type = String)]
    kind: Kind,
    item: String,
    reason: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClientPage {
    clients: Vec<ClientEntry>,
    next_cursor: Option<String>,
}

/// All servers, by name.
#[utoipa::path(get, path = "/api/mcp/clients", tag = "api", params(Page),
    responses((status = 200, body = ClientPage), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ClientPage>, ApiError> {
    let Query(page) = page?;
    let entries = app.gateway().servers().into_iter();
    let (entries, next_cursor) = page.cut(entries, |entry| entry.server.name.to_string())?;
    let moment = Moment::new(&app);
    let clients = entries
        .iter()
        .map(|entry| ClientEntry::new(entry, &moment))
        .collect();
    Ok(Json(ClientPage {
        clients,
        next_cursor,
    }))
}

/// One server, by its `client_id` or name.
#[utoipa::path(get, path = "/api/mcp/client/{id}", tag = "api",
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 200, body = ClientEntry), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ClientEntry>, ApiError> {
    let Path(id) = id?;
    find(&app, &id).map(Json)
}

/// The server with this `client_id` or name.
pub(super) fn entry(app: &App, id: &str) -> Result<Arc<Entry>, ApiError> {
    let entries = app.gateway().servers();
    let by_id = entries.iter().find(|entry| entry.server.id == id);
    let found = by_id.or_else(|| {
        entries
            .iter()
            .find(|entry| entry.server.name.as_str() == id)
    });
    let unknown = || {
        ApiError::not_found(format!(
            "no server has the id or name `{id}`; see /api/mcp/clients"
        ))
    };
    found.map(Arc::clone).ok_or_else(unknown)
}

pub(super) fn find(app: &App, id: &str) -> Result<ClientEntry, ApiError> {
    Ok(ClientEntry::new(&*entry(app, id)?, &Moment::new(app)))
}

/// What is known of all servers at one moment.
struct Moment {
    catalog: Arc<toolgate_core::Catalog>,
    scope: Option<Arc<Scope>>,
    stats: toolgate::metrics::Stats,
    configuration: Arc<Published>,
}

impl Moment {
    fn new(app: &App) -> Self {
        let gateway = app.gateway();
        let scope = gateway.scope(&Caller::http(), &Filters::default()).ok();
        Self {
            catalog: match &scope {
                Some(scope) => Arc::clone(scope.catalog()),
                None => gateway.catalog(),
            },
            scope,
            stats: gateway.stats(),
            configuration: app.configuration().published(),
        }
    }

    fn lines(&self, offer: &Offer) -> Vec<ToolLine> {
        let entries = offer
            .tools
            .iter()
            .filter_map(|tool| self.catalog.tool(&tool.id));
        let line = |entry: &toolgate_core::catalog::Entry| ToolLine {
            name: entry.tool.id.tool.to_string(),
            alias: entry.alias.to_string(),
            verdict: self.verdict(entry).map_or("hidden", Verdict::as_str),
        };
        entries.map(line).collect()
    }

    fn verdict(&self, entry: &toolgate_core::catalog::Entry) -> Option<Verdict> {
        let judgement = self.scope.as_ref()?.judgement(entry)?;
        Some(judgement.decision().verdict)
    }
}

impl ClientEntry {
    fn new(entry: &Entry, moment: &Moment) -> Self {
        let status = entry.status();
        let offer = moment.catalog.offer(&entry.server.name);
        let keys = |items: &[toolgate_core::catalog::Item]| {
            items.iter().map(|item| item.key.clone()).collect()
        };
        let session = status.session.as_ref();
        Self {
            config: ClientView::new(&entry.server),
            state: status.state,
            reason: status.reason.clone(),
            since: time(status.since),
            next_try_at: status.next_try_at.map(time),
            last_error: status.last_error.clone(),
            stderr_tail: Some(entry.stderr_tail()).filter(|tail| !tail.is_empty()),
            protocol_version: session.map(|session| session.version.clone()),
            server_info: session.and_then(|session| session.server_info.clone()),
            instructions: session.and_then(|session| session.instructions.clone()),
            tools: offer.map(|offer| moment.lines(offer)).unwrap_or_default(),
            resources: offer
                .map(|offer| keys(&offer.resources))
                .unwrap_or_default(),
            resource_templates: offer
                .map(|offer| keys(&offer.templates))
                .unwrap_or_default(),
            prompts: offer.map(|offer| keys(&offer.prompts)).unwrap_or_default(),
            problems: offer.map(|offer| problems(offer)).unwrap_or_default(),
            source: moment
                .configuration
                .sources
                .get(entry.server.name.as_str())
                .copied(),
            in_flight: entry.in_flight(),
            figures: moment
                .stats
                .servers
                .get(entry.server.name.as_str())
                .map(Into::into)
                .unwrap_or_default(),
        }
    }
}

impl ClientView {
    fn new(server: &Server) -> Self {
        let (connection_type, connection_string, stdio_config, headers) = match &server.link {
            Link::Stdio(stdio) => {
                let envs = stdio
                    .env
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.shown()));
                let view = StdioView {
                    command: stdio.command.clone(),
                    args: mask_arguments(&stdio.args),
                    envs: envs.collect(),
                    cwd: stdio.cwd.as_ref().map(|cwd| cwd.display().to_string()),
                };
                ("stdio", None, Some(view), BTreeMap::new())
            }
            Link::Http(http) => {
                let shown = |(name, value): (&String, &Secret)| (name.clone(), value.shown());
                (
                    match http.flavour {
                        Flavour::Sse => "sse",
                        Flavour::Auto | Flavour::Streamable => "http",
                    },
                    Some(http.shown_url()),
                    None,
                    http.headers.iter().map(shown).collect(),
                )
            }
            Link::InProcess => ("inprocess", None, None, BTreeMap::new()),
        };
        Self {
            name: server.name.to_string(),
            client_id: server.id.clone(),
            connection_type,
            connection_string,
            stdio_config,
            headers,
            tools_to_execute: names(&server.lists.execute),
            tools_to_auto_execute: names(&server.lists.auto_execute),
            tool_execution_timeout: server.timeout.map(|timeout| timeout.as_secs_f64()),
            allowed_extra_headers: match &server.link {
                Link::Http(http) => http.forwarded_headers.clone(),
                Link::Stdio(_) | Link::InProcess => Vec::new(),
            },
            max_in_flight: server.care.max_in_flight,
            max_queue: server.care.max_queue,
            idle_stop: server.care.idle_stop.map(|after| after.as_secs_f64()),
            fallback: server.fallback.as_ref().map(ToString::to_string),
            is_ping_available: server.care.ping,
            protocol: server.protocol,
            disabled: !server.enabled,
            is_code_mode_client: server.code_mode,
        }
    }
}

fn problems(offer: &Offer) -> Vec<ProblemLine> {
    let line = |problem: &toolgate_core::catalog::Problem| ProblemLine {
        kind: problem.kind,
        item: problem.item.clone(),
        reason: problem.reason.clone(),
    };
    offer.problems.iter().map(line).collect()
}

fn names(list: &ToolList) -> Vec<String> {
    match list {
        ToolList::All => vec!["*".to_owned()],
        ToolList::Only(names) => names.iter().cloned().collect(),
    }
}

fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

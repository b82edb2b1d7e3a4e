//! `/api/mcp/clients`: servers with their configuration, state and listings.
//!
//! The API says `client` for a server because the gateway connects to it as an MCP client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::value::RawValue;
use toolgate::registry::RegistryEntry;
use toolgate::{Caller, ServerState};
use toolgate_core::Catalog;
use toolgate_core::catalog::{ItemOutcome, ServerListing};
use toolgate_core::config::{
    Approver, EnvGroup, HttpTransport, Protocol, ServerConfig, ServerConnection,
};
use toolgate_core::policy::{ToolList, Verdict};
use toolgate_core::scope::{Filters, Scope};
use toolgate_core::secret::{Secret, mask_arguments};
use utoipa::ToSchema;

use super::format_duration;
use super::page::PageParams;
use super::process_usage::ProcessUsageView;
use super::sandbox::SandboxView;
use super::stats::FiguresView;
use crate::configuration::{ConfigSnapshot, ConfigSource};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiPath, ApiQuery};
use crate::http::schema::{
    ItemOutcomeSchema, ServerInfo, ServerStateSchema, ToolLineVerdictSchema,
};

/// A server: its configuration, its state and what it offers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClientEntry {
    config: ClientView,
    #[schema(value_type = ServerStateSchema)]
    state: ServerState,
    /// Why the server is not healthy.
    #[schema(required)]
    reason: Option<String>,
    /// When the server entered this state.
    since: String,
    /// When the gateway tries to connect again.
    #[schema(required)]
    next_try_at: Option<String>,
    #[schema(required)]
    last_error: Option<String>,
    /// Last output of the server's process on standard error.
    #[schema(required)]
    stderr_tail: Option<String>,
    /// Negotiated protocol revision.
    #[schema(required)]
    protocol_version: Option<String>,
    #[schema(value_type = Option<ServerInfo>, required)]
    server_info: Option<Box<RawValue>>,
    #[schema(required)]
    instructions: Option<String>,
    tools: Vec<ToolLine>,
    resources: Vec<String>,
    resource_templates: Vec<String>,
    prompts: Vec<String>,
    /// Items that the server offers but the gateway cannot use or had to repair, and names in its tool
    /// lists that match nothing.
    problems: Vec<ProblemLine>,
    /// `file`, `api` or `file+api`; null for a server registered by the embedding program.
    #[schema(required)]
    source: Option<ConfigSource>,
    /// Number of calls in flight.
    in_flight: usize,
    figures: FiguresView,
    /// Isolation of the server's process; null for a server without one.
    #[schema(required)]
    sandbox: Option<SandboxView>,
    /// What the server's processes use; null for a server without one.
    #[schema(required)]
    process_usage: Option<ProcessUsageView>,
}

/// What is known about the process of a server.
struct ProcessView {
    sandbox: Option<SandboxView>,
    usage: Option<ProcessUsageView>,
}

/// A server's configuration, with secrets masked.
#[derive(Debug, Serialize, ToSchema)]
struct ClientView {
    name: String,
    client_id: String,
    connection_type: ConnectionType,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    connection_string: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    stdio_config: Option<StdioView>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed_extra_headers: Vec<String>,
    tools_to_execute: Vec<String>,
    tools_to_auto_execute: Vec<String>,
    /// Such as `30s`; absent if the tool manager's timeout applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    tool_execution_timeout: Option<String>,
    max_in_flight: usize,
    max_queue: usize,
    /// Such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    idle_stop: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    fallback: Option<String>,
    is_ping_available: bool,
    #[schema(value_type = String)]
    protocol: Protocol,
    disabled: bool,
    /// Whether the server's tools are exposed to scripts instead of directly to models.
    is_code_mode_client: bool,
    /// Who may approve calls of its tools; absent if rules, keys and the default say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    approval_by: Option<Vec<Approver>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ConnectionType {
    Stdio,
    Http,
    Sse,
    InProcess,
}

#[derive(Debug, Serialize, ToSchema)]
struct StdioView {
    command: String,
    args: Vec<String>,
    envs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cwd: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    env_groups: Vec<EnvGroup>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ToolLine {
    name: String,
    alias: String,
    /// Verdict for a caller without a key, or `hidden`.
    #[schema(value_type = ToolLineVerdictSchema)]
    verdict: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct ProblemLine {
    /// `tool`, `resource`, `template` or `prompt`; `list` for a name in a tool list.
    kind: &'static str,
    /// Name or URI of the item, or `#N`, its position in the server's list.
    item: String,
    /// `left_out` if the item cannot be used, `repaired` if it is used with a repaired definition;
    /// absent for a name in a tool list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ItemOutcomeSchema>, nullable = false)]
    outcome: Option<ItemOutcome>,
    reason: String,
    /// The beginning of the definition as the server sent it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    sent: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClientPage {
    clients: Vec<ClientEntry>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List all servers, ordered by name.
#[utoipa::path(get, path = "/api/mcp/clients", tag = "api", params(PageParams),
    responses((status = 200, body = ClientPage), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(page): ApiQuery<PageParams>,
) -> Result<Json<ClientPage>, ApiError> {
    let entries = app.gateway().servers().list().into_iter();
    let (entries, next_cursor) = page.paginate(entries, |entry| entry.server.name.to_string())?;
    app.gateway().servers().refresh_process_usage().await;
    let snapshot = StatusSnapshot::new(&app);
    let mut clients = Vec::new();
    for entry in &entries {
        let process = ProcessView::new(&app, &entry.server).await;
        clients.push(ClientEntry::new(entry, process, &snapshot));
    }
    Ok(Json(ClientPage {
        clients,
        next_cursor,
    }))
}

/// Get a server by its `client_id` or name.
#[utoipa::path(get, path = "/api/mcp/client/{id}", tag = "api",
    params(("id" = String, Path, description = "`client_id` or name")),
    responses((status = 200, body = ClientEntry), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<ClientEntry>, ApiError> {
    client_entry(&app, &id).await.map(Json)
}

/// Finds the server with this `client_id` or name.
pub(super) fn find_server(app: &App, id: &str) -> Result<Arc<RegistryEntry>, ApiError> {
    let entries = app.gateway().servers().list();
    let by_id = entries.iter().find(|entry| entry.server.id == id);
    let found = by_id.or_else(|| {
        entries
            .iter()
            .find(|entry| entry.server.name.as_str() == id)
    });
    let unknown = || {
        ApiError::not_found(format!(
            "no server with id or name `{id}`; see /api/mcp/clients"
        ))
    };
    found.map(Arc::clone).ok_or_else(unknown)
}

pub(super) async fn client_entry(app: &App, id: &str) -> Result<ClientEntry, ApiError> {
    let entry = find_server(app, id)?;
    app.gateway().servers().refresh_process_usage().await;
    let process = ProcessView::new(app, &entry.server).await;
    Ok(ClientEntry::new(&entry, process, &StatusSnapshot::new(app)))
}

impl ProcessView {
    async fn new(app: &App, server: &ServerConfig) -> Self {
        let servers = app.gateway().servers();
        let report = servers.sandbox_report(server).await;
        Self {
            sandbox: report.as_deref().map(SandboxView::new),
            usage: servers.process_usage(server).map(Into::into),
        }
    }
}

/// Snapshot of the state of all servers, so that one response is consistent.
struct StatusSnapshot {
    catalog: Arc<Catalog>,
    scope: Option<Arc<Scope>>,
    stats: toolgate::metrics::Stats,
    configuration: Arc<ConfigSnapshot>,
}

impl StatusSnapshot {
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
            configuration: app.configuration().snapshot(),
        }
    }

    fn tool_lines(&self, offer: &ServerListing) -> Vec<ToolLine> {
        let entries = offer
            .tools
            .iter()
            .filter_map(|tool| self.catalog.tool(&tool.id));
        let line = |entry: &toolgate_core::catalog::CatalogEntry| ToolLine {
            name: entry.tool.id.tool.to_string(),
            alias: entry.alias.to_string(),
            verdict: self.verdict(entry).map_or("hidden", Verdict::as_str),
        };
        entries.map(line).collect()
    }

    fn verdict(&self, entry: &toolgate_core::catalog::CatalogEntry) -> Option<Verdict> {
        let judgement = self.scope.as_ref()?.judgement(entry)?;
        Some(judgement.decision().verdict)
    }
}

impl ClientEntry {
    fn new(entry: &RegistryEntry, process: ProcessView, snapshot: &StatusSnapshot) -> Self {
        let status = entry.status();
        let offer = snapshot.catalog.listing(&entry.server.name);
        let keys = |items: &[toolgate_core::catalog::ListedItem]| {
            items.iter().map(|item| item.key.clone()).collect()
        };
        let session = status.session.as_ref();
        Self {
            config: ClientView::new(&entry.server),
            state: status.state,
            reason: status.reason.clone(),
            since: format_system_time(status.since),
            next_try_at: status.next_try_at.map(format_system_time),
            last_error: status.last_error.clone(),
            stderr_tail: Some(entry.stderr_tail()).filter(|tail| !tail.is_empty()),
            protocol_version: session.map(|session| session.version.clone()),
            server_info: session.and_then(|session| session.server_info.clone()),
            instructions: session.and_then(|session| session.instructions.clone()),
            tools: offer
                .map(|offer| snapshot.tool_lines(offer))
                .unwrap_or_default(),
            resources: offer
                .map(|offer| keys(&offer.resources))
                .unwrap_or_default(),
            resource_templates: offer
                .map(|offer| keys(&offer.templates))
                .unwrap_or_default(),
            prompts: offer.map(|offer| keys(&offer.prompts)).unwrap_or_default(),
            problems: problem_lines(&entry.server, &snapshot.catalog),
            source: snapshot
                .configuration
                .sources
                .get(entry.server.name.as_str())
                .copied(),
            in_flight: entry.in_flight(),
            figures: snapshot
                .stats
                .servers
                .get(entry.server.name.as_str())
                .map(Into::into)
                .unwrap_or_default(),
            sandbox: process.sandbox,
            process_usage: process.usage,
        }
    }
}

impl ClientView {
    fn new(server: &ServerConfig) -> Self {
        let (connection_type, connection_string, stdio_config, headers) = match &server.connection {
            ServerConnection::Stdio(stdio) => {
                let envs = stdio
                    .env
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.to_masked_string()));
                let view = StdioView {
                    command: stdio.command.clone(),
                    args: mask_arguments(&stdio.args),
                    envs: envs.collect(),
                    cwd: stdio.cwd.as_ref().map(|cwd| cwd.display().to_string()),
                    env_groups: stdio.env_groups.clone(),
                };
                (ConnectionType::Stdio, None, Some(view), BTreeMap::new())
            }
            ServerConnection::Http(http) => {
                let shown =
                    |(name, value): (&String, &Secret)| (name.clone(), value.to_masked_string());
                (
                    match http.transport {
                        HttpTransport::Sse => ConnectionType::Sse,
                        HttpTransport::Auto | HttpTransport::Streamable => ConnectionType::Http,
                    },
                    Some(http.masked_url()),
                    None,
                    http.headers.iter().map(shown).collect(),
                )
            }
            ServerConnection::InProcess => (ConnectionType::InProcess, None, None, BTreeMap::new()),
        };
        Self {
            name: server.name.to_string(),
            client_id: server.id.clone(),
            connection_type,
            connection_string,
            stdio_config,
            headers,
            tools_to_execute: tool_list_names(&server.lists.execute),
            tools_to_auto_execute: tool_list_names(&server.lists.auto_execute),
            tool_execution_timeout: server.timeout.map(format_duration),
            allowed_extra_headers: match &server.connection {
                ServerConnection::Http(http) => http.forwarded_headers.clone(),
                ServerConnection::Stdio(_) | ServerConnection::InProcess => Vec::new(),
            },
            max_in_flight: server.tuning.max_in_flight,
            max_queue: server.tuning.max_queue,
            idle_stop: server.tuning.idle_stop.map(format_duration),
            fallback: server.fallback.as_ref().map(ToString::to_string),
            is_ping_available: server.tuning.ping,
            protocol: server.protocol,
            disabled: !server.enabled,
            is_code_mode_client: server.code_mode,
            approval_by: server.approval_by.map(|by| by.iter().collect()),
        }
    }
}

fn problem_lines(server: &ServerConfig, catalog: &Catalog) -> Vec<ProblemLine> {
    let offer = catalog.listing(&server.name).map(|offer| &**offer);
    let unusable = offer.into_iter().flat_map(|offer| &offer.problems);
    let unusable = unusable.map(|problem| ProblemLine {
        kind: problem.kind.as_str(),
        item: problem.item.clone(),
        outcome: Some(problem.outcome),
        reason: problem.reason.clone(),
        sent: problem.sent.clone(),
    });
    let in_lists = server.find_list_problems(offer).into_iter();
    let in_lists = in_lists.map(|problem| ProblemLine {
        kind: "list",
        item: problem.name,
        outcome: None,
        reason: problem.reason,
        sent: String::new(),
    });
    unusable.chain(in_lists).collect()
}

fn tool_list_names(list: &ToolList) -> Vec<String> {
    match list {
        ToolList::All => vec!["*".to_owned()],
        ToolList::Only(names) => names.iter().cloned().collect(),
    }
}

fn format_system_time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

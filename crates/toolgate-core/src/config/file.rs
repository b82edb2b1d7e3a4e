//! The shapes that a configuration file may have, in both spellings.
//!
//! They exist to be read and turned into [`super::Config`]; nothing else looks at them. The JSON
//! Schema and the reference of the configuration are generated from them.

mod caller;
mod control;
mod provider;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

pub use caller::{BudgetTable, KeyTable, McpGrant, RoleTable, VirtualServerTable};
pub use control::{
    AgentTable, AuditTable, CodeModeTable, OneOrMany, ResultsTable, ScannerTable, ToolTable,
};
pub use provider::{
    CustomProviderConfig, DialectNames, NetworkConfig, PriceTable, ProviderKeyTable, ProviderTable,
    ProxyConfig, ProxyKind,
};

use super::duration::Span;
use super::{Approver, BindingLevel, Protocol};
use crate::name::NameStyle;
use crate::policy::{Hint, Verdict};
use crate::rate::Rate;
use crate::secret::Secret;

/// A Toolgate configuration: `toolgate.toml` or `config.json`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// MCP servers and tool execution, in the spelling of Bifrost.
    pub mcp: Mcp,
    /// MCP servers by name, in the spelling of agent-code.
    pub mcp_servers: IndexMap<String, ServerTable>,
    /// Which servers may be connected.
    pub security: Security,
    /// Who decides about tool calls.
    pub permissions: PermissionsTable,
    /// Sets of tools by the name of a role.
    pub roles: IndexMap<String, RoleTable>,
    /// Keys of callers by name. Once there is one, calls without a key are refused.
    pub keys: IndexMap<String, KeyTable>,
    /// Named subsets of the tools, each an MCP server of its own at `/mcp/v/NAME`.
    pub virtual_servers: IndexMap<String, VirtualServerTable>,
    /// Where models come from, by name. With none, those whose keys are in the environment.
    pub providers: IndexMap<String, ProviderTable>,
    /// Names that stand for models (`provider/model`): one, or several of which the later ones are tried if the
    /// first one fails.
    pub model_aliases: IndexMap<String, OneOrMany>,
    /// What a million tokens cost, by model: `provider/model`, or a model's name; `*` stands for anything.
    pub prices: IndexMap<String, PriceTable>,
    /// The provider of models that name none.
    pub default_provider: Option<String>,
    /// Bounds on one run of an agent.
    pub agent: AgentTable,
    /// What scripts of code mode may use, and how they are run.
    pub code_mode: CodeModeTable,
    /// What to do with arguments that look dangerous.
    pub scanner: ScannerTable,
    /// What happens to results on their way to a model.
    pub results: ResultsTable,
    /// What is kept of each call.
    pub audit: AuditTable,
    /// Which of `environments` is in force, such as `production`.
    pub environment: Option<String>,
    /// Settings that hold only in an environment, over those of this file.
    pub environments: IndexMap<String, Overlay>,
    /// How models see tools: `underscore` (`server_tool`), `hyphen` (`server-tool`) or `mcp` (`mcp__server__tool`).
    pub tool_name_style: Option<NameStyle>,
    /// Address to listen on; other than loopback needs an admin key. Default `127.0.0.1`.
    pub host: Option<String>,
    /// Port to listen on. Default 8080.
    pub port: Option<u16>,
    /// Where the gateway keeps its data. Default `$XDG_DATA_HOME/toolgate`.
    pub data_dir: Option<String>,
    /// Key that opens `/api`; `auto` makes one and keeps it in the data directory.
    pub admin_key: Option<Secret>,
    /// Host names under which the gateway may be called, besides loopback.
    pub allowed_hosts: Option<Vec<String>>,
    /// Web origins that may call the gateway, besides loopback; `scheme://host[:port]`.
    pub allowed_origins: Option<Vec<String>>,
    /// The URL under which the gateway is known outside; its host and origin are allowed.
    pub public_url: Option<String>,
}

/// Settings that hold only in one environment; they are read like those of a later file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overlay {
    /// MCP servers and tool execution, in the spelling of Bifrost.
    pub mcp: Mcp,
    /// MCP servers by name, in the spelling of agent-code.
    pub mcp_servers: IndexMap<String, ServerTable>,
    /// Which servers may be connected.
    pub security: Security,
    /// Who decides about tool calls.
    pub permissions: PermissionsTable,
    /// Sets of tools by the name of a role.
    pub roles: IndexMap<String, RoleTable>,
    /// Keys of callers by name.
    pub keys: IndexMap<String, KeyTable>,
    /// Where models come from, by name. With none, those whose keys are in the environment.
    pub providers: IndexMap<String, ProviderTable>,
    /// Names that stand for models (`provider/model`): one, or several of which the later ones are tried if the
    /// first one fails.
    pub model_aliases: IndexMap<String, OneOrMany>,
    /// What a million tokens cost, by model: `provider/model`, or a model's name; `*` stands for anything.
    pub prices: IndexMap<String, PriceTable>,
    /// What to do with arguments that look dangerous.
    pub scanner: ScannerTable,
    /// What happens to results on their way to a model.
    pub results: ResultsTable,
    /// What is kept of each call.
    pub audit: AuditTable,
}

/// MCP servers and tool execution.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mcp {
    /// Global switch: `false` means no tools for anyone. Default `true`.
    pub enabled: Option<bool>,
    /// Tools that nobody may use, as in a rule's `tool`: `github.delete_*`, `*.drop_table`.
    pub blocked_tools: Vec<String>,
    /// Offers models the tools `ListMcpResources` and `ReadMcpResource` where servers have resources. Default `true`.
    pub resource_tools: Option<bool>,
    /// One entry for each server.
    pub client_configs: Vec<ClientConfig>,
    /// Settings of tool execution.
    pub tool_manager_config: ToolManagerConfig,
    /// How often each server's tools are listed anew without being told. Default `10m`; `0` means never.
    pub tool_sync_interval: Option<Span>,
    /// How often a quiet server is asked whether it is still there. Default `30s`.
    pub health_interval: Option<Span>,
}

/// Settings of tool execution.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolManagerConfig {
    /// Bound on one tool call. Default `30s`.
    pub tool_execution_timeout: Option<Span>,
    /// How many rounds of tool calls an agent may take. Default 10.
    #[schemars(range(min = 1, max = 50))]
    pub max_agent_depth: Option<u32>,
    /// Tools are added to a model request only if it has a filter header. Default `false`.
    pub disable_auto_tool_inject: Option<bool>,
    /// How code mode lays out its stubs: a file for each `server` (default) or for each `tool`.
    pub code_mode_binding_level: Option<BindingLevel>,
}

/// A server in `mcp.client_configs`; absent tool lists mean none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// Prefix of the server's tools: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// Stable id for the API; the name where absent.
    pub client_id: Option<String>,
    /// How the server is reached.
    pub connection_type: ConnectionType,
    /// URL of an HTTP server.
    pub connection_string: Option<Secret>,
    /// Command of a stdio server.
    pub stdio_config: Option<StdioConfig>,
    /// TLS settings of an HTTP server.
    #[serde(default)]
    pub tls_config: TlsConfig,
    /// How to authenticate: `none` or `headers`.
    pub auth_type: Option<AuthType>,
    /// Headers sent with every request to an HTTP server.
    #[serde(default)]
    pub headers: IndexMap<String, Secret>,
    /// Headers of the caller's request that are passed on to an HTTP server; `["*"]` for all but credentials.
    #[serde(default)]
    pub allowed_extra_headers: Vec<String>,
    /// Tools that exist at all, by raw name; `["*"]` for all. Default none.
    #[serde(default)]
    pub tools_to_execute: Vec<String>,
    /// Tools that run unasked; counts only within `tools_to_execute`. Default none.
    #[serde(default)]
    pub tools_to_auto_execute: Vec<String>,
    /// Bound on one tool call; the tool manager's where absent.
    pub tool_execution_timeout: Option<Span>,
    /// How often the tools are listed anew without being told; `mcp.tool_sync_interval` where absent.
    pub tool_sync_interval: Option<Span>,
    /// Whether the server answers pings; if not, it is asked for a list. Default `true`.
    pub is_ping_available: Option<bool>,
    /// Calls that may be under way at once. Default 64.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// Calls that may wait for their turn; more are answered "busy". Default 256.
    #[schemars(range(max = 100_000))]
    pub max_queue: Option<u32>,
    /// Stops a stdio server that was not used for so long; the next call starts it again.
    pub idle_stop: Option<Span>,
    /// A server that takes over tools of the same name while this one is away.
    pub fallback: Option<String>,
    /// Calls in a period, over all callers; more are refused until it has passed.
    pub rate_limit: Option<Rate>,
    /// How long results of tools marked as read-only are reused for the same arguments. Default not at all.
    pub cache_ttl: Option<Span>,
    /// Settings of single tools, by raw name.
    #[serde(default)]
    pub tools: IndexMap<String, ToolTable>,
    /// What a call costs in US dollars, by raw tool name.
    #[serde(default)]
    pub tool_pricing: IndexMap<String, f64>,
    /// Opens the server to keys whose grants do not speak of it. Default `false`.
    #[serde(default)]
    pub allow_on_all_virtual_keys: bool,
    /// Shows the server's resources and prompts. Default `true`.
    pub resources: Option<bool>,
    /// Starts a stdio server once more for each MCP client that it may ask something. Default `false`.
    #[serde(default)]
    pub per_session: bool,
    /// Shows the server's tools to scripts (code mode) instead of showing each to the model. Default `false`.
    #[serde(default)]
    pub is_code_mode_client: bool,
    /// Keeps the entry without connecting. Default `false`.
    #[serde(default)]
    pub disabled: bool,
    /// Protocol era: `auto`, `legacy` or `modern`.
    #[serde(default)]
    pub protocol: Protocol,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionType {
    Stdio,
    Http,
    Sse,
    Inprocess,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AuthType {
    None,
    Headers,
    Oauth,
    PerUserOauth,
    PerUserHeaders,
    TokenExchange,
}

/// Command of a stdio server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdioConfig {
    /// Program to start, found on the PATH.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// `NAME` passes a variable of the gateway on, `NAME=value` sets one.
    #[serde(default)]
    pub envs: Vec<String>,
    /// Folder to start it in.
    pub cwd: Option<String>,
}

/// TLS settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Accept any certificate. Only for tests.
    pub insecure_skip_verify: bool,
    /// PEM text of an additional certificate authority.
    pub ca_cert_pem: Option<Secret>,
}

/// A server in `[mcp_servers.NAME]`; absent tool lists mean all, none unasked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTable {
    /// Program to start, found on the PATH.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables for the program.
    pub env: IndexMap<String, Secret>,
    /// Folder to start it in.
    pub cwd: Option<String>,
    /// URL of an HTTP server.
    pub url: Option<Secret>,
    /// Headers sent with every request to an HTTP server.
    pub headers: IndexMap<String, Secret>,
    /// Headers of the caller's request that are passed on to an HTTP server.
    pub allowed_extra_headers: Vec<String>,
    /// TLS settings of an HTTP server.
    pub tls: TlsConfig,
    /// `false` keeps the entry without connecting. Default `true`.
    pub enabled: Option<bool>,
    /// Bound on one tool call; the tool manager's where absent.
    pub timeout: Option<Span>,
    /// Calls that may be under way at once. Default 64.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// Calls that may wait for their turn; more are answered "busy". Default 256.
    #[schemars(range(max = 100_000))]
    pub max_queue: Option<u32>,
    /// Stops a stdio server that was not used for so long; the next call starts it again.
    pub idle_stop: Option<Span>,
    /// A server that takes over tools of the same name while this one is away.
    pub fallback: Option<String>,
    /// Calls in a period, over all callers; more are refused until it has passed.
    pub rate_limit: Option<Rate>,
    /// How long results of tools marked as read-only are reused for the same arguments. Default not at all.
    pub cache_ttl: Option<Span>,
    /// Settings of single tools, by raw name.
    pub tools: IndexMap<String, ToolTable>,
    /// What a call costs in US dollars, by raw tool name.
    pub tool_pricing: IndexMap<String, f64>,
    /// Opens the server to keys whose grants do not speak of it. Default `false`.
    pub allow_on_all_virtual_keys: bool,
    /// Shows the server's resources and prompts. Default `true`.
    pub resources: Option<bool>,
    /// Starts a stdio server once more for each MCP client that it may ask something. Default `false`.
    pub per_session: bool,
    /// Shows the server's tools to scripts (code mode) instead of showing each to the model. Default `false`.
    pub is_code_mode_client: bool,
    /// How the server is reached: `stdio`, `http` (streamable), `sse` (the old way), or `auto` by `command` or `url`.
    pub transport: TransportName,
    /// Protocol era: `auto`, `legacy` or `modern`.
    pub protocol: Protocol,
    /// Tools that exist at all, by raw name; `["*"]` for all. Default all.
    pub tools_to_execute: Option<Vec<String>>,
    /// Tools that run unasked. Default none.
    pub tools_to_auto_execute: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum TransportName {
    #[default]
    Auto,
    Stdio,
    Http,
    Sse,
}

/// Which servers may be connected.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Security {
    /// If not empty, only these servers are connected.
    pub mcp_server_allowlist: Option<Vec<String>>,
    /// These servers are never connected.
    pub mcp_server_denylist: Option<Vec<String>>,
}

/// Who decides about tool calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionsTable {
    /// Verdict where no rule matches; it can only make the tool lists stricter.
    pub default: Option<Verdict>,
    /// The strictest matching rule wins.
    pub rules: Vec<RuleTable>,
    /// Who may answer `ask`: `admin` (and keys with the role `approver`), `client` (the person at an MCP client).
    /// Default both; with `[]` every `ask` is refused.
    pub approval_by: Option<Vec<Approver>>,
    /// How long an approval can be given and used. Default `15m`.
    pub approval_expiry: Option<Span>,
    /// How long a call on `/mcp` waits for an approval. Default not at all.
    pub approval_wait: Option<Span>,
}

/// A permission rule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleTable {
    /// Tools in any name style with `*` and `?`: `github_*`, `mcp__github__*`, `github.create_issue`, `*.delete`, `*`.
    /// With `server`, raw tool names.
    pub tool: Option<String>,
    /// Servers, with `*` and `?`.
    pub server: Option<String>,
    /// Arguments by name (`options.path` for inner ones) and the pattern that the value must fit, or several of which
    /// it must fit one.
    #[serde(default)]
    pub arguments: IndexMap<String, OneOrMany>,
    /// Only for callers with one of these roles.
    pub roles: Option<OneOrMany>,
    /// Only in one of these environments.
    pub environment: Option<OneOrMany>,
    /// Only for tools that their server marks so; one that is marked with nothing counts as `destructive`.
    pub hint: Option<Hint>,
    /// A condition on arguments, as agent-code has it; write `arguments` instead.
    pub pattern: Option<String>,
    /// What to do with a call.
    pub action: Verdict,
}

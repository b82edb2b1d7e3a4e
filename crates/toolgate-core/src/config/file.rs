//! Serde types of a configuration file, in both supported formats (Bifrost and agent-code).
//!
//! They are deserialized and converted to [`super::Config`], and used nowhere else. The JSON Schema
//! of the configuration is generated from them, so their doc comments are user documentation.

mod caller;
mod control;
mod provider;
mod sandbox;
mod store;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

pub use caller::{BudgetTable, KeyTable, McpGrant, RoleTable, VirtualServerTable};
pub use control::{
    AgentTable, AuditSinkTable, AuditTable, CapacityTable, CodeModeTable, LogTable, OneOrMany,
    ResultsTable, ScannerTable, ToolTable,
};
pub use provider::{
    CustomProviderConfig, DialectNames, NetworkConfig, PriceTable, ProviderKeyTable, ProviderTable,
    ProxyConfig, ProxyKind,
};
pub use sandbox::{SandboxName, SandboxSetting, SandboxTable, UserSetting};
pub use store::StoreTable;

use super::duration::ConfigDuration;
use super::ip_range::IpRange;
use super::{
    Approver, ArgumentCheck, BindingLevel, EnvGroup, OnDefinitionChange, OnSuspiciousDefinition,
    PerSession, Protocol,
};
use crate::name::NameStyle;
use crate::policy::{Hint, Verdict};
use crate::rate::Rate;
use crate::secret::Secret;

/// Toolgate configuration file: `toolgate.toml` or `config.json`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Toolgate configuration")]
pub struct ConfigFile {
    /// MCP servers and tool execution, in Bifrost's format.
    pub mcp: McpTable,
    /// MCP servers by name, in agent-code's format.
    pub mcp_servers: IndexMap<String, ServerTable>,
    /// Servers that the gateway may connect to.
    pub security: Security,
    /// Permission rules and approvals for tool calls.
    pub permissions: PermissionsTable,
    /// Roles by name; each grants a set of tools.
    pub roles: IndexMap<String, RoleTable>,
    /// API keys of callers, by name. As soon as one is defined, requests without a key are rejected, also
    /// after the last one is removed; `toolgate keys make-optional` allows them again.
    pub keys: IndexMap<String, KeyTable>,
    /// Named subsets of the tools. Each is served as a separate MCP server at `/mcp/v/NAME`.
    pub virtual_servers: IndexMap<String, VirtualServerTable>,
    /// Model providers by name. If none is defined, the presets whose API keys are set in the environment are used.
    pub providers: IndexMap<String, ProviderTable>,
    /// Aliases for models (`provider/model`). An alias may list several models; the next one is used if the previous
    /// one fails.
    pub model_aliases: IndexMap<String, OneOrMany>,
    /// Price per million tokens, by model: `provider/model` or the model's name. `*` matches any characters.
    pub prices: IndexMap<String, PriceTable>,
    /// Provider for model names without a provider prefix.
    pub default_provider: Option<String>,
    /// Limits for a single agent run.
    pub agent: AgentTable,
    /// Limits and workers for code mode scripts.
    pub code_mode: CodeModeTable,
    /// Limits on what all callers together, and each of them, may use.
    pub capacity: CapacityTable,
    /// Actions for arguments that look dangerous.
    pub scanner: ScannerTable,
    /// Processing of tool results before they reach a model.
    pub results: ResultsTable,
    /// Audit log of tool calls.
    pub audit: AuditTable,
    /// Log of the gateway.
    pub log: LogTable,
    /// Name of the active environment, such as `production`. Selects an entry of `environments`.
    pub environment: Option<String>,
    /// Settings by environment that override the rest of this file when that environment is active.
    pub environments: IndexMap<String, Overlay>,
    /// Style of tool names for models: `underscore` (`server_tool`), `hyphen` (`server-tool`) or `mcp` (`mcp__server__tool`).
    pub tool_name_style: Option<NameStyle>,
    /// Address to listen on. Must be a loopback address if `admin_key` is `off`. Default `127.0.0.1`.
    pub host: Option<String>,
    /// Port to listen on. Default 8080.
    pub port: Option<u16>,
    /// Directory for the gateway's data. Default `$XDG_DATA_HOME/toolgate`.
    pub data_dir: Option<String>,
    /// Key of the store, if it is kept outside of the data directory.
    pub store: StoreTable,
    /// Key for the admin API under `/api`. `auto` generates a key and stores it in `admin.key` in the data directory.
    /// `off` makes every process on this machine the administrator. Default `auto`.
    pub admin_key: Option<Secret>,
    /// Host names accepted in requests, in addition to loopback.
    pub allowed_hosts: Option<Vec<String>>,
    /// Web origins accepted in requests, in addition to that of the gateway itself: `scheme://host[:port]`.
    pub allowed_origins: Option<Vec<String>>,
    /// Public URL of the gateway. Its host and origin are accepted in requests.
    pub public_url: Option<String>,
    /// Bounds and timeouts of connections. Changes take effect after a restart.
    pub http: HttpTable,
    /// Environment variables that the file of a project (`toolgate.toml` or `config.json` in the working folder) may
    /// use, by name. Only the user's own file can set this. Default none.
    pub project_env: Vec<String>,
}

/// Bounds and timeouts of connections.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTable {
    /// Maximum number of open connections. When they are all taken, the one that has waited longest for a request is
    /// closed. Default 8192.
    #[schemars(range(min = 64, max = 1_000_000))]
    pub max_connections: Option<u32>,
    /// Number of connections that are kept for probes and the administrator. Default 32.
    #[schemars(range(min = 1, max = 1000))]
    pub reserved_connections: Option<u32>,
    /// Maximum number of connections from one address, except this machine's own and `trusted_proxies`. Default 1024.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections_per_peer: Option<u32>,
    /// Addresses of reverse proxies, such as `10.0.0.7` or `10.0.0.0/8`, to which `max_connections_per_peer` does not
    /// apply. Default none.
    pub trusted_proxies: Option<Vec<IpRange>>,
    /// Maximum number of connections that use one key. Default 256.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections_per_key: Option<u32>,
    /// Maximum time to receive the headers of a request. Default `10s`.
    pub header_timeout: Option<ConfigDuration>,
    /// Maximum time without progress while the body of a request is received or a response is sent. Default `30s`.
    pub body_timeout: Option<ConfigDuration>,
    /// Maximum time between two requests on a connection. Default `60s`.
    pub idle_timeout: Option<ConfigDuration>,
}

/// Settings for one environment, applied like a configuration file loaded later.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overlay {
    /// MCP servers and tool execution, in Bifrost's format.
    pub mcp: McpTable,
    /// MCP servers by name, in agent-code's format.
    pub mcp_servers: IndexMap<String, ServerTable>,
    /// Servers that the gateway may connect to.
    pub security: Security,
    /// Permission rules and approvals for tool calls.
    pub permissions: PermissionsTable,
    /// Roles by name; each grants a set of tools.
    pub roles: IndexMap<String, RoleTable>,
    /// API keys of callers, by name.
    pub keys: IndexMap<String, KeyTable>,
    /// Model providers by name. If none is defined, the presets whose API keys are set in the environment are used.
    pub providers: IndexMap<String, ProviderTable>,
    /// Aliases for models (`provider/model`). An alias may list several models; the next one is used if the previous
    /// one fails.
    pub model_aliases: IndexMap<String, OneOrMany>,
    /// Price per million tokens, by model: `provider/model` or the model's name. `*` matches any characters.
    pub prices: IndexMap<String, PriceTable>,
    /// Actions for arguments that look dangerous.
    pub scanner: ScannerTable,
    /// Processing of tool results before they reach a model.
    pub results: ResultsTable,
    /// Audit log of tool calls.
    pub audit: AuditTable,
}

/// MCP servers and tool execution.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpTable {
    /// `false` disables tools for all callers, and no server is started. Default `true`.
    pub enabled: Option<bool>,
    /// Tools blocked for all callers, as patterns like in a rule's `tool`: `github.delete_*`, `*.drop_table`.
    pub blocked_tools: Vec<String>,
    /// What happens when a server changes the definition of a tool, or adds one with the name of another server's tool:
    /// `off`, `warn` (default: it is reported) or `pin` (the tool is hidden until an administrator trusts the definition).
    pub definitions: Option<OnDefinitionChange>,
    /// What happens to a definition with hidden text, instructions to the model, references to other servers' tools or a
    /// name that looks like another's: `off`, `warn` (default: it is reported) or `block` (the tool is hidden until an
    /// administrator trusts the definition).
    pub definition_scan: Option<OnSuspiciousDefinition>,
    /// How arguments are checked against the input schema of a tool: `coerce` (default: a value such as `"5"` for a number
    /// is converted where exactly one conversion makes it fit), `strict` (they must fit as they are) or `off`.
    pub argument_check: Option<ArgumentCheck>,
    /// Gives models the tools `ListMcpResources` and `ReadMcpResource` if any server has resources. Default `true`.
    pub resource_tools: Option<bool>,
    /// MCP servers, one entry each.
    pub client_configs: Vec<ClientConfig>,
    /// Tool execution settings.
    pub tool_manager_config: ToolManagerConfig,
    /// Interval between periodic refreshes of each server's tool list. Default `10m`; `0` disables them.
    pub tool_sync_interval: Option<ConfigDuration>,
    /// Interval between health checks of an idle connection. Default `30s`.
    pub health_interval: Option<ConfigDuration>,
    /// Time that a call waits for a server that is reconnecting. Default `5s`; `0` refuses it at once.
    pub reconnect_wait: Option<ConfigDuration>,
    /// Time that a model request waits for servers that connect for the first time. Default `5s`; `0` does not
    /// wait.
    pub startup_wait: Option<ConfigDuration>,
}

/// Tool execution settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolManagerConfig {
    /// Timeout of a tool call. Default `30s`.
    pub tool_execution_timeout: Option<ConfigDuration>,
    /// Maximum number of tool call rounds in an agent run. Default 10.
    #[schemars(range(min = 1, max = 50))]
    pub max_agent_depth: Option<u32>,
    /// `true` adds tools to a model request only if the request has a filter header. Default `false`.
    pub disable_auto_tool_inject: Option<bool>,
    /// Layout of the code mode stub files: one per `server` (default) or one per `tool`.
    pub code_mode_binding_level: Option<BindingLevel>,
}

/// An MCP server in `mcp.client_configs`. Absent tool lists mean no tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// Server name, used as the prefix of its tools: up to 64 letters, digits, `_` and `-`.
    pub name: String,
    /// Stable id in the API. Default: the server name.
    pub client_id: Option<String>,
    /// Transport used to reach the server.
    pub connection_type: ConnectionType,
    /// URL of the server (HTTP only).
    pub connection_string: Option<Secret>,
    /// Command that starts the server (stdio only).
    pub stdio_config: Option<StdioConfig>,
    /// TLS settings (HTTP only).
    #[serde(default)]
    pub tls_config: TlsConfig,
    /// Authentication method: `none` or `headers`.
    pub auth_type: Option<AuthType>,
    /// Headers sent with every request to the server (HTTP only).
    #[serde(default)]
    pub headers: IndexMap<String, Secret>,
    /// Headers of the caller's request that are forwarded to the server (HTTP only). `["*"]` forwards all except credentials.
    #[serde(default)]
    pub allowed_extra_headers: Vec<String>,
    /// Tools to expose, by raw name. `["*"]` exposes all. Default none.
    #[serde(default)]
    pub tools_to_execute: Vec<String>,
    /// Tools that run without confirmation, by raw name. Each must also be in `tools_to_execute`. Default none.
    #[serde(default)]
    pub tools_to_auto_execute: Vec<String>,
    /// Timeout of a tool call. Default: `mcp.tool_manager_config.tool_execution_timeout`.
    pub tool_execution_timeout: Option<ConfigDuration>,
    /// Time that a call waits for the server while it is reconnecting. Default: `mcp.reconnect_wait`.
    pub reconnect_wait: Option<ConfigDuration>,
    /// Interval between periodic refreshes of the tool list. Default: `mcp.tool_sync_interval`.
    pub tool_sync_interval: Option<ConfigDuration>,
    /// `true` if the server answers `ping`. Otherwise health checks request a list instead. Default `true`.
    pub is_ping_available: Option<bool>,
    /// Maximum number of concurrent calls. Default 64.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// Maximum number of concurrent calls of one key. Default: three quarters of `max_in_flight`.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight_per_key: Option<u32>,
    /// Maximum number of queued calls. Further calls fail with a "busy" error. Default 256.
    #[schemars(range(max = 100_000))]
    pub max_queue: Option<u32>,
    /// Idle time after which a stdio server is stopped. The next call restarts it. Default: never.
    pub idle_stop: Option<ConfigDuration>,
    /// Name of a server that handles calls of tools with the same name while this one is unavailable.
    pub fallback: Option<String>,
    /// Maximum rate of calls, over all callers. Further calls are rejected until the period ends.
    pub rate_limit: Option<Rate>,
    /// Time for which results of read-only tools are cached by their arguments. Default: no caching.
    pub cache_ttl: Option<ConfigDuration>,
    /// Settings of individual tools, by raw name.
    #[serde(default)]
    pub tools: IndexMap<String, ToolTable>,
    /// Price of a call in US dollars, by raw tool name.
    #[serde(default)]
    pub tool_pricing: IndexMap<String, f64>,
    /// Allows keys whose grants do not mention this server to use it. Default `false`.
    #[serde(default)]
    pub allow_on_all_virtual_keys: bool,
    /// Exposes the server's resources and prompts. Default `true`.
    pub resources: Option<bool>,
    /// Who may approve calls of the server's tools that need it: `admin`, `client`. Default: `permissions.approval_by`.
    pub approval_by: Option<Vec<Approver>>,
    /// How arguments are checked against input schemas: `coerce`, `strict` or `off`. Default: `mcp.argument_check`.
    pub argument_check: Option<ArgumentCheck>,
    /// What happens when the server changes the definition of a tool: `off`, `warn` or `pin`. Default: `mcp.definitions`.
    pub definitions: Option<OnDefinitionChange>,
    /// What happens to a definition that contains suspicious text: `off`, `warn` or `block`. Default: `mcp.definition_scan`.
    pub definition_scan: Option<OnSuspiciousDefinition>,
    /// Whether MCP clients that can answer the server's requests get stdio processes of their own: `"auto"`, one for each
    /// caller, or for each session of a legacy client; `true`, also for legacy clients that only set a log level;
    /// `false`, never. Default `"auto"`.
    #[serde(default)]
    pub per_session: PerSession,
    /// Exposes the server's tools to scripts (code mode) instead of directly to the model. Default `false`.
    #[serde(default)]
    pub is_code_mode_client: bool,
    /// `true` keeps the entry but does not connect to the server. Default `false`.
    #[serde(default)]
    pub disabled: bool,
    /// MCP protocol era: `auto` (default), `legacy` or `modern`.
    #[serde(default)]
    pub protocol: Protocol,
}

/// Transport used to reach a server.
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

/// Command that starts a stdio server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdioConfig {
    /// Program to start, looked up in `PATH`.
    pub command: String,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment variables of the program. `NAME` passes on the gateway's value, `NAME=value` sets one.
    #[serde(default)]
    #[schemars(extend("x-variables" = true))]
    pub envs: Vec<String>,
    /// Working directory of the program.
    pub cwd: Option<String>,
    /// Named groups of variables that the program inherits from the gateway. `network`: proxies (`HTTPS_PROXY`, `NO_PROXY`, …)
    /// and certificate authorities (`SSL_CERT_FILE`, `NODE_EXTRA_CA_CERTS`, …). Default none.
    #[serde(default)]
    pub env_groups: Vec<EnvGroup>,
    /// Isolation of the program: `default`, `off`, `strict`, or a table with the settings of `strict`.
    pub sandbox: Option<SandboxSetting>,
}

/// TLS settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Accepts any certificate. Use for tests only.
    pub insecure_skip_verify: bool,
    /// Additional CA certificate, as PEM text.
    pub ca_cert_pem: Option<Secret>,
}

/// An MCP server in `[mcp_servers.NAME]`. By default all tools are exposed and none runs without confirmation.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTable {
    /// Program to start, looked up in `PATH`.
    pub command: Option<String>,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Environment variables of the program.
    pub env: IndexMap<String, Secret>,
    /// Working directory of the program.
    pub cwd: Option<String>,
    /// Named groups of variables that the program inherits from the gateway. `network`: proxies (`HTTPS_PROXY`, `NO_PROXY`, …)
    /// and certificate authorities (`SSL_CERT_FILE`, `NODE_EXTRA_CA_CERTS`, …). Default none.
    pub env_groups: Vec<EnvGroup>,
    /// Isolation of the program: `default`, `off`, `strict`, or a table with the settings of `strict`.
    pub sandbox: Option<SandboxSetting>,
    /// URL of the server (HTTP only).
    pub url: Option<Secret>,
    /// Headers sent with every request to the server (HTTP only).
    pub headers: IndexMap<String, Secret>,
    /// Headers of the caller's request that are forwarded to the server (HTTP only). `["*"]` forwards all except credentials.
    pub allowed_extra_headers: Vec<String>,
    /// TLS settings (HTTP only).
    pub tls: TlsConfig,
    /// `false` keeps the entry but does not connect to the server. Default `true`.
    pub enabled: Option<bool>,
    /// Timeout of a tool call. Default: `mcp.tool_manager_config.tool_execution_timeout`.
    pub timeout: Option<ConfigDuration>,
    /// Time that a call waits for the server while it is reconnecting. Default: `mcp.reconnect_wait`.
    pub reconnect_wait: Option<ConfigDuration>,
    /// Maximum number of concurrent calls. Default 64.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// Maximum number of concurrent calls of one key. Default: three quarters of `max_in_flight`.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight_per_key: Option<u32>,
    /// Maximum number of queued calls. Further calls fail with a "busy" error. Default 256.
    #[schemars(range(max = 100_000))]
    pub max_queue: Option<u32>,
    /// Idle time after which a stdio server is stopped. The next call restarts it. Default: never.
    pub idle_stop: Option<ConfigDuration>,
    /// Name of a server that handles calls of tools with the same name while this one is unavailable.
    pub fallback: Option<String>,
    /// Maximum rate of calls, over all callers. Further calls are rejected until the period ends.
    pub rate_limit: Option<Rate>,
    /// Time for which results of read-only tools are cached by their arguments. Default: no caching.
    pub cache_ttl: Option<ConfigDuration>,
    /// Settings of individual tools, by raw name.
    pub tools: IndexMap<String, ToolTable>,
    /// Price of a call in US dollars, by raw tool name.
    pub tool_pricing: IndexMap<String, f64>,
    /// Allows keys whose grants do not mention this server to use it. Default `false`.
    pub allow_on_all_virtual_keys: bool,
    /// Exposes the server's resources and prompts. Default `true`.
    pub resources: Option<bool>,
    /// Who may approve calls of the server's tools that need it: `admin`, `client`. Default: `permissions.approval_by`.
    pub approval_by: Option<Vec<Approver>>,
    /// How arguments are checked against input schemas: `coerce`, `strict` or `off`. Default: `mcp.argument_check`.
    pub argument_check: Option<ArgumentCheck>,
    /// What happens when the server changes the definition of a tool: `off`, `warn` or `pin`. Default: `mcp.definitions`.
    pub definitions: Option<OnDefinitionChange>,
    /// What happens to a definition that contains suspicious text: `off`, `warn` or `block`. Default: `mcp.definition_scan`.
    pub definition_scan: Option<OnSuspiciousDefinition>,
    /// Whether MCP clients that can answer the server's requests get stdio processes of their own: `"auto"`, one for each
    /// caller, or for each session of a legacy client; `true`, also for legacy clients that only set a log level;
    /// `false`, never. Default `"auto"`.
    pub per_session: PerSession,
    /// Exposes the server's tools to scripts (code mode) instead of directly to the model. Default `false`.
    pub is_code_mode_client: bool,
    /// Transport used to reach the server: `stdio`, `http` (streamable), `sse` (legacy), or `auto` (default) to choose by `command` or `url`.
    pub transport: TransportName,
    /// MCP protocol era: `auto` (default), `legacy` or `modern`.
    pub protocol: Protocol,
    /// Tools to expose, by raw name. `["*"]` exposes all. Default all.
    pub tools_to_execute: Option<Vec<String>>,
    /// Tools that run without confirmation, by raw name. Each must also be in `tools_to_execute`. Default none.
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

/// Servers that the gateway may connect to.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Security {
    /// If not empty, the gateway connects only to these servers.
    pub mcp_server_allowlist: Option<Vec<String>>,
    /// Servers that the gateway never connects to.
    pub mcp_server_denylist: Option<Vec<String>>,
}

/// Permission rules and approvals for tool calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionsTable {
    /// Verdict if no rule matches. It can only be stricter than what the tool lists give.
    pub default: Option<Verdict>,
    /// Permission rules. The strictest matching rule wins.
    pub rules: Vec<RuleTable>,
    /// Who may approve calls with verdict `ask`: `admin` (the admin key and keys with the role `approver`) and `client`
    /// (the user of the MCP client that made the call). Default `["admin"]`. With `[]`, every `ask` is denied. Rules, servers and
    /// keys can say otherwise for their calls; where several do, only those whom all of them name may approve.
    pub approval_by: Option<Vec<Approver>>,
    /// Time within which an approval must be given and used. Default `15m`.
    pub approval_expiry: Option<ConfigDuration>,
    /// Time that a call on `/mcp` waits for an approval. Default: no waiting.
    pub approval_wait: Option<ConfigDuration>,
}

/// A permission rule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleTable {
    /// Tool pattern in any name style, with `*` and `?`: `github_*`, `mcp__github__*`, `github.create_issue`, `*.delete`, `*`.
    /// With `server`, a pattern for raw tool names.
    pub tool: Option<String>,
    /// Server pattern, with `*` and `?`. A rule that covers a whole server (`server = "hr"`, `tool = "hr.*"`) covers its
    /// resources and prompts too.
    pub server: Option<String>,
    /// Resources, as `SERVER:URI` with `*` and `?`: `hr:file:///salaries/*`. Not together with `tool`, `server` or `prompt`.
    pub resource: Option<String>,
    /// Prompts, as `SERVER.NAME` with `*` and `?`: `hr.summarize`. Not together with `tool`, `server` or `resource`.
    pub prompt: Option<String>,
    /// Conditions on arguments, by name (`options.path` for nested ones): a pattern that the value must match, or
    /// several of which it must match one.
    #[serde(default)]
    pub arguments: IndexMap<String, OneOrMany>,
    /// Applies only to callers with one of these roles.
    pub roles: Option<OneOrMany>,
    /// Applies only in these environments.
    pub environment: Option<OneOrMany>,
    /// Applies only to tools with this annotation. Tools without annotations count as `destructive`.
    pub hint: Option<Hint>,
    /// Argument condition of agent-code. Not supported for MCP tools; use `arguments` instead.
    pub pattern: Option<String>,
    /// Who may approve the calls for which this rule asks: `admin`, `client`. Default: what the server or key says, else `permissions.approval_by`.
    pub approval_by: Option<Vec<Approver>>,
    /// Verdict on matching calls.
    pub action: Verdict,
}

//! Serde types of keys, roles and virtual servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AgentTable;
use crate::config::{Approver, ToolInjection};
use crate::rate::{Period, Rate};
use crate::secret::Secret;

/// A role, which grants tools to the keys that have it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoleTable {
    /// Purpose of the role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Granted tools, as patterns like in a rule's `tool`: `github.*`, `*.read_file`. Default: no restriction. `[]` grants none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// `false` hides the resources and prompts of all servers. Default `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<bool>,
}

/// A named subset of the tools, served as a separate MCP server.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VirtualServerTable {
    /// Purpose of the virtual server. Clients receive it as instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tools, as patterns like in a rule's `tool`: `web.*`, `notes.read*`.
    pub tools: Vec<String>,
}

/// API key of a caller.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyTable {
    /// Key value, preferably as `env.NAME`.
    pub key: Option<Secret>,
    /// SHA-256 of the key in hex, as an alternative to `key`.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    pub sha256: Option<String>,
    /// Purpose of the key.
    pub description: Option<String>,
    /// `false` disables the key without removing it. Default `true`.
    pub enabled: Option<bool>,
    /// Expiry time, such as `2027-01-31T00:00:00Z`.
    pub expires_at: Option<String>,
    /// Roles of the key's owner. The role `approver` may decide on approvals.
    pub roles: Vec<String>,
    /// Granted tools, as patterns like in a rule's `tool`. Default: no restriction. `[]` grants none.
    pub tools: Option<Vec<String>>,
    /// Granted tools, in the format of Bifrost's virtual keys.
    pub mcp_configs: Option<Vec<McpGrant>>,
    /// `false` hides the resources and prompts of all servers. Default `true`.
    pub resources: Option<bool>,
    /// Whether requests to models may contain tools that the provider runs itself, such as `web_search`, `code_interpreter` or
    /// `mcp`. Default: `true`, unless `tools` is set, for the key or one of its roles, or `permissions.default` is `deny`.
    pub provider_tools: Option<bool>,
    /// Tools that are added to the key's model requests: `all`, `auto` (those that the gateway runs itself) or `none`. The
    /// header `x-toolgate-inject` overrides it. Default `all`, for coding agents `auto`.
    pub inject: Option<ToolInjection>,
    /// Who may approve the key's calls that need it: `admin`, `client` (the user of the MCP client). Default: `permissions.approval_by`.
    pub approval_by: Option<Vec<Approver>>,
    /// Maximum rate of calls. Further calls are rejected with status 429.
    pub rate_limit: Option<Rate>,
    /// Maximum number of concurrent calls. Up to four times as many are queued. Default: unlimited.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// Usage budget.
    pub budget: Option<BudgetTable>,
    /// Limits for a single agent run, in addition to the global ones in `agent`.
    pub agent: Option<AgentTable>,
}

/// Tools of one server granted to a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpGrant {
    /// Name of the server.
    #[serde(alias = "mcp_client_id")]
    pub mcp_client_name: String,
    /// Raw tool names. `["*"]` grants all.
    #[serde(default)]
    pub tools_to_execute: Vec<String>,
}

/// Usage limits per period, or in total.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetTable {
    /// Maximum number of tool calls.
    pub calls: Option<u64>,
    /// Maximum number of model tokens, input and output together.
    pub tokens: Option<u64>,
    /// Maximum cost in US dollars, according to `tool_pricing` and `prices`.
    #[schemars(range(min = 0))]
    pub usd: Option<f64>,
    /// Period after which usage resets. Default: never, usage counts over the lifetime of the key.
    pub per: Option<Period>,
}

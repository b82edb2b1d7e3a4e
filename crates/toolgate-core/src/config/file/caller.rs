//! Keys and roles, as users write them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AgentTable;
use crate::rate::{Period, Rate};
use crate::secret::Secret;

/// A set of tools that keys with this role may use.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoleTable {
    /// What the role is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tools, as in a rule's `tool`: `github.*`, `*.read_file`. Default no restriction; `[]` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// `false` hides resources and prompts of all servers. Default `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<bool>,
}

/// A named subset of the tools.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VirtualServerTable {
    /// What it is for; clients see it as instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tools, as in a rule's `tool`: `web.*`, `notes.read*`.
    pub tools: Vec<String>,
}

/// A caller's key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyTable {
    /// The key itself, best as `env.NAME`.
    pub key: Option<Secret>,
    /// Instead of `key`: its SHA-256 in hex.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    pub sha256: Option<String>,
    /// What the key is for.
    pub description: Option<String>,
    /// `false` keeps the key without letting it in. Default `true`.
    pub enabled: Option<bool>,
    /// When it ends, as in `2027-01-31T00:00:00Z`.
    pub expires_at: Option<String>,
    /// Roles of the one who has it; `approver` may decide about approvals.
    pub roles: Vec<String>,
    /// Tools that it may use, as in a rule's `tool`. Default no restriction; `[]` for none.
    pub tools: Option<Vec<String>>,
    /// The same in the spelling of Bifrost's virtual keys.
    pub mcp_configs: Option<Vec<McpGrant>>,
    /// `false` hides resources and prompts of all servers. Default `true`.
    pub resources: Option<bool>,
    /// Calls in a period; more are answered with 429.
    pub rate_limit: Option<Rate>,
    /// Calls that may be under way at once; up to four times as many wait. Default no bound.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// What may be used up.
    pub budget: Option<BudgetTable>,
    /// Bounds on one run of an agent, besides those of all.
    pub agent: Option<AgentTable>,
}

/// Tools of one server that a key may use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpGrant {
    /// The server's name.
    #[serde(alias = "mcp_client_id")]
    pub mcp_client_name: String,
    /// Raw tool names; `["*"]` for all.
    #[serde(default)]
    pub tools_to_execute: Vec<String>,
}

/// What may be used up in a period, or ever.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetTable {
    /// Tool calls.
    pub calls: Option<u64>,
    /// Tokens of models, of prompts and answers together.
    pub tokens: Option<u64>,
    /// US dollars, by `tool_pricing` and `prices`.
    #[schemars(range(min = 0))]
    pub usd: Option<f64>,
    /// Default as long as the key exists.
    pub per: Option<Period>,
}

//! Checked configuration of keys, roles and virtual servers.

use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Approvers, RunLimits};
use crate::rate::{Budget, Rate};
use crate::secret::Secret;

/// Role whose keys may decide on approvals.
pub const APPROVER_ROLE: &str = "approver";

/// API key of a caller.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyConfig {
    pub name: String,
    pub proof: KeyCredential,
    pub description: Option<String>,
    pub enabled: bool,
    pub expires_at: Option<SystemTime>,
    pub roles: Vec<String>,
    /// Patterns of granted tools, as written by users; `None` means no restriction.
    pub tools: Option<Vec<String>>,
    /// Whether the key can see resources and prompts.
    pub resources: bool,
    /// Whether requests may contain tools that the provider runs; `None` if that follows from the rest.
    pub provider_tools: Option<bool>,
    /// Tools that are added to its model requests; `None` leaves it to the default.
    pub inject: Option<ToolInjection>,
    /// Who may approve the key's calls; `None` leaves it to the rules, the server and the default.
    pub approval_by: Option<Approvers>,
    pub limits: KeyLimits,
}

/// Tools of the gateway that are added to a model request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolInjection {
    /// All tools in the caller's scope.
    All,
    /// Those that the gateway runs itself.
    Auto,
    /// None. The gateway runs no tools then.
    None,
}

impl ToolInjection {
    /// Parses a value as written in a header.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "all" => Some(Self::All),
            "auto" => Some(Self::Auto),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// Value that authenticates a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCredential {
    Key(Secret),
    Sha256([u8; 32]),
}

/// Usage limits of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeyLimits {
    pub rate: Option<Rate>,
    pub max_in_flight: Option<usize>,
    pub budget: Option<Budget>,
    /// Limits for each agent run.
    pub run: RunLimits,
}

/// A role, which grants tools to the keys that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleConfig {
    pub name: String,
    pub description: Option<String>,
    /// Patterns of granted tools; `None` means no restriction.
    pub tools: Option<Vec<String>>,
    /// Whether keys with this role can see resources and prompts.
    pub resources: bool,
}

/// A named subset of the tools, served as a separate MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualServer {
    pub name: String,
    pub description: Option<String>,
    /// Tool patterns, as written by users.
    pub tools: Vec<String>,
}

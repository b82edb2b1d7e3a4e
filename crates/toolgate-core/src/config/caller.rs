//! Keys and roles, as the program uses them.

use std::time::SystemTime;

use super::RunLimits;
use crate::rate::{Budget, Rate};
use crate::secret::Secret;

/// The role whose keys may decide about approvals.
pub const APPROVER: &str = "approver";

/// A caller's key.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub name: String,
    pub proof: Proof,
    pub description: Option<String>,
    pub enabled: bool,
    pub expires_at: Option<SystemTime>,
    pub roles: Vec<String>,
    /// Tools that it may use, as users write them; none for no restriction.
    pub tools: Option<Vec<String>>,
    /// Whether it sees resources and prompts.
    pub resources: bool,
    pub limits: KeyLimits,
}

/// How a key is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    Key(Secret),
    Sha256([u8; 32]),
}

/// What bounds the use of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeyLimits {
    pub rate: Option<Rate>,
    pub max_in_flight: Option<usize>,
    pub budget: Option<Budget>,
    /// Of each run of an agent.
    pub run: RunLimits,
}

/// A named set of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    pub description: Option<String>,
    /// None for no restriction.
    pub tools: Option<Vec<String>>,
    /// Whether those who have it see resources and prompts.
    pub resources: bool,
}

/// A named subset of the tools, which is an MCP server of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualServer {
    pub name: String,
    pub description: Option<String>,
    /// As users write them.
    pub tools: Vec<String>,
}

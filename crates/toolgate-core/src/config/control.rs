//! How calls are kept under control, as the program uses it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may answer an `ask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approver {
    /// An administrator, or a key with the role `approver`.
    Admin,
    /// The person at an MCP client that can be asked.
    Client,
}

/// How approvals are had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approvals {
    /// Nobody means that every `ask` is a `deny`.
    pub by: Vec<Approver>,
    pub expiry: Duration,
    pub wait: Duration,
}

/// What to do with a dangerous argument.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnDanger {
    Off,
    /// Say so in the log and in the audit record.
    Warn,
    Ask,
    Deny,
}

/// What to do with each kind of danger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanner {
    pub path_traversal: OnDanger,
    pub shell: OnDanger,
    pub private_address: OnDanger,
    pub secret: OnDanger,
}

/// What happens to results on their way to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Results {
    pub max_bytes: usize,
    pub keep: Duration,
    pub redact_secrets: bool,
}

/// What is kept of each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    pub content: AuditContent,
    /// None for ever.
    pub retention: Option<Duration>,
}

/// How much of arguments and results is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditContent {
    Full,
    /// Without texts in the shape of secrets.
    Redacted,
    Off,
}

impl Default for Approvals {
    fn default() -> Self {
        Self {
            by: vec![Approver::Admin, Approver::Client],
            expiry: Duration::from_secs(15 * 60),
            wait: Duration::ZERO,
        }
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            path_traversal: OnDanger::Warn,
            shell: OnDanger::Warn,
            private_address: OnDanger::Warn,
            secret: OnDanger::Warn,
        }
    }
}

impl Default for Results {
    fn default() -> Self {
        Self {
            max_bytes: 64 * 1024,
            keep: Duration::from_secs(15 * 60),
            redact_secrets: false,
        }
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            content: AuditContent::Redacted,
            retention: Some(Duration::from_secs(30 * 24 * 3600)),
        }
    }
}

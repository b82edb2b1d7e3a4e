//! Checked settings of approvals, the scanner, results and the audit log.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::secret::Secret;

/// Party that may approve a call with verdict `ask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approver {
    /// The admin key, or a key with the role `approver`.
    Admin,
    /// The user of an MCP client that supports elicitation.
    Client,
}

/// Set of parties that may approve a call. If it is empty, an `ask` is treated as `deny`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approvers {
    admin: bool,
    client: bool,
}

/// Approval settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// Who may approve a call if neither rule, server nor key says so.
    pub by: Approvers,
    pub expiry: Duration,
    pub wait: Duration,
}

/// Action for a dangerous argument.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OnDanger {
    Off,
    /// Adds a warning to the log and the audit record.
    Warn,
    Ask,
    Deny,
}

/// Action for each kind of danger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannerSettings {
    pub path_traversal: OnDanger,
    pub shell: OnDanger,
    pub private_address: OnDanger,
    pub secret: OnDanger,
}

/// Processing of tool results before they reach a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultSettings {
    pub max_bytes: usize,
    pub keep: Duration,
    pub redact_secrets: bool,
    pub output_schema: OnInvalidOutput,
}

/// What happens to a result that does not match the tool's output schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalidOutput {
    /// Nothing; results are not checked.
    Off,
    /// Adds a warning to the log and the audit record.
    #[default]
    Warn,
    /// The caller gets an error instead.
    Refuse,
}

/// How the arguments of a call are checked against the tool's input schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentCheck {
    /// Values that do not fit are converted where exactly one conversion makes them fit; then all
    /// must fit.
    #[default]
    Coerce,
    /// All values must fit as they are.
    Strict,
    /// The check is left to the server.
    Off,
}

/// Audit log settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    pub content: AuditContent,
    /// `None` keeps records forever.
    pub retention: Option<Duration>,
    /// Maximum size of all records in bytes; `None` for no limit.
    pub max_size: Option<u64>,
    pub durability: AuditDurability,
    pub on_failure: OnAuditFailure,
    /// `None` for a key derived from that of the store.
    pub seal_key: Option<Secret>,
    pub sink: Option<AuditSinkSettings>,
}

/// What the record of a call that is about to be sent survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditDurability {
    /// A crash of the gateway.
    #[default]
    Process,
    /// A power failure too.
    Disk,
    /// Neither, until it is written with others.
    Batch,
}

/// What happens to calls that cannot be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnAuditFailure {
    #[default]
    Refuse,
    Continue,
}

/// Second place for audit records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditSinkSettings {
    File(PathBuf),
    Http {
        url: Url,
        headers: BTreeMap<String, Secret>,
    },
}

/// Amount of arguments and results recorded in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditContent {
    Full,
    /// Values that look like secrets are removed.
    Redacted,
    Off,
}

impl Approver {
    pub const ALL: [Self; 2] = [Self::Admin, Self::Client];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Client => "client",
        }
    }
}

impl Approvers {
    pub const ADMIN: Self = Self {
        admin: true,
        client: false,
    };

    pub fn contains(self, approver: Approver) -> bool {
        match approver {
            Approver::Admin => self.admin,
            Approver::Client => self.client,
        }
    }

    /// Those that both sets contain.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self {
            admin: self.admin && other.admin,
            client: self.client && other.client,
        }
    }

    /// The set without the users of MCP clients.
    #[must_use]
    pub fn without_client(self) -> Self {
        Self {
            client: false,
            ..self
        }
    }

    pub fn iter(self) -> impl Iterator<Item = Approver> {
        Approver::ALL
            .into_iter()
            .filter(move |approver| self.contains(*approver))
    }
}

impl FromIterator<Approver> for Approvers {
    fn from_iter<I: IntoIterator<Item = Approver>>(approvers: I) -> Self {
        let mut set = Self {
            admin: false,
            client: false,
        };
        for approver in approvers {
            match approver {
                Approver::Admin => set.admin = true,
                Approver::Client => set.client = true,
            }
        }
        set
    }
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self {
            by: Approvers::ADMIN,
            expiry: Duration::from_secs(15 * 60),
            wait: Duration::ZERO,
        }
    }
}

impl Default for ScannerSettings {
    fn default() -> Self {
        Self {
            path_traversal: OnDanger::Warn,
            shell: OnDanger::Warn,
            private_address: OnDanger::Warn,
            secret: OnDanger::Warn,
        }
    }
}

impl Default for ResultSettings {
    fn default() -> Self {
        Self {
            max_bytes: 64 * 1024,
            keep: Duration::from_secs(15 * 60),
            redact_secrets: false,
            output_schema: OnInvalidOutput::default(),
        }
    }
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            content: AuditContent::Redacted,
            retention: Some(Duration::from_secs(30 * 24 * 3600)),
            max_size: Some(4 << 30),
            durability: AuditDurability::default(),
            on_failure: OnAuditFailure::default(),
            seal_key: None,
            sink: None,
        }
    }
}

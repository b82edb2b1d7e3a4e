//! Approvals: one record for each call that a person must decide about.
//!
//! State transitions are compare-and-set operations in the store, so exactly one of several
//! concurrent deciders wins. An approved call is a ticket: the caller repeats the call, once, before
//! the ticket expires. A grant also covers later calls of the same tool, for a session or
//! permanently, as long as the server still runs the same program and defines the tool in the same
//! way.

mod fingerprint;
mod service;
mod store;
mod ticket;

use std::time::SystemTime;

use serde_json::value::RawValue;
use toolgate_core::config::{Approver, Approvers};
use toolgate_core::name::ToolId;
use uuid::Uuid;

pub use fingerprint::ToolFingerprint;
pub(crate) use service::{ApprovalService, Clearance, DecisionTerms};
pub(crate) use store::{ApprovalStore, revoke_caller};
pub(crate) use ticket::Ticket;

use crate::call::{Arguments, ArgumentsError, SchemaViolation};
use crate::store::{StoreError, unix_millis};

/// Maximum size of arguments that the user of a client can be shown. Larger ones are never shown in
/// part: only an administrator, who sees them whole, can approve such a call.
pub(crate) const MAX_CLIENT_ARGUMENT_BYTES: usize = 16 * 1024;

/// A call that needs, or has received, a decision.
#[derive(Clone, Debug)]
pub struct Approval {
    /// Id of the approval.
    pub id: String,
    /// Current state.
    pub state: ApprovalState,
    /// The call.
    pub request: ApprovalRequest,
    /// Arguments set by the approver; they replace those of the call.
    pub edited: Option<Box<RawValue>>,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub expires_at: i64,
    /// The decision, if there is one.
    pub decision: Option<ApprovalDecision>,
}

/// The call to decide about.
#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    /// The tool.
    pub tool: ToolId,
    /// Name of the tool as models see it.
    pub alias: String,
    /// Arguments of the call.
    pub arguments: Box<RawValue>,
    /// Digest of the arguments.
    pub digest: String,
    /// The server and the definition of the tool when the call was made.
    pub fingerprint: ToolFingerprint,
    /// The config key that requires the approval.
    pub rule: String,
    /// Caller and request.
    pub from: ApprovalOrigin,
    /// Who may decide. The configuration in force counts, not that at the time of the call.
    pub approvers: Approvers,
    /// Whether the client can ask its user for the approval.
    pub client_can_approve: bool,
    /// The conversation so far.
    pub conversation: Option<Box<RawValue>>,
}

/// The caller and request that need an approval.
#[derive(Clone, Debug, Default)]
pub struct ApprovalOrigin {
    /// The name of the key.
    pub caller: Option<String>,
    /// Session of the caller.
    pub session: Option<String>,
    /// Interface through which the call was made.
    pub origin: String,
    /// Id of the request.
    pub request_id: String,
    /// Id of the agent run.
    pub run_id: Option<String>,
}

/// The state of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApprovalState {
    /// No decision yet.
    Pending,
    /// Approved, and not used yet.
    Approved,
    /// Denied.
    Denied,
    /// Not decided, or not used, in time.
    Expired,
    /// The approved call is running.
    Executing,
    /// The approved call has ended.
    Done,
    /// The call started but its outcome is unknown: it timed out, or the server or the gateway
    /// stopped.
    Unknown,
}

/// A decision on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// The person who decided.
    pub by: String,
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    /// The calls it covers.
    pub scope: ApprovalScope,
    /// Reason for a denial.
    pub reason: Option<String>,
}

/// The calls that a decision covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalScope {
    /// An approval: this call only. A denial: identical calls of its run, or outside of runs those of the
    /// caller, until it expires.
    #[default]
    Once,
    /// Calls of the tool in the caller's session.
    Session,
    /// All calls of the tool by the caller, until revoked.
    Always,
    /// A denial of identical calls by the caller, in any run, until it expires.
    Caller,
}

/// A decision to apply to a pending approval.
#[derive(Clone, Debug)]
pub enum Ruling {
    /// Approve the call, optionally with other arguments.
    Approve {
        /// The calls it covers.
        scope: ApprovalScope,
        /// Arguments that replace those of the call.
        arguments: Option<Arguments>,
    },
    /// Deny the call.
    Deny {
        /// Reason, told to the caller.
        reason: Option<String>,
        /// The calls it covers: [`ApprovalScope::Once`] or [`ApprovalScope::Caller`].
        scope: ApprovalScope,
    },
}

/// The person who decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decider {
    /// An administrator of the gateway.
    Admin,
    /// A key with the role `approver`, by name.
    Key(String),
    /// The user of the client that made the call.
    Client,
}

/// A permanent approval of one tool for one caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalGrant {
    /// Id of the grant.
    pub id: String,
    /// Name of the caller's key.
    pub caller: Option<String>,
    /// Name of the server.
    pub server: String,
    /// Name of the tool.
    pub tool: String,
    /// The server and the definition of the tool when the call was made.
    pub fingerprint: ToolFingerprint,
    /// Id of the approval that created it.
    pub approval: String,
    /// The person who granted it.
    pub granted_by: String,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
}

/// The reason a decision was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// No approval has this id.
    #[error("no approval has the id `{0}`; see /api/approvals")]
    NotFound(String),
    /// The approval is in this state.
    #[error("the approval is already {0}")]
    AlreadyDecided(&'static str),
    /// A key cannot approve its own call.
    #[error("the caller cannot approve its own call; ask another approver")]
    OwnCall,
    /// The call belongs to no session.
    #[error("this call belongs to no session; approve it `once` or `always`")]
    NoSession,
    /// The arguments are dangerous.
    #[error("the scanner flagged these arguments, so the call can only be approved `once`")]
    OnlyOnce,
    /// The scope fits only the other decision.
    #[error("an approval has the scope `once`, `session` or `always`, a denial `once` or `caller`")]
    WrongScope,
    /// The edited arguments do not fit the tool's schema.
    #[error(transparent)]
    InvalidArguments(#[from] SchemaViolation),
    /// A server could confuse keys of the edited arguments.
    #[error(transparent)]
    AmbiguousArguments(#[from] ArgumentsError),
    /// The request reads a resource or prompt.
    #[error("only the arguments of tool calls can be edited; approve or deny the request as it is")]
    NotEditable,
    /// The tool's server or definition changed, so the decision would be about another tool.
    #[error(
        "tool `{0}` or its server changed after the call; the caller must repeat the call to request a new approval"
    )]
    ToolChanged(String),
    /// The configuration excludes this approver.
    #[error("`approval_by` does not allow this approver to decide about the call")]
    DeciderNotAllowed,
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Stopping,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ApprovalRequest {
    /// Returns whether the scanner requires the approval, because of these specific arguments.
    fn is_from_scanner(&self) -> bool {
        is_scanner_rule(&self.rule)
    }

    /// Returns the key of session grants: the caller and its session or run.
    fn session_key(&self) -> Option<String> {
        let ApprovalOrigin {
            caller,
            session,
            run_id,
            ..
        } = &self.from;
        let session = session.as_ref().or(run_id.as_ref())?;
        Some(format!(
            "{}\0{session}",
            caller.as_deref().unwrap_or_default()
        ))
    }
}

/// Returns whether the scanner is among those that require an approval.
pub(crate) fn is_scanner_rule(rule: &str) -> bool {
    rule.contains("scanner.")
}

impl ApprovalDecision {
    /// Returns the party that decided.
    fn approver(&self) -> Approver {
        if self.by == Decider::Client.to_string() {
            Approver::Client
        } else {
            Approver::Admin
        }
    }
}

impl Decider {
    /// Returns the party that the decider belongs to.
    fn approver(&self) -> Approver {
        match self {
            Self::Admin | Self::Key(_) => Approver::Admin,
            Self::Client => Approver::Client,
        }
    }
}

impl ApprovalGrant {
    /// Creates the grant that results from a decision.
    fn new(approval: &Approval, by: &Decider) -> Self {
        let request = &approval.request;
        Self {
            id: Uuid::now_v7().to_string(),
            caller: request.from.caller.clone(),
            server: request.tool.server.to_string(),
            tool: request.tool.tool.to_string(),
            fingerprint: request.fingerprint.clone(),
            approval: approval.id.clone(),
            granted_by: by.to_string(),
            created_at: unix_millis(SystemTime::now()),
        }
    }
}

impl ApprovalState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Approved,
        Self::Denied,
        Self::Expired,
        Self::Executing,
        Self::Done,
        Self::Unknown,
    ];

    /// Returns the name used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Executing => "executing",
            Self::Done => "done",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the state with a name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl ApprovalScope {
    /// Returns the name used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
            Self::Caller => "caller",
        }
    }

    /// Returns the scope with a name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Once, Self::Session, Self::Always, Self::Caller]
            .into_iter()
            .find(|scope| scope.as_str() == text)
    }
}

impl std::fmt::Display for Decider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Admin => f.write_str("admin"),
            Self::Client => f.write_str("client"),
            Self::Key(name) => write!(f, "key:{name}"),
        }
    }
}

//! Approvals: one record for each call that someone must decide about.
//!
//! States move by compare-and-set in the store, so that exactly one door wins. Approving a call
//! is a ticket: whoever made the call repeats it, once, before the ticket expires. A grant answers
//! later calls of the same tool too, for a session or for good, as long as the tool's server is
//! the same program.

mod desk;

use serde_json::value::RawValue;
use toolgate_core::name::ToolId;

pub(crate) use desk::{Approvals, Clearance};

use crate::call::Arguments;
use crate::store::StoreError;

/// A call that someone must decide about, or has.
#[derive(Clone, Debug)]
pub struct Approval {
    pub id: String,
    pub state: ApprovalState,
    pub ask: Ask,
    /// What is run instead of the call's own arguments.
    pub edited: Option<Box<RawValue>>,
    /// Milliseconds since 1970.
    pub created_at: i64,
    pub expires_at: i64,
    pub decided: Option<Decided>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Ask {
    pub tool: ToolId,
    pub alias: String,
    pub arguments: Box<RawValue>,
    /// Of the arguments.
    pub digest: String,
    /// Which program the server's name stood for.
    pub binding: String,
    /// The config key that wants it decided.
    pub rule: String,
    pub from: Asker,
    /// Whether the person at the client can be asked.
    pub by_client: bool,
    /// The conversation so far.
    pub conversation: Option<Box<RawValue>>,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// The name of the key.
    pub caller: Option<String>,
    pub session: Option<String>,
    pub origin: String,
    pub request_id: String,
    pub run_id: Option<String>,
}

/// Where an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    Pending,
    Approved,
    Denied,
    Expired,
    Executing,
    Done,
    /// The call ran, and nobody knows how far: it timed out, or the server or the gateway ended.
    Unknown,
}

/// A decision that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub by: String,
    pub at: i64,
    pub scope: ApprovalScope,
    pub reason: Option<String>,
}

/// How far an approval reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalScope {
    #[default]
    Once,
    Session,
    Always,
}

/// A decision to be made.
#[derive(Clone, Debug)]
pub enum Ruling {
    Approve {
        scope: ApprovalScope,
        arguments: Option<Arguments>,
    },
    Deny {
        reason: Option<String>,
    },
}

/// Who decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decider {
    Admin,
    /// A key with the role `approver`, by name.
    Key(String),
    /// The person at the client that made the call.
    Client,
}

/// A standing answer to every `ask` about one tool by one caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub id: String,
    pub caller: Option<String>,
    pub server: String,
    pub tool: String,
    pub binding: String,
    pub approval: String,
    pub granted_by: String,
    pub created_at: i64,
}

/// Why a decision was not taken.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error("no approval has the id `{0}`; see /api/approvals")]
    NotFound(String),
    #[error("the approval is {0} already")]
    Settled(&'static str),
    #[error("who made the call cannot approve it; ask another approver")]
    OwnCall,
    #[error("this call belongs to no session; approve it `once` or `always`")]
    NoSession,
    #[error("the scanner asks about these very arguments, so this can be approved only `once`")]
    OnlyOnce,
    #[error("`permissions.approval_by` does not let administrators and approvers decide")]
    NotAsked,
    #[error("the gateway is stopping")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Ask {
    /// Whether it is about these very arguments.
    fn is_by_scanner(&self) -> bool {
        self.rule.contains("scanner.")
    }

    /// Whom a grant for the session is for: the same caller in the same session or run.
    fn session(&self) -> Option<String> {
        let Asker {
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

impl ApprovalState {
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Approved,
        Self::Denied,
        Self::Expired,
        Self::Executing,
        Self::Done,
        Self::Unknown,
    ];

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

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl ApprovalScope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Once, Self::Session, Self::Always]
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

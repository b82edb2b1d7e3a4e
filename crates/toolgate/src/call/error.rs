//! Why a call did not run, or has no result.

use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use toolgate_core::arguments::BadArguments;
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::schema::Misfit;
use toolgate_core::scope::FilterError;
use toolgate_mcp::Busy;
use toolgate_mcp::registry::Away;
use toolgate_mcp::transport::RequestError;

use crate::store::StoreError;

/// Why a call did not run, or has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("unknown tool `{name}`{}", suggest(.nearest))]
    Unknown { name: String, nearest: Vec<String> },
    #[error("`{name}` fits several tools; use one of these names: {}", .aliases.join(", "))]
    Ambiguous { name: String, aliases: Vec<String> },
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    BadArguments(#[from] BadArguments),
    #[error(transparent)]
    Misfit(#[from] Misfit),
    #[error("tool `{alias}` was not run: {reason} (`{because}`)")]
    Denied {
        alias: String,
        because: String,
        reason: String,
        /// The approval that was refused, where a person denied it.
        approval: Option<String>,
    },
    #[error(
        "tool `{alias}` needs an approval (`{because}`); once approval `{id}` is given, repeat the same call within {}",
        left(.expires_at)
    )]
    NeedsApproval {
        alias: String,
        because: String,
        id: String,
        expires_at: SystemTime,
    },
    /// In the agent loop; an explicit call of the same tool runs.
    #[error("tool `{0}` is its caller's to run")]
    LeftToCaller(String),
    /// It goes on when it is called again, once that was decided.
    #[error(transparent)]
    ScriptWaits(Box<ScriptWaits>),
    /// What it waited for cannot be gone on with.
    #[error(
        "the script stopped before a call that needs a decision, and could not be kept{made}; do not repeat what has effects"
    )]
    ScriptLost { made: String },
    #[error("scripts cannot be run here: {0}")]
    NoWorker(&'static str),
    #[error("tool `{alias}` needs an approval (`{because}`), and nobody can be asked")]
    NobodyToAsk { alias: String, because: String },
    #[error("{limit}; {}", again(.retry_after.as_ref()))]
    Limited {
        limit: Limit,
        retry_after: Option<Duration>,
    },
    #[error("{}{}", .0, next_try(.0))]
    Away(Away),
    #[error("server `{0}` is just being changed; try again in a moment")]
    Changing(ServerName),
    #[error("the rules for tool `{0}` have changed while the call waited; try again")]
    Overtaken(String),
    #[error("the gateway is stopping")]
    Stopping,
    #[error("server `{server}` is busy: {busy}")]
    Busy { server: ServerName, busy: Busy },
    #[error(
        "tool `{tool}` did not answer within {} and was cancelled; try less work in one call, or raise the timeout in the configuration",
        seconds(.after)
    )]
    Timeout { tool: ToolId, after: Duration },
    #[error("server `{server}`: {cause}")]
    Server {
        server: ServerName,
        cause: RequestError,
    },
    #[error("the call was cancelled")]
    Cancelled,
    /// A tool of the embedding program.
    #[error("tool `{0}` panicked")]
    Panicked(ToolId),
    #[error("the key `{0}` is no longer valid")]
    KeyGone(String),
    #[error("the call was not made, because it could not be recorded; try again in a moment")]
    Unrecorded,
    /// The cause is for those who run the gateway.
    #[error("the call was not made, because the gateway's store failed; try again in a moment")]
    Store(#[from] StoreError),
}

/// A script that stopped before calls that somebody must decide about.
#[derive(Debug, thiserror::Error)]
#[error("the script waits before {}: {cause}{made}", waiting(.calls))]
pub struct ScriptWaits {
    /// Why it waits.
    pub cause: CallError,
    /// At least one.
    pub calls: Vec<WaitingCall>,
    /// The calls that it has made already, in words.
    pub made: String,
}

/// A call that a script has not made yet.
#[derive(Clone, Debug)]
pub struct WaitingCall {
    pub tool: ToolId,
    pub arguments: Box<RawValue>,
    /// Where it stands in the script, counted from one.
    pub line: u32,
    pub approval: Option<String>,
}

impl ScriptWaits {
    /// Until when what it waits for can be decided.
    pub(crate) fn until(&self) -> Option<SystemTime> {
        self.cause.needed().map(|needed| needed.expires_at)
    }

    /// The call that an approval is about.
    pub(crate) fn call(&self, approval: &str) -> Option<&WaitingCall> {
        let mut calls = self.calls.iter();
        calls.find(|call| call.approval.as_deref() == Some(approval))
    }
}

/// An approval without which a call does not run.
#[derive(Clone, Copy, Debug)]
pub struct Needed<'a> {
    pub id: &'a str,
    /// The tool that is to run.
    pub alias: &'a str,
    pub because: &'a str,
    pub expires_at: SystemTime,
}

/// What a caller has had enough of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    #[error("the key `{key}` may make {rate} calls")]
    KeyRate { key: String, rate: String },
    #[error("the key `{key}` has too many calls under way")]
    KeyBusy { key: String },
    #[error("the budget of the key `{key}` is spent: {budget}")]
    KeyBudget { key: String, budget: String },
    #[error("tool `{tool}` may be called {rate}")]
    ToolRate { tool: ToolId, rate: String },
    #[error("too many calls of tool `{tool}` are under way")]
    ToolBusy { tool: ToolId },
    #[error("server `{server}` may be called {rate}")]
    ServerRate { server: ServerName, rate: String },
    #[error("too many calls of server `{server}` are under way")]
    ServerBusy { server: ServerName },
    #[error("too many approvals are pending")]
    Approvals,
    #[error("too many resources are watched")]
    Watched,
    #[error("arguments of so many bytes cannot be put before an approver")]
    ApprovalSize,
}

impl CallError {
    /// A word for metrics, records and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::Ambiguous { .. } => "unknown",
            Self::Filter(_) => "bad_filter",
            Self::BadArguments(_) | Self::Misfit(_) => "bad_arguments",
            Self::Denied { .. } | Self::NobodyToAsk { .. } | Self::Overtaken(_) => "denied",
            Self::NeedsApproval { .. } => "ask",
            Self::LeftToCaller(_) => "manual",
            Self::ScriptWaits(waits) => waits.cause.code(),
            Self::NoWorker(_) => "no_worker",
            Self::ScriptLost { .. } => "unrecorded",
            Self::Limited { .. } => "limited",
            Self::Away(_) | Self::Changing(_) => "away",
            Self::Busy { .. } => "busy",
            Self::Timeout { .. } => "timeout",
            Self::Server { .. } => "server",
            Self::Cancelled | Self::Stopping => "cancelled",
            Self::Panicked(_) => "panicked",
            Self::KeyGone(_) => "unauthorized",
            Self::Unrecorded | Self::Store(_) => "unrecorded",
        }
    }

    /// The approval that is needed, if that is why.
    pub fn needed(&self) -> Option<Needed<'_>> {
        match self {
            Self::NeedsApproval {
                alias,
                because,
                id,
                expires_at,
            } => Some(Needed {
                id,
                alias,
                because,
                expires_at: *expires_at,
            }),
            Self::ScriptWaits(waits) => waits.cause.needed(),
            _ => None,
        }
    }

    /// Whether somebody must decide before the call can run.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(
            self,
            Self::NeedsApproval { .. } | Self::LeftToCaller(_) | Self::ScriptWaits(_)
        )
    }

    /// Whether the tool has certainly not been reached.
    pub(crate) fn is_not_sent(&self) -> bool {
        matches!(
            self,
            Self::Away(_)
                | Self::Changing(_)
                | Self::Busy { .. }
                | Self::Server {
                    cause: RequestError::NotSent(_),
                    ..
                }
        )
    }

    /// Whether the tool may have been reached, and nobody knows what it did.
    pub(crate) fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Cancelled
                | Self::Panicked(_)
                | Self::Server {
                    cause: RequestError::Lost(_) | RequestError::Malformed(_),
                    ..
                }
        )
    }

    /// The limit of the caller's own key that was reached, if that is why.
    pub fn key_limit(&self) -> Option<(&Limit, Option<Duration>)> {
        match self {
            Self::Limited { limit, retry_after } if limit.is_of_key() => {
                Some((limit, *retry_after))
            }
            _ => None,
        }
    }
}

impl Limit {
    fn is_of_key(&self) -> bool {
        matches!(
            self,
            Self::KeyRate { .. } | Self::KeyBusy { .. } | Self::KeyBudget { .. }
        )
    }
}

fn waiting(calls: &[WaitingCall]) -> String {
    let said = calls.iter().map(|call| {
        let approval = call.approval.as_ref();
        let approval = approval.map(|id| format!(" (approval `{id}`)"));
        let approval = approval.unwrap_or_default();
        format!("the call of {} at line {}{approval}", call.tool, call.line)
    });
    said.collect::<Vec<_>>().join(" and ")
}

fn suggest(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

fn next_try(away: &Away) -> String {
    let until = away
        .status
        .next_try_at
        .and_then(|at| at.duration_since(SystemTime::now()).ok());
    match until {
        Some(until) => format!("; it is tried again in {}", seconds(&until)),
        None => String::new(),
    }
}

fn again(after: Option<&Duration>) -> String {
    match after {
        Some(after) => format!("try again in {}", seconds(after)),
        None => "try again later".to_owned(),
    }
}

fn left(until: &SystemTime) -> String {
    let left = until.duration_since(SystemTime::now()).unwrap_or_default();
    match left.as_secs() {
        0..120 => seconds(&left),
        long => format!("{} min", long.div_ceil(60)),
    }
}

fn seconds(duration: &Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

//! Errors of tool calls, with texts that callers and models read.

use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use toolgate_core::arguments::ArgumentsError;
use toolgate_core::caller::describe_share_owner;
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::schema::SchemaViolation;
use toolgate_core::scope::FilterError;
use toolgate_mcp::ServerBusy;
use toolgate_mcp::registry::ServerUnavailable;
use toolgate_mcp::transport::RequestError;

use crate::metrics::Bound;
use crate::store::StoreError;

/// Time after which a call of a busy server is worth another try.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The reason a call did not run or has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum CallError {
    /// No tool of this name exists for the caller.
    #[error("unknown tool `{name}`{}", format_suggestions(.nearest))]
    Unknown { name: String, nearest: Vec<String> },
    /// No such resource or prompt exists for the caller.
    #[error("unknown resource or prompt `{0}`")]
    UnknownItem(String),
    /// The name matches several tools.
    #[error("`{name}` matches several tools; use one of these names: {}", .aliases.join(", "))]
    Ambiguous { name: String, aliases: Vec<String> },
    /// A filter of the request is invalid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The arguments are no JSON object.
    #[error(transparent)]
    BadArguments(#[from] ArgumentsError),
    /// The arguments violate the tool's schema.
    #[error(transparent)]
    SchemaViolation(#[from] SchemaViolation),
    /// A header of the request contradicts the argument that it mirrors.
    #[error("{0}")]
    HeaderMismatch(String),
    /// The URI is too long to be kept with a subscription.
    #[error("the URI is longer than {0} bytes, the most that a subscription accepts")]
    UriTooLong(usize),
    /// A rule, a hook or a person denied the call.
    #[error("tool `{alias}` was not run: {reason} (`{because}`)")]
    Denied {
        alias: String,
        because: String,
        reason: String,
        /// Id of the approval, if a person denied the call.
        approval: Option<String>,
    },
    /// The call waits for a decision.
    #[error(
        "tool `{alias}` needs an approval (`{because}`); once approval `{id}` is given, repeat the same call within {}",
        format_time_left(.expires_at)
    )]
    NeedsApproval {
        alias: String,
        because: String,
        id: String,
        expires_at: SystemTime,
    },
    /// Only raised in the agent loop; an explicit call of the same tool runs.
    #[error("tool `{0}` must be executed by the caller")]
    ManualOnly(String),
    /// The script resumes when it is called again after the decision.
    #[error(transparent)]
    ScriptSuspended(Box<SuspendedScript>),
    /// The script cannot be resumed.
    #[error(
        "the script stopped before a call that needs a decision, and its state could not be saved{made}; do not repeat calls that have side effects"
    )]
    ScriptNotSaved { made: String },
    /// No program can run scripts.
    #[error("scripts cannot run in this gateway: {0}")]
    NoWorker(&'static str),
    /// The call needs an approval, but no approver is configured.
    #[error("tool `{alias}` needs an approval (`{because}`), but no approver is available")]
    NoApprover { alias: String, because: String },
    /// A limit was reached.
    #[error("{limit}; {}", format_retry(.retry_after.as_ref()))]
    Limited {
        limit: LimitReached,
        retry_after: Option<Duration>,
    },
    /// The gateway sheds load.
    #[error("the gateway is overloaded; {}", format_retry(Some(.retry_after)))]
    Overloaded { retry_after: Duration },
    /// More calls were sent at once than the rate limit of the caller's key ever admits.
    #[error(
        "{calls} calls at once exceed the rate limit of key `{key}`, {rate}, and can never be admitted together; send at most {max} at a time"
    )]
    TooManyCalls {
        key: String,
        rate: String,
        calls: u32,
        max: u32,
    },
    /// The server is not connected.
    #[error("{}{}", .0, format_next_attempt(.0))]
    Unavailable(ServerUnavailable),
    /// The server is being replaced.
    #[error("server `{0}` is being reconfigured; try again in a moment")]
    Reconfiguring(ServerName),
    /// The configuration changed while the call waited.
    #[error("the rules for tool `{0}` changed while the call was waiting; try again")]
    RulesChanged(String),
    /// The server changed the tool while the approved call waited.
    #[error(
        "the definition of tool `{0}` changed while the call was waiting; it needs a new approval"
    )]
    ToolChanged(String),
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Stopping,
    /// The server has too many calls in flight.
    #[error("server `{server}` is busy: {busy}")]
    Busy {
        server: ServerName,
        busy: ServerBusy,
    },
    /// The tool did not answer in time.
    #[error(
        "tool `{tool}` did not answer within {} and was cancelled; do less work per call or raise the timeout in the configuration",
        format_seconds(.after)
    )]
    Timeout { tool: ToolId, after: Duration },
    /// The server failed.
    #[error("server `{server}`: {cause}")]
    Server {
        server: ServerName,
        cause: RequestError,
    },
    /// The result violates the tool's output schema.
    #[error(
        "tool `{tool}` ran, but its result does not match its output schema: {problems}; do not repeat a call that has side effects"
    )]
    InvalidOutput { tool: ToolId, problems: String },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// Raised for in-process tools.
    #[error("tool `{0}` panicked")]
    Panicked(ToolId),
    /// The caller's key was removed or disabled.
    #[error("key `{0}` is no longer valid")]
    InvalidKey(String),
    /// The audit trail is not available.
    #[error("the call was not made because it could not be recorded; try again in a moment")]
    Unrecorded,
    /// The cause is logged for the operator and not shown to callers.
    #[error("the call was not made because the gateway's store failed; try again in a moment")]
    Store(#[from] StoreError),
}

/// A script that stopped before calls that need a decision.
#[derive(Debug, thiserror::Error)]
#[error("the script waits before {}: {cause}{made}", format_pending_calls(.calls))]
#[non_exhaustive]
pub struct SuspendedScript {
    /// The error of the first pending call that needs an approval, or else of the first one.
    pub cause: CallError,
    /// Never empty.
    pub calls: Vec<PendingCall>,
    /// Description of the calls already made.
    pub made: String,
}

/// A call that a script has not made yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PendingCall {
    /// The tool.
    pub tool: ToolId,
    /// Arguments of the call.
    pub arguments: Box<RawValue>,
    /// Line in the script, starting at one.
    pub line: u32,
    /// Id of the approval that the call needs.
    pub approval: Option<String>,
}

impl SuspendedScript {
    /// Returns the call that needs the given approval.
    pub(crate) fn pending_call(&self, approval: &str) -> Option<&PendingCall> {
        let mut calls = self.calls.iter();
        calls.find(|call| call.approval.as_deref() == Some(approval))
    }
}

/// The approval that a call needs before it can run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequiredApproval<'a> {
    /// Id of the approval.
    pub id: &'a str,
    /// Alias of the tool.
    pub alias: &'a str,
    /// Config key that requires it.
    pub because: &'a str,
    /// Time until which it can be given.
    pub expires_at: SystemTime,
}

/// A limit that a call would exceed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum LimitReached {
    /// Rate limit of a key.
    #[error("key `{key}` exceeded its rate limit of {rate}")]
    KeyRate { key: String, rate: String },
    /// Concurrency of a key.
    #[error("key `{key}` has too many calls in flight")]
    KeyBusy { key: String },
    /// Budget of a key.
    #[error("key `{key}` has used up its budget of {budget}")]
    KeyBudget { key: String, budget: String },
    /// Rate limit of a tool.
    #[error("tool `{tool}` exceeded its rate limit of {rate}")]
    ToolRate { tool: ToolId, rate: String },
    /// Concurrency of a tool.
    #[error("tool `{tool}` has too many calls in flight")]
    ToolBusy { tool: ToolId },
    /// Rate limit of a server.
    #[error("server `{server}` exceeded its rate limit of {rate}")]
    ServerRate { server: ServerName, rate: String },
    /// Concurrency of a server.
    #[error("server `{server}` has too many calls in flight")]
    ServerBusy { server: ServerName },
    /// Number of pending approvals.
    #[error("too many approvals are pending")]
    Approvals,
    /// Number of resource subscriptions.
    #[error("too many resource subscriptions")]
    Subscriptions,
    /// Size of the arguments of an approval request.
    #[error("the arguments are too large for an approval request")]
    ApprovalSize,
    /// A caller's share of what all callers use.
    #[error("{}", .bound.describe(owner, *max))]
    Share {
        /// Describes the caller.
        owner: String,
        bound: Bound,
        max: usize,
    },
}

impl CallError {
    /// Code of a call that waits for a decision.
    pub(crate) const ASK: &str = "ask";

    /// Returns whether the call was refused because the gateway cannot record it. It may be tried
    /// again.
    pub fn is_unrecorded(&self) -> bool {
        matches!(self, Self::Unrecorded | Self::Store(_))
    }

    /// Returns the code used in metrics, audit records and API responses.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::UnknownItem(_) | Self::Ambiguous { .. } => "unknown",
            Self::Filter(_) => "bad_filter",
            Self::BadArguments(_)
            | Self::SchemaViolation(_)
            | Self::HeaderMismatch(_)
            | Self::UriTooLong(_) => "bad_arguments",
            Self::Denied { .. }
            | Self::NoApprover { .. }
            | Self::RulesChanged(_)
            | Self::ToolChanged(_) => "denied",
            Self::NeedsApproval { .. } => Self::ASK,
            Self::ManualOnly(_) => "manual",
            Self::ScriptSuspended(waits) => waits.cause.code(),
            Self::NoWorker(_) => "no_worker",
            Self::ScriptNotSaved { .. } => "unrecorded",
            Self::Limited { .. } | Self::TooManyCalls { .. } => "limited",
            Self::Unavailable(_) | Self::Reconfiguring(_) => "away",
            Self::Busy { .. } => "busy",
            Self::Overloaded { .. } => "overloaded",
            Self::Timeout { .. } => "timeout",
            Self::Server { .. } => "server",
            Self::InvalidOutput { .. } => "invalid_output",
            Self::Cancelled | Self::Stopping => "cancelled",
            Self::Panicked(_) => "panicked",
            Self::InvalidKey(_) => "unauthorized",
            Self::Unrecorded | Self::Store(_) => "unrecorded",
        }
    }

    /// Returns the required approval, if that is the reason.
    pub fn required_approval(&self) -> Option<RequiredApproval<'_>> {
        match self {
            Self::NeedsApproval {
                alias,
                because,
                id,
                expires_at,
            } => Some(RequiredApproval {
                id,
                alias,
                because,
                expires_at: *expires_at,
            }),
            Self::ScriptSuspended(waits) => waits.cause.required_approval(),
            _ => None,
        }
    }

    /// Returns whether a person or the caller must decide before the call can run.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(
            self,
            Self::NeedsApproval { .. } | Self::ManualOnly(_) | Self::ScriptSuspended(_)
        )
    }

    /// Returns whether the call did not run for a reason that has nothing to do with it and may pass.
    pub(crate) fn is_outage(&self) -> bool {
        self.is_not_sent() || matches!(self, Self::Limited { .. } | Self::Overloaded { .. })
    }

    /// Returns whether the call certainly did not reach the tool.
    pub(crate) fn is_not_sent(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_)
                | Self::Reconfiguring(_)
                | Self::Busy { .. }
                | Self::Server {
                    cause: RequestError::NotSent(_) | RequestError::QueueFull { .. },
                    ..
                }
        )
    }

    /// Returns whether the call may have reached the tool, with an unknown effect.
    pub(crate) fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Cancelled
                | Self::Panicked(_)
                | Self::Server {
                    cause: RequestError::Lost(_)
                        | RequestError::Malformed(_)
                        | RequestError::TooDeep,
                    ..
                }
        )
    }

    /// Returns the time after which the call is worth another try, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Limited { retry_after, .. } => *retry_after,
            Self::Overloaded { retry_after } => Some(*retry_after),
            Self::Busy { .. } => Some(BUSY_RETRY_AFTER),
            _ => None,
        }
    }

    /// Returns the bound of the gateway that was reached, if that is the reason.
    pub(crate) fn bound(&self) -> Option<Bound> {
        match self {
            Self::Limited {
                limit: LimitReached::Share { bound, .. },
                ..
            } => Some(*bound),
            Self::Busy { busy, .. } if busy.of_key => Some(Bound::ServerCallsPerKey),
            Self::Busy { .. } => Some(Bound::ServerCalls),
            Self::Server { cause, .. } => match cause {
                RequestError::QueueFull { .. } => Some(Bound::QueuedBytes),
                RequestError::TooDeep => Some(Bound::JsonDepth),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the limit of the caller's key and the time to wait, if that is the reason.
    pub fn key_limit(&self) -> Option<(&LimitReached, Option<Duration>)> {
        match self {
            Self::Limited { limit, retry_after } if limit.is_of_key() => {
                Some((limit, *retry_after))
            }
            _ => None,
        }
    }
}

impl LimitReached {
    /// Returns the bound of a caller, which holds `max` at most.
    pub(crate) fn share(owner: Option<&str>, bound: Bound, max: usize) -> Self {
        let owner = describe_share_owner(owner);
        Self::Share { owner, bound, max }
    }

    fn is_of_key(&self) -> bool {
        matches!(
            self,
            Self::KeyRate { .. }
                | Self::KeyBusy { .. }
                | Self::KeyBudget { .. }
                | Self::Share { .. }
        )
    }
}

fn format_pending_calls(calls: &[PendingCall]) -> String {
    let descriptions = calls.iter().map(|call| {
        let approval = match &call.approval {
            Some(id) => format!(" (approval `{id}`)"),
            None => String::new(),
        };
        format!("the call of {} at line {}{approval}", call.tool, call.line)
    });
    descriptions.collect::<Vec<_>>().join(" and ")
}

fn format_suggestions(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

fn format_next_attempt(server: &ServerUnavailable) -> String {
    let until = server
        .status
        .next_try_at
        .and_then(|at| at.duration_since(SystemTime::now()).ok());
    match until {
        Some(until) => format!("; next connection attempt in {}", format_seconds(&until)),
        None => String::new(),
    }
}

fn format_retry(after: Option<&Duration>) -> String {
    match after {
        Some(after) => format!("try again in {}", format_seconds(after)),
        None => "try again later".to_owned(),
    }
}

fn format_time_left(until: &SystemTime) -> String {
    let left = until.duration_since(SystemTime::now()).unwrap_or_default();
    match left.as_secs() {
        0..120 => format_seconds(&left),
        long => format!("{} min", long.div_ceil(60)),
    }
}

fn format_seconds(duration: &Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

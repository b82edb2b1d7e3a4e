//! Audit records and queries over them.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::name::{ServerName, ToolId, ToolName};
use uuid::Uuid;

use super::writer;
use crate::call::{RequestContext, ToolCall};
use crate::caller::Caller;
use crate::store::clock;

/// What an audit record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuditKind {
    /// An attempt to call a tool.
    #[default]
    Tool,
    /// A resource that was read.
    Resource,
    /// A prompt that was fetched.
    Prompt,
    /// A completion of an argument.
    Completion,
    /// A decision on an approval, or its expiry.
    Approval,
    /// Failed authentication, and sign-ins of the administrator.
    Auth,
    /// A change made by the administrator.
    Admin,
}

impl AuditKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Tool,
        Self::Resource,
        Self::Prompt,
        Self::Completion,
        Self::Approval,
        Self::Auth,
        Self::Admin,
    ];

    /// Returns the name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
            Self::Completion => "completion",
            Self::Approval => "approval",
            Self::Auth => "auth",
            Self::Admin => "admin",
        }
    }

    /// Finds a kind by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The record of one attempt to call a tool, or of another event in the trail.
#[derive(Clone, Debug)]
pub struct AuditRecord {
    /// What the record is about.
    pub kind: AuditKind,
    /// UUID version 7, so ids sort by time.
    pub id: String,
    /// Id of the request.
    pub request_id: String,
    /// Id of the request that caused it.
    pub parent_id: Option<String>,
    /// Id of the agent run.
    pub run_id: Option<String>,
    /// Name of the caller's key; `None` for callers without a key.
    pub caller: Option<String>,
    /// Interface through which the call was made.
    pub origin: String,
    /// The tool name as given by the caller.
    pub name: String,
    /// Name of the server, once the tool was found.
    pub server: Option<String>,
    /// Raw name of the tool, once it was found.
    pub tool: Option<String>,
    /// The requested server, if a fallback ran instead.
    pub instead_of: Option<String>,
    /// Arguments, if they are recorded.
    pub arguments: Option<Box<RawValue>>,
    /// `allow`, `manual`, `ask` or `deny`.
    pub verdict: Option<String>,
    /// The config key that decided.
    pub rule: Option<String>,
    /// Id of the approval that the call used or waits for.
    pub approval: Option<String>,
    /// Findings of the scanner.
    pub warnings: Vec<String>,
    /// `open`, `ok`, `tool_error`, `interrupted`, or the code of a [`CallError`](crate::CallError).
    pub outcome: String,
    /// Message of the error.
    pub error: Option<String>,
    /// Result, if results are recorded.
    pub result: Option<Box<RawValue>>,
    /// Size of the arguments.
    pub bytes_in: i64,
    /// Size of the result.
    pub bytes_out: i64,
    /// Milliseconds since the Unix epoch.
    pub started_at: i64,
    /// Duration in microseconds; `None` while the call runs.
    pub duration_us: Option<i64>,
    /// Price in millionths of a dollar.
    pub cost_micro_usd: i64,
    /// Whether the call counts against the budget of the caller's key.
    pub charged: bool,
    /// Whether the result came from the cache.
    pub cached: bool,
    /// Statistics of a script: number of calls, the limit that stopped it, tokens saved.
    pub script: Option<Value>,
    /// Number of like events that the record stands for; more than one for refusals that came fast.
    pub occurrences: i64,
    /// More about the event: for a change, what was before and after; for a tool that is hidden from
    /// its caller, which tool and why; for a call, which arguments were converted.
    pub detail: Option<Value>,
}

impl Default for AuditRecord {
    fn default() -> Self {
        Self {
            kind: AuditKind::Tool,
            id: String::new(),
            request_id: String::new(),
            parent_id: None,
            run_id: None,
            caller: None,
            origin: String::new(),
            name: String::new(),
            server: None,
            tool: None,
            instead_of: None,
            arguments: None,
            verdict: None,
            rule: None,
            approval: None,
            warnings: Vec::new(),
            outcome: String::new(),
            error: None,
            result: None,
            bytes_in: 0,
            bytes_out: 0,
            started_at: 0,
            duration_us: None,
            cost_micro_usd: 0,
            charged: false,
            cached: false,
            script: None,
            occurrences: 1,
            detail: None,
        }
    }
}

/// Filters for audit records.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Kind of the record; `None` for all kinds.
    pub kind: Option<AuditKind>,
    /// Name of the server.
    pub server: Option<String>,
    /// Raw name of the tool.
    pub tool: Option<String>,
    /// Name of the caller's key.
    pub caller: Option<String>,
    /// Outcome of the call.
    pub outcome: Option<String>,
    /// Id of the request.
    pub request_id: Option<String>,
    /// Id of the agent run.
    pub run_id: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub since: Option<i64>,
    /// Milliseconds since the Unix epoch.
    pub until: Option<i64>,
    /// Return only records before this id, the last one of the previous page.
    pub before: Option<String>,
    /// Maximum number of records to return.
    pub limit: usize,
}

/// A page of records, newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditPage {
    /// The records.
    pub records: Vec<AuditRecord>,
    /// Whether there are more records.
    pub more: bool,
}

impl AuditRecord {
    pub(crate) fn new(caller: &Caller, call: &ToolCall, request_id: &str) -> Self {
        let RequestContext { parent, run, .. } = &*call.request;
        let arguments = call
            .arguments
            .as_ref()
            .ok()
            .map(|arguments| arguments.raw());
        let id = clock::new_id();
        Self {
            id: id.to_string(),
            request_id: request_id.to_owned(),
            parent_id: parent.clone(),
            run_id: run.clone(),
            caller: caller.key().map(|key| key.to_string()),
            origin: caller.origin.as_str().to_owned(),
            name: call.name.chars().take(256).collect(),
            bytes_in: arguments.map_or(0, |raw| byte_len(raw.get())),
            arguments: arguments.map(ToOwned::to_owned),
            outcome: "open".to_owned(),
            started_at: creation_millis(id),
            ..Self::default()
        }
    }

    /// Creates a record of an event that is not a call: it has happened, and has an outcome.
    pub(crate) fn event(kind: AuditKind, name: &str, outcome: &str) -> Self {
        let id = clock::new_id();
        Self {
            kind,
            id: id.to_string(),
            request_id: id.to_string(),
            name: name.to_owned(),
            outcome: outcome.to_owned(),
            started_at: creation_millis(id),
            ..Self::default()
        }
    }

    pub(crate) fn set_tool(&mut self, tool: &ToolId) {
        self.server = Some(tool.server.to_string());
        self.tool = Some(tool.tool.to_string());
    }

    /// Replaces the arguments, as far as they are recorded.
    pub(crate) fn set_arguments(&mut self, arguments: &RawValue) {
        self.arguments = Some(arguments.to_owned());
        writer::trim_content(&mut self.arguments);
    }

    /// Adds the locations of arguments that were converted to fit the tool's schema.
    pub(crate) fn add_converted(&mut self, paths: &[String]) {
        if paths.is_empty() {
            return;
        }
        let known = self
            .detail
            .as_ref()
            .map(|detail| &detail["converted_arguments"]);
        let known = known.and_then(Value::as_array).into_iter().flatten();
        let new = paths.iter().map(|path| json!(path));
        let all: Vec<Value> = known.cloned().chain(new).collect();
        // A call has no other details, since it was found.
        self.detail = Some(json!({"converted_arguments": all}));
    }

    /// Returns the tool that the call resolved to, if it did.
    pub(crate) fn tool_id(&self) -> Option<ToolId> {
        let server = self.server.as_deref()?;
        let builtin = ServerName::builtin();
        Some(ToolId {
            server: if server == builtin.as_str() {
                builtin
            } else {
                ServerName::parse(server).ok()?
            },
            tool: ToolName::new(self.tool.as_deref()?),
        })
    }

    pub(crate) fn tool_id_or_builtin(&self) -> ToolId {
        self.tool_id().unwrap_or_else(|| ToolId {
            server: ServerName::builtin(),
            tool: ToolName::new(&self.name),
        })
    }
}

/// Returns the creation time of a version 7 id, in milliseconds since the Unix epoch.
///
/// Queries by time compare ids, so a record must not read the clock a second time: across a
/// millisecond boundary, its `started_at` and its id would disagree.
fn creation_millis(id: Uuid) -> i64 {
    let bytes = id.as_bytes();
    let mut millis = [0; 8];
    millis[2..].copy_from_slice(&bytes[..6]);
    i64::from_be_bytes(millis)
}

pub(crate) fn byte_len(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_matches_the_timestamp_in_the_id() {
        // Enough iterations to cross many millisecond boundaries.
        for _ in 0..10_000 {
            let call = ToolCall::parse("zoo_echo", "{}");
            let record = AuditRecord::new(&Caller::library(), &call, "r");
            let (seconds, nanos) = Uuid::parse_str(&record.id)
                .unwrap()
                .get_timestamp()
                .unwrap()
                .to_unix();
            let millis = seconds * 1000 + u64::from(nanos / 1_000_000);
            assert_eq!(record.started_at.unsigned_abs(), millis);
        }
    }
}

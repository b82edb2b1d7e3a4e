//! Tasks: tool calls whose results a server delivers later. Shared by the upstream half and the
//! serving half.
//!
//! Tasks exist in two forms: experimental in revision 2025-11-25, where the client asks for one, and
//! as an extension of 2026-07-28, where the client declares the extension and the server decides.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolgate_core::json::may_contain;

use crate::lane::LaneKey;
use crate::transport::RequestError;

/// Name of the extension.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// `_meta` member by which legacy messages name the task that they belong to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    Working,
    /// The server waits for answers of the client.
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

/// The state of a task as its server reports it.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// The server's id of the task.
    pub id: String,
    /// The connection over which the task was started.
    pub lane: LaneKey,
    pub status: TaskStatus,
    /// Describes the state to people.
    pub message: Option<String>,
    /// Time from its start after which the server may delete the task; `None` if it never does.
    pub ttl: Option<Duration>,
    pub poll_interval: Option<Duration>,
}

/// Follows a tool call that a server runs as a task.
pub trait TaskObserver: fmt::Debug + Send + Sync {
    /// Handles the start of the task and each later report.
    fn on_report(&self, report: &TaskReport);

    /// Handles the end of a task that has no result.
    fn on_failure(&self, error: &RequestError);

    /// Returns the lifetime that the client asks for.
    fn requested_ttl(&self) -> Option<Duration>;

    /// Returns whether the server should go on with the task although it is no longer followed.
    fn is_left_running(&self) -> bool;
}

/// Use of tasks for a tool call. Whatever it is, a call has a result only once its task has ended.
#[derive(Clone, Debug, Default)]
pub enum TaskUse {
    /// A task is started only for a tool that requires one.
    #[default]
    WhereRequired,
    /// Likewise, but the refusal of a modern server is passed on to the client.
    ReportMissing,
    /// A task is started where the server supports it, and observed.
    Observed(Arc<dyn TaskObserver>),
}

impl TaskStatus {
    const ALL: [Self; 5] = [
        Self::Working,
        Self::InputRequired,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns its name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

impl TaskUse {
    pub fn observer(&self) -> Option<&Arc<dyn TaskObserver>> {
        match self {
            Self::Observed(observer) => Some(observer),
            Self::WhereRequired | Self::ReportMissing => None,
        }
    }
}

/// Returns whether a modern client with these capabilities declares the extension.
pub fn is_declared_by_client(capabilities: &str) -> bool {
    may_contain(capabilities, EXTENSION)
        && serde_json::from_str::<Value>(capabilities)
            .is_ok_and(|declared| declared["extensions"][EXTENSION].is_object())
}

/// Returns whether a server with these capabilities runs tool calls as tasks, in either form.
pub(crate) fn is_declared_by_server(capabilities: &HashMap<String, &RawValue>) -> bool {
    let member = |name: &str| -> Value {
        let raw = capabilities.get(name);
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    };
    member("extensions")[EXTENSION].is_object()
        || member("tasks")["requests"]["tools"]["call"].is_object()
}

/// Adds the extension to a modern client's capabilities.
pub(crate) fn declare(capabilities: &str) -> String {
    let mut declared: Map<String, Value> = serde_json::from_str(capabilities).unwrap_or_default();
    let extensions = declared.entry("extensions").or_insert(Value::Null);
    if !extensions.is_object() {
        *extensions = Value::Object(Map::new());
    }
    if extensions[EXTENSION].is_null() {
        extensions[EXTENSION] = Value::Object(Map::new());
    }
    Value::Object(declared).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_is_declared_once_and_recognized() {
        let tasks = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        for (capabilities, declared) in [
            ("{}", tasks),
            (tasks, tasks),
            (r#"{"extensions":null}"#, tasks),
            (
                r#"{"roots":{},"extensions":{"a/b":{"c":1}}}"#,
                r#"{"roots":{},"extensions":{"a/b":{"c":1},"io.modelcontextprotocol/tasks":{}}}"#,
            ),
        ] {
            assert_eq!(declare(capabilities), declared, "{capabilities}");
            assert!(is_declared_by_client(declared));
            assert_eq!(is_declared_by_client(capabilities), capabilities == tasks);
        }
        let by_server = |text: &str| {
            is_declared_by_server(
                &serde_json::from_str::<HashMap<String, &RawValue>>(text).unwrap(),
            )
        };
        assert!(by_server(tasks));
        assert!(by_server(r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#));
        assert!(!by_server(r#"{"tasks":{"list":{}},"extensions":{}}"#));
    }
}

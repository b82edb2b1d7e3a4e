//! Tasks as clients of both eras read them.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::value::RawValue;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{INVALID_REQUEST, MISSING_CAPABILITY, Object, RpcError, RpcResult};
use toolgate_mcp::task::{EXTENSION, RELATED_TASK, TaskStatus};

use super::follower::TaskQuestion;
use crate::mcp_server::era_adapter::{Caching, adapt_result, add_meta};
use crate::mcp_server::to_raw;
use crate::store::from_unix_millis;
use crate::tasks::{TaskOutcome, TaskRecord, TaskState};

/// A task as its client sees it.
#[derive(Clone, Debug)]
pub(in crate::mcp_server) struct TaskView {
    pub(super) record: TaskRecord,
    /// Questions that wait for the client's answers.
    pub(super) questions: IndexMap<String, Arc<TaskQuestion>>,
    /// What came of the task, if it has ended and its outcome was read.
    pub(super) outcome: Option<TaskOutcome>,
}

impl TaskView {
    /// A legacy task fails with its tool; a modern one only with its request.
    fn status(&self, era: Era) -> TaskStatus {
        match self.record.state {
            TaskState::Working if self.questions.is_empty() => TaskStatus::Working,
            TaskState::Working => TaskStatus::InputRequired,
            TaskState::ToolError if era == Era::Legacy => TaskStatus::Failed,
            TaskState::Completed | TaskState::ToolError => TaskStatus::Completed,
            TaskState::Failed => TaskStatus::Failed,
            TaskState::Cancelled => TaskStatus::Cancelled,
        }
    }

    /// Returns the members that describe the task itself.
    fn members(&self, era: Era, status: TaskStatus) -> Object {
        let record = &self.record;
        let time = |millis| humantime::format_rfc3339_millis(from_unix_millis(millis)).to_string();
        let (ttl, poll_interval) = match era {
            Era::Legacy => ("ttl", "pollInterval"),
            Era::Modern => ("ttlMs", "pollIntervalMs"),
        };
        let members = Object::new()
            .text("taskId", &record.id)
            .text("status", status.as_str());
        let members = match &record.message {
            Some(message) => members.text("statusMessage", message),
            None => members,
        };
        members
            .text("createdAt", &time(record.created_at))
            .text("lastUpdatedAt", &time(record.updated_at))
            .raw(ttl, &(record.expires_at - record.created_at).to_string())
            .raw(poll_interval, &record.poll_ms.to_string())
    }

    /// Returns the answer to the call that became the task. Every task begins as `working`, whatever has
    /// happened since; the client reads on with `tasks/get`.
    pub(super) fn to_created(&self, era: Era) -> Box<RawValue> {
        let task = self.members(era, TaskStatus::Working);
        let created = match era {
            Era::Legacy => Object::new().raw("task", &task.to_string()),
            Era::Modern => task.text("resultType", "task"),
        };
        adapt_result(to_raw(&created), era, Caching::None)
    }

    /// Returns the whole state of the task. A modern client gets questions and outcome with it.
    pub(in crate::mcp_server) fn to_object(&self, era: Era) -> Object {
        let task = self.members(era, self.status(era));
        if era == Era::Legacy {
            return task;
        }
        match &self.outcome {
            Some(TaskOutcome::Result(result)) => task.raw("result", result.get()),
            Some(TaskOutcome::Failed(error)) => {
                let error = serde_json::to_string(error).unwrap_or_else(|_| "{}".to_owned());
                task.raw("error", &error)
            }
            Some(TaskOutcome::Cancelled) => task,
            None if self.questions.is_empty() => task,
            None => {
                let questions = self.questions.iter();
                let requests = questions.fold(Object::new(), |requests, (key, question)| {
                    requests.raw(key, &question.to_object().to_string())
                });
                task.raw("inputRequests", &requests.to_string())
            }
        }
    }

    /// Returns the result of a task that has ended, for a legacy client.
    pub(super) fn into_result(self) -> RpcResult {
        match self.outcome {
            Some(TaskOutcome::Result(result)) => {
                let related = related_task(&self.record.id);
                Ok(add_meta((*result).to_owned(), RELATED_TASK, &related))
            }
            Some(TaskOutcome::Failed(error)) => Err(error),
            Some(TaskOutcome::Cancelled) | None => {
                Err(RpcError::new(INVALID_REQUEST, "the task was cancelled"))
            }
        }
    }
}

/// Returns the value by which a message names the task that it belongs to.
pub(super) fn related_task(id: &str) -> String {
    Object::new().text("taskId", id).to_string()
}

/// Refuses a request that only clients may make which declare the extension.
pub(in crate::mcp_server) fn missing_extension() -> RpcError {
    let required = serde_json::json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    let message = format!("the client does not declare the extension `{EXTENSION}`");
    RpcError {
        data: serde_json::value::to_raw_value(&required).ok(),
        ..RpcError::new(MISSING_CAPABILITY, message)
    }
}

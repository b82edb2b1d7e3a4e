//! Tasks as servers of both eras write them.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_core::clean::clean;
use toolgate_core::clean::json::bound_text;
use toolgate_core::json::{Members, may_contain};

use crate::jsonrpc::{MISSING_CAPABILITY, Object};
use crate::lane::Lane;
use crate::task::{EXTENSION, RELATED_TASK, TaskReport, TaskStatus};
use crate::transport::RequestError;

/// Bytes kept of the message that describes a task's state.
const MAX_MESSAGE_BYTES: usize = 4 * 1024;

/// The members of a task in both forms.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireTask<'a> {
    pub(super) task_id: String,
    status: String,
    #[serde(default)]
    status_message: Option<String>,
    #[serde(default, alias = "ttl")]
    ttl_ms: Option<f64>,
    #[serde(default, alias = "pollInterval")]
    poll_interval_ms: Option<f64>,
    #[serde(borrow, default)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input_requests: Option<&'a RawValue>,
}

/// The answer of a legacy server that has started a task.
#[derive(Debug, Deserialize)]
pub(super) struct LegacyCreated<'a> {
    #[serde(borrow)]
    pub(super) task: WireTask<'a>,
}

impl WireTask<'_> {
    pub(super) fn to_report(&self, lane: &Lane) -> Result<TaskReport, RequestError> {
        let status = TaskStatus::from_name(&self.status);
        let status = status.ok_or_else(|| malformed("unknown status of a task"))?;
        let millis = |ms: Option<f64>| Duration::try_from_secs_f64(ms? / 1000.0).ok();
        Ok(TaskReport {
            id: self.task_id.clone(),
            lane: lane.key().clone(),
            status,
            message: self.status_message.as_deref().map(|message| {
                let mut message = lane.0.masker.mask(&clean(message));
                bound_text(&mut message, MAX_MESSAGE_BYTES);
                message
            }),
            ttl: millis(self.ttl_ms),
            poll_interval: millis(self.poll_interval_ms),
        })
    }
}

/// Returns whether a modern server refuses a call because it would have to be a task.
pub(super) fn requires_tasks(error: &RequestError) -> bool {
    let (RequestError::Rpc(error)
    | RequestError::Status {
        rpc: Some(error), ..
    }) = error
    else {
        return false;
    };
    let data = error.data.as_ref();
    let data: Option<Value> = data.and_then(|data| serde_json::from_str(data.get()).ok());
    error.code == MISSING_CAPABILITY
        && data.is_some_and(|data| !data["requiredCapabilities"]["extensions"][EXTENSION].is_null())
}

/// Returns whether the server may answer the same request later.
pub(super) fn is_transient(error: &RequestError) -> bool {
    match error {
        RequestError::NotSent(_) | RequestError::Lost(_) => true,
        RequestError::Status { status, rpc, .. } => *status >= 429 && rpc.is_none(),
        _ => false,
    }
}

pub(super) fn is_modern_task(raw: &RawValue) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head<'a> {
        #[serde(borrow, default)]
        result_type: Option<Cow<'a, str>>,
    }
    let head: Result<Head<'_>, _> = serde_json::from_str(raw.get());
    head.is_ok_and(|head| head.result_type.as_deref() == Some("task"))
}

/// Removes the server's id of the task from a result.
pub(super) fn without_related_task(result: Box<RawValue>) -> Box<RawValue> {
    if !may_contain(result.get(), RELATED_TASK) {
        return result;
    }
    let Some(members) = Members::parse(result.get()) else {
        return result;
    };
    let rebuilt = members.iter().fold(Object::new(), |object, (name, raw)| {
        let meta = (name == "_meta")
            .then(|| Members::parse(raw.get()))
            .flatten();
        match meta {
            Some(meta) => {
                let kept = meta.iter().filter(|(name, _)| *name != RELATED_TASK);
                let kept = kept.fold(Object::new(), |kept, (name, raw)| kept.raw(name, raw.get()));
                if kept.is_empty() {
                    object
                } else {
                    object.raw(name, &kept.to_string())
                }
            }
            None => object.raw(name, raw.get()),
        }
    });
    RawValue::from_string(rebuilt.to_string()).unwrap_or(result)
}

pub(super) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, RequestError> {
    serde_json::from_str(raw.get()).map_err(|error| RequestError::Malformed(error.to_string()))
}

pub(super) fn malformed(text: &str) -> RequestError {
    RequestError::Malformed(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_of_the_task_is_removed_from_results() {
        let related = r#""io.modelcontextprotocol/related-task":{"taskId":"t"}"#;
        for (sent, expected) in [
            (
                format!(r#"{{"content":[],"_meta":{{{related}}}}}"#),
                r#"{"content":[]}"#,
            ),
            (
                format!(r#"{{"_meta":{{"a":1.0,{related}}},"content":[ ]}}"#),
                r#"{"_meta":{"a":1.0},"content":[ ]}"#,
            ),
            (r#"{ "content" : [] }"#.to_owned(), r#"{ "content" : [] }"#),
        ] {
            let sent = RawValue::from_string(sent).unwrap();
            assert_eq!(without_related_task(sent).get(), expected);
        }
    }
}

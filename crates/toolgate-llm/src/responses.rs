//! OpenAI Responses.

mod answer;
mod decode;
mod encode;
mod input;
mod output;
mod read;
mod write;

pub use crate::chat::error;
pub use answer::{answer, events, events_with_raw};
pub use decode::Decoder;
pub use encode::Encoder;
pub use read::read;
pub(crate) use write::items;
pub use write::write;

use serde_json::{Value, json};

use self::output::Output;
use crate::chat::failure;
use crate::event::{BadAnswer, Event, Failure, Finish, Usage, tokens};
use crate::turn::Head;

/// How far an answer is.
#[derive(Clone, Copy)]
enum Status<'a> {
    InProgress,
    Completed,
    /// It was cut off, for a reason.
    Incomplete(&'a str),
    Failed(&'a Failure),
}

impl<'a> Status<'a> {
    /// That of an answer which is at its end.
    fn of(finish: Option<&'a Finish>, failure: Option<&'a Failure>) -> Self {
        match (failure, finish) {
            (Some(failure), _) => Self::Failed(failure),
            (None, Some(Finish::Length)) => Self::Incomplete("max_output_tokens"),
            (None, Some(Finish::Filter)) => Self::Incomplete("content_filter"),
            (None, Some(Finish::Other(reason))) => Self::Incomplete(reason),
            (None, _) => Self::Completed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(_) => "failed",
        }
    }

    /// That of the item at which the answer ended; items do not fail.
    fn last_item(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            _ => "incomplete",
        }
    }
}

/// The answer as a whole, with every member that SDKs require.
fn response(head: &Head, status: Status<'_>, output: &[Output], usage: Option<&Usage>) -> Value {
    let (mut failed, mut details) = (Value::Null, Value::Null);
    match status {
        Status::Failed(failure) => {
            failed = json!({"code": code(failure), "message": failure.message});
        }
        Status::Incomplete(reason) => details = json!({"reason": reason}),
        Status::InProgress | Status::Completed => {}
    }
    let output: Vec<Value> = output.iter().map(Output::value).collect();
    json!({
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": status.word(),
        "error": failed,
        "incomplete_details": details,
        "instructions": null,
        "metadata": {},
        "model": head.model,
        "output": output,
        "parallel_tool_calls": true,
        "temperature": null,
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "usage": usage.map(usage_value),
    })
}

/// The `code` of an error, which here is always a word.
fn code(failure: &Failure) -> &str {
    let code = failure.code.as_ref().and_then(Value::as_str);
    let code = code.or(failure.kind.as_deref());
    code.unwrap_or("server_error")
}

/// The last event of an answer, by its status.
fn ending(response: &Value, status: &str, calls: bool) -> Result<Event, BadAnswer> {
    let reason = response["incomplete_details"]["reason"].as_str();
    Ok(Event::Finish(match status {
        "completed" if calls => Finish::Calls,
        "completed" => Finish::Stop,
        "incomplete" => match reason.unwrap_or("incomplete") {
            "max_output_tokens" => Finish::Length,
            "content_filter" => Finish::Filter,
            other => Finish::Other(other.to_owned()),
        },
        "failed" => return Ok(Event::Failed(failure(&response["error"]))),
        "cancelled" => Finish::Other("cancelled".to_owned()),
        other => {
            return Err(BadAnswer::new(format!(
                "it is not at its end, its status is `{other}`"
            )));
        }
    }))
}

pub(crate) fn usage(value: &Value) -> Usage {
    let count = |value: &Value| tokens(value).unwrap_or_default();
    Usage {
        input: count(&value["input_tokens"]),
        output: count(&value["output_tokens"]),
        cached: count(&value["input_tokens_details"]["cached_tokens"]),
        cache_written: count(&value["input_tokens_details"]["cache_write_tokens"]),
        reasoning: count(&value["output_tokens_details"]["reasoning_tokens"]),
    }
}

pub(crate) fn usage_value(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.cache_written,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    })
}

/// The one name of a tool in a namespace.
fn within(namespace: &str, tool: &str) -> String {
    format!("{namespace}__{tool}")
}

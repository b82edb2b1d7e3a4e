//! OpenAI Chat Completions.

mod answer;
mod read;
mod stream;
mod write;

pub use answer::{answer, events};
pub use read::read;
pub use stream::{Decoder, Encoder};
pub(crate) use write::items;
pub use write::write;

use serde_json::{Value, json};

use crate::event::{Failure, Finish, Usage, tokens};

/// `finish_reason`.
fn finish_word(finish: &Finish) -> &str {
    match finish {
        Finish::Stop | Finish::Sequence(_) => "stop",
        Finish::Length => "length",
        Finish::Calls => "tool_calls",
        Finish::Filter => "content_filter",
        Finish::Other(word) => word,
    }
}

fn finish(word: &str) -> Finish {
    match word {
        "stop" => Finish::Stop,
        "length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::Calls,
        "content_filter" => Finish::Filter,
        other => Finish::Other(other.to_owned()),
    }
}

pub(crate) fn usage(value: &Value) -> Usage {
    let count = |value: &Value| tokens(value).unwrap_or_default();
    Usage {
        input: count(&value["prompt_tokens"]),
        output: count(&value["completion_tokens"]),
        cached: count(&value["prompt_tokens_details"]["cached_tokens"]),
        cache_written: 0,
        reasoning: count(&value["completion_tokens_details"]["reasoning_tokens"]),
    }
}

pub(crate) fn usage_value(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

pub(crate) fn failure(error: &Value) -> Failure {
    let message = error["message"].as_str().or(error.as_str());
    Failure {
        kind: error["type"].as_str().map(str::to_owned),
        message: message.unwrap_or("the provider gave no reason").to_owned(),
        code: error.get("code").filter(|code| !code.is_null()).cloned(),
    }
}

/// An error in this dialect's shape.
pub fn error(failure: &Failure) -> Value {
    json!({"error": {
        "message": failure.message,
        "type": failure.kind.as_deref().unwrap_or("api_error"),
        "param": null,
        "code": failure.code,
    }})
}

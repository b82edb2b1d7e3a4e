//! Anthropic Messages.

mod answer;
mod decoder;
mod encoder;
mod read;
mod write;

pub use answer::{answer, events, events_with_raw};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use read::read;
pub(crate) use write::items;
pub use write::write;

use serde_json::{Value, json};

use crate::event::{Failure, Finish, Usage, tokens};
use crate::prompt::object;

/// `stop_reason`.
fn finish_word(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Sequence(_) => "stop_sequence",
        Finish::Length => "max_tokens",
        Finish::Calls => "tool_use",
        Finish::Filter => "refusal",
        Finish::Other(word) => word,
    }
}

/// `stop_sequence`.
fn finish_sequence(finish: &Finish) -> Option<&str> {
    match finish {
        Finish::Sequence(sequence) => sequence.as_deref(),
        _ => None,
    }
}

/// What `stop_reason` and `stop_sequence`, which stand side by side, mean.
fn finish(at: &Value) -> Option<Finish> {
    Some(match at["stop_reason"].as_str()? {
        "end_turn" => Finish::Stop,
        "stop_sequence" => Finish::Sequence(at["stop_sequence"].as_str().map(str::to_owned)),
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "tool_use" => Finish::Calls,
        "refusal" => Finish::Filter,
        other => Finish::Other(other.to_owned()),
    })
}

/// What is told of the usage; here the input is what neither came from a cache nor went into one.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    input: u64,
    output: u64,
    read: u64,
    written: u64,
    thinking: u64,
}

impl Counts {
    /// Counts are totals, and what is not told again still holds.
    fn take(&mut self, usage: &Value) {
        let told = [
            (&mut self.input, &usage["input_tokens"]),
            (&mut self.output, &usage["output_tokens"]),
            (&mut self.read, &usage["cache_read_input_tokens"]),
            (&mut self.written, &usage["cache_creation_input_tokens"]),
            (
                &mut self.thinking,
                &usage["output_tokens_details"]["thinking_tokens"],
            ),
        ];
        for (count, value) in told {
            *count = tokens(value).unwrap_or(*count);
        }
    }

    fn usage(self) -> Usage {
        let cache = self.read.saturating_add(self.written);
        Usage {
            input: self.input.saturating_add(cache),
            output: self.output,
            cached: self.read,
            cache_written: self.written,
            reasoning: self.thinking,
        }
    }
}

pub(crate) fn usage(value: &Value) -> Usage {
    let mut counts = Counts::default();
    counts.take(value);
    counts.usage()
}

pub(crate) fn usage_value(usage: &Usage) -> Value {
    let cache = usage.cached.saturating_add(usage.cache_written);
    object([
        (
            "input_tokens",
            Some(json!(usage.input.saturating_sub(cache))),
        ),
        (
            "cache_creation_input_tokens",
            Some(json!(usage.cache_written)),
        ),
        ("cache_read_input_tokens", Some(json!(usage.cached))),
        ("output_tokens", Some(json!(usage.output))),
        (
            "output_tokens_details",
            (usage.reasoning > 0).then(|| json!({"thinking_tokens": usage.reasoning})),
        ),
    ])
}

/// The error that is the whole of an answer or an event, if it is one.
fn failure(body: &Value) -> Option<Failure> {
    let error = body.get("error").filter(|error| !error.is_null());
    if error.is_none() && body["type"] != "error" {
        return None;
    }
    let error = error.unwrap_or(body);
    let message = error["message"].as_str().or(error.as_str());
    let kind = error["type"].as_str().filter(|kind| *kind != "error");
    Some(Failure {
        kind: kind.map(str::to_owned),
        message: message.unwrap_or("the provider gave no reason").to_owned(),
        code: error.get("code").filter(|code| !code.is_null()).cloned(),
    })
}

/// An error in this dialect's shape.
pub fn error(failure: &Failure) -> Value {
    json!({"type": "error", "error": {"type": error_kind(failure), "message": failure.message}})
}

/// SDKs know a closed set of kinds. Other dialects have kinds of their own, and say in the code
/// what is a kind here.
fn error_kind(failure: &Failure) -> &str {
    let code = failure.code.as_ref();
    let word = code.and_then(Value::as_str).unwrap_or_default();
    let kind = failure.kind.as_deref().unwrap_or_default();
    let status = code.and_then(Value::as_u64).or_else(|| word.parse().ok());
    match (word, kind) {
        ("invalid_api_key", _) => "authentication_error",
        ("model_not_found", _) => "not_found_error",
        ("insufficient_quota", _) | (_, "insufficient_quota") => "billing_error",
        ("rate_limit_exceeded", _) | (_, "requests" | "tokens" | "rate_limit_exceeded") => {
            "rate_limit_error"
        }
        (
            _,
            "invalid_request_error"
            | "authentication_error"
            | "billing_error"
            | "permission_error"
            | "not_found_error"
            | "request_too_large"
            | "rate_limit_error"
            | "timeout_error"
            | "overloaded_error",
        ) => kind,
        ("context_length_exceeded" | "content_filter" | "invalid_prompt", _) => {
            "invalid_request_error"
        }
        (_, "permission_denied" | "insufficient_permissions") => "permission_error",
        (_, "engine_overloaded" | "service_unavailable") => "overloaded_error",
        (_, "timeout") => "timeout_error",
        _ => match status {
            Some(400 | 422) => "invalid_request_error",
            Some(401) => "authentication_error",
            Some(402) => "billing_error",
            Some(403) => "permission_error",
            Some(404) => "not_found_error",
            Some(413) => "request_too_large",
            Some(429) => "rate_limit_error",
            Some(503 | 529) => "overloaded_error",
            _ => "api_error",
        },
    }
}

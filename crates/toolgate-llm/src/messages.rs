//! Anthropic Messages dialect: requests, responses and streams, to and from the hub.

mod request_decoder;
mod request_encoder;
mod response;
mod stream_decoder;
mod stream_encoder;

pub use request_decoder::{check_new_thread, decode_request};
pub(crate) use request_encoder::encode_messages;
pub use request_encoder::encode_request;
pub use response::{decode_response, decode_response_with_raw, encode_response};
pub use stream_decoder::MessagesDecoder;
pub use stream_encoder::MessagesEncoder;

use serde_json::{Value, json};

use crate::event::{FinishReason, ProviderError, TokenUsage, parse_token_count};
use crate::prompt::json_object;

/// Field of a request that continues a thread which does not exist.
pub const LOST_THREAD_FIELD: &str = "thread.previous_message_id";
/// Code of the error for such a request; SDKs answer it with the whole conversation.
pub const LOST_THREAD_CODE: &str = "thread_not_found";

/// Returns the `stop_reason` of a hub finish reason.
fn stop_reason(finish: &FinishReason) -> &str {
    match finish {
        FinishReason::Stop => "end_turn",
        FinishReason::StopSequence(_) => "stop_sequence",
        FinishReason::Length => "max_tokens",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::ContentFilter => "refusal",
        FinishReason::Other(reason) => reason,
    }
}

/// Returns the `stop_sequence` of a hub finish reason.
fn stop_sequence(finish: &FinishReason) -> Option<&str> {
    match finish {
        FinishReason::StopSequence(sequence) => sequence.as_deref(),
        _ => None,
    }
}

/// Decodes the `stop_reason` and `stop_sequence` members of an object.
fn decode_stop_reason(object: &Value) -> Option<FinishReason> {
    Some(match object["stop_reason"].as_str()? {
        "end_turn" => FinishReason::Stop,
        "stop_sequence" => {
            FinishReason::StopSequence(object["stop_sequence"].as_str().map(str::to_owned))
        }
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::ToolCalls,
        "refusal" => FinishReason::ContentFilter,
        other => FinishReason::Other(other.to_owned()),
    })
}

/// Usage counts as this dialect reports them: `input` excludes cache reads and writes.
#[derive(Clone, Copy, Debug, Default)]
struct UsageCounts {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_written: u64,
    thinking: u64,
}

impl UsageCounts {
    /// Updates the counts from a report. Reports are cumulative; missing counts keep their value.
    fn update(&mut self, usage: &Value) {
        let reported = [
            (&mut self.input, &usage["input_tokens"]),
            (&mut self.output, &usage["output_tokens"]),
            (&mut self.cache_read, &usage["cache_read_input_tokens"]),
            (
                &mut self.cache_written,
                &usage["cache_creation_input_tokens"],
            ),
            (
                &mut self.thinking,
                &usage["output_tokens_details"]["thinking_tokens"],
            ),
        ];
        for (count, value) in reported {
            *count = parse_token_count(value).unwrap_or(*count);
        }
    }

    fn to_usage(self) -> TokenUsage {
        let cache = self.cache_read.saturating_add(self.cache_written);
        TokenUsage {
            input: self.input.saturating_add(cache),
            output: self.output,
            cached: self.cache_read,
            cache_written: self.cache_written,
            reasoning: self.thinking,
        }
    }
}

pub(crate) fn decode_usage(value: &Value) -> TokenUsage {
    let mut counts = UsageCounts::default();
    counts.update(value);
    counts.to_usage()
}

pub(crate) fn encode_usage(usage: &TokenUsage) -> Value {
    let cache = usage.cached.saturating_add(usage.cache_written);
    json_object([
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

/// Decodes a response body or event that is an error.
fn decode_error(body: &Value) -> Option<ProviderError> {
    let error = body.get("error").filter(|error| !error.is_null());
    if error.is_none() && body["type"] != "error" {
        return None;
    }
    let error = error.unwrap_or(body);
    let message = error["message"].as_str().or(error.as_str());
    let kind = error["type"].as_str().filter(|kind| *kind != "error");
    Some(ProviderError {
        kind: kind.map(str::to_owned),
        message: message.unwrap_or("the provider gave no reason").to_owned(),
        code: error.get("code").filter(|code| !code.is_null()).cloned(),
    })
}

/// Encodes an error body in this dialect.
pub fn encode_error(error: &ProviderError) -> Value {
    let mut body =
        json!({"type": "error", "error": {"type": error_kind(error), "message": error.message}});
    if error
        .code
        .as_ref()
        .is_some_and(|code| code == LOST_THREAD_CODE)
    {
        body["error"]["details"] = json!({"error_code": LOST_THREAD_CODE});
    }
    body
}

/// Maps an error to one of the types that SDKs know. Other dialects have different types and put
/// what is a type here into the code.
fn error_kind(error: &ProviderError) -> &str {
    let code = error.code.as_ref();
    let name = code.and_then(Value::as_str).unwrap_or("");
    let kind = error.kind.as_deref().unwrap_or("");
    let status = code.and_then(Value::as_u64).or_else(|| name.parse().ok());
    match (name, kind) {
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

//! OpenAI Chat Completions dialect: requests, responses and streams, to and from the hub.

mod request_decoder;
mod request_encoder;
mod response;
mod stream;
mod tool_images;

pub use request_decoder::decode_request;
pub(crate) use request_encoder::encode_messages;
pub use request_encoder::encode_request;
pub use response::{decode_response, encode_response};
pub use stream::{ChatDecoder, ChatEncoder};
pub use tool_images::move_tool_images;

use serde_json::{Value, json};

use crate::event::{FinishReason, ProviderError, TokenUsage, parse_token_count};

/// Returns the `finish_reason` of a hub finish reason.
fn finish_reason(finish: &FinishReason) -> &str {
    match finish {
        FinishReason::Stop | FinishReason::StopSequence(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Other(reason) => reason,
    }
}

fn decode_finish_reason(reason: &str) -> FinishReason {
    match reason {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        other => FinishReason::Other(other.to_owned()),
    }
}

pub(crate) fn decode_usage(value: &Value) -> TokenUsage {
    // Providers omit counts that do not apply.
    let count = |value: &Value| parse_token_count(value).unwrap_or(0);
    TokenUsage {
        input: count(&value["prompt_tokens"]),
        output: count(&value["completion_tokens"]),
        cached: count(&value["prompt_tokens_details"]["cached_tokens"]),
        cache_written: 0,
        reasoning: count(&value["completion_tokens_details"]["reasoning_tokens"]),
    }
}

pub(crate) fn encode_usage(usage: &TokenUsage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

pub(crate) fn decode_error(error: &Value) -> ProviderError {
    let message = error["message"].as_str().or(error.as_str());
    ProviderError {
        kind: error["type"].as_str().map(str::to_owned),
        message: message.unwrap_or("the provider gave no reason").to_owned(),
        code: error.get("code").filter(|code| !code.is_null()).cloned(),
    }
}

/// Encodes an error body in this dialect.
pub fn encode_error(error: &ProviderError) -> Value {
    json!({"error": {
        "message": error.message,
        "type": error.kind.as_deref().unwrap_or("api_error"),
        "param": null,
        "code": error.code,
    }})
}

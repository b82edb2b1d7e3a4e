//! OpenAI Responses dialect: requests, responses and streams, to and from the hub.

mod input;
mod output;
pub mod references;
mod request_decoder;
mod request_encoder;
mod response;
mod stream_decoder;
mod stream_encoder;

pub use crate::chat::encode_error;
pub use request_decoder::decode_request;
pub(crate) use request_encoder::encode_messages;
pub use request_encoder::encode_request;
pub use response::{decode_response, decode_response_with_raw, encode_response};
pub use stream_decoder::ResponsesDecoder;
pub use stream_encoder::ResponsesEncoder;

use serde_json::{Value, json};

use self::output::OutputItem;
use crate::chat::decode_error;
use crate::event::{
    FinishReason, ProviderError, ResponseDecodeError, TokenUsage, TurnEvent, parse_token_count,
};
use crate::turn::ResponseHead;

/// Status of a response.
#[derive(Clone, Copy)]
enum ResponseStatus<'a> {
    InProgress,
    Completed,
    /// Cut off, with the reason.
    Incomplete(&'a str),
    Failed(&'a ProviderError),
}

impl<'a> ResponseStatus<'a> {
    /// Returns the status of a response that has ended.
    fn from_outcome(finish: Option<&'a FinishReason>, error: Option<&'a ProviderError>) -> Self {
        match (error, finish) {
            (Some(error), _) => Self::Failed(error),
            (None, Some(FinishReason::Length)) => Self::Incomplete("max_output_tokens"),
            (None, Some(FinishReason::ContentFilter)) => Self::Incomplete("content_filter"),
            (None, Some(FinishReason::Other(reason))) => Self::Incomplete(reason),
            (None, _) => Self::Completed,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the status of the last output item; items have no `failed` status.
    fn last_item_status(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            _ => "incomplete",
        }
    }
}

/// Builds the response object with every member that SDKs require.
fn build_response(
    head: &ResponseHead,
    status: ResponseStatus<'_>,
    output: &[OutputItem],
    usage: Option<&TokenUsage>,
) -> Value {
    let (mut failure, mut details) = (Value::Null, Value::Null);
    match status {
        ResponseStatus::Failed(error) => {
            failure = json!({"code": error_code(error), "message": error.message});
        }
        ResponseStatus::Incomplete(reason) => details = json!({"reason": reason}),
        ResponseStatus::InProgress | ResponseStatus::Completed => {}
    }
    let output: Vec<Value> = output.iter().map(OutputItem::to_json).collect();
    json!({
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": status.as_str(),
        "error": failure,
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
        "usage": usage.map(encode_usage),
    })
}

/// Returns the `code` of an error, which is always a string in this dialect.
fn error_code(error: &ProviderError) -> &str {
    let code = error.code.as_ref().and_then(Value::as_str);
    let code = code.or(error.kind.as_deref());
    code.unwrap_or("server_error")
}

/// Returns the last event of a response with the given status.
fn final_event(
    response: &Value,
    status: &str,
    calls: bool,
) -> Result<TurnEvent, ResponseDecodeError> {
    let reason = response["incomplete_details"]["reason"].as_str();
    Ok(TurnEvent::Finish(match status {
        "completed" if calls => FinishReason::ToolCalls,
        "completed" => FinishReason::Stop,
        "incomplete" => match reason.unwrap_or("incomplete") {
            "max_output_tokens" => FinishReason::Length,
            "content_filter" => FinishReason::ContentFilter,
            other => FinishReason::Other(other.to_owned()),
        },
        "failed" => return Ok(TurnEvent::Error(decode_error(&response["error"]))),
        "cancelled" => FinishReason::Other("cancelled".to_owned()),
        other => {
            return Err(ResponseDecodeError::new(format!(
                "the response is not complete; its status is `{other}`"
            )));
        }
    }))
}

pub(crate) fn decode_usage(value: &Value) -> TokenUsage {
    // Providers omit counts that do not apply.
    let count = |value: &Value| parse_token_count(value).unwrap_or(0);
    TokenUsage {
        input: count(&value["input_tokens"]),
        output: count(&value["output_tokens"]),
        cached: count(&value["input_tokens_details"]["cached_tokens"]),
        cache_written: count(&value["input_tokens_details"]["cache_write_tokens"]),
        reasoning: count(&value["output_tokens_details"]["reasoning_tokens"]),
    }
}

pub(crate) fn encode_usage(usage: &TokenUsage) -> Value {
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

/// Returns the qualified name of a tool in a namespace.
fn qualify_tool_name(namespace: &str, tool: &str) -> String {
    format!("{namespace}__{tool}")
}

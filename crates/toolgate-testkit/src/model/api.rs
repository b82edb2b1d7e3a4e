//! The three APIs behind one interface.

use bytes::Bytes;
use serde_json::{Value, json};

use super::turn::{RequestInfo, ScriptedTurn};
use super::{chat, messages, responses};

/// The API of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Responses,
    Messages,
}

impl Api {
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Messages),
            _ => None,
        }
    }

    /// Builds the body of a response that is not streamed.
    pub(crate) fn response_body(self, turn: &ScriptedTurn, request: RequestInfo<'_>) -> Value {
        match self {
            Self::Chat => chat::response_body(turn, request),
            Self::Responses => responses::response_body(turn, request),
            Self::Messages => messages::response_body(turn, request),
        }
    }

    /// Builds the events of a streamed response.
    pub(crate) fn stream_events(self, turn: &ScriptedTurn, request: RequestInfo<'_>) -> Vec<Bytes> {
        match self {
            Self::Chat => chat::stream_events(turn, request),
            Self::Responses => responses::stream_events(turn, request),
            Self::Messages => messages::stream_events(turn, request),
        }
    }

    /// Builds the body of an error response.
    pub(crate) fn error_body(self, status: u16, message: &str) -> Value {
        match self {
            Self::Chat | Self::Responses => openai_error_body(status, message),
            Self::Messages => messages::error_body(status, message),
        }
    }

    /// Builds the event that reports a failure in the middle of a stream.
    pub(crate) fn error_event(self, message: &str, sequence: usize) -> Bytes {
        match self {
            Self::Chat => data_event(&openai_error_body(500, message)),
            Self::Responses => named_event(&json!({
                "type": "error", "code": "server_error", "message": message, "param": null,
                "sequence_number": sequence,
            })),
            Self::Messages => named_event(&messages::error_body(529, message)),
        }
    }

    /// Returns the name of the header that carries the request id.
    pub(crate) fn id_header(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "x-request-id",
            Self::Messages => "request-id",
        }
    }
}

fn openai_error_body(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", "invalid_api_key".into()),
        404 => ("invalid_request_error", "model_not_found".into()),
        429 => ("requests", "rate_limit_exceeded".into()),
        400..=499 => ("invalid_request_error", Value::Null),
        _ => ("server_error", Value::Null),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

/// Builds an event that has only data.
pub(crate) fn data_event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// Builds an event named after the `type` of its data.
pub(crate) fn named_event(data: &Value) -> Bytes {
    let name = data["type"].as_str().unwrap_or("message");
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

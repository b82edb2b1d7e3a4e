//! The three APIs: what they have in common, and where they differ in a word.

use bytes::Bytes;
use serde_json::{Value, json};

use super::turn::{Ask, Turn};
use super::{chat, messages, responses};

/// Which API a request came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Responses,
    Messages,
}

impl Api {
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Messages),
            _ => None,
        }
    }

    /// The answer in one piece.
    pub(crate) fn whole(self, turn: &Turn, ask: Ask<'_>) -> Value {
        match self {
            Self::Chat => chat::whole(turn, ask),
            Self::Responses => responses::whole(turn, ask),
            Self::Messages => messages::whole(turn, ask),
        }
    }

    /// The answer as the events of a stream.
    pub(crate) fn events(self, turn: &Turn, ask: Ask<'_>) -> Vec<Bytes> {
        match self {
            Self::Chat => chat::events(turn, ask),
            Self::Responses => responses::events(turn, ask),
            Self::Messages => messages::events(turn, ask),
        }
    }

    /// The body of a refusal.
    pub(crate) fn error(self, status: u16, message: &str) -> Value {
        match self {
            Self::Chat | Self::Responses => openai_error(status, message),
            Self::Messages => messages::error(status, message),
        }
    }

    /// The event that says a stream failed in the middle.
    pub(crate) fn failure(self, message: &str, sequence: usize) -> Bytes {
        match self {
            Self::Chat => unnamed(&openai_error(500, message)),
            Self::Responses => named(&json!({
                "type": "error", "code": "server_error", "message": message, "param": null,
                "sequence_number": sequence,
            })),
            Self::Messages => named(&messages::error(529, message)),
        }
    }

    /// The header that carries the request's id.
    pub(crate) fn id_header(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "x-request-id",
            Self::Messages => "request-id",
        }
    }
}

fn openai_error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", "invalid_api_key".into()),
        404 => ("invalid_request_error", "model_not_found".into()),
        429 => ("requests", "rate_limit_exceeded".into()),
        400..=499 => ("invalid_request_error", Value::Null),
        _ => ("server_error", Value::Null),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

/// An event that has only data.
pub(crate) fn unnamed(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// An event whose name is the `type` of its data.
pub(crate) fn named(data: &Value) -> Bytes {
    let name = data["type"].as_str().unwrap_or("message");
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

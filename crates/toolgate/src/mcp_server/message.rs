//! Messages from clients, borrowed from their text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_mcp::jsonrpc::{self, INVALID_REQUEST, PARSE_ERROR, RpcError, RpcResult};

/// A message from a client.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Request(RequestMessage<'a>),
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// The response to one of our requests.
    Response {
        id: &'a RawValue,
        result: RpcResult,
    },
}

/// A request from a client.
#[derive(Debug)]
pub(super) struct RequestMessage<'a> {
    pub(super) id: &'a RawValue,
    pub(super) method: Cow<'a, str>,
    pub(super) params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    /// Distinguishes `null`, which is an invalid id, from a missing id.
    #[serde(borrow, default, deserialize_with = "jsonrpc::deserialize_present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

impl<'a> Message<'a> {
    /// Parses one message.
    pub(super) fn parse(text: &'a str) -> Result<Self, RpcError> {
        let envelope: Envelope<'a> = serde_json::from_str(text).map_err(|error| {
            let code = if error.is_data() {
                INVALID_REQUEST
            } else {
                PARSE_ERROR
            };
            RpcError::new(code, format!("not a JSON-RPC message: {error}"))
        })?;
        let invalid = |message: &str| Err(RpcError::new(INVALID_REQUEST, message));
        if envelope.jsonrpc != "2.0" {
            return invalid("`jsonrpc` must be \"2.0\"");
        }
        let params = envelope.params;
        match (envelope.method, envelope.id) {
            (Some(method), Some(id)) if is_id(id) => {
                Ok(Self::Request(RequestMessage { id, method, params }))
            }
            (Some(_), Some(_)) => invalid("`id` must be a string or an integer"),
            (Some(method), None) => Ok(Self::Notification { method, params }),
            (None, Some(id)) => match (envelope.error, envelope.result) {
                (Some(error), _) => Ok(Self::Response {
                    id,
                    result: Err(error),
                }),
                (None, Some(result)) => Ok(Self::Response {
                    id,
                    result: Ok(result.to_owned()),
                }),
                (None, None) => invalid("message has neither `result` nor `error`"),
            },
            (None, None) => invalid("message has neither `method` nor `id`"),
        }
    }
}

/// Returns whether a value is a valid id: a string or an integer, not `null`.
fn is_id(raw: &RawValue) -> bool {
    let text = raw.get();
    text.starts_with('"') || text.parse::<i64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_requests_notifications_responses_and_rejects_others() {
        let kind = |text: &str| match Message::parse(text) {
            Ok(Message::Request(RequestMessage { id, method, .. })) => {
                format!("request {id} {method}")
            }
            Ok(Message::Notification { method, .. }) => format!("notification {method}"),
            Ok(Message::Response { id, result }) => {
                format!("response {id} {}", result.is_ok())
            }
            Err(error) => format!("error {}", error.code),
        };
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
                "request 1 ping",
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"x","params":{}}"#,
                "request \"a\" x",
            ),
            (r#"{"jsonrpc":"2.0","method":"n"}"#, "notification n"),
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, "response 3 true"),
            (
                r#"{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"m"}}"#,
                "response 3 false",
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
                "error -32600",
            ),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"x"}"#, "error -32600"),
            (r#"{"id":1,"method":"x"}"#, "error -32600"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, "error -32600"),
            (r#"{"jsonrpc":"2.0"}"#, "error -32600"),
            ("[1]", "error -32600"),
            ("{", "error -32700"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}

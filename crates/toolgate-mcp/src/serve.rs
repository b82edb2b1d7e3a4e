//! The server half of the protocol: message formats for the gateway as an MCP server.
//!
//! Parses and adapts messages of both eras. Transports (HTTP, stdio) and request handling live in
//! other crates.

mod client_requests;
mod era_adapter;
mod in_flight;
mod modern;

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use client_requests::{ClientRequests, MessageSender, notification};
pub use era_adapter::{Caching, adapt_for_legacy, adapt_for_modern};
pub use in_flight::{InFlightGuard, InFlightRequests};
pub(crate) use modern::decode_header_value;
pub use modern::{
    HEADER_MISMATCH, MirroredHeaders, ModernRequest, RawMeta, RequestMeta, RequestRejection,
};

use crate::handshake::{LATEST_LEGACY_VERSION, LEGACY_VERSIONS, MODERN_VERSION};
use crate::jsonrpc::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, RpcResult};

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
/// Legacy error code for an unknown resource.
pub const RESOURCE_NOT_FOUND: i64 = -32002;

/// Maximum number of concurrent legacy sessions.
pub const MAX_SESSIONS: usize = 1000;
/// Time without messages after which a session expires.
pub const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// All supported protocol versions, newest first.
pub const SUPPORTED_VERSIONS: [&str; 5] = [
    MODERN_VERSION,
    LATEST_LEGACY_VERSION,
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];

/// A message from a client.
#[derive(Debug)]
pub enum ClientMessage {
    Request {
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// The response to one of our requests.
    Response {
        id: Box<RawValue>,
        result: RpcResult,
    },
}

/// The parameters of a client's `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeRequest {
    /// The negotiated protocol version.
    pub version: &'static str,
    pub capabilities: Box<RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    /// Distinguishes `null`, which is an invalid id, from a missing id.
    #[serde(
        borrow,
        default,
        deserialize_with = "crate::jsonrpc::deserialize_present"
    )]
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams<'a> {
    #[serde(default)]
    protocol_version: String,
    #[serde(borrow, default)]
    capabilities: Option<&'a RawValue>,
}

impl ClientMessage {
    /// Parses one message.
    pub fn parse(text: &str) -> Result<Self, RpcError> {
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
            let code = if error.is_data() {
                INVALID_REQUEST
            } else {
                PARSE_ERROR
            };
            rpc_error(code, format!("not a JSON-RPC message: {error}"))
        })?;
        let owned = |raw: Option<&RawValue>| raw.map(ToOwned::to_owned);
        if envelope.jsonrpc != "2.0" {
            return Err(rpc_error(INVALID_REQUEST, "`jsonrpc` must be \"2.0\""));
        }
        match (envelope.method, envelope.id) {
            (Some(method), Some(id)) if is_id(id) => Ok(Self::Request {
                id: id.to_owned(),
                method: method.into_owned(),
                params: owned(envelope.params),
            }),
            (Some(_), Some(_)) => Err(rpc_error(
                INVALID_REQUEST,
                "`id` must be a string or an integer",
            )),
            (Some(method), None) => Ok(Self::Notification {
                method: method.into_owned(),
                params: owned(envelope.params),
            }),
            (None, Some(id)) => Ok(Self::Response {
                id: id.to_owned(),
                result: match (envelope.error, envelope.result) {
                    (Some(error), _) => Err(error),
                    (None, Some(result)) => Ok(result.to_owned()),
                    (None, None) => {
                        return Err(rpc_error(
                            INVALID_REQUEST,
                            "message has neither `result` nor `error`",
                        ));
                    }
                },
            }),
            (None, None) => Err(rpc_error(
                INVALID_REQUEST,
                "message has neither `method` nor `id`",
            )),
        }
    }
}

impl InitializeRequest {
    /// Returns whether the client declares a capability that lets servers send it requests.
    pub fn can_answer_requests(&self) -> bool {
        let declared: HashMap<String, &RawValue> =
            serde_json::from_str(self.capabilities.get()).unwrap_or_default();
        ["elicitation", "sampling", "roots"]
            .iter()
            .any(|name| declared.contains_key(*name))
    }

    /// Parses the parameters of `initialize`. An unknown version is answered with the latest legacy
    /// version.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, RpcError> {
        let params = params.ok_or_else(|| rpc_error(INVALID_PARAMS, "`params` is missing"))?;
        let params: InitializeParams<'_> = serde_json::from_str(params.get())
            .map_err(|error| rpc_error(INVALID_PARAMS, error.to_string()))?;
        let known = LEGACY_VERSIONS
            .into_iter()
            .find(|known| *known == params.protocol_version);
        Ok(Self {
            version: known.unwrap_or(LATEST_LEGACY_VERSION),
            capabilities: params
                .capabilities
                .map_or_else(empty_object, ToOwned::to_owned),
        })
    }
}

/// Builds an error without data.
pub fn rpc_error(code: i64, message: impl Into<String>) -> RpcError {
    RpcError {
        code,
        message: message.into(),
        data: None,
    }
}

pub fn method_not_found(method: &str) -> RpcError {
    rpc_error(METHOD_NOT_FOUND, format!("unknown method `{method}`"))
}

/// Returns the raw JSON `{}`.
pub fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
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
        let kind = |text: &str| match ClientMessage::parse(text) {
            Ok(ClientMessage::Request { id, method, .. }) => format!("request {id} {method}"),
            Ok(ClientMessage::Notification { method, .. }) => format!("notification {method}"),
            Ok(ClientMessage::Response { id, result }) => {
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

    #[test]
    fn initialize_negotiates_the_requested_or_latest_legacy_version() {
        for (requested, negotiated) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("1999-01-01", "2025-11-25"),
        ] {
            let params = format!(r#"{{"protocolVersion":"{requested}","capabilities":{{}}}}"#);
            let params = RawValue::from_string(params).unwrap();
            assert_eq!(
                InitializeRequest::parse(Some(&params)).unwrap().version,
                negotiated
            );
        }
    }
}

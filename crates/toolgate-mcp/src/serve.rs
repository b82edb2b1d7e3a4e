//! The other half of the protocol: the gateway as an MCP server.
//!
//! Here is what messages look like in each era and what must be said about them; where they come
//! from (HTTP, pipes) and what answers them is elsewhere.

mod modern;
mod questions;
mod stamp;
mod under_way;

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) use modern::decoded;
pub use modern::{HEADER_MISMATCH, Headers, Meta, Modern, Refusal, Said};
pub use questions::{Questions, Tell, notification};
pub use stamp::{Caching, for_legacy, for_modern};
pub use under_way::{Place, UnderWay};

use crate::handshake::{LEGACY, MODERN, NEWEST_LEGACY};
use crate::jsonrpc::{Answer, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError};

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
/// What old revisions say of a resource that is not there.
pub const RESOURCE_NOT_FOUND: i64 = -32002;

/// Clients of the old era that may have a session at once.
pub const MOST_SESSIONS: usize = 1000;
/// How long a session is kept of which nothing is heard.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// Every revision that is spoken, the newest first.
pub const VERSIONS: [&str; 5] = [
    MODERN,
    NEWEST_LEGACY,
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];

/// A message from a client.
#[derive(Debug)]
pub enum Received {
    Request {
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    },
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// To a request of ours.
    Response { id: Box<RawValue>, answer: Answer },
}

/// What a client says of itself in `initialize`.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The revision to speak.
    pub version: &'static str,
    pub capabilities: Box<RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    /// `null` is an id too, and a wrong one.
    #[serde(borrow, default, deserialize_with = "crate::jsonrpc::present")]
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
struct Initialize<'a> {
    #[serde(default)]
    protocol_version: String,
    #[serde(borrow, default)]
    capabilities: Option<&'a RawValue>,
}

impl Received {
    /// Reads one message.
    pub fn read(text: &str) -> Result<Self, RpcError> {
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
            let code = match error.is_data() {
                true => INVALID_REQUEST,
                false => PARSE_ERROR,
            };
            rpc(code, format!("this is no JSON-RPC message: {error}"))
        })?;
        let own = |raw: Option<&RawValue>| raw.map(ToOwned::to_owned);
        if envelope.jsonrpc != "2.0" {
            return Err(rpc(INVALID_REQUEST, "`jsonrpc` must be \"2.0\""));
        }
        match (envelope.method, envelope.id) {
            (Some(method), Some(id)) if is_id(id) => Ok(Self::Request {
                id: id.to_owned(),
                method: method.into_owned(),
                params: own(envelope.params),
            }),
            (Some(_), Some(_)) => Err(rpc(INVALID_REQUEST, "`id` must be a string or an integer")),
            (Some(method), None) => Ok(Self::Notification {
                method: method.into_owned(),
                params: own(envelope.params),
            }),
            (None, Some(id)) => Ok(Self::Response {
                id: id.to_owned(),
                answer: match (envelope.error, envelope.result) {
                    (Some(error), _) => Err(error),
                    (None, Some(result)) => Ok(result.to_owned()),
                    (None, None) => {
                        return Err(rpc(INVALID_REQUEST, "neither `result` nor `error`"));
                    }
                },
            }),
            (None, None) => Err(rpc(INVALID_REQUEST, "neither `method` nor `id`")),
        }
    }
}

impl Hello {
    /// Whether servers may ask the client something.
    pub fn can_be_asked(&self) -> bool {
        let declared: HashMap<String, &RawValue> =
            serde_json::from_str(self.capabilities.get()).unwrap_or_default();
        ["elicitation", "sampling", "roots"]
            .iter()
            .any(|name| declared.contains_key(*name))
    }

    /// Reads the parameters of `initialize`. A revision that is not known is answered with the
    /// newest of that era.
    pub fn read(params: Option<&RawValue>) -> Result<Self, RpcError> {
        let params = params.ok_or_else(|| rpc(INVALID_PARAMS, "`params` are missing"))?;
        let said: Initialize<'_> = serde_json::from_str(params.get())
            .map_err(|error| rpc(INVALID_PARAMS, error.to_string()))?;
        let known = LEGACY
            .into_iter()
            .find(|known| *known == said.protocol_version);
        Ok(Self {
            version: known.unwrap_or(NEWEST_LEGACY),
            capabilities: said
                .capabilities
                .map_or_else(empty_object, ToOwned::to_owned),
        })
    }
}

pub fn rpc(code: i64, message: impl Into<String>) -> RpcError {
    RpcError {
        code,
        message: message.into(),
        data: None,
    }
}

pub fn no_method(method: &str) -> RpcError {
    rpc(METHOD_NOT_FOUND, format!("no method `{method}`"))
}

pub fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Ids are strings or integers; `null` is neither.
fn is_id(raw: &RawValue) -> bool {
    let text = raw.get();
    text.starts_with('"') || text.parse::<i64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_messages() {
        let kind = |text: &str| match Received::read(text) {
            Ok(Received::Request { id, method, .. }) => format!("request {id} {method}"),
            Ok(Received::Notification { method, .. }) => format!("notification {method}"),
            Ok(Received::Response { id, answer }) => format!("response {id} {}", answer.is_ok()),
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
    fn the_revision_that_is_asked_for_is_spoken_if_it_is_known() {
        for (asked, spoken) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("1999-01-01", "2025-11-25"),
        ] {
            let params = format!(r#"{{"protocolVersion":"{asked}","capabilities":{{}}}}"#);
            let params = RawValue::from_string(params).unwrap();
            assert_eq!(Hello::read(Some(&params)).unwrap().version, spoken);
        }
    }
}

//! Parsing and building of JSON-RPC 2.0 messages on raw JSON values.
//!
//! Results and parameters are never deserialized here, so numbers and member order survive.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use toolgate_core::clean::clean;
use toolgate_core::clean::json::{bound_text, clean_json};
use toolgate_core::json::{MAX_DEPTH, exceeds_depth};

use crate::large::run_large;

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
/// Legacy code for an unknown resource; modern revisions use [`INVALID_PARAMS`].
pub const RESOURCE_NOT_FOUND: i64 = -32002;
pub const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare a capability that the request needs.
pub const MISSING_CAPABILITY: i64 = -32021;
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// The caller exceeded a limit; the request can be repeated later. The protocol defines no code.
pub const RATE_LIMITED: i64 = -32005;

/// Bytes kept of the message of an error.
const MAX_ERROR_BYTES: usize = 4 * 1024;
/// Maximum size of the data of an error; larger or deeply nested data is left out.
const MAX_ERROR_DATA_BYTES: usize = 64 * 1024;

/// A JSON-RPC error object.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// The outcome of a request as reported by the peer: a raw result or an error object.
pub type RpcResult = Result<Box<RawValue>, RpcError>;

/// A message from the peer, borrowed from its text.
#[derive(Debug)]
pub enum Incoming<'a> {
    Response {
        /// The id of our request; `None` if it is not an id we issued.
        id: Option<u64>,
        result: RpcResult,
    },
    Request {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    /// `null` is a valid result.
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Deserializes a present member as `Some`, including `null`.
pub fn deserialize_present<'de: 'a, 'a, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// Parses a text into messages. Batches, which only revision 2025-03-26 allows, yield several.
pub fn parse(text: &str) -> Result<Vec<Incoming<'_>>, serde_json::Error> {
    run_large(text.len(), || parse_messages(text))
}

fn parse_messages(text: &str) -> Result<Vec<Incoming<'_>>, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        let batch: Vec<&RawValue> = serde_json::from_str(text)?;
        let messages = batch
            .into_iter()
            .filter_map(|message| serde_json::from_str(message.get()).ok());
        return Ok(messages.filter_map(classify).collect());
    }
    let envelope: Envelope<'_> = serde_json::from_str(text)?;
    Ok(classify(envelope).into_iter().collect())
}

fn classify(envelope: Envelope<'_>) -> Option<Incoming<'_>> {
    let Envelope {
        id,
        method,
        params,
        result,
        error,
    } = envelope;
    if method.is_some() && params.is_some_and(|params| exceeds_depth(params.get(), MAX_DEPTH)) {
        tracing::debug!("ignoring message that is nested too deeply");
        return None;
    }
    match (method, id) {
        (Some(method), Some(id)) => Some(Incoming::Request { id, method, params }),
        (Some(method), None) => Some(Incoming::Notification { method, params }),
        (None, id) => {
            let result = match (error, result) {
                (Some(error), _) => Err(RpcError::parse_lenient(error)),
                (None, Some(result)) => Ok(result.to_owned()),
                (None, None) if id.is_none() => return None,
                (None, None) => Err(RpcError::new(
                    INTERNAL_ERROR,
                    "response has neither `result` nor `error`",
                )),
            };
            // Some servers return our numeric ids as strings.
            let id = id.and_then(|id| id.get().trim_matches('"').parse().ok());
            Some(Incoming::Response { id, result })
        }
    }
}

impl RpcError {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("unknown method `{method}`"))
    }

    /// Parses an error of any shape: a failed call must not wait for its timeout just because the
    /// error object is malformed. The error is cleaned and bounded, since people and models read it.
    pub(crate) fn parse_lenient(raw: &RawValue) -> Self {
        let mut error: Self = serde_json::from_str(raw.get()).unwrap_or_else(|_| {
            // Not an object: the whole value becomes the message.
            let fields: HashMap<String, &RawValue> =
                serde_json::from_str(raw.get()).unwrap_or_default();
            let message = fields.get("message").unwrap_or(&raw).get();
            let message = serde_json::from_str(message).unwrap_or_else(|_| message.to_owned());
            Self::new(INTERNAL_ERROR, message)
        });
        error.message = clean(&error.message).into_owned();
        bound_text(&mut error.message, MAX_ERROR_BYTES);
        let data = error.data.take();
        let data = data.filter(|data| {
            data.get().len() <= MAX_ERROR_DATA_BYTES && !exceeds_depth(data.get(), MAX_DEPTH)
        });
        error.data = data.map(|data| clean_json(&data).into_owned());
        error
    }
}

/// Returns the request id in the parameters of `notifications/cancelled`.
pub fn cancelled_request_id(params: Option<&RawValue>) -> Option<&RawValue> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let cancelled: Cancelled<'_> = serde_json::from_str(params?.get()).ok()?;
    Some(cancelled.request_id)
}

/// Builder for a JSON object from parts that are already JSON.
#[derive(Clone, Debug, Default)]
pub struct Object(String);

impl Object {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a member whose value is JSON.
    #[must_use]
    pub fn raw(mut self, key: &str, value: &str) -> Self {
        // Six bytes for quotes, colon, separator and the closing brace.
        self.0.reserve(key.len() + value.len() + 6);
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        push_string(&mut self.0, key);
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    /// Appends a string member.
    #[must_use]
    pub fn text(mut self, key: &str, value: &str) -> Self {
        self.0.reserve(key.len() + value.len() + 8);
        let mut object = self.raw(key, "");
        push_string(&mut object.0, value);
        object
    }

    /// Appends the members of another object.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        match (self.0.is_empty(), other.0.strip_prefix('{')) {
            (_, None) => self,
            (true, Some(_)) => other.clone(),
            (false, Some(members)) => {
                self.0.push(',');
                self.0.push_str(members);
                self
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Object> for String {
    fn from(mut object: Object) -> Self {
        if object.0.is_empty() {
            object.0.push('{');
        }
        object.0.push('}');
        object.0
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("{}")
        } else {
            write!(f, "{}}}", self.0)
        }
    }
}

/// Builds a request; `meta` becomes the `_meta` of its parameters.
pub fn request(id: u64, method: &str, params: &Object, meta: &Object) -> String {
    let length = params.0.len() + meta.0.len() + method.len();
    let mut text = String::with_capacity(length + 96);
    text.push_str(r#"{"jsonrpc":"2.0","id":"#);
    text.push_str(&id.to_string());
    text.push_str(r#","method":"#);
    push_string(&mut text, method);
    text.push_str(r#","params":"#);
    text.push_str(if params.is_empty() { "{" } else { &params.0 });
    if !meta.is_empty() {
        text.push_str(if params.is_empty() {
            r#""_meta":"#
        } else {
            r#","_meta":"#
        });
        text.push_str(&meta.0);
        text.push('}');
    }
    text.push_str("}}");
    text
}

/// Builds a notification.
pub fn notification(method: &str, params: &Object) -> String {
    let message = envelope().text("method", method);
    let message = if params.is_empty() {
        message
    } else {
        message.raw("params", &params.to_string())
    };
    message.into()
}

/// Builds a notification whose parameters are already JSON.
pub fn raw_notification(method: &str, params: Option<&RawValue>) -> String {
    let message = envelope().text("method", method);
    let message = match params {
        Some(params) => message.raw("params", params.get()),
        None => message,
    };
    message.into()
}

/// Builds the response to a request from the peer.
pub fn response(id: &RawValue, answer: &RpcResult) -> String {
    let message = envelope().raw("id", id.get());
    let message = match answer {
        Ok(result) => message.raw("result", result.get()),
        Err(error) => {
            let error = serde_json::to_string(error).unwrap_or_else(|_| "{}".to_owned());
            message.raw("error", &error)
        }
    };
    message.into()
}

/// Returns the text before and after the result in a response.
pub fn response_frame(id: &RawValue) -> (String, &'static str) {
    let before = envelope().raw("id", id.get()).raw("result", "");
    (before.0, "}")
}

/// Builds the response to a server request when no client can handle it: only `ping` succeeds.
pub fn default_response(id: &RawValue, method: &str) -> String {
    let answer = envelope().raw("id", id.get());
    let answer = match method {
        "ping" => answer.raw("result", "{}"),
        _ => {
            let error = Object::new()
                .raw("code", &METHOD_NOT_FOUND.to_string())
                .text(
                    "message",
                    "this client supports no server requests other than `ping`",
                );
            answer.raw("error", &error.to_string())
        }
    };
    answer.to_string()
}

/// Returns the raw JSON `{}`.
pub fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn envelope() -> Object {
    Object::new().text("jsonrpc", "2.0")
}

fn push_string(out: &mut String, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
        return;
    }
    // Serializing a `&str` into memory cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(text: &str) -> Incoming<'_> {
        parse(text).unwrap().pop().unwrap()
    }

    #[test]
    fn errors_are_cleaned_and_bounded() {
        let parse_error = |error: &str| {
            let raw = RawValue::from_string(error.to_owned()).unwrap();
            RpcError::parse_lenient(&raw)
        };
        let error = parse_error(
            r#"{"code":-1,"message":"no\u001b[2J\u0007 access","data":{"hint":"a\u001b]0;x\u0007b"}}"#,
        );
        assert_eq!(error.message, "no access");
        assert_eq!(error.data.unwrap().get(), r#"{"hint":"ab"}"#);
        let long = "x".repeat(1 << 20);
        let error = parse_error(&format!(
            r#"{{"code":-1,"message":"{long}","data":"{long}"}}"#
        ));
        assert!(error.message.len() < MAX_ERROR_BYTES + 100);
        assert!(error.message.ends_with("… [1048576 bytes in total]"));
        assert!(error.data.is_none());
        let text = parse_error(&format!(r#""{long}""#));
        assert!(text.message.len() < MAX_ERROR_BYTES + 100);
    }

    #[test]
    fn results_keep_their_raw_text() {
        let text = r#"{"result":{"a":18446744073709551617,"b":[1e400,-0.0],"z":0.10},"id":7,"jsonrpc":"2.0","new":1}"#;
        match parse_one(text) {
            Incoming::Response {
                id: Some(7),
                result: Ok(result),
            } => assert_eq!(
                result.get(),
                r#"{"a":18446744073709551617,"b":[1e400,-0.0],"z":0.10}"#
            ),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parses_every_message_kind_and_malformed_errors() {
        assert!(
            matches!(parse_one(r#"{"id":"8","result":null}"#), Incoming::Response { id: Some(8), result: Ok(r) } if r.get() == "null")
        );
        assert!(
            matches!(parse_one(r#"{"id":1,"error":{"code":-1,"message":"m","data":[1.0]}}"#), Incoming::Response { result: Err(e), .. } if e.code == -1)
        );
        assert!(matches!(
            parse_one(r#"{"id":null,"error":{"code":-1,"message":"m"}}"#),
            Incoming::Response { id: None, .. }
        ));
        assert!(
            matches!(parse_one(r#"{"id":"x","method":"ping"}"#), Incoming::Request { id, .. } if id.get() == r#""x""#)
        );
        assert!(matches!(
            parse_one(r#"{"method":"n","params":{}}"#),
            Incoming::Notification { .. }
        ));
        assert_eq!(
            parse(r#"[{"method":"a"},{"method":"b"},{}]"#)
                .unwrap()
                .len(),
            2
        );
        for odd in [
            r#""boom""#,
            r#"{"code":-1}"#,
            r#"{"code":"E1","message":"m"}"#,
            "null,\"x\":1",
        ] {
            let text = format!(r#"{{"id":4,"error":{odd}}}"#);
            assert!(
                matches!(
                    parse_one(&text),
                    Incoming::Response {
                        id: Some(4),
                        result: Err(_)
                    }
                ),
                "{text}"
            );
        }
        assert_eq!(
            parse(r#"[{"id":1,"result":1},7,{"id":2,"error":5}]"#)
                .unwrap()
                .len(),
            2
        );
        assert!(parse("hello").is_err());
        assert!(parse("7").is_err());
    }

    #[test]
    fn built_messages_are_valid_json() {
        let params = Object::new()
            .text("name", "a\"b")
            .raw("arguments", r#"{"n":1e400}"#);
        let (none, meta) = (Object::new(), Object::new().raw("x", "1"));
        for (params, meta, expected) in [
            (&params, &none, r#"{"name":"a\"b","arguments":{"n":1e400}}"#),
            (
                &params,
                &meta,
                r#"{"name":"a\"b","arguments":{"n":1e400},"_meta":{"x":1}}"#,
            ),
            (&none, &meta, r#"{"_meta":{"x":1}}"#),
            (&none, &none, "{}"),
        ] {
            assert_eq!(
                request(3, "tools/call", params, meta),
                format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{expected}}}"#)
            );
        }
        let (before, after) = response_frame(RawValue::NULL);
        let result = RawValue::from_string("[1.0]".to_owned()).unwrap();
        assert_eq!(
            format!("{before}{result}{after}"),
            response(RawValue::NULL, &Ok(result))
        );
        assert_eq!(
            notification("x", &Object::new()),
            r#"{"jsonrpc":"2.0","method":"x"}"#
        );
    }
}

//! JSON-RPC 2.0 messages on raw values.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// An error that the other side answered with.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// A result or an error, as the other side answered.
pub type Answer = Result<Box<RawValue>, RpcError>;

/// A message from the other side, borrowed from its text.
#[derive(Debug)]
pub enum Incoming<'a> {
    Response {
        /// The id of our request; none if it is no id of ours.
        id: Option<u64>,
        answer: Answer,
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
    /// `null` is a result too.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

pub(crate) fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// Takes a text apart. A batch, which one old revision allows, is several messages.
pub fn parse(text: &str) -> Result<Vec<Incoming<'_>>, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        let batch: Vec<&RawValue> = serde_json::from_str(text)?;
        let messages = batch
            .into_iter()
            .filter_map(|one| serde_json::from_str(one.get()).ok());
        return Ok(messages.filter_map(incoming).collect());
    }
    let envelope: Envelope<'_> = serde_json::from_str(text)?;
    Ok(incoming(envelope).into_iter().collect())
}

fn incoming(envelope: Envelope<'_>) -> Option<Incoming<'_>> {
    let Envelope {
        id,
        method,
        params,
        result,
        error,
    } = envelope;
    match (method, id) {
        (Some(method), Some(id)) => Some(Incoming::Request { id, method, params }),
        (Some(method), None) => Some(Incoming::Notification { method, params }),
        (None, id) => {
            let answer = match (error, result) {
                (Some(error), _) => Err(RpcError::read(error)),
                (None, Some(result)) => Ok(result.to_owned()),
                (None, None) if id.is_none() => return None,
                (None, None) => Err(RpcError::new(
                    "the answer has neither a result nor an error",
                )),
            };
            let id = id.and_then(|id| id.get().trim_matches('"').parse().ok());
            Some(Incoming::Response { id, answer })
        }
    }
}

impl RpcError {
    fn new(message: &str) -> Self {
        Self {
            code: INTERNAL_ERROR,
            message: message.to_owned(),
            data: None,
        }
    }

    /// Reads an error whatever its shape: a call that failed must not wait for its timeout.
    fn read(raw: &RawValue) -> Self {
        serde_json::from_str(raw.get()).unwrap_or_else(|_| {
            let fields: HashMap<String, &RawValue> =
                serde_json::from_str(raw.get()).unwrap_or_default();
            let message = fields.get("message").unwrap_or(&raw).get();
            Self::new(
                &serde_json::from_str::<String>(message).unwrap_or_else(|_| message.to_owned()),
            )
        })
    }
}

/// The request that `notifications/cancelled` is about.
pub(crate) fn cancelled(params: Option<&RawValue>) -> Option<&RawValue> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let cancelled: Cancelled<'_> = serde_json::from_str(params?.get()).ok()?;
    Some(cancelled.request_id)
}

/// Builds a JSON object from parts that are already JSON.
#[derive(Clone, Debug, Default)]
pub struct Object(String);

impl Object {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn raw(mut self, key: &str, value: &str) -> Self {
        // Six for what stands around them, and for the end.
        self.0.reserve(key.len() + value.len() + 6);
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        push_string(&mut self.0, key);
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    #[must_use]
    pub fn text(mut self, key: &str, value: &str) -> Self {
        self.0.reserve(key.len() + value.len() + 8);
        let mut object = self.raw(key, "");
        push_string(&mut object.0, value);
        object
    }

    /// The members of another object after this one's.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
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

/// Its JSON, without another copy.
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
        match self.0.is_empty() {
            true => f.write_str("{}"),
            false => write!(f, "{}}}", self.0),
        }
    }
}

/// A request; `meta` is the `_meta` of its parameters.
pub fn request(id: u64, method: &str, params: &Object, meta: &Object) -> String {
    let length = params.0.len() + meta.0.len() + method.len();
    let mut text = String::with_capacity(length + 96);
    text.push_str(r#"{"jsonrpc":"2.0","id":"#);
    text.push_str(&id.to_string());
    text.push_str(r#","method":"#);
    push_string(&mut text, method);
    text.push_str(r#","params":"#);
    text.push_str(match params.is_empty() {
        true => "{",
        false => &params.0,
    });
    if !meta.is_empty() {
        text.push_str(match params.is_empty() {
            true => r#""_meta":"#,
            false => r#","_meta":"#,
        });
        text.push_str(&meta.0);
        text.push('}');
    }
    text.push_str("}}");
    text
}

pub fn notification(method: &str, params: &Object) -> String {
    let message = envelope().text("method", method);
    let message = match params.is_empty() {
        true => message,
        false => message.raw("params", &params.to_string()),
    };
    message.into()
}

/// The answer to a request of the other side.
pub fn answer(id: &RawValue, answer: &Answer) -> String {
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

/// What stands before and behind the result in the answer to a request.
pub fn around_result(id: &RawValue) -> (String, &'static str) {
    let before = envelope().raw("id", id.get()).raw("result", "");
    (before.0, "}")
}

/// The answer to a request of a server that asks what nobody here can answer.
pub fn answer_to_server(id: &RawValue, method: &str) -> String {
    let answer = envelope().raw("id", id.get());
    let answer = match method {
        "ping" => answer.raw("result", "{}"),
        _ => {
            let error = Object::new()
                .raw("code", &METHOD_NOT_FOUND.to_string())
                .text("message", "this client answers no requests but ping");
            answer.raw("error", &error.to_string())
        }
    };
    answer.to_string()
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
    // Writing a `&str` as JSON into memory cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Incoming<'_> {
        parse(text).unwrap().pop().unwrap()
    }

    #[test]
    fn results_stay_raw() {
        let text = r#"{"result":{"a":18446744073709551617,"b":[1e400,-0.0],"z":0.10},"id":7,"jsonrpc":"2.0","new":1}"#;
        match only(text) {
            Incoming::Response {
                id: Some(7),
                answer: Ok(result),
            } => assert_eq!(
                result.get(),
                r#"{"a":18446744073709551617,"b":[1e400,-0.0],"z":0.10}"#
            ),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kinds() {
        assert!(
            matches!(only(r#"{"id":"8","result":null}"#), Incoming::Response { id: Some(8), answer: Ok(r) } if r.get() == "null")
        );
        assert!(
            matches!(only(r#"{"id":1,"error":{"code":-1,"message":"m","data":[1.0]}}"#), Incoming::Response { answer: Err(e), .. } if e.code == -1)
        );
        assert!(matches!(
            only(r#"{"id":null,"error":{"code":-1,"message":"m"}}"#),
            Incoming::Response { id: None, .. }
        ));
        assert!(
            matches!(only(r#"{"id":"x","method":"ping"}"#), Incoming::Request { id, .. } if id.get() == r#""x""#)
        );
        assert!(matches!(
            only(r#"{"method":"n","params":{}}"#),
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
                    only(&text),
                    Incoming::Response {
                        id: Some(4),
                        answer: Err(_)
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
    fn built_messages_are_json() {
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
        let (before, behind) = around_result(RawValue::NULL);
        let result = RawValue::from_string("[1.0]".to_owned()).unwrap();
        assert_eq!(
            format!("{before}{result}{behind}"),
            answer(RawValue::NULL, &Ok(result))
        );
        assert_eq!(
            notification("x", &Object::new()),
            r#"{"jsonrpc":"2.0","method":"x"}"#
        );
    }
}

//! Messages of the client, as far as the relay has to understand them. They are passed on as they are.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate::jsonrpc;
use toolgate::registry::Era;

const VERSION_MEMBER: &str = "io.modelcontextprotocol/protocolVersion";

/// A line of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientMessage {
    /// The request that opens a legacy session.
    Initialize(RequestId),
    Request(ClientRequest),
    Notification(ClientNotification),
    /// The response to a request of the gateway.
    Response,
    /// A batch, with the ids of its requests.
    Batch(Vec<RequestId>),
    /// Not a JSON-RPC message. The gateway says what is wrong with it.
    Invalid,
}

/// A request other than `initialize`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientRequest {
    pub(super) id: RequestId,
    pub(super) method: String,
    /// `None` in the legacy era.
    pub(super) modern: Option<ModernRequest>,
}

/// The parts of a modern request that its HTTP headers repeat.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModernRequest {
    pub(super) version: Option<String>,
    /// Name of the tool or prompt, or URI of the resource.
    pub(super) name: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientNotification {
    Initialized,
    Cancelled(RequestId),
    Other,
}

/// The id of a request, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestId(String);

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "jsonrpc::deserialize_present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "jsonrpc::deserialize_present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "jsonrpc::deserialize_present")]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// A string that a request's parameters may have.
#[derive(Deserialize)]
struct Name<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "taskId")]
    task_id: Option<Cow<'a, str>>,
}

impl ClientMessage {
    pub(super) fn parse(line: &str) -> Self {
        if line.starts_with('[') {
            let Ok(messages) = serde_json::from_str::<Vec<Envelope<'_>>>(line) else {
                return Self::Invalid;
            };
            let requests = messages.iter().filter(|message| message.method.is_some());
            return Self::Batch(requests.filter_map(|m| m.id.map(RequestId::new)).collect());
        }
        let Ok(message) = serde_json::from_str::<Envelope<'_>>(line) else {
            return Self::Invalid;
        };
        match (message.method, message.id) {
            (Some(method), Some(id)) if method == "initialize" => {
                Self::Initialize(RequestId::new(id))
            }
            (Some(method), Some(id)) => Self::Request(ClientRequest {
                id: RequestId::new(id),
                modern: ModernRequest::parse(&method, message.params),
                method: method.into_owned(),
            }),
            (Some(method), None) => {
                Self::Notification(ClientNotification::parse(&method, message.params))
            }
            (None, Some(_)) if message.result.is_some() || message.error.is_some() => {
                Self::Response
            }
            (None, _) => Self::Invalid,
        }
    }
}

impl ClientRequest {
    pub(super) fn era(&self) -> Era {
        match self.modern {
            Some(_) => Era::Modern,
            None => Era::Legacy,
        }
    }
}

impl ModernRequest {
    /// Reads the repeated parts; `None` for a request of the legacy era.
    pub(super) fn parse(method: &str, params: Option<&RawValue>) -> Option<Self> {
        let version = params.and_then(|params| member(parse_params(params).meta?, VERSION_MEMBER));
        if version.is_none() && method != "server/discover" {
            return None;
        }
        let name = params.and_then(|params| serde_json::from_str::<Name<'_>>(params.get()).ok());
        let name = name.and_then(|params| match method {
            "tools/call" | "prompts/get" => params.name,
            "resources/read" => params.uri,
            "tasks/get" | "tasks/update" | "tasks/cancel" => params.task_id,
            _ => None,
        });
        Some(Self {
            version: version.and_then(|raw| serde_json::from_str(raw.get()).ok()),
            name: name.map(Cow::into_owned),
        })
    }
}

impl ClientNotification {
    fn parse(method: &str, params: Option<&RawValue>) -> Self {
        match method {
            "notifications/initialized" => Self::Initialized,
            "notifications/cancelled" => match jsonrpc::cancelled_request_id(params) {
                Some(id) => Self::Cancelled(RequestId::new(id)),
                None => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

impl RequestId {
    fn new(id: &RawValue) -> Self {
        Self(id.get().to_owned())
    }

    /// Builds the response that says why a request failed.
    pub(super) fn error_response(&self, code: i64, message: &str) -> String {
        let error = serde_json::json!({"code": code, "message": message});
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.0)
    }

    /// Gives a response that has no id this one.
    pub(super) fn adopt_error(&self, error: &RawValue) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{}}}"#,
            self.0,
            error.get()
        )
    }
}

/// A message of the gateway, as far as the relay has to understand it.
#[derive(Deserialize)]
pub(super) struct GatewayMessage<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) result: Option<&'a RawValue>,
}

impl<'a> GatewayMessage<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the id of the request that this message responds to.
    pub(super) fn response_id(&self) -> Option<RequestId> {
        let id = self.id.filter(|_| self.method.is_none())?;
        Some(RequestId::new(id))
    }
}

/// Returns the ids of the requests that a message of the gateway responds to, which may be a batch.
pub(super) fn response_ids(text: &str) -> Vec<RequestId> {
    let messages = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<GatewayMessage<'_>>>(text).unwrap_or_default()
    } else {
        GatewayMessage::parse(text).into_iter().collect()
    };
    messages
        .iter()
        .filter_map(GatewayMessage::response_id)
        .collect()
}

/// Returns `_meta` of a request and its arguments, as they were sent.
pub(super) fn call_parts(line: &str) -> Option<(&RawValue, &RawValue)> {
    let message: Envelope<'_> = serde_json::from_str(line).ok()?;
    let params = message.params?;
    let meta = parse_params(params).meta?;
    Some((meta, member(params, "arguments").unwrap_or(RawValue::NULL)))
}

/// Returns a member of a message's parameters, if it is a string.
pub(super) fn text_parameter(line: &str, name: &str) -> Option<String> {
    let message: Envelope<'_> = serde_json::from_str(line).ok()?;
    serde_json::from_str(member(message.params?, name)?.get()).ok()
}

fn parse_params(params: &RawValue) -> Params<'_> {
    serde_json::from_str(params.get()).unwrap_or_default()
}

fn member<'a>(object: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let members = toolgate_core::json::Members::parse(object.get())?;
    members.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let id = |text: &str| RequestId(text.to_owned());
        let request = |id_text: &str, method: &str, modern| {
            ClientMessage::Request(ClientRequest {
                id: id(id_text),
                method: method.to_owned(),
                modern,
            })
        };
        let modern = |version: Option<&str>, name: Option<&str>| {
            Some(ModernRequest {
                version: version.map(str::to_owned),
                name: name.map(str::to_owned),
            })
        };
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#.to_owned(),
                ClientMessage::Initialize(id("0")),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","_meta":{"y":1}}}"#.to_owned(),
                request("\"a\"", "tools/call", None),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","uri":"u",{meta}}}}}"#),
                request("1", "tools/call", modern(Some("2026-07-28"), Some("x"))),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":"u",{meta}}}}}"#),
                request("1", "resources/read", modern(Some("2026-07-28"), Some("u"))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"server/discover"}"#.to_owned(),
                request("2", "server/discover", modern(None, None)),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#.to_owned(),
                ClientMessage::Notification(ClientNotification::Cancelled(id("\"a\""))),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
                ClientMessage::Notification(ClientNotification::Initialized),
            ),
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#.to_owned(), ClientMessage::Response),
            (
                r#"[{"jsonrpc":"2.0","id":4,"method":"ping"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":5,"result":{}}]"#.to_owned(),
                ClientMessage::Batch(vec![id("4")]),
            ),
            ("{".to_owned(), ClientMessage::Invalid),
            ("[1]".to_owned(), ClientMessage::Invalid),
            ("{}".to_owned(), ClientMessage::Invalid),
            (
                r#"{"jsonrpc":"2.0","id":4}"#.to_owned(),
                ClientMessage::Invalid,
            ),
        ] {
            assert_eq!(ClientMessage::parse(&line), expected, "{line}");
        }
        assert_eq!(response_ids(r#"{"id":1,"result":{}}"#), [id("1")]);
        assert_eq!(
            response_ids(r#"[{"id":1,"error":{}},{"id":"b","result":1}]"#),
            [id("1"), id("\"b\"")]
        );
        assert!(response_ids(r#"{"id":1,"method":"ping"}"#).is_empty());
    }
}

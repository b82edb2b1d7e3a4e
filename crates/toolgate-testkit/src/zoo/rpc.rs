//! JSON-RPC messages: parsed as far as the zoo needs, written as raw text.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;

/// A message from a client.
#[derive(Debug)]
pub(crate) enum RpcMessage {
    Request(Request),
    Notification { method: String, params: RpcParams },
    Response(Option<RpcReply>),
}

/// The client's reply to a request from the server.
#[derive(Debug)]
pub(crate) struct RpcReply {
    /// The raw id of the request that this answers.
    pub(crate) id: String,
    /// The result, or the error object.
    pub(crate) outcome: Result<Value, Value>,
}

#[derive(Debug)]
pub(crate) struct Request {
    /// The raw text of the id; it is sent back and compared as such.
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) params: RpcParams,
}

/// The parameters that any method of the zoo uses.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RpcParams {
    pub(crate) name: Option<String>,
    pub(crate) uri: Option<String>,
    pub(crate) cursor: Option<String>,
    pub(crate) protocol_version: Option<String>,
    pub(crate) arguments: Option<Box<RawValue>>,
    pub(crate) notifications: Option<Box<RawValue>>,
    pub(crate) request_id: Option<Box<RawValue>>,
    pub(crate) capabilities: Option<Value>,
    pub(crate) level: Option<String>,
    #[serde(rename = "ref")]
    pub(crate) reference: Option<Value>,
    pub(crate) argument: Option<Value>,
    /// `Some` if present, even if the value is `null`.
    #[serde(deserialize_with = "deserialize_present")]
    pub(crate) input_responses: Option<Box<RawValue>>,
    pub(crate) request_state: Option<String>,
    pub(crate) task_id: Option<String>,
    pub(crate) task: Option<Value>,
    #[serde(rename = "_meta")]
    pub(crate) meta: Option<RpcMeta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RpcMeta {
    #[serde(rename = "progressToken")]
    pub(crate) progress_token: Option<Box<RawValue>>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) protocol_version: Option<String>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(crate) client_capabilities: Option<Box<RawValue>>,
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    pub(crate) log_level: Option<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    pub(crate) baggage: Option<String>,
}

/// A JSON-RPC error.
#[derive(Debug)]
pub(crate) struct ZooError {
    pub(crate) code: i64,
    pub(crate) message: String,
    /// Raw JSON.
    pub(crate) data: Option<String>,
}

#[derive(Deserialize)]
struct WireMessage {
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Value>,
    error: Option<Value>,
}

impl RpcMessage {
    /// Parses one message; the error is the complete response to send.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        if text.trim_ascii_start().first() != Some(&b'{') {
            let is_json = serde_json::from_slice::<&RawValue>(text).is_ok();
            let code = if is_json {
                INVALID_REQUEST
            } else {
                PARSE_ERROR
            };
            return Err(ZooError::new(code, "expected a JSON object").response("null"));
        }
        let wire: WireMessage = serde_json::from_slice(text)
            .map_err(|error| ZooError::new(PARSE_ERROR, error.to_string()).response("null"))?;
        let Some(method) = wire.method else {
            return Ok(Self::Response(wire.into_reply()));
        };
        let params = match wire.params {
            Some(raw) => serde_json::from_str(raw.get()),
            None => Ok(RpcParams::default()),
        };
        match (wire.id, params) {
            (Some(id), Ok(params)) => Ok(Self::Request(Request {
                id: id.get().to_owned(),
                method,
                params,
            })),
            (None, Ok(params)) => Ok(Self::Notification { method, params }),
            (id, Err(error)) => {
                let id = id.as_ref().map_or("null", |id| id.get());
                Err(ZooError::new(INVALID_PARAMS, error.to_string()).response(id))
            }
        }
    }
}

impl WireMessage {
    fn into_reply(self) -> Option<RpcReply> {
        let outcome = match (self.result, self.error) {
            (Some(result), None) => Ok(result),
            (_, error) => Err(error?),
        };
        let id = self.id?.get().to_owned();
        Some(RpcReply { id, outcome })
    }
}

impl Request {
    /// Returns the name or URI of the tool, prompt or resource that the request concerns.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.params.name.as_deref().or(self.params.uri.as_deref())
    }

    /// Returns the raw arguments; `{}` if there are none.
    pub(crate) fn arguments(&self) -> &str {
        self.params
            .arguments
            .as_ref()
            .map_or("{}", |arguments| arguments.get())
    }

    pub(crate) fn progress_token(&self) -> Option<&str> {
        let token = self.params.meta.as_ref()?.progress_token.as_ref()?;
        Some(token.get())
    }

    /// Returns the protocol version declared in `_meta`.
    pub(crate) fn declared_version(&self) -> Option<&str> {
        self.params.meta.as_ref()?.protocol_version.as_deref()
    }

    /// Returns the client capabilities declared in `_meta`.
    pub(crate) fn declared_capabilities(&self) -> Value {
        let meta = self.params.meta.as_ref();
        meta.and_then(|meta| meta.client_capabilities.as_ref())
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    }

    /// Returns the minimum log level declared in `_meta`.
    pub(crate) fn log_level(&self) -> Option<&str> {
        self.params.meta.as_ref()?.log_level.as_deref()
    }

    /// Builds the response with this raw result.
    pub(crate) fn response(&self, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id)
    }
}

impl ZooError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn with_data(self, data: String) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }

    /// Builds the error response to the request with this raw id.
    pub(crate) fn response(&self, id: &str) -> String {
        let Self {
            code,
            message,
            data,
        } = self;
        let message = json_string(message);
        let data = data
            .as_ref()
            .map_or_else(String::new, |data| format!(r#","data":{data}"#));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#
        )
    }
}

/// Builds a notification with these raw parameters.
pub(crate) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// Encodes text as a JSON string.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn deserialize_present<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(source).map(Some)
}

//! JSON-RPC messages, read into what the zoo needs of them and written as raw text.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;

/// Whatever a client may send.
#[derive(Debug)]
pub(crate) enum Message {
    Request(Request),
    Notification { method: String, params: Params },
    Response(Option<Reply>),
}

/// The client's reply to a request of ours.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The raw text of the id that we gave the request.
    pub(crate) id: String,
    /// The result or the error.
    pub(crate) outcome: Result<Value, Value>,
}

#[derive(Debug)]
pub(crate) struct Request {
    /// The raw text of the id, which is how it is sent back and compared.
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) params: Params,
}

/// The parameters any method here looks at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Params {
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
    /// A `null` is not the same as nothing here.
    #[serde(deserialize_with = "present")]
    pub(crate) input_responses: Option<Box<RawValue>>,
    pub(crate) request_state: Option<String>,
    #[serde(rename = "_meta")]
    pub(crate) meta: Option<Meta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
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

/// An error as it goes over the wire.
#[derive(Debug)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    /// Raw JSON.
    pub(crate) data: Option<String>,
}

#[derive(Deserialize)]
struct Wire {
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Value>,
    error: Option<Value>,
}

impl Message {
    /// Reads one message; the error is the whole answer to send.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        if text.trim_ascii_start().first() != Some(&b'{') {
            let known = serde_json::from_slice::<&RawValue>(text).is_ok();
            let code = if known { INVALID_REQUEST } else { PARSE_ERROR };
            return Err(RpcError::new(code, "expected one JSON object").answer("null"));
        }
        let wire: Wire = serde_json::from_slice(text)
            .map_err(|error| RpcError::new(PARSE_ERROR, error.to_string()).answer("null"))?;
        let Some(method) = wire.method else {
            return Ok(Self::Response(wire.reply()));
        };
        let params = match wire.params {
            Some(raw) => serde_json::from_str(raw.get()),
            None => Ok(Params::default()),
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
                Err(RpcError::new(INVALID_PARAMS, error.to_string()).answer(id))
            }
        }
    }
}

impl Wire {
    fn reply(self) -> Option<Reply> {
        let outcome = match (self.result, self.error) {
            (Some(result), None) => Ok(result),
            (_, error) => Err(error?),
        };
        let id = self.id?.get().to_owned();
        Some(Reply { id, outcome })
    }
}

impl Request {
    /// What the request is about: a tool, a prompt, or a resource.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.params.name.as_deref().or(self.params.uri.as_deref())
    }

    /// The arguments as received; none are an empty object.
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

    /// The revision the request itself declares.
    pub(crate) fn declared_version(&self) -> Option<&str> {
        self.params.meta.as_ref()?.protocol_version.as_deref()
    }

    /// What the client of a modern request is able to do.
    pub(crate) fn declared_capabilities(&self) -> Value {
        let meta = self.params.meta.as_ref();
        meta.and_then(|meta| meta.client_capabilities.as_ref())
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    }

    /// From which level on a modern request wants to see logs.
    pub(crate) fn log_level(&self) -> Option<&str> {
        self.params.meta.as_ref()?.log_level.as_deref()
    }

    /// The answer that carries this raw result.
    pub(crate) fn answer(&self, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id)
    }
}

impl RpcError {
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

    /// The whole answer to the request of this raw id.
    pub(crate) fn answer(&self, id: &str) -> String {
        let Self {
            code,
            message,
            data,
        } = self;
        let message = quoted(message);
        let data = data
            .as_ref()
            .map_or_else(String::new, |data| format!(r#","data":{data}"#));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#
        )
    }
}

/// A notification with these raw parameters.
pub(crate) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// The text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn present<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(source).map(Some)
}

//! Requests of the modern era: each says by itself who asks, and its headers repeat its body.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::{VERSIONS, rpc};
use crate::ear::Level;
use crate::handshake::MODERN;
use crate::jsonrpc::{INVALID_PARAMS, Object, RpcError, UNSUPPORTED_VERSION};
use crate::trace_context::TraceContext;

pub const HEADER_MISMATCH: i64 = -32020;
const PREFIX: &str = "io.modelcontextprotocol/";
const PROGRESS: &str = "progressToken";

/// The headers that repeat a request's body.
#[derive(Clone, Debug, Default)]
pub struct Headers<'a> {
    pub version: Option<&'a str>,
    pub method: Option<&'a str>,
    pub name: Option<&'a str>,
}

/// What a request's `_meta` says.
#[derive(Clone, Debug)]
pub struct Modern {
    pub capabilities: Box<RawValue>,
    /// From which level on it wants to hear log messages.
    pub log_level: Option<Level>,
    pub progress_token: Option<Box<RawValue>>,
    pub trace: TraceContext,
    /// What else stood there, which is passed on.
    pub rest: Object,
}

/// An error with the HTTP status that goes with it.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: u16,
    pub error: RpcError,
}

impl Modern {
    /// Whether a request speaks the modern way.
    pub fn is_spoken(method: &str, params: Option<&RawValue>) -> bool {
        method == "server/discover" || meta(params).contains_key(&key("protocolVersion"))
    }

    /// Reads a request's `_meta` and holds its headers against it. Pipes have no headers.
    pub fn read(
        method: &str,
        params: Option<&RawValue>,
        headers: Option<&Headers<'_>>,
    ) -> Result<Self, Refusal> {
        let meta = meta(params);
        let text = |name: &str| -> Option<String> {
            serde_json::from_str(meta.get(&key(name))?.get()).ok()
        };
        let missing = |name: &str| {
            let message = format!("`_meta` lacks `{PREFIX}{name}`");
            Refusal::new(400, rpc(INVALID_PARAMS, message))
        };
        let version = text("protocolVersion").ok_or_else(|| missing("protocolVersion"))?;
        if let Some(headers) = headers {
            headers.check(method, params, &version)?;
        }
        if version != MODERN {
            return Err(Refusal::new(400, unsupported(&version)));
        }
        let capabilities = meta
            .get(&key("clientCapabilities"))
            .filter(|raw| raw.get().starts_with('{'))
            .ok_or_else(|| missing("clientCapabilities"))?;
        let log_level = meta.get(&key("logLevel"));
        let log_level = log_level.map(|raw| serde_json::from_str(raw.get()));
        let log_level = log_level.transpose().map_err(|error| {
            let message = format!("`{PREFIX}logLevel`: {error}");
            Refusal::new(400, rpc(INVALID_PARAMS, message))
        })?;
        Ok(Self {
            capabilities: (*capabilities).to_owned(),
            log_level,
            progress_token: progress_token(params),
            trace: TraceContext::of_meta(&meta),
            rest: meta_to_pass_on(params),
        })
    }
}

/// The token under which a client wants to hear of a request's progress.
pub fn progress_token(params: Option<&RawValue>) -> Option<Box<RawValue>> {
    meta(params).get(PROGRESS).map(|raw| (*raw).to_owned())
}

/// What stands in a request's `_meta` that is not between the client and the gateway.
pub fn meta_to_pass_on(params: Option<&RawValue>) -> Object {
    let meta = meta(params);
    let rest = meta.iter();
    // Those that say to which trace it belongs go their own way.
    let known = |name: &str| {
        name.starts_with(PREFIX) || name == PROGRESS || TraceContext::NAMES.contains(&name)
    };
    let rest = rest.filter(|(name, _)| !known(name));
    let mut rest: Vec<_> = rest.collect();
    rest.sort_by_key(|(name, _)| name.as_str());
    rest.into_iter()
        .fold(Object::new(), |rest, (name, raw)| rest.raw(name, raw.get()))
}

impl Headers<'_> {
    fn check(&self, method: &str, params: Option<&RawValue>, version: &str) -> Result<(), Refusal> {
        let named = match method {
            "tools/call" | "prompts/get" => field(params, "name"),
            "resources/read" => field(params, "uri"),
            _ => None,
        };
        let pairs = [
            ("MCP-Protocol-Version", self.version, Some(version)),
            ("Mcp-Method", self.method, Some(method)),
            ("Mcp-Name", self.name, named.as_deref()),
        ];
        for (header, sent, body) in pairs {
            let Some(body) = body else { continue };
            let fits = sent.is_some_and(|sent| decoded(sent).as_deref() == Some(body));
            if !fits {
                let message = match sent {
                    Some(_) => format!("`{header}` says something else than the body"),
                    None => format!("`{header}` is missing"),
                };
                return Err(Refusal::new(400, rpc(HEADER_MISMATCH, message)));
            }
        }
        Ok(())
    }
}

impl Refusal {
    pub fn new(status: u16, error: RpcError) -> Self {
        Self { status, error }
    }
}

/// A header's value; what does not fit into a header comes in base64.
pub(crate) fn decoded(value: &str) -> Option<String> {
    use base64::Engine as _;
    let inner = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inner {
        None => Some(value.to_owned()),
        Some(inner) => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(inner)
                .ok()?;
            String::from_utf8(bytes).ok()
        }
    }
}

fn unsupported(version: &str) -> RpcError {
    let data = serde_json::json!({"supported": VERSIONS, "requested": version});
    RpcError {
        code: UNSUPPORTED_VERSION,
        message: format!("protocol version `{version}` is not spoken here"),
        data: serde_json::value::to_raw_value(&data).ok(),
    }
}

fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn meta(params: Option<&RawValue>) -> HashMap<String, &RawValue> {
    let fields: HashMap<String, &RawValue> = params
        .and_then(|params| serde_json::from_str(params.get()).ok())
        .unwrap_or_default();
    let meta = fields.get("_meta");
    meta.and_then(|meta| serde_json::from_str(meta.get()).ok())
        .unwrap_or_default()
}

fn field(params: Option<&RawValue>, name: &str) -> Option<String> {
    let fields: HashMap<String, &RawValue> = serde_json::from_str(params?.get()).ok()?;
    serde_json::from_str(fields.get(name)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;

    #[test]
    fn the_meta_is_read_and_the_rest_passed_on() {
        let call = params(&format!(
            r#"{{"name":"é","_meta":{{{META},"traceparent":"00-1","progressToken":"t","x":1.0}}}}"#
        ));
        let headers = Headers {
            version: Some("2026-07-28"),
            method: Some("tools/call"),
            name: Some("=?base64?w6k=?="),
        };
        let read = Modern::read("tools/call", Some(&call), Some(&headers)).unwrap();
        assert_eq!(read.rest.to_string(), r#"{"x":1.0}"#);
        assert_eq!(read.trace.traceparent.as_deref(), Some("00-1"));
        assert_eq!(read.progress_token.unwrap().get(), r#""t""#);
        assert_eq!(read.capabilities.get(), r#"{"elicitation":{}}"#);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_code() {
        let call = params(&format!(r#"{{"name":"a","_meta":{{{META}}}}}"#));
        let good = Headers {
            version: Some("2026-07-28"),
            method: Some("tools/call"),
            name: Some("a"),
        };
        let code = |params: &RawValue, headers: &Headers<'_>| {
            Modern::read("tools/call", Some(params), Some(headers))
                .unwrap_err()
                .error
                .code
        };
        for headers in [
            Headers {
                name: None,
                ..good.clone()
            },
            Headers {
                name: Some("b"),
                ..good.clone()
            },
            Headers {
                method: Some("tools/list"),
                ..good.clone()
            },
            Headers {
                version: None,
                ..good.clone()
            },
        ] {
            assert_eq!(code(&call, &headers), HEADER_MISMATCH);
        }
        let later = params(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#,
        );
        let headers = Headers {
            version: Some("2099-01-01"),
            ..good.clone()
        };
        assert_eq!(code(&later, &headers), UNSUPPORTED_VERSION);
        let silent = params(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
        );
        assert_eq!(code(&silent, &good), INVALID_PARAMS);
    }
}

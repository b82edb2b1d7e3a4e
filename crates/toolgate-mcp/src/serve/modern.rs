//! Modern requests: each carries its own version and client capabilities in `_meta`, and its HTTP
//! headers mirror its body.

use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::json::Members;

use super::{SUPPORTED_VERSIONS, rpc_error};
use crate::client_handler::LogLevel;
use crate::handshake::MODERN_VERSION;
use crate::jsonrpc::{INVALID_PARAMS, Object, RpcError, UNSUPPORTED_VERSION};
use crate::trace_context::TraceContext;

pub const HEADER_MISMATCH: i64 = -32020;
const PREFIX: &str = "io.modelcontextprotocol/";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const PROGRESS: &str = "progressToken";

/// The HTTP headers that mirror a request's body.
#[derive(Clone, Debug, Default)]
pub struct MirroredHeaders<'a> {
    pub version: Option<&'a str>,
    pub method: Option<&'a str>,
    pub name: Option<&'a str>,
}

/// The members of a request's `_meta`.
#[derive(Debug, Default)]
pub struct RawMeta<'a>(Members<'a>);

/// The content of a request's `_meta` that both eras share.
#[derive(Clone, Debug)]
pub struct RequestMeta {
    /// The token for progress notifications.
    pub progress_token: Option<Box<RawValue>>,
    pub trace: TraceContext,
    /// All other members, which are forwarded.
    pub forwarded: Object,
}

/// The parsed `_meta` of a modern request.
#[derive(Clone, Debug)]
pub struct ModernRequest {
    pub capabilities: Box<RawValue>,
    /// Minimum level of the log messages the client receives.
    pub log_level: Option<LogLevel>,
    pub meta: RequestMeta,
}

/// A rejected request: the error and the HTTP status to send it with.
#[derive(Clone, Debug)]
pub struct RequestRejection {
    pub status: u16,
    pub error: RpcError,
}

impl ModernRequest {
    /// Returns whether a request belongs to the modern era.
    pub fn is_modern(method: &str, meta: &RawMeta<'_>) -> bool {
        method == "server/discover" || meta.0.get(VERSION).is_some()
    }

    /// Parses a request's `_meta` and verifies that the headers match. Stdio has no headers.
    pub fn parse(
        method: &str,
        (params, meta): (Option<&RawValue>, &RawMeta<'_>),
        headers: Option<&MirroredHeaders<'_>>,
    ) -> Result<Self, RequestRejection> {
        let missing = |name: &str| {
            let message = format!("`_meta` is missing `{name}`");
            RequestRejection::new(400, rpc_error(INVALID_PARAMS, message))
        };
        let version = meta.0.get(VERSION);
        let version = version.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let version = version.ok_or_else(|| missing(VERSION))?;
        if let Some(headers) = headers {
            headers.check(method, params, &version)?;
        }
        if version != MODERN_VERSION {
            return Err(RequestRejection::new(400, unsupported_version(&version)));
        }
        let capabilities = meta
            .0
            .get(CAPABILITIES)
            .filter(|raw| raw.get().starts_with('{'))
            .ok_or_else(|| missing(CAPABILITIES))?;
        let log_level = meta.0.get(LOG_LEVEL);
        let log_level = log_level.map(|raw| serde_json::from_str(raw.get()));
        let log_level = log_level.transpose().map_err(|error| {
            let message = format!("`{LOG_LEVEL}`: {error}");
            RequestRejection::new(400, rpc_error(INVALID_PARAMS, message))
        })?;
        Ok(Self {
            capabilities: capabilities.to_owned(),
            log_level,
            meta: meta.to_request_meta(),
        })
    }
}

impl<'a> RawMeta<'a> {
    /// Extracts `_meta` from a request's parameters; empty if there is none.
    pub fn from_params(params: Option<&'a RawValue>) -> Self {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        let params =
            params.and_then(|params| serde_json::from_str::<Params<'_>>(params.get()).ok());
        let members = params.and_then(|params| Members::parse(params.meta?.get()));
        Self(members.unwrap_or_default())
    }

    /// Extracts the members that both eras share.
    pub fn to_request_meta(&self) -> RequestMeta {
        RequestMeta {
            progress_token: self.0.get(PROGRESS).map(ToOwned::to_owned),
            trace: TraceContext::from_meta(&self.0),
            forwarded: self.forwarded_members(),
        }
    }

    /// Returns the members that are not addressed to the gateway.
    fn forwarded_members(&self) -> Object {
        // The trace context is forwarded separately.
        let is_reserved = |name: &str| {
            name.starts_with(PREFIX) || name == PROGRESS || TraceContext::NAMES.contains(&name)
        };
        let mut forwarded: Vec<_> = self
            .0
            .iter()
            .filter(|(name, _)| !is_reserved(name))
            .collect();
        forwarded.sort_by_key(|(name, _)| *name);
        forwarded
            .into_iter()
            .fold(Object::new(), |forwarded, (name, raw)| {
                forwarded.raw(name, raw.get())
            })
    }
}

impl MirroredHeaders<'_> {
    fn check(
        &self,
        method: &str,
        params: Option<&RawValue>,
        version: &str,
    ) -> Result<(), RequestRejection> {
        let expected_name = match method {
            "tools/call" | "prompts/get" => string_field(params, "name"),
            "resources/read" => string_field(params, "uri"),
            _ => None,
        };
        let pairs = [
            ("MCP-Protocol-Version", self.version, Some(version)),
            ("Mcp-Method", self.method, Some(method)),
            ("Mcp-Name", self.name, expected_name.as_deref()),
        ];
        for (header, sent, body) in pairs {
            let Some(body) = body else { continue };
            let matches =
                sent.is_some_and(|sent| decode_header_value(sent).as_deref() == Some(body));
            if !matches {
                let message = match sent {
                    Some(_) => format!("`{header}` does not match the body"),
                    None => format!("`{header}` is missing"),
                };
                return Err(RequestRejection::new(
                    400,
                    rpc_error(HEADER_MISMATCH, message),
                ));
            }
        }
        Ok(())
    }
}

impl RequestRejection {
    pub fn new(status: u16, error: RpcError) -> Self {
        Self { status, error }
    }
}

/// Decodes a header value, which may be wrapped in base64; `None` if the encoding is invalid.
pub(crate) fn decode_header_value(value: &str) -> Option<String> {
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

fn unsupported_version(version: &str) -> RpcError {
    let data = serde_json::json!({"supported": SUPPORTED_VERSIONS, "requested": version});
    RpcError {
        code: UNSUPPORTED_VERSION,
        message: format!("unsupported protocol version `{version}`"),
        data: serde_json::value::to_raw_value(&data).ok(),
    }
}

fn string_field(params: Option<&RawValue>, name: &str) -> Option<String> {
    let members = Members::parse(params?.get())?;
    serde_json::from_str(members.get(name)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;

    #[test]
    fn meta_is_parsed_and_other_members_are_forwarded() {
        let call = params(&format!(
            r#"{{"name":"é","_meta":{{{META},"traceparent":"00-1","progressToken":"t","x":1.0}}}}"#
        ));
        let headers = MirroredHeaders {
            version: Some("2026-07-28"),
            method: Some("tools/call"),
            name: Some("=?base64?w6k=?="),
        };
        let request = (Some(&*call), &RawMeta::from_params(Some(&call)));
        let read = ModernRequest::parse("tools/call", request, Some(&headers)).unwrap();
        assert_eq!(read.meta.forwarded.to_string(), r#"{"x":1.0}"#);
        assert_eq!(read.meta.trace.traceparent.as_deref(), Some("00-1"));
        assert_eq!(read.meta.progress_token.unwrap().get(), r#""t""#);
        assert_eq!(read.capabilities.get(), r#"{"elicitation":{}}"#);
    }

    #[test]
    fn invalid_requests_are_rejected_with_their_code() {
        let call = params(&format!(r#"{{"name":"a","_meta":{{{META}}}}}"#));
        let good = MirroredHeaders {
            version: Some("2026-07-28"),
            method: Some("tools/call"),
            name: Some("a"),
        };
        let code = |params: &RawValue, headers: &MirroredHeaders<'_>| {
            let request = (Some(params), &RawMeta::from_params(Some(params)));
            ModernRequest::parse("tools/call", request, Some(headers))
                .unwrap_err()
                .error
                .code
        };
        for headers in [
            MirroredHeaders {
                name: None,
                ..good.clone()
            },
            MirroredHeaders {
                name: Some("b"),
                ..good.clone()
            },
            MirroredHeaders {
                method: Some("tools/list"),
                ..good.clone()
            },
            MirroredHeaders {
                version: None,
                ..good.clone()
            },
        ] {
            assert_eq!(code(&call, &headers), HEADER_MISMATCH);
        }
        let later = params(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#,
        );
        let headers = MirroredHeaders {
            version: Some("2099-01-01"),
            ..good.clone()
        };
        assert_eq!(code(&later, &headers), UNSUPPORTED_VERSION);
        let without_capabilities = params(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
        );
        assert_eq!(code(&without_capabilities, &good), INVALID_PARAMS);
    }
}

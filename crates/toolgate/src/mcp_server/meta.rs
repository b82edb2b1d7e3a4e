//! `_meta` of requests: both eras share some members, and each modern request carries its own
//! version and client capabilities, which over HTTP are repeated in headers.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::json::Members;
use toolgate_mcp::TraceContext;
use toolgate_mcp::client_handler::LogLevel;
use toolgate_mcp::handshake::{Era, LATEST_LEGACY_VERSION, MODERN_VERSION};
use toolgate_mcp::jsonrpc::{
    HEADER_MISMATCH, INVALID_PARAMS, Object, RpcError, UNSUPPORTED_VERSION,
};
use toolgate_mcp::param_header;

use super::method::DISCOVER;

/// All supported protocol versions, newest first.
pub(super) const SUPPORTED_VERSIONS: [&str; 5] = [
    MODERN_VERSION,
    LATEST_LEGACY_VERSION,
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";

const PREFIX: &str = "io.modelcontextprotocol/";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const PROGRESS: &str = "progressToken";

/// The members of a request's `_meta`.
#[derive(Debug, Default)]
pub(super) struct RawMeta<'a>(Members<'a>);

/// The content of a request's `_meta` that both eras share.
#[derive(Clone, Debug)]
pub(super) struct RequestMeta {
    /// The token for progress notifications.
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) trace: TraceContext,
    /// All other members, which are forwarded.
    pub(super) forwarded: Object,
}

/// The content of a modern request's `_meta`.
#[derive(Clone, Debug)]
pub(super) struct ModernMeta {
    pub(super) capabilities: Box<RawValue>,
    /// Minimum level of the log messages the client receives.
    pub(super) log_level: Option<LogLevel>,
    pub(super) shared: RequestMeta,
}

/// The parts of a modern request that its HTTP headers repeat.
#[derive(Clone, Debug)]
pub(super) struct RepeatedParts<'a> {
    pub(super) version: &'a str,
    pub(super) method: &'a str,
    pub(super) name: Option<&'a str>,
}

impl<'a> RawMeta<'a> {
    /// Extracts `_meta` from a request's parameters; empty if there is none.
    pub(super) fn from_params(params: Option<&'a RawValue>) -> Self {
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

    /// Returns the era of a request with this `_meta`.
    pub(super) fn era(&self, method: &str) -> Era {
        if method == DISCOVER || self.0.get(VERSION).is_some() {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// Returns the protocol version of a modern request.
    pub(super) fn version(&self) -> Result<String, RpcError> {
        let version = self.0.get(VERSION);
        version
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .ok_or_else(|| missing_member(VERSION))
    }

    /// Extracts the members that both eras share.
    pub(super) fn to_request_meta(&self) -> RequestMeta {
        RequestMeta {
            progress_token: self.0.get(PROGRESS).map(ToOwned::to_owned),
            trace: TraceContext::from_meta(&self.0),
            forwarded: self.forwarded_members(),
        }
    }

    /// Extracts the members of a modern request with this version.
    pub(super) fn to_modern_meta(&self, version: &str) -> Result<ModernMeta, RpcError> {
        if version != MODERN_VERSION {
            return Err(unsupported_version(version));
        }
        let capabilities = self.0.get(CAPABILITIES);
        let capabilities = capabilities
            .filter(|raw| raw.get().starts_with('{'))
            .ok_or_else(|| missing_member(CAPABILITIES))?;
        let log_level = self.0.get(LOG_LEVEL);
        let log_level = log_level
            .map(|raw| serde_json::from_str(raw.get()))
            .transpose()
            .map_err(|error| RpcError::new(INVALID_PARAMS, format!("`{LOG_LEVEL}`: {error}")))?;
        Ok(ModernMeta {
            capabilities: capabilities.to_owned(),
            log_level,
            shared: self.to_request_meta(),
        })
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

impl RepeatedParts<'_> {
    /// Verifies that the headers repeat the body.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), RpcError> {
        let parts = [
            ("MCP-Protocol-Version", VERSION_HEADER, Some(self.version)),
            ("Mcp-Method", "mcp-method", Some(self.method)),
            ("Mcp-Name", "mcp-name", self.name),
        ];
        for (shown, header, body) in parts {
            let Some(body) = body else { continue };
            let sent = headers.get(header).and_then(|value| value.to_str().ok());
            let problem = match sent.map(param_header::decode_value) {
                Some(Some(sent)) if sent == body => continue,
                Some(_) => "does not match the body",
                None => "is missing",
            };
            let message = format!("`{shown}` {problem}");
            return Err(RpcError::new(HEADER_MISMATCH, message));
        }
        Ok(())
    }
}

fn missing_member(name: &str) -> RpcError {
    RpcError::new(INVALID_PARAMS, format!("`_meta` is missing `{name}`"))
}

fn unsupported_version(version: &str) -> RpcError {
    let data = serde_json::json!({"supported": SUPPORTED_VERSIONS, "requested": version});
    RpcError {
        data: serde_json::value::to_raw_value(&data).ok(),
        ..RpcError::new(
            UNSUPPORTED_VERSION,
            format!("unsupported protocol version `{version}`"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    /// Parses a `tools/call` with its name and these headers.
    fn parse(
        params: &RawValue,
        name: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<ModernMeta, RpcError> {
        let sent = headers.iter();
        let sent: HeaderMap = sent
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let meta = RawMeta::from_params(Some(params));
        assert_eq!(meta.era("tools/call"), Era::Modern);
        let version = meta.version()?;
        let parts = RepeatedParts {
            version: &version,
            method: "tools/call",
            name: Some(name),
        };
        parts.check(&sent)?;
        meta.to_modern_meta(&version)
    }

    const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    const GOOD: [(&str, &str); 3] = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "a"),
    ];

    #[test]
    fn meta_is_parsed_and_other_members_are_forwarded() {
        let call = params(&format!(
            r#"{{"name":"é","_meta":{{{META},"traceparent":"00-1","progressToken":"t","x":1.0}}}}"#
        ));
        let [version, method, _] = GOOD;
        let headers = [version, method, ("mcp-name", "=?base64?w6k=?=")];
        let read = parse(&call, "é", &headers).unwrap();
        assert_eq!(read.shared.forwarded.to_string(), r#"{"x":1.0}"#);
        assert_eq!(read.shared.trace.traceparent.as_deref(), Some("00-1"));
        assert_eq!(read.shared.progress_token.unwrap().get(), r#""t""#);
        assert_eq!(read.capabilities.get(), r#"{"elicitation":{}}"#);
    }

    #[test]
    fn invalid_requests_are_rejected_with_their_code() {
        let call = params(&format!(r#"{{"name":"a","_meta":{{{META}}}}}"#));
        let code = |params: &RawValue, headers: &[(&'static str, &str)]| {
            parse(params, "a", headers).unwrap_err().code
        };
        let [version, method, name] = GOOD;
        for headers in [
            vec![version, method],
            vec![version, method, ("mcp-name", "b")],
            vec![version, ("mcp-method", "tools/list"), name],
            vec![method, name],
        ] {
            assert_eq!(code(&call, &headers), HEADER_MISMATCH);
        }
        let later = params(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#,
        );
        let headers = [("mcp-protocol-version", "2099-01-01"), method, name];
        assert_eq!(code(&later, &headers), UNSUPPORTED_VERSION);
        let without_capabilities = params(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
        );
        assert_eq!(code(&without_capabilities, &GOOD), INVALID_PARAMS);
    }
}

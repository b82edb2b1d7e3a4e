//! Requests of the modern era: each says by itself who asks, and its headers repeat its body.

use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::json::Members;

use super::{VERSIONS, rpc};
use crate::ear::Level;
use crate::handshake::MODERN;
use crate::jsonrpc::{INVALID_PARAMS, Object, RpcError, UNSUPPORTED_VERSION};
use crate::trace_context::TraceContext;

pub const HEADER_MISMATCH: i64 = -32020;
const PREFIX: &str = "io.modelcontextprotocol/";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const PROGRESS: &str = "progressToken";

/// The headers that repeat a request's body.
#[derive(Clone, Debug, Default)]
pub struct Headers<'a> {
    pub version: Option<&'a str>,
    pub method: Option<&'a str>,
    pub name: Option<&'a str>,
}

/// A request's `_meta`, taken apart.
#[derive(Debug, Default)]
pub struct Meta<'a>(Members<'a>);

/// What a request's `_meta` says in either era.
#[derive(Clone, Debug)]
pub struct Said {
    /// The token under which a client wants to hear of a request's progress.
    pub progress_token: Option<Box<RawValue>>,
    pub trace: TraceContext,
    /// What else stood there, which is passed on.
    pub rest: Object,
}

/// What a modern request's `_meta` says.
#[derive(Clone, Debug)]
pub struct Modern {
    pub capabilities: Box<RawValue>,
    /// From which level on it wants to hear log messages.
    pub log_level: Option<Level>,
    pub said: Said,
}

/// An error with the HTTP status that goes with it.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: u16,
    pub error: RpcError,
}

impl Modern {
    /// Whether a request speaks the modern way.
    pub fn is_spoken(method: &str, meta: &Meta<'_>) -> bool {
        method == "server/discover" || meta.0.get(VERSION).is_some()
    }

    /// Reads a request's `_meta` and holds its headers against it. Pipes have no headers.
    pub fn read(
        method: &str,
        (params, meta): (Option<&RawValue>, &Meta<'_>),
        headers: Option<&Headers<'_>>,
    ) -> Result<Self, Refusal> {
        let missing = |name: &str| {
            let message = format!("`_meta` lacks `{name}`");
            Refusal::new(400, rpc(INVALID_PARAMS, message))
        };
        let version = meta.0.get(VERSION);
        let version = version.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let version = version.ok_or_else(|| missing(VERSION))?;
        if let Some(headers) = headers {
            headers.check(method, params, &version)?;
        }
        if version != MODERN {
            return Err(Refusal::new(400, unsupported(&version)));
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
            Refusal::new(400, rpc(INVALID_PARAMS, message))
        })?;
        Ok(Self {
            capabilities: capabilities.to_owned(),
            log_level,
            said: meta.said(),
        })
    }
}

impl<'a> Meta<'a> {
    /// That of a request's parameters; empty if there is none.
    pub fn of(params: Option<&'a RawValue>) -> Self {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        let params =
            params.and_then(|params| serde_json::from_str::<Params<'_>>(params.get()).ok());
        let members = params.and_then(|params| Members::of(params.meta?.get()));
        Self(members.unwrap_or_default())
    }

    pub fn said(&self) -> Said {
        Said {
            progress_token: self.0.get(PROGRESS).map(ToOwned::to_owned),
            trace: TraceContext::of_meta(&self.0),
            rest: self.to_pass_on(),
        }
    }

    /// What is not between the client and the gateway.
    fn to_pass_on(&self) -> Object {
        // Those that say to which trace it belongs go their own way.
        let known = |name: &str| {
            name.starts_with(PREFIX) || name == PROGRESS || TraceContext::NAMES.contains(&name)
        };
        let mut rest: Vec<_> = self.0.iter().filter(|(name, _)| !known(name)).collect();
        rest.sort_by_key(|(name, _)| *name);
        rest.into_iter()
            .fold(Object::new(), |rest, (name, raw)| rest.raw(name, raw.get()))
    }
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

fn field(params: Option<&RawValue>, name: &str) -> Option<String> {
    let members = Members::of(params?.get())?;
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
    fn the_meta_is_read_and_the_rest_passed_on() {
        let call = params(&format!(
            r#"{{"name":"é","_meta":{{{META},"traceparent":"00-1","progressToken":"t","x":1.0}}}}"#
        ));
        let headers = Headers {
            version: Some("2026-07-28"),
            method: Some("tools/call"),
            name: Some("=?base64?w6k=?="),
        };
        let asked = (Some(&*call), &Meta::of(Some(&call)));
        let read = Modern::read("tools/call", asked, Some(&headers)).unwrap();
        assert_eq!(read.said.rest.to_string(), r#"{"x":1.0}"#);
        assert_eq!(read.said.trace.traceparent.as_deref(), Some("00-1"));
        assert_eq!(read.said.progress_token.unwrap().get(), r#""t""#);
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
            let asked = (Some(params), &Meta::of(Some(params)));
            Modern::read("tools/call", asked, Some(headers))
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

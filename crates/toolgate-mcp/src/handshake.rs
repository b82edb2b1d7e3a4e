//! Negotiates the protocol era with a server and reads its capabilities.
//!
//! Over stdio `initialize` is tried first: legacy servers may exit on an unknown request, or start
//! slowly and answer a probe after it has timed out. Over HTTP the modern `server/discover` is
//! tried first, because every response is tied to its request.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::clean::clean;
use toolgate_core::clean::json::{MAX_DESCRIPTION_BYTES, bound_text, clean_json};
use toolgate_core::config::Protocol;

use crate::extensions::Extensions;
use crate::jsonrpc::{HEADER_MISMATCH, MISSING_CAPABILITY, Object, RpcError, UNSUPPORTED_VERSION};
use crate::task;
use crate::transport::{OutgoingRequest, RequestError, Transport};

pub const MODERN_VERSION: &str = "2026-07-28";
pub const LATEST_LEGACY_VERSION: &str = "2025-11-25";
pub const LEGACY_VERSIONS: [&str; 4] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    LATEST_LEGACY_VERSION,
];

/// Error codes that only modern servers use.
const MODERN_CODES: [i64; 3] = [HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION];

/// One of the two generations of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Stateful: `initialize` starts a session.
    Legacy,
    /// Stateless: every request carries version, client info and capabilities.
    Modern,
}

/// The outcome of the handshake: era, version and the server's description of itself.
#[derive(Clone, Debug)]
pub struct UpstreamSession {
    pub era: Era,
    pub version: String,
    pub capabilities: Capabilities,
    pub server_info: Option<Box<RawValue>>,
    pub instructions: Option<String>,
    /// The extensions that it declares.
    pub extensions: Extensions,
}

/// Capabilities declared by a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capabilities {
    pub tools: bool,
    pub resources: bool,
    pub prompts: bool,
    /// The server announces changes of its lists or resources.
    pub notifies: bool,
    /// The server may run tool calls as tasks.
    pub tasks: bool,
}

/// Reasons why the handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("server responded with unknown protocol version `{0}`")]
    Version(String),
    #[error("server supports only protocol versions {0}")]
    NoCommonVersion(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult<'a> {
    protocol_version: String,
    #[serde(borrow, default)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default)]
    server_info: Option<&'a RawValue>,
    #[serde(default)]
    instructions: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoverResult<'a> {
    supported_versions: Vec<String>,
    #[serde(borrow, default)]
    capabilities: Option<&'a RawValue>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/serverInfo")]
    server_info: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SupportedVersions {
    supported: Vec<String>,
}

/// Negotiates an era with the server. `era_hint` is the era of an earlier connection.
pub async fn negotiate(
    transport: &Transport,
    protocol: Protocol,
    era_hint: Option<Era>,
    capabilities: &str,
) -> Result<UpstreamSession, HandshakeError> {
    let initialize = |transport| initialize(transport, capabilities);
    let discover = |transport| discover(transport, capabilities);
    let preferred = match transport {
        Transport::Http(_) => Era::Modern,
        Transport::Stdio(_) | Transport::Sse(_) | Transport::Local(_) => Era::Legacy,
    };
    if let Transport::Sse(_) = transport {
        return initialize(transport).await;
    }
    match (protocol, era_hint.unwrap_or(preferred)) {
        (Protocol::Legacy, _) => initialize(transport).await,
        (Protocol::Modern, _) => discover(transport).await,
        (Protocol::Auto, Era::Legacy) => match initialize(transport).await {
            Err(refusal) if should_try_modern(&refusal) => match discover(transport).await {
                // For a server that supports neither era, the first refusal says more.
                Err(HandshakeError::Request(RequestError::Rpc(_))) => Err(refusal),
                session => session,
            },
            session => session,
        },
        (Protocol::Auto, Era::Modern) => match discover(transport).await {
            Err(error) if should_try_legacy(&error, transport) => initialize(transport).await,
            session => session,
        },
    }
}

/// Returns the `_meta` of a modern request.
pub fn modern_meta(capabilities: &str) -> Object {
    Object::new()
        .text("io.modelcontextprotocol/protocolVersion", MODERN_VERSION)
        .raw("io.modelcontextprotocol/clientInfo", &client_info())
        .raw("io.modelcontextprotocol/clientCapabilities", capabilities)
}

/// Adds the headers that mirror a modern request's body.
pub fn add_modern_headers(method: &'static str, headers: &mut HeaderMap) {
    const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    const METHOD: HeaderName = HeaderName::from_static("mcp-method");
    headers.insert(VERSION, HeaderValue::from_static(MODERN_VERSION));
    headers.insert(METHOD, HeaderValue::from_static(method));
}

async fn initialize(
    transport: &Transport,
    capabilities: &str,
) -> Result<UpstreamSession, HandshakeError> {
    let outgoing = OutgoingRequest {
        method: "initialize",
        params: Object::new()
            .text("protocolVersion", LATEST_LEGACY_VERSION)
            .raw("capabilities", capabilities)
            .raw("clientInfo", &client_info()),
        ..OutgoingRequest::default()
    };
    let result = transport.request(outgoing).await?;
    let response: InitializeResult<'_> = parse_result(&result)?;
    if !LEGACY_VERSIONS.contains(&response.protocol_version.as_str()) {
        return Err(HandshakeError::Version(response.protocol_version));
    }
    if let Transport::Http(http) = transport {
        http.set_version(&response.protocol_version);
    }
    transport.notify("notifications/initialized").await?;
    Ok(UpstreamSession {
        era: Era::Legacy,
        version: response.protocol_version,
        capabilities: Capabilities::parse(response.capabilities),
        server_info: response.server_info.map(clean_info),
        instructions: response.instructions.as_deref().map(clean_instructions),
        extensions: read_extensions(response.capabilities),
    })
}

async fn discover(
    transport: &Transport,
    capabilities: &str,
) -> Result<UpstreamSession, HandshakeError> {
    let method = "server/discover";
    let mut headers = HeaderMap::new();
    add_modern_headers(method, &mut headers);
    let outgoing = OutgoingRequest {
        method,
        meta: modern_meta(capabilities),
        headers,
        ..OutgoingRequest::default()
    };
    let result = transport.request(outgoing).await?;
    let response: DiscoverResult<'_> = parse_result(&result)?;
    if !response
        .supported_versions
        .iter()
        .any(|version| version == MODERN_VERSION)
    {
        return Err(HandshakeError::NoCommonVersion(
            response.supported_versions.join(", "),
        ));
    }
    Ok(UpstreamSession {
        era: Era::Modern,
        version: MODERN_VERSION.to_owned(),
        capabilities: Capabilities::parse(response.capabilities),
        server_info: response
            .meta
            .and_then(|meta| meta.server_info)
            .map(clean_info),
        instructions: response.instructions.as_deref().map(clean_instructions),
        extensions: read_extensions(response.capabilities),
    })
}

fn read_extensions(capabilities: Option<&RawValue>) -> Extensions {
    capabilities.map_or_else(Extensions::default, |capabilities| {
        Extensions::from_capabilities(clean_json(capabilities).get())
    })
}

fn clean_info(info: &RawValue) -> Box<RawValue> {
    clean_json(info).into_owned()
}

/// Cleans and bounds the instructions of a server, which models and people read.
fn clean_instructions(instructions: &str) -> String {
    let mut cleaned = clean(instructions).into_owned();
    bound_text(&mut cleaned, MAX_DESCRIPTION_BYTES);
    cleaned
}

/// Returns whether the server rejected `initialize` with any JSON-RPC error.
fn should_try_modern(refusal: &HandshakeError) -> bool {
    matches!(
        refusal,
        HandshakeError::Request(RequestError::Rpc(_) | RequestError::Status { rpc: Some(_), .. })
    )
}

/// Returns whether a failed `server/discover` suggests a legacy server.
fn should_try_legacy(error: &HandshakeError, transport: &Transport) -> bool {
    let is_http = matches!(transport, Transport::Http(_));
    match error {
        HandshakeError::NoCommonVersion(versions) => {
            LEGACY_VERSIONS.iter().any(|known| versions.contains(known))
        }
        HandshakeError::Request(RequestError::Rpc(error)) => implies_legacy(error),
        HandshakeError::Request(RequestError::Status { status, rpc, .. }) => {
            (400..500).contains(status)
                && !matches!(status, 401 | 403 | 429)
                && rpc.as_ref().is_none_or(implies_legacy)
        }
        HandshakeError::Request(RequestError::Malformed(_) | RequestError::SessionGone) => is_http,
        HandshakeError::Request(_) | HandshakeError::Version(_) => false,
    }
}

/// Returns whether an error response to `server/discover` implies a legacy server.
fn implies_legacy(error: &RpcError) -> bool {
    if error.code != UNSUPPORTED_VERSION {
        return !MODERN_CODES.contains(&error.code);
    }
    // Without a readable list of versions the error code alone decides: only modern servers use it.
    error
        .data
        .as_ref()
        .and_then(|data| serde_json::from_str::<SupportedVersions>(data.get()).ok())
        .is_some_and(|data| {
            data.supported
                .iter()
                .any(|version| LEGACY_VERSIONS.contains(&version.as_str()))
        })
}

impl Capabilities {
    fn parse(raw: Option<&RawValue>) -> Self {
        let Some(raw) = raw else {
            return Self::default();
        };
        let fields: HashMap<String, &RawValue> = match serde_json::from_str(raw.get()) {
            Ok(fields) => fields,
            Err(error) => {
                // Not fatal: tools are listed whatever the server declares.
                tracing::warn!(%error, "ignoring malformed capabilities of server");
                return Self::default();
            }
        };
        Self {
            tools: fields.contains_key("tools"),
            resources: fields.contains_key("resources"),
            prompts: fields.contains_key("prompts"),
            tasks: task::is_declared_by_server(&fields),
            notifies: fields.values().any(|capability| {
                let capability = capability.get();
                capability.contains("listChanged") || capability.contains("subscribe")
            }),
        }
    }
}

fn client_info() -> String {
    Object::new()
        .text("name", "toolgate")
        .text("version", env!("CARGO_PKG_VERSION"))
        .to_string()
}

fn parse_result<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, RequestError> {
    serde_json::from_str(raw.get()).map_err(|error| RequestError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_cleaned_and_bounded() {
        assert_eq!(clean_instructions("Be\u{1b}[1m kind.\u{7}\n"), "Be kind.\n");
        let long = "x".repeat(2 * MAX_DESCRIPTION_BYTES);
        assert!(clean_instructions(&long).len() < MAX_DESCRIPTION_BYTES + 100);
    }
}

//! Which era a server speaks, and what it says of itself.
//!
//! Over pipes `initialize` goes first: servers of the old era may exit on a probe they do not
//! know, or start slowly and answer it when nobody listens any more. Over HTTP the modern
//! `server/discover` goes first, because there every answer is tied to its request.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::config::Protocol;

use crate::jsonrpc::{Answer, Object, RpcError, UNSUPPORTED_VERSION};
use crate::transport::{Outgoing, RequestError, Transport};

pub const MODERN: &str = "2026-07-28";
pub const NEWEST_LEGACY: &str = "2025-11-25";
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY];

/// Errors that only a modern HTTP server answers with.
const MODERN_CODES: [i64; 3] = [-32020, -32021, UNSUPPORTED_VERSION];

/// One of the two ways to talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, then a connection with state.
    Legacy,
    /// No state; every request says who asks.
    Modern,
}

/// What a server said of itself.
#[derive(Clone, Debug)]
pub struct Session {
    pub era: Era,
    pub version: String,
    pub capabilities: Capabilities,
    pub server_info: Option<Box<RawValue>>,
    pub instructions: Option<String>,
}

/// The lists that a server says it has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capabilities {
    pub tools: bool,
    pub resources: bool,
    pub prompts: bool,
    /// It tells when one of its lists or resources changes.
    pub notifies: bool,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the server answers in protocol version `{0}`, which is not known here")]
    Version(String),
    #[error("the server supports only protocol versions {0}")]
    NoCommonVersion(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized<'a> {
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
struct Discovered<'a> {
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
struct Supported {
    supported: Vec<String>,
}

/// Agrees with the server on an era. `first` is what was found out before.
pub async fn shake(
    transport: &Transport,
    protocol: Protocol,
    first: Option<Era>,
    capabilities: &str,
) -> Result<Session, HandshakeError> {
    let initialize = |transport| initialize(transport, capabilities);
    let discover = |transport| discover(transport, capabilities);
    let preferred = match transport {
        Transport::Http(_) => Era::Modern,
        Transport::Stdio(_) | Transport::Sse(_) | Transport::Local(_) => Era::Legacy,
    };
    if let Transport::Sse(_) = transport {
        return initialize(transport).await;
    }
    match (protocol, first.unwrap_or(preferred)) {
        (Protocol::Legacy, _) => initialize(transport).await,
        (Protocol::Modern, _) => discover(transport).await,
        (Protocol::Auto, Era::Legacy) => match initialize(transport).await {
            Err(refusal) if asks_for_modern(&refusal) => match discover(transport).await {
                // A server that knows neither is best described by its first answer.
                Err(HandshakeError::Request(RequestError::Rpc(_))) => Err(refusal),
                session => session,
            },
            session => session,
        },
        (Protocol::Auto, Era::Modern) => match discover(transport).await {
            Err(error) if asks_for_legacy(&error, transport) => initialize(transport).await,
            session => session,
        },
    }
}

/// What every modern request carries.
pub fn modern_meta(capabilities: &str) -> Object {
    Object::new()
        .text("io.modelcontextprotocol/protocolVersion", MODERN)
        .raw("io.modelcontextprotocol/clientInfo", &client_info())
        .raw("io.modelcontextprotocol/clientCapabilities", capabilities)
}

/// Adds the headers that repeat a modern request's body.
pub fn add_modern_headers(method: &'static str, headers: &mut HeaderMap) {
    const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    const METHOD: HeaderName = HeaderName::from_static("mcp-method");
    headers.insert(VERSION, HeaderValue::from_static(MODERN));
    headers.insert(METHOD, HeaderValue::from_static(method));
}

async fn initialize(transport: &Transport, capabilities: &str) -> Result<Session, HandshakeError> {
    let outgoing = Outgoing {
        method: "initialize",
        params: Object::new()
            .text("protocolVersion", NEWEST_LEGACY)
            .raw("capabilities", capabilities)
            .raw("clientInfo", &client_info()),
        ..Outgoing::default()
    };
    let result = transport
        .request(outgoing)
        .await?
        .map_err(RequestError::Rpc)?;
    let said: Initialized<'_> = read(&result)?;
    if !LEGACY.contains(&said.protocol_version.as_str()) {
        return Err(HandshakeError::Version(said.protocol_version));
    }
    if let Transport::Http(http) = transport {
        http.agree(&said.protocol_version);
    }
    transport.notify("notifications/initialized").await?;
    Ok(Session {
        era: Era::Legacy,
        version: said.protocol_version,
        capabilities: Capabilities::read(said.capabilities),
        server_info: said.server_info.map(ToOwned::to_owned),
        instructions: said.instructions,
    })
}

async fn discover(transport: &Transport, capabilities: &str) -> Result<Session, HandshakeError> {
    let method = "server/discover";
    let mut headers = HeaderMap::new();
    add_modern_headers(method, &mut headers);
    let outgoing = Outgoing {
        method,
        meta: modern_meta(capabilities),
        headers,
        ..Outgoing::default()
    };
    let result = transport
        .request(outgoing)
        .await?
        .map_err(RequestError::Rpc)?;
    let said: Discovered<'_> = read(&result)?;
    if !said
        .supported_versions
        .iter()
        .any(|version| version == MODERN)
    {
        return Err(HandshakeError::NoCommonVersion(
            said.supported_versions.join(", "),
        ));
    }
    Ok(Session {
        era: Era::Modern,
        version: MODERN.to_owned(),
        capabilities: Capabilities::read(said.capabilities),
        server_info: said
            .meta
            .and_then(|meta| meta.server_info)
            .map(ToOwned::to_owned),
        instructions: said.instructions,
    })
}

/// Whether a server answered `initialize` with an error, whichever it chose.
fn asks_for_modern(refusal: &HandshakeError) -> bool {
    matches!(
        refusal,
        HandshakeError::Request(RequestError::Rpc(_) | RequestError::Status { rpc: Some(_), .. })
    )
}

fn asks_for_legacy(error: &HandshakeError, transport: &Transport) -> bool {
    let over_http = matches!(transport, Transport::Http(_));
    match error {
        HandshakeError::NoCommonVersion(versions) => {
            LEGACY.iter().any(|known| versions.contains(known))
        }
        HandshakeError::Request(RequestError::Rpc(error)) => only_legacy(error),
        HandshakeError::Request(RequestError::Status { status, rpc, .. }) => {
            (400..500).contains(status)
                && !matches!(status, 401 | 403 | 429)
                && rpc.as_ref().is_none_or(only_legacy)
        }
        HandshakeError::Request(RequestError::Malformed(_) | RequestError::SessionGone) => {
            over_http
        }
        HandshakeError::Request(_) | HandshakeError::Version(_) => false,
    }
}

/// Whether an error to the modern probe leaves only the old era.
fn only_legacy(error: &RpcError) -> bool {
    if error.code != UNSUPPORTED_VERSION {
        return !MODERN_CODES.contains(&error.code);
    }
    let supported: Vec<String> = error
        .data
        .as_ref()
        .and_then(|data| serde_json::from_str::<Supported>(data.get()).ok())
        .map(|data| data.supported)
        .unwrap_or_default();
    supported
        .iter()
        .any(|version| LEGACY.contains(&version.as_str()))
}

impl Capabilities {
    fn read(raw: Option<&RawValue>) -> Self {
        let fields: std::collections::HashMap<String, &RawValue> = raw
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        Self {
            tools: fields.contains_key("tools"),
            resources: fields.contains_key("resources"),
            prompts: fields.contains_key("prompts"),
            notifies: fields.values().any(|of| {
                let of = of.get();
                of.contains("listChanged") || of.contains("subscribe")
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

fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, RequestError> {
    serde_json::from_str(raw.get()).map_err(|error| RequestError::Malformed(error.to_string()))
}

/// An answer that counts as a failed request when it is an error.
pub(crate) fn flat(answer: Result<Answer, RequestError>) -> Result<Box<RawValue>, RequestError> {
    answer?.map_err(RequestError::Rpc)
}

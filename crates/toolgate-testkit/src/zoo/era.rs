//! The revisions of the protocol, and what each era demands of a request and adds to a result.

use super::flags::Eras;
use super::rpc::{INVALID_PARAMS, Request, RpcError};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub(crate) const SERVER_INFO: &str =
    r#"{"name":"toolgate-zoo","title":"The zoo","version":"1.0.0"}"#;

const UNSUPPORTED_VERSION: i64 = -32022;

/// The era one request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

impl Eras {
    /// The era in which this server treats the request.
    pub(crate) fn of(self, request: &Request) -> Era {
        match self {
            Self::Legacy => Era::Legacy,
            Self::Modern => Era::Modern,
            Self::Dual => {
                let declared = request.declared_version().is_some();
                if declared || request.method == "server/discover" {
                    Era::Modern
                } else {
                    Era::Legacy
                }
            }
        }
    }

    pub(crate) fn has_legacy(self) -> bool {
        self != Self::Modern
    }

    /// A raw array of the versions spoken, newest first.
    pub(crate) fn supported(self) -> String {
        let legacy = LEGACY.iter().rev().filter(|_| self.has_legacy());
        let modern = [MODERN];
        let modern = modern.iter().filter(|_| self != Self::Legacy);
        let all: Vec<&str> = modern.chain(legacy).copied().collect();
        serde_json::Value::from(all).to_string()
    }

    /// The error for a version that is not spoken here.
    pub(crate) fn unsupported(self, requested: &str) -> RpcError {
        let supported = self.supported();
        let requested = super::rpc::quoted(requested);
        RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(format!(
            r#"{{"supported":{supported},"requested":{requested}}}"#
        ))
    }
}

/// What a modern server demands of the `_meta` of every request.
pub(crate) fn check_meta(request: &Request, eras: Eras) -> Result<(), RpcError> {
    let missing = |key: &str| {
        RpcError::new(
            INVALID_PARAMS,
            format!("missing `_meta` key `io.modelcontextprotocol/{key}`"),
        )
    };
    let version = request
        .declared_version()
        .ok_or_else(|| missing("protocolVersion"))?;
    request
        .params
        .meta
        .as_ref()
        .and_then(|meta| meta.client_capabilities.as_ref())
        .ok_or_else(|| missing("clientCapabilities"))?;
    if version == MODERN {
        Ok(())
    } else {
        Err(eras.unsupported(version))
    }
}

/// The version to answer an `initialize` with.
pub(crate) fn negotiate(requested: Option<&str>) -> &'static str {
    LEGACY
        .into_iter()
        .find(|version| Some(*version) == requested)
        .unwrap_or(LEGACY[3])
}

/// The raw result with what a modern result carries besides.
pub(crate) fn stamped(result: &str, method: &str) -> String {
    let cached = match method {
        "server/discover"
        | "tools/list"
        | "prompts/list"
        | "resources/list"
        | "resources/templates/list" => r#","ttlMs":60000,"cacheScope":"public""#,
        "resources/read" => r#","ttlMs":0,"cacheScope":"private""#,
        _ => "",
    };
    let open = result.strip_suffix('}').expect("a result is a JSON object");
    let comma = if open == "{" { "" } else { "," };
    signed(&format!(
        r#"{open}{comma}"resultType":"complete"{cached}}}"#
    ))
}

/// The raw result with who made it.
pub(crate) fn signed(result: &str) -> String {
    let open = result.strip_suffix('}').expect("a result is a JSON object");
    format!(r#"{open},"_meta":{{"io.modelcontextprotocol/serverInfo":{SERVER_INFO}}}}}"#)
}

//! Protocol revisions, and what each era requires of a request and adds to a result.

use super::flags::SupportedEras;
use super::rpc::{INVALID_PARAMS, Request, ZooError};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub(crate) const SERVER_INFO: &str =
    r#"{"name":"toolgate-zoo","title":"The zoo","version":"1.0.0"}"#;

const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// The era of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEra {
    Legacy,
    Modern,
}

impl SupportedEras {
    /// Returns the era under which this server handles the request.
    pub(crate) fn era_of(self, request: &Request) -> RequestEra {
        match self {
            Self::Legacy => RequestEra::Legacy,
            Self::Modern => RequestEra::Modern,
            Self::Dual => {
                let declared = request.declared_version().is_some();
                if declared || request.method == "server/discover" {
                    RequestEra::Modern
                } else {
                    RequestEra::Legacy
                }
            }
        }
    }

    pub(crate) fn has_legacy(self) -> bool {
        self != Self::Modern
    }

    /// Returns the supported versions as a raw JSON array, newest first.
    pub(crate) fn supported_versions(self) -> String {
        let legacy = LEGACY.iter().rev().filter(|_| self.has_legacy());
        let modern = [MODERN];
        let modern = modern.iter().filter(|_| self != Self::Legacy);
        let all: Vec<&str> = modern.chain(legacy).copied().collect();
        serde_json::Value::from(all).to_string()
    }

    /// Builds the error for an unsupported version.
    pub(crate) fn unsupported_version_error(self, requested: &str) -> ZooError {
        let supported = self.supported_versions();
        let requested = super::rpc::json_string(requested);
        ZooError::new(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version").with_data(
            format!(r#"{{"supported":{supported},"requested":{requested}}}"#),
        )
    }
}

/// Checks the `_meta` that a modern server requires on every request.
pub(crate) fn check_meta(request: &Request, eras: SupportedEras) -> Result<(), ZooError> {
    let missing = |key: &str| {
        ZooError::new(
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
        Err(eras.unsupported_version_error(version))
    }
}

/// Chooses the version to answer `initialize` with.
pub(crate) fn negotiate(requested: Option<&str>) -> &'static str {
    LEGACY
        .into_iter()
        .find(|version| Some(*version) == requested)
        .unwrap_or(LEGACY[3])
}

/// Adds the fields of a complete modern result to a raw result.
pub(crate) fn complete_result(result: &str, method: &str) -> String {
    let cache_fields = match method {
        "server/discover"
        | "tools/list"
        | "prompts/list"
        | "resources/list"
        | "resources/templates/list" => r#","ttlMs":60000,"cacheScope":"public""#,
        "resources/read" => r#","ttlMs":0,"cacheScope":"private""#,
        _ => "",
    };
    let open = result
        .strip_suffix('}')
        .expect("a result must be a JSON object");
    let comma = if open == "{" { "" } else { "," };
    with_server_info(&format!(
        r#"{open}{comma}"resultType":"complete"{cache_fields}}}"#
    ))
}

/// Adds the server's identity to a raw result.
pub(crate) fn with_server_info(result: &str) -> String {
    let open = result
        .strip_suffix('}')
        .expect("a result must be a JSON object");
    format!(r#"{open},"_meta":{{"io.modelcontextprotocol/serverInfo":{SERVER_INFO}}}}}"#)
}

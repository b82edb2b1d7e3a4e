//! Checked configuration of one upstream server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Approvers, ArgumentCheck, DefinitionOverrides, EnvGroup, PerSession, Sandbox};
use crate::hash::sha256_hex;
use crate::name::ServerName;
use crate::policy::ToolLists;
use crate::rate::Rate;
use crate::secret::{Secret, UnsetVariable};

/// A configured upstream server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    pub name: ServerName,
    /// `client_id` of the configuration, or the name.
    pub id: String,
    pub enabled: bool,
    pub connection: ServerConnection,
    pub protocol: Protocol,
    pub lists: ToolLists,
    /// Timeout of a tool call; `None` uses the global one.
    pub timeout: Option<Duration>,
    /// Time that a call waits while the server is reconnecting; `None` uses the global one.
    pub reconnect_wait: Option<Duration>,
    pub tuning: ServerTuning,
    /// Server that handles calls of tools with the same name while this one is unavailable.
    pub fallback: Option<ServerName>,
    pub limits: ServerLimits,
    /// Whether keys whose grants do not mention this server may use it.
    pub allow_on_all_keys: bool,
    /// Whether its resources and prompts are exposed.
    pub resources: bool,
    /// Who may approve calls of its tools; `None` leaves it to the rules, the key and the default.
    pub approval_by: Option<Approvers>,
    /// How arguments of its tools are checked; `None` uses the global setting.
    pub argument_check: Option<ArgumentCheck>,
    /// How its definitions are treated.
    pub definitions: DefinitionOverrides,
    /// Which clients get processes of their own.
    pub per_session: PerSession,
    /// Whether its tools are exposed to scripts (code mode) instead of directly to the model.
    pub code_mode: bool,
}

/// Limits, caching and prices for the tools of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    pub rate: Option<Rate>,
    /// Time for which results of read-only tools are cached.
    pub cache_ttl: Option<Duration>,
    /// Settings of individual tools, by raw name.
    pub tools: BTreeMap<String, ToolLimits>,
}

/// Limits, caching, price and argument check of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolLimits {
    pub timeout: Option<Duration>,
    pub rate: Option<Rate>,
    pub max_in_flight: Option<usize>,
    pub cache_ttl: Option<Duration>,
    /// Price of a call, in millionths of a US dollar.
    pub price: Option<u64>,
    /// How arguments are checked; `None` uses the server's setting.
    pub argument_check: Option<ArgumentCheck>,
}

/// Concurrency, health check and idle settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTuning {
    /// Maximum number of concurrent calls.
    pub max_in_flight: usize,
    /// Maximum number of concurrent calls of one key; `None` stands for three quarters.
    pub max_in_flight_per_key: Option<usize>,
    /// Maximum number of queued calls.
    pub max_queue: usize,
    /// Idle time after which a stdio server is stopped.
    pub idle_stop: Option<Duration>,
    /// Interval between periodic refreshes of the lists; `None` uses the global one.
    pub sync_interval: Option<Duration>,
    /// Whether the server answers `ping`.
    pub ping: bool,
}

/// Connection to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerConnection {
    Stdio(StdioConnection),
    Http(HttpConnection),
    /// Tools registered by the embedding program.
    InProcess,
}

/// A child process that communicates over standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioConnection {
    pub command: String,
    pub args: Vec<String>,
    /// Environment variables of the child, in addition to a minimal environment.
    pub env: IndexMap<String, Secret>,
    pub cwd: Option<PathBuf>,
    /// Named sets of variables that the child inherits from the gateway.
    pub env_groups: Vec<EnvGroup>,
    pub sandbox: Sandbox,
}

/// An HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConnection {
    pub url: Secret,
    pub headers: IndexMap<String, Secret>,
    /// Headers of the caller's request that are forwarded.
    pub forwarded_headers: Vec<String>,
    pub tls: Tls,
    pub transport: HttpTransport,
}

/// HTTP-based transport of MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransport {
    /// Tries streamable HTTP first, then SSE.
    #[default]
    Auto,
    Streamable,
    /// Legacy transport of revision 2024-11-05: an event stream for responses and a separate URL for
    /// requests.
    Sse,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    pub insecure_skip_verify: bool,
    pub ca_cert_pem: Option<Secret>,
}

/// Era of the MCP protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Detects the era and remembers it.
    #[default]
    Auto,
    /// `initialize`, revisions up to 2025-11-25.
    Legacy,
    /// Stateless, revision 2026-07-28.
    Modern,
}

impl Default for ServerTuning {
    fn default() -> Self {
        Self {
            max_in_flight: 64,
            max_in_flight_per_key: None,
            max_queue: 256,
            idle_stop: None,
            sync_interval: None,
            ping: true,
        }
    }
}

/// Converts US dollars to millionths of a dollar.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, and bounded on both sides"
)]
pub fn micro_usd(usd: f64) -> u64 {
    (usd * 1e6).round().clamp(0.0, 1e15) as u64
}

impl ServerConfig {
    /// Whether a client session can have a separate connection.
    pub fn has_own_lanes(&self) -> bool {
        match self.connection {
            ServerConnection::Http(_) => true,
            ServerConnection::Stdio(_) => self.per_session != PerSession::Never,
            ServerConnection::InProcess => false,
        }
    }

    /// Settings of a tool, by raw name.
    pub fn tool_limits(&self, raw: &str) -> ToolLimits {
        // A tool without settings has no limits of its own.
        self.limits.tools.get(raw).copied().unwrap_or_default()
    }

    /// Whether a change from `previous` to this configuration requires a new connection.
    pub fn needs_reconnect(&self, previous: &Self) -> bool {
        self.enabled != previous.enabled
            || self.connection != previous.connection
            || self.protocol != previous.protocol
            || self.tuning != previous.tuning
    }
}

impl ServerConnection {
    /// Hash of everything that determines which server is reached and with which identity: command or
    /// URL, variables, headers and credentials.
    pub fn fingerprint(&self, env: &dyn Fn(&str) -> Option<String>) -> String {
        // Grants are stored with this hash, so the text for resolved secrets must not change. An
        // unset variable counts by its name: two of them need not have the same value later.
        let values = |map: &IndexMap<String, Secret>| {
            let value = |(name, secret): (&String, &Secret)| match secret.resolve(env) {
                Ok(value) => format!("{:?}", (name, Some(value))),
                Err(UnsetVariable(variable)) => format!("({name:?}, unset {variable:?})"),
            };
            let mut values: Vec<String> = map.iter().map(value).collect();
            values.sort_unstable();
            values
        };
        let description = match self {
            Self::InProcess => "in-process".to_owned(),
            Self::Stdio(stdio) => {
                let StdioConnection {
                    command,
                    args,
                    env: vars,
                    cwd,
                    // Neither changes who the server is.
                    env_groups: _,
                    sandbox: _,
                } = stdio;
                format!("stdio {command:?} {args:?} {cwd:?} {:?}", values(vars))
            }
            Self::Http(http) => {
                let url = match http.url.resolve(env) {
                    Ok(url) => format!("{url:?}"),
                    Err(UnsetVariable(variable)) => format!("unset {variable:?}"),
                };
                format!("http {url} {:?}", values(&http.headers))
            }
        };
        sha256_hex(description)
    }
}

impl HttpConnection {
    pub fn masked_url(&self) -> String {
        match &self.url {
            Secret::Literal(url) => crate::secret::mask_url(url),
            reference @ Secret::Env(_) => reference.to_masked_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(url: &str, header: &str) -> ServerConnection {
        ServerConnection::Http(HttpConnection {
            url: Secret::parse(url),
            headers: [("A".to_owned(), Secret::parse(header))].into(),
            forwarded_headers: Vec::new(),
            tls: Tls::default(),
            transport: HttpTransport::Auto,
        })
    }

    #[test]
    fn fingerprint_distinguishes_unset_variables() {
        let unset = |connection: &ServerConnection| connection.fingerprint(&|_| None);
        let all = [
            http("env.X", "h"),
            http("env.Y", "h"),
            http("", "h"),
            http("", "env.X"),
            http("", "env.Y"),
        ];
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(unset(one), unset(other), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn fingerprint_of_resolved_secrets_is_stable() {
        let set = |name: &str| Some(format!("http://{name}/"));
        let expected = sha256_hex(r#"http "http://X/" ["(\"A\", Some(\"h\"))"]"#);
        assert_eq!(http("env.X", "h").fingerprint(&set), expected);
    }
}

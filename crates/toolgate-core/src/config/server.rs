//! One upstream server, as the program uses it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hash::sha256;
use crate::name::ServerName;
use crate::policy::ToolLists;
use crate::rate::Rate;
use crate::secret::Secret;

/// A configured server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: ServerName,
    /// The `client_id` of the configuration, or the name.
    pub id: String,
    pub enabled: bool,
    pub link: Link,
    pub protocol: Protocol,
    pub lists: ToolLists,
    /// Bound on one tool call; the tool manager's where absent.
    pub timeout: Option<Duration>,
    pub care: Care,
    /// Takes over tools of the same name while this server is away.
    pub fallback: Option<ServerName>,
    pub limits: Limits,
    /// Whether keys whose grants do not speak of it may use it.
    pub on_all_keys: bool,
    /// Whether its resources and prompts are shown.
    pub resources: bool,
    /// Whether a client that it may ask gets a process of its own.
    pub per_session: bool,
    /// Whether its tools are shown to scripts instead of each to the model.
    pub code_mode: bool,
}

/// What bounds the calls of a server's tools, and what they cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub rate: Option<Rate>,
    /// How long results of read-only tools are reused.
    pub cache_ttl: Option<Duration>,
    /// By raw tool name.
    pub tools: BTreeMap<String, ToolLimits>,
}

/// The same for one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolLimits {
    pub timeout: Option<Duration>,
    pub rate: Option<Rate>,
    pub max_in_flight: Option<usize>,
    pub cache_ttl: Option<Duration>,
    /// In millionths of a dollar.
    pub price: Option<u64>,
}

/// How a server is looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Care {
    /// Calls that may be under way at once.
    pub max_in_flight: usize,
    /// Calls that may wait for their turn.
    pub max_queue: usize,
    /// Puts a child to sleep that was not used for so long.
    pub idle_stop: Option<Duration>,
    /// How often to list anew without being told; the gateway's where absent.
    pub sync_interval: Option<Duration>,
    /// Whether the server answers pings.
    pub ping: bool,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    Stdio(Stdio),
    Http(Http),
    /// Tools of the embedding program.
    InProcess,
}

/// A child process that speaks on its standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stdio {
    pub command: String,
    pub args: Vec<String>,
    /// Variables for the child; it gets these and a minimal environment, nothing else.
    pub env: IndexMap<String, Secret>,
    pub cwd: Option<PathBuf>,
}

/// An HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    pub url: Secret,
    pub headers: IndexMap<String, Secret>,
    /// Headers of the caller's request that are passed on.
    pub forwarded_headers: Vec<String>,
    pub tls: Tls,
    pub flavour: Flavour,
}

/// The two ways in which MCP has used HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Streamable first, then the old one.
    #[default]
    Auto,
    Streamable,
    /// An event stream for answers and another address for requests, as in 2024-11-05.
    Sse,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    pub insecure_skip_verify: bool,
    pub ca_cert_pem: Option<Secret>,
}

/// Which era of the protocol to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Find out, and remember.
    #[default]
    Auto,
    /// `initialize`, revisions up to 2025-11-25.
    Legacy,
    /// Stateless, revision 2026-07-28.
    Modern,
}

impl Default for Care {
    fn default() -> Self {
        Self {
            max_in_flight: 64,
            max_queue: 256,
            idle_stop: None,
            sync_interval: None,
            ping: true,
        }
    }
}

/// Dollars as users write them, in millionths.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, and bounded on both sides"
)]
pub fn micro_usd(usd: f64) -> u64 {
    (usd * 1e6).round().clamp(0.0, 1e15) as u64
}

impl Server {
    /// Whether a client's session can have a connection of its own.
    pub fn has_own_lanes(&self) -> bool {
        match self.link {
            Link::Http(_) => true,
            Link::Stdio(_) => self.per_session,
            Link::InProcess => false,
        }
    }

    /// The settings of one of its tools.
    pub fn tool(&self, raw: &str) -> ToolLimits {
        self.limits.tools.get(raw).copied().unwrap_or_default()
    }

    /// Whether a change from `other` to this one asks for a new connection.
    pub fn reconnects_after(&self, other: &Self) -> bool {
        self.enabled != other.enabled
            || self.link != other.link
            || self.protocol != other.protocol
            || self.care != other.care
    }
}

impl Link {
    /// A text that is the same as long as the same program is reached in the same way, with the
    /// same variables, headers and credentials.
    pub fn fingerprint(&self, env: &dyn Fn(&str) -> Option<String>) -> String {
        let values = |map: &IndexMap<String, Secret>| {
            let resolved = map
                .iter()
                .map(|(name, secret)| (name, secret.resolve(env).ok()));
            let mut values: Vec<String> = resolved.map(|pair| format!("{pair:?}")).collect();
            values.sort_unstable();
            values
        };
        let said = match self {
            Self::InProcess => "in-process".to_owned(),
            Self::Stdio(stdio) => {
                let Stdio {
                    command,
                    args,
                    env: vars,
                    cwd,
                } = stdio;
                format!("stdio {command:?} {args:?} {cwd:?} {:?}", values(vars))
            }
            Self::Http(http) => {
                let url = http.url.resolve(env).unwrap_or_default();
                format!("http {url:?} {:?}", values(&http.headers))
            }
        };
        sha256(said)
    }
}

impl Http {
    pub fn shown_url(&self) -> String {
        match &self.url {
            Secret::Literal(url) => crate::secret::mask_url(url),
            reference @ Secret::Env(_) => reference.shown(),
        }
    }
}

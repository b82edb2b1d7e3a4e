//! One upstream server, as the program uses it.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::ServerName;
use crate::policy::ToolLists;
use crate::secret::Secret;

/// A configured server.
#[derive(Clone, Debug)]
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
    /// How often to list anew without being told; the tool manager's where absent.
    pub sync_interval: Option<Duration>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Link {
    Stdio(Stdio),
    Http(Http),
    /// Tools of the embedding program.
    InProcess,
}

/// A child process that speaks on its standard input and output.
#[derive(Clone, Debug)]
pub struct Stdio {
    pub command: String,
    pub args: Vec<String>,
    /// Variables for the child; it gets these and a minimal environment, nothing else.
    pub env: IndexMap<String, Secret>,
    pub cwd: Option<PathBuf>,
}

/// A streamable HTTP endpoint.
#[derive(Clone, Debug)]
pub struct Http {
    pub url: Secret,
    pub headers: IndexMap<String, Secret>,
    /// Headers of the caller's request that are passed on.
    pub forwarded_headers: Vec<String>,
    pub tls: Tls,
}

#[derive(Clone, Debug, Default)]
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

impl Link {
    /// Where the server is, with everything secret masked.
    pub fn shown(&self) -> String {
        match self {
            Self::Stdio(stdio) => {
                let words = std::iter::once(&stdio.command).chain(&stdio.args);
                let words: Vec<String> = words.map(|word| crate::secret::mask_url(word)).collect();
                words.join(" ")
            }
            Self::Http(http) => http.shown_url(),
            Self::InProcess => "in-process".to_owned(),
        }
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

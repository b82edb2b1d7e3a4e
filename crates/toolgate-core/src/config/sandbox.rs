//! Isolation of stdio servers from the gateway and from each other.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the process of a stdio server may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Everything but the gateway's data and the memory and environment of other processes.
    #[default]
    Default,
    /// Everything that the gateway's user can reach.
    Off,
    /// Only what is listed.
    Strict(StrictSandbox),
}

/// Settings of the strict profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrictSandbox {
    /// Files and directories that may be read and executed, besides those of the system.
    pub read: Vec<PathBuf>,
    /// Files and directories that may also be written.
    pub write: Vec<PathBuf>,
    pub network: NetworkAccess,
    /// Runs the server as another user than the gateway.
    pub user: Option<SandboxUser>,
    pub limits: ProcessLimits,
}

/// Limits of the processes of a server; `None` leaves the limit of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Resident memory of all processes of a connection together.
    pub memory_mb: Option<u64>,
    /// CPU time of each process.
    pub cpu_seconds: Option<u64>,
    /// Processes and threads of a connection together.
    pub processes: Option<u64>,
    /// Open files of each process.
    pub files: Option<u64>,
}

/// User that runs a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxUser {
    Name(String),
    Id(u32),
}

/// Network that a server can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// None.
    #[default]
    Off,
    /// A loopback interface of its own, which the processes of the server share.
    Loopback,
    /// The network of the gateway.
    On,
}

/// A named set of environment variables that a server inherits from the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnvGroup {
    /// Proxies and certificate authorities.
    Network,
}

impl Sandbox {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Off => "off",
            Self::Strict(_) => "strict",
        }
    }

    /// Returns the limits of its processes, which only the strict profile has.
    pub fn limits(&self) -> ProcessLimits {
        match self {
            Self::Strict(strict) => strict.limits,
            Self::Default | Self::Off => ProcessLimits::default(),
        }
    }
}

impl EnvGroup {
    /// Returns the names of its variables.
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Network => &[
                "HTTP_PROXY",
                "HTTPS_PROXY",
                "ALL_PROXY",
                "NO_PROXY",
                "http_proxy",
                "https_proxy",
                "all_proxy",
                "no_proxy",
                "SSL_CERT_FILE",
                "SSL_CERT_DIR",
                "CURL_CA_BUNDLE",
                "REQUESTS_CA_BUNDLE",
                "NODE_EXTRA_CA_CERTS",
                "NODE_USE_ENV_PROXY",
                "NODE_USE_SYSTEM_CA",
                "PIP_INDEX_URL",
                "PIP_CERT",
                "UV_INDEX_URL",
                "UV_DEFAULT_INDEX",
                "UV_NATIVE_TLS",
                "UV_SYSTEM_CERTS",
                "npm_config_registry",
                "npm_config_proxy",
                "npm_config_https_proxy",
                "npm_config_noproxy",
                "npm_config_cafile",
            ],
        }
    }
}

//! Isolation settings of a stdio server.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::NetworkAccess;

/// A profile by name, or the settings of the strict one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SandboxSetting {
    Profile(SandboxName),
    Strict(SandboxTable),
}

/// Name of an isolation profile.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SandboxName {
    Default,
    Off,
    Strict,
}

/// A user by name or number.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum UserSetting {
    Id(u32),
    Name(String),
}

/// Settings of the strict profile. The server does not start if one of them cannot be enforced.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxTable {
    /// Files and directories that the program may read and execute, besides `/usr`, `/etc` and other parts of the system.
    pub read: Vec<String>,
    /// Files and directories that the program may also write.
    pub write: Vec<String>,
    /// Network of the program: `off` (default), `loopback` (an interface of its own) or `on`.
    pub network: NetworkAccess,
    /// User that runs the program, by name or number. Possible only if root runs the gateway. Default: that of the gateway.
    pub user: Option<UserSetting>,
    /// Maximum resident memory of all processes of the server together, in mebibytes. A server that exceeds it is stopped and started again. Default: no limit.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub memory_mb: Option<u64>,
    /// Maximum CPU time of each process since its start, in seconds. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub cpu_seconds: Option<u64>,
    /// Maximum number of processes and threads of the server together. Needs user namespaces, and cannot be enforced if the gateway runs as root. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub processes: Option<u64>,
    /// Maximum number of files that each process has open. Default: that of the gateway.
    #[schemars(range(min = 8, max = 1_000_000))]
    pub files: Option<u64>,
}

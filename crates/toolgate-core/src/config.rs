//! The configuration: parsed once, checked completely, and typed from then on.
//!
//! [`Document`] is a parsed file with source positions, [`file::ConfigFile`] the serde types of a
//! file, [`Config`] the checked result that the rest of the program uses. Loading collects every
//! error instead of stopping at the first. Callers read the files and the environment.

mod agent;
mod build;
mod caller;
mod capacity;
mod check;
mod code_mode;
mod control;
mod definitions;
mod document;
mod duration;
pub mod entries;
pub mod file;
mod http;
pub mod import;
mod ip_range;
mod names;
mod per_session;
pub mod provider;
mod restrictions;
mod sandbox;
mod server;
mod store;
mod unsupported_keys;
mod variables;

use std::path::PathBuf;
use std::time::Duration;

pub use agent::RunLimits;
pub use caller::{
    APPROVER_ROLE, KeyConfig, KeyCredential, KeyLimits, RoleConfig, ToolInjection, VirtualServer,
};
pub use capacity::{CapacityLimits, Share, TaskLimits};
pub use check::schema;
pub use code_mode::{BindingLevel, CodeModeSettings, ScriptLimits};
pub use control::{
    ApprovalSettings, Approver, Approvers, ArgumentCheck, AuditContent, AuditDurability,
    AuditSettings, AuditSinkSettings, OnAuditFailure, OnDanger, OnInvalidOutput, ResultSettings,
    ScannerSettings,
};
pub use definitions::{
    DefinitionOverrides, DefinitionSettings, OnDefinitionChange, OnSuspiciousDefinition,
};
pub use document::{ConfigFormat, ConfigLocation, Document};
pub use duration::ConfigDuration;
pub use http::HttpSettings;
pub use ip_range::IpRange;
pub use names::{NameOwner, NameProblem};
pub use per_session::PerSession;
pub use provider::{Dialect, ModelSettings, ProviderConfig};
pub use restrictions::{KnownServer, LostRestriction};
pub use sandbox::{EnvGroup, NetworkAccess, ProcessLimits, Sandbox, SandboxUser, StrictSandbox};
pub use server::{
    HttpConnection, HttpTransport, Protocol, ServerConfig, ServerConnection, ServerLimits,
    ServerTuning, StdioConnection, Tls, ToolLimits, micro_usd,
};
pub use store::{KeyCommand, STORE_KEY_VARIABLE, StoreKeySource};
pub use variables::{VariableReference, variable_references};

use crate::name::{NameStyle, ServerName};
use crate::policy::{Policy, RuleSpec, Verdict};
use crate::secret::Secret;

/// The complete, checked configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub servers: Vec<ServerConfig>,
    pub tool_name_style: NameStyle,
    pub tool_manager: ToolManagerSettings,
    pub security: ServerLists,
    pub permissions: PermissionSettings,
    /// How definitions are treated, unless a server says otherwise.
    pub definitions: DefinitionOverrides,
    /// Patterns of tools blocked for all callers, as written by users.
    pub blocked_tools: Vec<String>,
    pub keys: Vec<KeyConfig>,
    pub roles: Vec<RoleConfig>,
    pub virtual_servers: Vec<VirtualServer>,
    pub models: ModelSettings,
    /// Limits for a single agent run.
    pub agent: RunLimits,
    pub code_mode: CodeModeSettings,
    pub capacity: CapacityLimits,
    pub scanner: ScannerSettings,
    pub results: ResultSettings,
    pub audit: AuditSettings,
    pub log: LogSettings,
    /// Name of the active environment.
    pub environment: Option<String>,
    pub listen: ListenSettings,
}

/// Address, data directory and admission settings of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenSettings {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub data_dir: Option<PathBuf>,
    /// `None` for `store.key` in the data directory.
    pub store_key: Option<StoreKeySource>,
    pub admin_key: Option<Secret>,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub public_url: Option<url::Url>,
    pub http: HttpSettings,
}

/// What is logged besides faults and the ends of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// Each tool call.
    pub calls: bool,
}

/// Tool execution settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolManagerSettings {
    /// Global switch; `false` disables tools for all callers and starts no server.
    pub enabled: bool,
    /// How arguments are checked, unless a server or tool says otherwise.
    pub argument_check: ArgumentCheck,
    /// Whether models get tools to list and read resources.
    pub resource_tools: bool,
    pub tool_execution_timeout: Duration,
    pub tool_sync_interval: Option<Duration>,
    /// Interval between health checks of an idle connection.
    pub health_interval: Duration,
    /// Time that a call waits for a server that is reconnecting, unless the server says otherwise.
    pub reconnect_wait: Duration,
    /// Time that a model request waits for servers that connect for the first time.
    pub startup_wait: Duration,
    pub max_agent_depth: u32,
    /// Whether model requests get tools without a filter header.
    pub inject_tools: bool,
    pub binding_level: BindingLevel,
}

/// Servers that the gateway may connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLists {
    /// If set, only these servers are allowed.
    pub allow: Option<Vec<String>>,
    pub deny: Vec<String>,
}

/// Permission rules, and the verdict if none matches.
#[derive(Clone, Debug, Default)]
pub struct PermissionSettings {
    pub rules: Vec<RuleSpec>,
    pub default: Option<Verdict>,
    pub approvals: ApprovalSettings,
}

/// An error or warning about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    pub severity: Severity,
    pub location: ConfigLocation,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Warning,
    /// The configuration names a server that does not exist. This is an error where it was just
    /// written; where the server was removed later, the gateway goes on and reports a problem.
    UnknownName,
    Error,
}

/// Error returned for an unusable configuration, with all findings including warnings.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the configuration has errors:\n{}", format_findings(.0))]
pub struct InvalidConfig(pub Vec<ConfigFinding>);

impl Default for ToolManagerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            argument_check: ArgumentCheck::default(),
            resource_tools: true,
            tool_execution_timeout: Duration::from_secs(30),
            tool_sync_interval: Some(Duration::from_secs(600)),
            health_interval: Duration::from_secs(30),
            reconnect_wait: Duration::from_secs(5),
            startup_wait: Duration::from_secs(5),
            max_agent_depth: 10,
            inject_tools: true,
            binding_level: BindingLevel::default(),
        }
    }
}

impl Config {
    /// Merges the documents, later ones overriding earlier ones, and checks the result.
    pub fn load(documents: &[Document]) -> Result<(Self, Vec<ConfigFinding>), InvalidConfig> {
        Self::load_layers(&apply_overlays(documents))
    }

    /// Like [`Self::load`], for documents that [`apply_overlays`] has already processed.
    pub fn load_layers(
        documents: &[Document],
    ) -> Result<(Self, Vec<ConfigFinding>), InvalidConfig> {
        let mut findings = Vec::new();
        let files: Vec<_> = documents
            .iter()
            .map(|document| check::check_document(document, &mut findings))
            .collect();
        let config = build::build_config(documents, files, &mut findings);
        findings.sort_by(|a, b| {
            (&a.location.file, a.location.position).cmp(&(&b.location.file, b.location.position))
        });
        // An overlay is checked as part of its file and again as a layer.
        findings.dedup();
        if findings.iter().any(|f| f.severity == Severity::Error) {
            return Err(InvalidConfig(findings));
        }
        Ok((config, findings))
    }

    pub fn server_names(&self) -> Vec<ServerName> {
        self.servers
            .iter()
            .map(|server| server.name.clone())
            .collect()
    }

    pub fn policy(&self) -> Policy {
        Policy::build(
            &self.permissions.rules,
            self.permissions.default,
            &self.server_names(),
            self.environment.as_deref(),
        )
    }
}

/// Returns the documents, each followed by its overlay for the active environment. The last
/// document that names an environment selects it.
pub fn apply_overlays(documents: &[Document]) -> Vec<Document> {
    let selected_environment =
        |document: &Document| document.value["environment"].as_str().map(str::to_owned);
    let environment = documents.iter().rev().find_map(selected_environment);
    let mut layers = Vec::new();
    for document in documents {
        layers.push(document.clone());
        let environment = environment.as_deref();
        layers.extend(environment.and_then(|name| document.overlay(name)));
    }
    layers
}

impl ServerLists {
    /// Config key that forbids connecting to a server, if any.
    pub fn refusal_key(&self, server: &ServerName) -> Option<&'static str> {
        let contains = |list: &[String]| list.iter().any(|name| name == server.as_str());
        if contains(&self.deny) {
            Some("security.mcp_server_denylist")
        } else if self.allow.as_ref().is_some_and(|allow| !contains(allow)) {
            Some("security.mcp_server_allowlist")
        } else {
            None
        }
    }
}

impl std::fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::UnknownName | Severity::Error => "error",
        };
        write!(f, "{}: {severity}: {}", self.location, self.message)
    }
}

fn format_findings(findings: &[ConfigFinding]) -> String {
    let lines: Vec<String> = findings.iter().map(|f| format!("  {f}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;

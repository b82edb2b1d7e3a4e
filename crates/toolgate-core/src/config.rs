//! The configuration: read once, checked wholly, then never a raw string again.
//!
//! [`Document`] is a file with the places of its parts, [`file::File`] the shapes that users may
//! write, [`Config`] what the program uses. Loading collects every mistake instead of stopping at
//! the first one. Reading files and the environment is left to the caller.

mod agent;
mod build;
mod caller;
mod check;
mod code_mode;
mod control;
mod document;
mod duration;
pub mod entries;
pub mod file;
pub mod import;
mod known;
pub mod provider;
mod server;

use std::path::PathBuf;
use std::time::Duration;

pub use agent::RunLimits;
pub use caller::{APPROVER, Key, KeyLimits, Proof, Role, VirtualServer};
pub use check::schema;
pub use code_mode::{BindingLevel, CodeMode, ScriptLimits};
pub use control::{Approvals, Approver, Audit, AuditContent, OnDanger, Results, Scanner};
pub use document::{Document, Format, Place};
pub use duration::Span;
pub use provider::{Dialect, Models, Provider};
pub use server::{
    Care, Flavour, Http, Limits, Link, Protocol, Server, Stdio, Tls, ToolLimits, micro_usd,
};

use crate::name::{NameStyle, ServerName};
use crate::policy::{Policy, RuleSpec, Verdict};
use crate::secret::Secret;

/// Everything that was configured, checked.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub servers: Vec<Server>,
    pub tool_name_style: NameStyle,
    pub tool_manager: ToolManager,
    pub security: ServerLists,
    pub permissions: Permissions,
    /// Tools that nobody may use, as users write them.
    pub blocked_tools: Vec<String>,
    pub keys: Vec<Key>,
    pub roles: Vec<Role>,
    pub virtual_servers: Vec<VirtualServer>,
    pub models: Models,
    /// Bounds on one run of an agent.
    pub agent: RunLimits,
    pub code_mode: CodeMode,
    pub scanner: Scanner,
    pub results: Results,
    pub audit: Audit,
    /// Which environment is in force.
    pub environment: Option<String>,
    pub listen: Listen,
}

/// How the gateway is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub data_dir: Option<PathBuf>,
    pub admin_key: Option<Secret>,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub public_url: Option<url::Url>,
}

/// Settings of tool execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolManager {
    /// The documents' global switch: off means no tools for anyone.
    pub enabled: bool,
    /// Whether models have tools to list and read resources.
    pub resource_tools: bool,
    pub tool_execution_timeout: Duration,
    pub tool_sync_interval: Option<Duration>,
    /// How often a quiet server is asked whether it is still there.
    pub health_interval: Duration,
    pub max_agent_depth: u32,
    /// Whether model requests get tools without asking for them by a filter.
    pub inject_tools: bool,
    pub binding_level: BindingLevel,
}

/// Which servers may be connected at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLists {
    /// If set, only these.
    pub allow: Option<Vec<String>>,
    pub deny: Vec<String>,
}

/// Rules, and the verdict where none matches.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    pub rules: Vec<RuleSpec>,
    pub default: Option<Verdict>,
    pub approvals: Approvals,
}

/// Something to tell the user about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub place: Place,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Warning,
    Error,
}

/// A configuration that cannot be used, with every finding, warnings included.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the configuration has mistakes:\n{}", list(.0))]
pub struct Invalid(pub Vec<Finding>);

impl Default for ToolManager {
    fn default() -> Self {
        Self {
            enabled: true,
            resource_tools: true,
            tool_execution_timeout: Duration::from_secs(30),
            tool_sync_interval: Some(Duration::from_secs(600)),
            health_interval: Duration::from_secs(30),
            max_agent_depth: 10,
            inject_tools: true,
            binding_level: BindingLevel::default(),
        }
    }
}

impl Config {
    /// Merges the documents, later ones over earlier ones, and checks the whole.
    pub fn load(documents: &[Document]) -> Result<(Self, Vec<Finding>), Invalid> {
        Self::load_layers(&layered(documents))
    }

    /// The same for documents that [`layered`] has made.
    pub fn load_layers(documents: &[Document]) -> Result<(Self, Vec<Finding>), Invalid> {
        let mut findings = Vec::new();
        let files: Vec<_> = documents
            .iter()
            .map(|document| check::read(document, &mut findings))
            .collect();
        let config = build::config(documents, files, &mut findings);
        findings.sort_by(|a, b| {
            (&a.place.file, a.place.position).cmp(&(&b.place.file, b.place.position))
        });
        // An overlay is read with its file, and once more by itself.
        findings.dedup();
        if findings.iter().any(|f| f.severity == Severity::Error) {
            return Err(Invalid(findings));
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

/// The documents, each followed by its overlay for the environment that the last of them chose.
pub fn layered(documents: &[Document]) -> Vec<Document> {
    let chosen = |document: &Document| document.value["environment"].as_str().map(str::to_owned);
    let environment = documents.iter().rev().find_map(chosen);
    let mut layers = Vec::new();
    for document in documents {
        layers.push(document.clone());
        let environment = environment.as_deref();
        layers.extend(environment.and_then(|name| document.overlay(name)));
    }
    layers
}

impl ServerLists {
    /// Why a server may not be connected, as the config key that says so.
    pub fn refuses(&self, server: &ServerName) -> Option<&'static str> {
        let named = |list: &[String]| list.iter().any(|name| name == server.as_str());
        if named(&self.deny) {
            Some("security.mcp_server_denylist")
        } else if self.allow.as_ref().is_some_and(|allow| !named(allow)) {
            Some("security.mcp_server_allowlist")
        } else {
            None
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{}: {severity}: {}", self.place, self.message)
    }
}

fn list(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(|f| format!("  {f}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;

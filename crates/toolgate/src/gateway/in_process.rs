//! In-process servers, and the configuration that they are added to.
//!
//! They appear in no configuration file, so they are kept beside it and merged into every
//! configuration that is applied.

use std::collections::HashSet;
use std::time::Duration;

use toolgate_core::Config;
use toolgate_core::config::{
    DefinitionOverrides, PerSession, Protocol, ServerConfig, ServerConnection, ServerLimits,
    ServerTuning,
};
use toolgate_core::name::ServerName;
use toolgate_core::policy::{ToolList, ToolLists};
use toolgate_mcp::LocalServer;
use toolgate_mcp::registry::RegistryConfig;

use super::StartError;

/// Options of an in-process server. By default, all its tools may be called, and none of them run
/// in agent mode without an approval.
#[derive(Clone, Debug)]
pub struct LocalServerOptions {
    lists: ToolLists,
    code_mode: bool,
    allow_on_all_keys: bool,
    timeout: Option<Duration>,
}

impl Default for LocalServerOptions {
    fn default() -> Self {
        Self {
            lists: ToolLists {
                execute: ToolList::All,
                auto_execute: ToolList::none(),
            },
            code_mode: false,
            allow_on_all_keys: false,
            timeout: None,
        }
    }
}

impl LocalServerOptions {
    /// Makes models call the tools from scripts (code mode).
    #[must_use]
    pub fn code_mode(mut self) -> Self {
        self.code_mode = true;
        self
    }

    /// Sets the tools that may be called, by name; `["*"]` means all.
    #[must_use]
    pub fn tools_to_execute(mut self, tools: impl Into<ToolList>) -> Self {
        self.lists.execute = tools.into();
        self
    }

    /// Sets the tools that agent runs call without an approval, by name; `["*"]` means all.
    #[must_use]
    pub fn tools_to_auto_execute(mut self, tools: impl Into<ToolList>) -> Self {
        self.lists.auto_execute = tools.into();
        self
    }

    /// Lets keys whose grants do not mention the server use it.
    #[must_use]
    pub fn allow_on_all_keys(mut self) -> Self {
        self.allow_on_all_keys = true;
        self
    }

    /// Sets the timeout of calls; otherwise the configured `tool_execution_timeout` applies.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn into_config(self, name: &ServerName) -> ServerConfig {
        ServerConfig {
            name: name.clone(),
            id: name.to_string(),
            enabled: true,
            connection: ServerConnection::InProcess,
            protocol: Protocol::Legacy,
            lists: self.lists,
            timeout: self.timeout,
            tuning: ServerTuning::default(),
            fallback: None,
            limits: ServerLimits::default(),
            allow_on_all_keys: self.allow_on_all_keys,
            resources: true,
            approval_by: None,
            argument_check: None,
            definitions: DefinitionOverrides::default(),
            per_session: PerSession::Never,
            reconnect_wait: None,
            code_mode: self.code_mode,
        }
    }
}

/// The loaded configuration and the in-process servers.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) config: Config,
    locals: Vec<RegisteredServer>,
}

#[derive(Clone, Debug)]
struct RegisteredServer {
    server: LocalServer,
    config: ServerConfig,
}

impl Settings {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            locals: Vec::new(),
        }
    }

    pub(super) fn add_server(&mut self, server: LocalServer, options: LocalServerOptions) {
        let config = options.into_config(server.name());
        self.locals.push(RegisteredServer { server, config });
    }

    /// Removes an in-process server; returns `false` if there is none with this name.
    pub(super) fn remove_server(&mut self, name: &ServerName) -> bool {
        let count = self.locals.len();
        self.locals.retain(|local| local.server.name() != name);
        self.locals.len() < count
    }

    /// Merges the configuration with the in-process servers. Fails if two servers share a name, or one needs
    /// code mode and this build has none.
    pub(super) fn merge(&self) -> Result<Config, StartError> {
        let mut merged = self.config.clone();
        let locals = self.locals.iter().map(|local| local.config.clone());
        merged.servers.extend(locals);
        let mut names = HashSet::new();
        for server in &merged.servers {
            if !names.insert(server.name.to_folded()) {
                return Err(StartError::NameTaken(server.name.clone()));
            }
            if server.code_mode && !cfg!(feature = "code-mode") {
                return Err(StartError::CodeModeUnavailable(server.name.clone()));
            }
        }
        Ok(merged)
    }

    /// Returns the registry's part of a merged configuration.
    pub(super) fn registry_config(&self, merged: &Config) -> RegistryConfig {
        let locals = self.locals.iter().map(|local| local.server.clone());
        let mut servers = merged.servers.clone();
        // Without tools, no server is of any use.
        for server in &mut servers {
            server.enabled &= merged.tool_manager.enabled;
        }
        RegistryConfig {
            servers,
            locals: locals.collect(),
            lists: merged.security.clone(),
            style: merged.tool_name_style,
            sync_interval: merged.tool_manager.tool_sync_interval,
            health_interval: merged.tool_manager.health_interval,
            tool_timeout: merged.tool_manager.tool_execution_timeout,
            capacity: merged.capacity,
        }
    }
}

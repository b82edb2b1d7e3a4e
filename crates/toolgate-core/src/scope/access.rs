//! Access rules of the configuration, and what the caller's key and roles grant.

use std::collections::BTreeMap;

use super::filter::{CompiledFilters, Filters};
use super::gate::AccessView;
use crate::catalog::DefinitionReview;
use crate::config::{
    APPROVER_ROLE, Config, DefinitionSettings, KeyConfig, OnDefinitionChange,
    OnSuspiciousDefinition, RoleConfig, ServerConfig,
};
use crate::name::ServerName;
use crate::pattern::{Selector, SelectorMode};
use crate::policy::{Policy, Subject, ToolLists};

/// Access rules of the configuration: who may see and run which tools.
#[derive(Debug)]
pub struct AccessRules {
    pub(super) enabled: bool,
    pub(super) servers: BTreeMap<ServerName, ServerAccess>,
    names: Vec<ServerName>,
    pub(super) blocked: Vec<Selector>,
    /// Tools of each virtual server.
    virtual_servers: BTreeMap<String, Vec<Selector>>,
    pub(super) policy: Policy,
}

/// Access settings of one server.
#[derive(Debug)]
pub(super) struct ServerAccess {
    pub(super) enabled: bool,
    /// Config key that forbids connecting to the server.
    pub(super) forbidden_by: Option<&'static str>,
    pub(super) lists: ToolLists,
    pub(super) definitions: DefinitionSettings,
    /// Whether keys whose grants do not mention this server may use it.
    pub(super) on_all_keys: bool,
    /// Whether resources and prompts are visible.
    pub(super) resources: bool,
    /// Whether the tools are exposed to scripts (code mode) instead of directly to the model.
    pub(super) code_mode: bool,
}

/// The caller's properties that determine its scope.
#[derive(Clone, Debug)]
pub struct Principal {
    pub roles: Vec<String>,
    /// A tool must be covered by every one of these.
    pub grants: Vec<ToolGrant>,
    /// Whether the caller can see resources and prompts.
    pub resources: bool,
}

/// Tools granted by a key or its roles.
#[derive(Clone, Debug)]
pub struct ToolGrant {
    /// Config key of the grant, such as `keys.ci.tools`.
    pub config_key: String,
    selectors: Vec<Selector>,
}

impl ServerAccess {
    /// Returns the config key that hides a tool whose definition was reviewed like this.
    pub(super) fn hidden_by(&self, review: DefinitionReview) -> Option<&'static str> {
        let DefinitionSettings {
            on_change,
            on_suspicion,
        } = self.definitions;
        if on_change == OnDefinitionChange::Pin && !review.is_trusted {
            Some("definitions")
        } else if on_suspicion == OnSuspiciousDefinition::Block && !review.is_harmless {
            Some("definition_scan")
        } else {
            None
        }
    }
}

impl AccessRules {
    pub fn new(config: &Config) -> Self {
        let names = config.server_names();
        let server_access = |server: &ServerConfig| ServerAccess {
            enabled: server.enabled,
            forbidden_by: config.security.refusal_key(&server.name),
            lists: server.lists.clone(),
            definitions: config.definition_settings(server),
            on_all_keys: server.allow_on_all_keys,
            resources: server.resources,
            code_mode: server.code_mode,
        };
        let blocked = config.blocked_tools.iter();
        Self {
            enabled: config.tool_manager.enabled,
            servers: config
                .servers
                .iter()
                .map(|server| (server.name.clone(), server_access(server)))
                .collect(),
            blocked: blocked
                .map(|text| Selector::parse_or_none(text, &names, SelectorMode::Wide))
                .collect(),
            virtual_servers: config
                .virtual_servers
                .iter()
                .map(|server| (server.name.clone(), parse_selectors(&server.tools, &names)))
                .collect(),
            policy: config.policy(),
            names,
        }
    }

    /// Returns the view of a request by `principal` with these filters. Tool filters must be resolved
    /// with [`AccessView::resolve_filters`] before tools are judged.
    pub fn view<'a>(&'a self, principal: &'a Principal, filters: &Filters) -> AccessView<'a> {
        // Servers without any grant for the principal do not exist for its filters either.
        let known = |name: &&ServerName| {
            let access = self.servers.get(*name);
            let mut grants = principal.grants.iter();
            access.is_some_and(|access| {
                grants.all(|g| g.may_cover_server(name) || access.on_all_keys)
            })
        };
        let names: Vec<ServerName> = if filters.has_tool_filters() {
            self.names.iter().filter(known).cloned().collect()
        } else {
            Vec::new()
        };
        // A virtual server that no longer exists has no tools.
        let tools_of = |name| self.virtual_servers.get(name).cloned().unwrap_or_default();
        let virtual_server = filters.virtual_server.as_ref().map(tools_of);
        AccessView {
            rules: self,
            principal,
            filters: CompiledFilters::new(filters, &names, virtual_server),
            unmatched: Vec::new(),
        }
    }

    /// Builds the grant of the tools that these patterns name; a pattern that names no server grants
    /// nothing.
    pub fn build_grant(&self, config_key: &str, texts: &[String]) -> ToolGrant {
        ToolGrant {
            config_key: config_key.to_owned(),
            selectors: parse_selectors(texts, &self.names),
        }
    }

    /// Builds the principal of a key from the key and its roles. A role without `tools` does not
    /// restrict; a role that does not exist grants nothing.
    pub fn build_principal(&self, key: &KeyConfig, roles: &[RoleConfig]) -> Principal {
        let mut grants = Vec::new();
        if let Some(tools) = &key.tools {
            grants.push(self.build_grant(&format!("keys.{}.tools", key.name), tools));
        }
        let mut config_keys = Vec::new();
        let mut tools: Vec<String> = Vec::new();
        let mut resources = key.resources;
        for name in &key.roles {
            let role = roles.iter().find(|role| role.name == *name);
            match role.map(|role| role.tools.as_ref()) {
                Some(None) => {}
                None if name == APPROVER_ROLE => {}
                None => config_keys.push(format!("roles.{name}")),
                Some(Some(granted)) => {
                    config_keys.push(format!("roles.{name}.tools"));
                    tools.extend(granted.iter().cloned());
                }
            }
            resources &= role.is_none_or(|role| role.resources);
        }
        if !config_keys.is_empty() {
            grants.push(self.build_grant(&config_keys.join(" + "), &tools));
        }
        Principal {
            roles: key.roles.clone(),
            grants,
            resources,
        }
    }
}

/// Parses texts that grant access; those that are ambiguous or name no server grant nothing.
fn parse_selectors(texts: &[String], names: &[ServerName]) -> Vec<Selector> {
    let parse = |text: &String| Selector::parse_or_none(text, names, SelectorMode::Narrow);
    texts.iter().map(parse).collect()
}

impl Default for Principal {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            grants: Vec::new(),
            resources: true,
        }
    }
}

impl ToolGrant {
    /// Whether the grant names a server, and with it its resources and prompts.
    pub(super) fn names_server(&self, server: &ServerName) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.names_server(server))
    }

    /// Whether the grant may cover tools of a server.
    pub(super) fn may_cover_server(&self, server: &ServerName) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.may_match_server(server))
    }

    pub(super) fn covers(&self, subject: Subject<'_>, access: &ServerAccess) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.matches(subject.id))
            || (access.on_all_keys && !self.may_cover_server(&subject.id.server))
    }
}

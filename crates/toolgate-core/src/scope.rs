//! Scope: the tools that exist for a request.
//!
//! A tool must pass every `Gate`: the configuration must enable it, the caller's key and roles must
//! grant it, the request's filters must keep it, and no rule may deny it. The same gates decide and
//! explain, so an explanation always matches the decision.

mod filter;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use filter::{FilterError, Filters};

use crate::catalog::{Catalog, CatalogEntry, Resolution};
use crate::config::{Config, ServerConfig};
use crate::name::ServerName;
use crate::pattern::{Selector, SelectorMode};
use crate::policy::{Judgement, Policy, Subject, ToolList, ToolLists, Verdict};
use filter::CompiledFilters;

/// Access rules of the configuration: who may see and run which tools.
#[derive(Debug)]
pub struct AccessRules {
    enabled: bool,
    servers: BTreeMap<ServerName, ServerAccess>,
    names: Vec<ServerName>,
    blocked: Vec<Selector>,
    /// Tools of each virtual server.
    virtual_servers: BTreeMap<String, Vec<Selector>>,
    policy: Policy,
}

/// Access settings of one server.
#[derive(Debug)]
struct ServerAccess {
    enabled: bool,
    /// Config key that forbids connecting to the server.
    forbidden_by: Option<&'static str>,
    lists: ToolLists,
    /// Whether keys whose grants do not mention this server may use it.
    on_all_keys: bool,
    /// Whether resources and prompts are visible.
    resources: bool,
    /// Whether the tools are exposed to scripts (code mode) instead of directly to the model.
    code_mode: bool,
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

/// A condition that a tool must meet to be in scope, in order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Enabled,
    ServerEnabled,
    ServerAllowed,
    IncludeClients,
    ExcludeClients,
    ToolsToExecute,
    BlockedTools,
    Grants,
    IncludeTools,
    ExcludeTools,
    Rules,
}

/// Result of one gate for a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateResult {
    /// Config key, rule or header that decides, as the user wrote it.
    pub key: String,
    pub passes: bool,
    pub explanation: String,
}

/// Access rules combined with the caller and filters of one request.
#[derive(Debug)]
pub struct AccessView<'a> {
    rules: &'a AccessRules,
    principal: &'a Principal,
    filters: CompiledFilters,
}

/// The tools that exist for a request, each with its judgement.
#[derive(Debug)]
pub struct Scope {
    catalog: Arc<Catalog>,
    /// Catalog indexes and judgements, ascending by index.
    tools: Vec<(usize, Judgement)>,
    /// Servers whose tools are exposed to scripts.
    code_mode_servers: BTreeSet<ServerName>,
    /// Whether any tool in scope belongs to one of them.
    has_code_mode_tools: bool,
    /// Whether any tool may run without confirmation.
    has_auto_executable: bool,
}

impl AccessRules {
    pub fn new(config: &Config) -> Self {
        let names = config.server_names();
        let server_access = |server: &ServerConfig| ServerAccess {
            enabled: server.enabled,
            forbidden_by: config.security.refusal_key(&server.name),
            lists: server.lists.clone(),
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
                .filter_map(|text| Selector::parse_or_alias(text, &names, SelectorMode::Wide))
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

    /// Returns the view of a request by `principal` with these filters.
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
}

/// Parses texts that grant access; ambiguous ones grant nothing.
fn parse_selectors(texts: &[String], names: &[ServerName]) -> Vec<Selector> {
    let parse = |text: &String| Selector::parse_or_alias(text, names, SelectorMode::Narrow);
    texts.iter().filter_map(parse).collect()
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
    fn may_cover_server(&self, server: &ServerName) -> bool {
        self.selectors
            .iter()
            .any(|selector| selector.may_match_server(server))
    }

    fn covers(&self, subject: Subject<'_>, access: &ServerAccess) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.matches(subject.id, subject.alias))
            || (access.on_all_keys && !self.may_cover_server(&subject.id.server))
    }
}

impl Gate {
    const ALL: [Self; 11] = [
        Self::Enabled,
        Self::ServerEnabled,
        Self::ServerAllowed,
        Self::IncludeClients,
        Self::ExcludeClients,
        Self::ToolsToExecute,
        Self::BlockedTools,
        Self::Grants,
        Self::IncludeTools,
        Self::ExcludeTools,
        Self::Rules,
    ];
}

impl AccessView<'_> {
    /// Judges a tool; `None` if it does not exist for this request.
    pub fn judge(&self, subject: Subject<'_>) -> Option<Judgement> {
        let access = self.rules.servers.get(&subject.id.server)?;
        // The rules gate is evaluated last and yields the judgement itself.
        let gates = Gate::ALL.iter();
        let before_rules = gates.filter(|gate| **gate != Gate::Rules);
        for gate in before_rules {
            if !self.passes(*gate, subject, access) {
                return None;
            }
        }
        self.judge_by_rules(subject, access)
    }

    /// Whether the resources and prompts of a server exist for this request.
    pub fn can_see_resources(&self, server: &ServerName) -> bool {
        let access = self.server_access(server);
        access.is_some_and(|access| access.resources && self.principal.resources)
    }

    /// Whether any part of a server may exist for this request, connected or not.
    pub fn can_see_server(&self, server: &ServerName) -> bool {
        let access = self.server_access(server);
        let has_tools = access.is_some_and(|access| access.lists.execute != ToolList::none());
        has_tools || self.can_see_resources(server)
    }

    /// Access settings of a server, if it exists for this request.
    fn server_access(&self, server: &ServerName) -> Option<&ServerAccess> {
        let access = self.rules.servers.get(server)?;
        let mut grants = self.principal.grants.iter();
        let is_visible = self.rules.enabled
            && access.enabled
            && access.forbidden_by.is_none()
            && self.filters.includes_client(server)
            && !self.filters.excludes_client(server)
            && grants.all(|grant| grant.may_cover_server(server) || access.on_all_keys);
        is_visible.then_some(access)
    }

    /// Explains the result of every gate for a tool.
    pub fn explain(&self, subject: Subject<'_>) -> Vec<GateResult> {
        let Some(access) = self.rules.servers.get(&subject.id.server) else {
            return vec![GateResult {
                key: "mcp_servers".to_owned(),
                passes: false,
                explanation: format!("no server named `{}`", subject.id.server),
            }];
        };
        Gate::ALL
            .iter()
            .map(|gate| self.explain_gate(*gate, subject, access))
            .collect()
    }

    fn judge_by_rules(&self, subject: Subject<'_>, access: &ServerAccess) -> Option<Judgement> {
        let policy = &self.rules.policy;
        let judgement = policy.judge(subject, &self.principal.roles, &access.lists)?;
        (!judgement.is_hidden()).then_some(judgement)
    }

    fn passes(&self, gate: Gate, subject: Subject<'_>, access: &ServerAccess) -> bool {
        let Subject { id, alias, .. } = subject;
        match gate {
            Gate::Enabled => self.rules.enabled,
            Gate::ServerEnabled => access.enabled,
            Gate::ServerAllowed => access.forbidden_by.is_none(),
            Gate::IncludeClients => self.filters.includes_client(&id.server),
            Gate::ExcludeClients => !self.filters.excludes_client(&id.server),
            Gate::ToolsToExecute => access.lists.execute.contains(id.tool.as_str()),
            Gate::BlockedTools => !self.rules.blocked.iter().any(|s| s.matches(id, alias)),
            Gate::Grants => {
                let mut grants = self.principal.grants.iter();
                grants.all(|grant| grant.covers(subject, access))
            }
            Gate::IncludeTools => self.filters.includes_tool(id, alias),
            Gate::ExcludeTools => !self.filters.excludes_tool(id, alias),
            Gate::Rules => self.judge_by_rules(subject, access).is_some(),
        }
    }

    fn explain_gate(&self, gate: Gate, subject: Subject<'_>, access: &ServerAccess) -> GateResult {
        let passes = self.passes(gate, subject, access);
        let choose = |yes: &str, no: &str| if passes { yes } else { no }.to_owned();
        let tool = &subject.id.tool;
        let (key, explanation) = match gate {
            Gate::Enabled => (
                "mcp.enabled".to_owned(),
                choose("tools are enabled", "tools are disabled for everyone"),
            ),
            Gate::ServerEnabled => (
                "enabled".to_owned(),
                choose("the server is enabled", "the server is disabled"),
            ),
            Gate::ServerAllowed => (
                access.forbidden_by.unwrap_or("security").to_owned(),
                choose(
                    "connecting to the server is allowed",
                    "connecting to the server is forbidden",
                ),
            ),
            Gate::IncludeClients
            | Gate::ExcludeClients
            | Gate::IncludeTools
            | Gate::ExcludeTools => {
                let header = gate.header();
                let sent = self.filters.header_text(header);
                let explanation = match (sent, passes) {
                    (None, _) => "not sent".to_owned(),
                    (Some(text), true) => format!("`{text}` keeps it"),
                    (Some(text), false) => format!("`{text}` removes it"),
                };
                (header.to_owned(), explanation)
            }
            Gate::ToolsToExecute => (
                "tools_to_execute".to_owned(),
                if passes {
                    format!("`{tool}` is listed")
                } else {
                    format!("`{tool}` is not listed")
                },
            ),
            Gate::BlockedTools => (
                "mcp.blocked_tools".to_owned(),
                choose("not blocked", "blocked for everyone"),
            ),
            Gate::Grants => self.explain_grants(subject, access),
            Gate::Rules => self.explain_rules(subject, access),
        };
        GateResult {
            key,
            passes,
            explanation,
        }
    }

    fn explain_grants(&self, subject: Subject<'_>, access: &ServerAccess) -> (String, String) {
        let grants = &self.principal.grants;
        let refusing = grants.iter().find(|grant| !grant.covers(subject, access));
        match (refusing, grants.is_empty()) {
            (Some(grant), _) => (grant.config_key.clone(), "does not grant it".to_owned()),
            (None, true) => (
                "keys".to_owned(),
                "neither the key nor its roles restrict tools".to_owned(),
            ),
            (None, false) => {
                let keys: Vec<&str> = grants
                    .iter()
                    .map(|grant| grant.config_key.as_str())
                    .collect();
                (keys.join(", "), "grants it".to_owned())
            }
        }
    }

    fn explain_rules(&self, subject: Subject<'_>, access: &ServerAccess) -> (String, String) {
        let roles = &self.principal.roles;
        let judgement = self.rules.policy.judge(subject, roles, &access.lists);
        let Some(judgement) = judgement else {
            return ("permissions".to_owned(), "not evaluated".to_owned());
        };
        let decision = judgement.decision();
        let mut explanation = match decision.verdict {
            Verdict::Allow => "allow: runs without confirmation".to_owned(),
            Verdict::Manual => "manual: the caller decides".to_owned(),
            Verdict::Ask => "ask: an approver decides".to_owned(),
            Verdict::Deny if judgement.is_hidden() => "deny: the tool does not exist".to_owned(),
            Verdict::Deny => "deny".to_owned(),
        };
        if judgement.depends_on_arguments() {
            explanation.push_str("; rules on arguments may decide differently");
        }
        (decision.decided_by.to_string(), explanation)
    }
}

impl Gate {
    fn header(self) -> &'static str {
        match self {
            Self::IncludeClients => Filters::INCLUDE_CLIENTS,
            Self::ExcludeClients => Filters::EXCLUDE_CLIENTS,
            Self::IncludeTools => Filters::INCLUDE_TOOLS,
            _ => Filters::EXCLUDE_TOOLS,
        }
    }
}

impl Scope {
    /// Builds the scope by judging every tool of the catalog.
    pub fn build(view: &AccessView<'_>, catalog: Arc<Catalog>) -> Result<Self, FilterError> {
        let entries = catalog.tools().iter();
        let tools: Vec<(usize, Judgement)> = entries
            .filter_map(|entry| Some((entry.index, view.judge(entry.into())?)))
            .collect();
        let code_mode_servers: BTreeSet<_> = view
            .rules
            .servers
            .iter()
            .filter(|(_, access)| access.code_mode)
            .map(|(name, _)| name.clone())
            .collect();
        let all = catalog.tools();
        let mut seen = tools.iter().map(|(index, _)| &all[*index].tool.id.server);
        let scope = Self {
            has_code_mode_tools: !code_mode_servers.is_empty()
                && seen.any(|server| code_mode_servers.contains(server)),
            has_auto_executable: tools.iter().any(|(_, judgement)| judgement.can_allow()),
            code_mode_servers,
            catalog,
            tools,
        };
        view.filters
            .check_ambiguous(|alias| scope.has_alias(alias))?;
        Ok(scope)
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub fn len(&self) -> usize {
        self.tools.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether some call of a tool in scope may run without confirmation.
    pub fn has_auto_executable(&self) -> bool {
        self.has_auto_executable
    }

    /// All tools in scope, in the catalog's order.
    pub fn tools(&self) -> impl Iterator<Item = (&CatalogEntry, &Judgement)> {
        let all = self.catalog.tools();
        self.tools
            .iter()
            .map(|(index, judgement)| (&all[*index], judgement))
    }

    /// Tools exposed directly to the model.
    pub fn direct_tools(&self) -> impl Iterator<Item = (&CatalogEntry, &Judgement)> {
        self.tools()
            .filter(|(entry, _)| !self.is_code_mode_tool(entry))
    }

    /// Tools exposed to scripts.
    pub fn code_mode_tools(&self) -> impl Iterator<Item = (&CatalogEntry, &Judgement)> {
        let tools = self
            .has_code_mode_tools
            .then(|| self.tools())
            .into_iter()
            .flatten();
        tools.filter(|(entry, _)| self.is_code_mode_tool(entry))
    }

    /// Whether any tool in scope is exposed to scripts.
    pub fn has_code_mode_tools(&self) -> bool {
        self.has_code_mode_tools
    }

    /// Servers configured for code mode, whether or not they have tools in scope.
    pub fn code_mode_servers(&self) -> impl Iterator<Item = &ServerName> {
        self.code_mode_servers.iter()
    }

    /// Whether a tool, if in scope, is exposed to scripts.
    pub fn is_code_mode_tool(&self, entry: &CatalogEntry) -> bool {
        self.code_mode_servers.contains(&entry.tool.id.server)
    }

    pub fn judgement(&self, entry: &CatalogEntry) -> Option<&Judgement> {
        let found = self
            .tools
            .binary_search_by_key(&entry.index, |(index, _)| *index);
        found.ok().map(|index| &self.tools[index].1)
    }

    /// Looks up a tool by name among those in scope.
    pub fn resolve(&self, name: &str) -> Resolution<'_> {
        self.catalog
            .resolve(name, |entry| self.judgement(entry).is_some())
    }

    fn has_alias(&self, alias: &str) -> bool {
        matches!(self.resolve(alias), Resolution::Found(entry) if *entry.alias == *alias)
    }
}

#[cfg(test)]
mod tests;

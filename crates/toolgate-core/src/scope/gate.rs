//! The gates that a tool must pass. The same gates decide and explain. Resources and prompts of a
//! server must pass those that apply to the whole server.

use super::access::{AccessRules, Principal, ServerAccess};
use super::filter::{CompiledFilters, FilterError, Filters, UnmatchedFilter};
use crate::catalog::{Catalog, CatalogEntry};
use crate::name::ServerName;
use crate::policy::{Decision, Judgement, ServerItem, Subject, ToolList, Verdict};

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
    Definition,
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
    pub(super) rules: &'a AccessRules,
    pub(super) principal: &'a Principal,
    pub(super) filters: CompiledFilters,
    pub(super) unmatched: Vec<UnmatchedFilter>,
}

impl Gate {
    const ALL: [Self; 12] = [
        Self::Enabled,
        Self::ServerEnabled,
        Self::ServerAllowed,
        Self::IncludeClients,
        Self::ExcludeClients,
        Self::ToolsToExecute,
        Self::BlockedTools,
        Self::Definition,
        Self::Grants,
        Self::IncludeTools,
        Self::ExcludeTools,
        Self::Rules,
    ];

    /// Returns the request header that the gate applies.
    fn header(self) -> &'static str {
        match self {
            Self::IncludeClients => Filters::INCLUDE_CLIENTS,
            Self::ExcludeClients => Filters::EXCLUDE_CLIENTS,
            Self::IncludeTools => Filters::INCLUDE_TOOLS,
            _ => Filters::EXCLUDE_TOOLS,
        }
    }
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

    /// Resolves the tool filters against the tools that exist for the caller. Fails if a name in
    /// `include-tools` matches tools of several servers.
    pub fn resolve_filters(mut self, catalog: &Catalog) -> Result<Self, FilterError> {
        if self.filters.has_names() {
            let existing = self.tools_before_tool_filters(catalog);
            self.filters.resolve(&existing)?;
            let servers = self.rules.servers.keys();
            let servers: Vec<&ServerName> = servers
                .filter(|server| self.may_know_server(server))
                .collect();
            self.unmatched = self.filters.find_unmatched(&existing, &servers);
        }
        Ok(self)
    }

    /// Names in the filters that match nothing that exists for the caller, once resolved.
    pub fn unmatched_filters(&self) -> &[UnmatchedFilter] {
        &self.unmatched
    }

    /// Tools that would be in scope without tool filters.
    fn tools_before_tool_filters<'c>(&self, catalog: &'c Catalog) -> Vec<&'c CatalogEntry> {
        let passes = |entry: &&CatalogEntry| {
            let subject: Subject<'_> = (*entry).into();
            let Some(access) = self.rules.servers.get(&subject.id.server) else {
                return false;
            };
            let gates = Gate::ALL.iter();
            gates
                .filter(|gate| !matches!(gate, Gate::IncludeTools | Gate::ExcludeTools))
                .all(|gate| self.passes(*gate, subject, access))
        };
        catalog.tools().iter().filter(passes).collect()
    }

    /// Judges a resource or prompt; `None` if it does not exist for this request.
    pub fn judge_item(&self, item: ServerItem<'_>) -> Option<Decision> {
        if !self.can_see_resources(item.server()) {
            return None;
        }
        let policy = &self.rules.policy;
        let decision = policy.judge_item(item, &self.principal.roles);
        (decision.verdict < Verdict::Deny).then_some(decision)
    }

    /// Whether resources and prompts of a server exist for this request. What hides a whole server
    /// from it hides them too.
    pub fn can_see_resources(&self, server: &ServerName) -> bool {
        let mut grants = self.principal.grants.iter();
        let access = self.server_access(server);
        let mut blocked = self.rules.blocked.iter();
        let policy = &self.rules.policy;
        access.is_some_and(|access| {
            access.resources
                && self.principal.resources
                && grants.all(|grant| grant.names_server(server) || access.on_all_keys)
        }) && self.filters.includes_resources(server)
            && self.filters.keeps_part_of(server)
            && !blocked.any(|selector| selector.covers_server(server))
            && policy.may_show_items(server, &self.principal.roles)
    }

    /// Whether any part of a server may exist for this request, connected or not.
    pub fn can_see_server(&self, server: &ServerName) -> bool {
        let access = self.server_access(server);
        let has_tools = access.is_some_and(|access| access.lists.execute != ToolList::none());
        has_tools || self.can_see_resources(server)
    }

    /// Whether tools of a server may exist for this request, connected or not. What hides the whole server hides
    /// them all.
    pub fn may_have_tools(&self, server: &ServerName) -> bool {
        let access = self.server_access(server);
        let has_tools = access.is_some_and(|access| access.lists.execute != ToolList::none());
        let mut blocked = self.rules.blocked.iter();
        has_tools
            && self.filters.includes_resources(server)
            && self.filters.keeps_part_of(server)
            && !blocked.any(|selector| selector.covers_server(server))
            && self
                .rules
                .policy
                .may_show_tools(server, &self.principal.roles)
    }

    /// Access settings of a server, if it exists for this request.
    fn server_access(&self, server: &ServerName) -> Option<&ServerAccess> {
        let access = self.rules.servers.get(server)?;
        let is_visible = self.may_know_server(server)
            && self.filters.includes_client(server)
            && !self.filters.excludes_client(server);
        is_visible.then_some(access)
    }

    /// Whether any part of a server may exist for the caller, whatever the filters.
    fn may_know_server(&self, server: &ServerName) -> bool {
        let mut grants = self.principal.grants.iter();
        self.rules.servers.get(server).is_some_and(|access| {
            self.rules.enabled
                && access.enabled
                && access.forbidden_by.is_none()
                && grants.all(|grant| grant.may_cover_server(server) || access.on_all_keys)
        })
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
        let id = subject.id;
        match gate {
            Gate::Enabled => self.rules.enabled,
            Gate::ServerEnabled => access.enabled,
            Gate::ServerAllowed => access.forbidden_by.is_none(),
            Gate::IncludeClients => self.filters.includes_client(&id.server),
            Gate::ExcludeClients => !self.filters.excludes_client(&id.server),
            Gate::ToolsToExecute => access.lists.execute.contains(id.tool.as_str()),
            Gate::BlockedTools => !self.rules.blocked.iter().any(|s| s.matches(id)),
            Gate::Definition => access.hidden_by(subject.review).is_none(),
            Gate::Grants => {
                let mut grants = self.principal.grants.iter();
                grants.all(|grant| grant.covers(subject, access))
            }
            Gate::IncludeTools => self.filters.includes_tool(id),
            Gate::ExcludeTools => !self.filters.excludes_tool(id),
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
            Gate::Definition => (
                access
                    .hidden_by(subject.review)
                    .unwrap_or("definitions")
                    .to_owned(),
                choose(
                    "the definition may be shown",
                    "the definition waits for an administrator's trust; see `/api/mcp/definitions`",
                ),
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

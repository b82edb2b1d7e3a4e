//! Scope: which tools exist for a request.
//!
//! A tool must pass every `Gate`: what the configuration opens, what the caller's key and roles
//! grant, what the request's own filters leave, and no rule that denies it. The same gates decide
//! and explain, so that an explanation is never about something else.

mod filter;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use filter::{FilterError, Filters};

use crate::catalog::{Catalog, Entry, Resolution};
use crate::config::{Config, Server};
use crate::name::ServerName;
use crate::pattern::{Reading, Selector};
use crate::policy::{Judgement, Policy, Subject, ToolList, ToolLists, Verdict};
use filter::Sieve;

/// What the configuration says about who sees and runs what.
#[derive(Debug)]
pub struct Access {
    enabled: bool,
    servers: BTreeMap<ServerName, Opening>,
    names: Vec<ServerName>,
    blocked: Vec<Selector>,
    /// The tools of each virtual server.
    virtual_servers: BTreeMap<String, Vec<Selector>>,
    policy: Policy,
}

/// How far one server is open.
#[derive(Debug)]
struct Opening {
    enabled: bool,
    /// The config key that keeps it from being connected.
    refused: Option<&'static str>,
    lists: ToolLists,
    /// Whether keys that say nothing of this server may use it.
    on_all_keys: bool,
    /// Whether resources and prompts are shown.
    resources: bool,
    /// Whether its tools are shown to scripts instead of each to the model.
    code_mode: bool,
}

/// Who asks, as far as scopes go.
#[derive(Clone, Debug)]
pub struct Principal {
    pub roles: Vec<String>,
    /// Each must admit a tool.
    pub grants: Vec<Grant>,
    /// Whether it sees resources and prompts.
    pub resources: bool,
}

/// Tools that a key or its roles open.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The config key that says so: `keys.ci.tools`.
    pub place: String,
    selectors: Vec<Selector>,
}

/// A condition that a tool must meet to be in scope, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Enabled,
    ServerEnabled,
    ServerLists,
    IncludeClients,
    ExcludeClients,
    ToolsToExecute,
    BlockedTools,
    Grants,
    IncludeTools,
    ExcludeTools,
    Rules,
}

/// What one gate says of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The config key, rule or header that decides, as the user wrote it.
    pub key: String,
    pub passes: bool,
    pub says: String,
}

/// The configuration as one request sees it.
#[derive(Debug)]
pub struct Lens<'a> {
    access: &'a Access,
    principal: &'a Principal,
    sieve: Sieve,
}

/// The tools that exist for a request, and what is said of each.
#[derive(Debug)]
pub struct Scope {
    catalog: Arc<Catalog>,
    /// Places in the catalog, ascending.
    tools: Vec<(usize, Judgement)>,
    /// Servers whose tools are shown to scripts.
    in_code: BTreeSet<ServerName>,
    /// Whether one of the tools is.
    has_code: bool,
    /// Whether one of them may run unasked.
    has_unasked: bool,
}

impl Access {
    pub fn new(config: &Config) -> Self {
        let names = config.server_names();
        let opening = |server: &Server| Opening {
            enabled: server.enabled,
            refused: config.security.refuses(&server.name),
            lists: server.lists.clone(),
            on_all_keys: server.on_all_keys,
            resources: server.resources,
            code_mode: server.code_mode,
        };
        let blocked = config.blocked_tools.iter();
        Self {
            enabled: config.tool_manager.enabled,
            servers: config
                .servers
                .iter()
                .map(|server| (server.name.clone(), opening(server)))
                .collect(),
            blocked: blocked
                .filter_map(|text| Selector::meant(text, &names, Reading::Wide))
                .collect(),
            virtual_servers: config
                .virtual_servers
                .iter()
                .map(|server| (server.name.clone(), selectors(&server.tools, &names)))
                .collect(),
            policy: config.policy(),
            names,
        }
    }

    /// What a request of `principal` with these filters sees.
    pub fn lens<'a>(&'a self, principal: &'a Principal, filters: &Filters) -> Lens<'a> {
        // Servers that the principal has nothing of do not exist for its filters either.
        let known = |name: &&ServerName| {
            let opening = self.servers.get(*name);
            let mut grants = principal.grants.iter();
            opening.is_some_and(|opening| grants.all(|g| g.names(name) || opening.on_all_keys))
        };
        let names: Vec<ServerName> = match filters.names_tools() {
            true => self.names.iter().filter(known).cloned().collect(),
            false => Vec::new(),
        };
        // One that is gone has no tools.
        let within = filters.virtual_server.as_ref();
        let within = within.map(|name| self.virtual_servers.get(name).cloned());
        let within = within.map(Option::unwrap_or_default);
        Lens {
            access: self,
            principal,
            sieve: Sieve::new(filters, &names, within),
        }
    }

    /// A grant of the tools that these texts name; those that name no server grant nothing.
    pub fn grant(&self, place: &str, texts: &[String]) -> Grant {
        Grant {
            place: place.to_owned(),
            selectors: selectors(texts, &self.names),
        }
    }
}

/// What texts open; those that are not clear open nothing.
fn selectors(texts: &[String], names: &[ServerName]) -> Vec<Selector> {
    let read = |text: &String| Selector::meant(text, names, Reading::Narrow);
    texts.iter().filter_map(read).collect()
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

impl Grant {
    fn names(&self, server: &ServerName) -> bool {
        self.selectors.iter().any(|selector| selector.names(server))
    }

    fn admits(&self, subject: Subject<'_>, opening: &Opening) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.matches(subject.id, subject.alias))
            || (opening.on_all_keys && !self.names(&subject.id.server))
    }
}

impl Gate {
    const ALL: [Self; 11] = [
        Self::Enabled,
        Self::ServerEnabled,
        Self::ServerLists,
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

impl Lens<'_> {
    /// What is said of a tool that exists for this request; none for one that does not.
    pub fn judge(&self, subject: Subject<'_>) -> Option<Judgement> {
        let opening = self.access.servers.get(&subject.id.server)?;
        let gates = Gate::ALL.iter();
        let before_rules = gates.filter(|gate| **gate != Gate::Rules);
        for gate in before_rules {
            if !self.passes(*gate, subject, opening) {
                return None;
            }
        }
        self.ruled(subject, opening)
    }

    /// Whether the resources and prompts of a server exist for this request.
    pub fn sees_resources(&self, server: &ServerName) -> bool {
        let opening = self.opening(server);
        opening.is_some_and(|opening| opening.resources && self.principal.resources)
    }

    /// Whether any part of a server may exist for this request, be it up or not.
    pub fn sees(&self, server: &ServerName) -> bool {
        let opening = self.opening(server);
        let has_tools = opening.is_some_and(|opening| opening.lists.execute != ToolList::none());
        has_tools || self.sees_resources(server)
    }

    /// How far a server is open, if this request has anything of it.
    fn opening(&self, server: &ServerName) -> Option<&Opening> {
        let opening = self.access.servers.get(server)?;
        let mut grants = self.principal.grants.iter();
        let open = self.access.enabled
            && opening.enabled
            && opening.refused.is_none()
            && self.sieve.includes_client(server)
            && !self.sieve.excludes_client(server)
            && grants.all(|grant| grant.names(server) || opening.on_all_keys);
        open.then_some(opening)
    }

    /// What every gate says of a tool.
    pub fn explain(&self, subject: Subject<'_>) -> Vec<Step> {
        let Some(opening) = self.access.servers.get(&subject.id.server) else {
            return vec![Step {
                key: "mcp_servers".to_owned(),
                passes: false,
                says: format!("no server is called `{}`", subject.id.server),
            }];
        };
        Gate::ALL
            .iter()
            .map(|gate| self.step(*gate, subject, opening))
            .collect()
    }

    fn ruled(&self, subject: Subject<'_>, opening: &Opening) -> Option<Judgement> {
        let policy = &self.access.policy;
        let judgement = policy.judge(subject, &self.principal.roles, &opening.lists)?;
        (!judgement.is_hidden()).then_some(judgement)
    }

    fn passes(&self, gate: Gate, subject: Subject<'_>, opening: &Opening) -> bool {
        let Subject { id, alias, .. } = subject;
        match gate {
            Gate::Enabled => self.access.enabled,
            Gate::ServerEnabled => opening.enabled,
            Gate::ServerLists => opening.refused.is_none(),
            Gate::IncludeClients => self.sieve.includes_client(&id.server),
            Gate::ExcludeClients => !self.sieve.excludes_client(&id.server),
            Gate::ToolsToExecute => opening.lists.execute.contains(id.tool.as_str()),
            Gate::BlockedTools => !self.access.blocked.iter().any(|s| s.matches(id, alias)),
            Gate::Grants => {
                let mut grants = self.principal.grants.iter();
                grants.all(|grant| grant.admits(subject, opening))
            }
            Gate::IncludeTools => self.sieve.includes_tool(id, alias),
            Gate::ExcludeTools => !self.sieve.excludes_tool(id, alias),
            Gate::Rules => self.ruled(subject, opening).is_some(),
        }
    }

    fn step(&self, gate: Gate, subject: Subject<'_>, opening: &Opening) -> Step {
        let passes = self.passes(gate, subject, opening);
        let or = |yes: &str, no: &str| if passes { yes } else { no }.to_owned();
        let tool = &subject.id.tool;
        let (key, says) = match gate {
            Gate::Enabled => (
                "mcp.enabled".to_owned(),
                or("tools are on", "tools are off for everyone"),
            ),
            Gate::ServerEnabled => (
                "enabled".to_owned(),
                or("the server is enabled", "the server is disabled"),
            ),
            Gate::ServerLists => (
                opening.refused.unwrap_or("security").to_owned(),
                or(
                    "the server may be connected",
                    "the server may not be connected",
                ),
            ),
            Gate::IncludeClients
            | Gate::ExcludeClients
            | Gate::IncludeTools
            | Gate::ExcludeTools => {
                let header = gate.header();
                let sent = self.sieve.was_sent(header);
                let says = match (sent, passes) {
                    (None, _) => "not sent".to_owned(),
                    (Some(text), true) => format!("`{text}` leaves it"),
                    (Some(text), false) => format!("`{text}` takes it away"),
                };
                (header.to_owned(), says)
            }
            Gate::ToolsToExecute => (
                "tools_to_execute".to_owned(),
                match passes {
                    true => format!("`{tool}` is listed"),
                    false => format!("`{tool}` is not listed"),
                },
            ),
            Gate::BlockedTools => (
                "mcp.blocked_tools".to_owned(),
                or("not blocked", "blocked for everyone"),
            ),
            Gate::Grants => self.grants_say(subject, opening),
            Gate::Rules => self.rules_say(subject, opening),
        };
        Step { key, passes, says }
    }

    fn grants_say(&self, subject: Subject<'_>, opening: &Opening) -> (String, String) {
        let grants = &self.principal.grants;
        let refusing = grants.iter().find(|grant| !grant.admits(subject, opening));
        match (refusing, grants.is_empty()) {
            (Some(grant), _) => (grant.place.clone(), "does not grant it".to_owned()),
            (None, true) => (
                "keys".to_owned(),
                "neither key nor roles restrict tools".to_owned(),
            ),
            (None, false) => {
                let places: Vec<&str> = grants.iter().map(|grant| grant.place.as_str()).collect();
                (places.join(", "), "grants it".to_owned())
            }
        }
    }

    fn rules_say(&self, subject: Subject<'_>, opening: &Opening) -> (String, String) {
        let roles = &self.principal.roles;
        let judgement = self.access.policy.judge(subject, roles, &opening.lists);
        let Some(judgement) = judgement else {
            return ("permissions".to_owned(), "not asked".to_owned());
        };
        let decision = judgement.decision();
        let mut says = match decision.verdict {
            Verdict::Allow => "allow: runs unasked".to_owned(),
            Verdict::Manual => "manual: the caller decides".to_owned(),
            Verdict::Ask => "ask: an approver decides".to_owned(),
            Verdict::Deny if judgement.is_hidden() => "deny: does not exist".to_owned(),
            Verdict::Deny => "deny".to_owned(),
        };
        if judgement.depends_on_arguments() {
            says.push_str("; rules on arguments may decide otherwise");
        }
        (decision.because.to_string(), says)
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
    /// Looks at every tool through the lens.
    pub fn build(lens: &Lens<'_>, catalog: Arc<Catalog>) -> Result<Self, FilterError> {
        let entries = catalog.tools().iter();
        let tools: Vec<(usize, Judgement)> = entries
            .filter_map(|entry| Some((entry.index, lens.judge(entry.into())?)))
            .collect();
        let openings = lens.access.servers.iter();
        let in_code = openings.filter(|(_, opening)| opening.code_mode);
        let in_code: BTreeSet<_> = in_code.map(|(name, _)| name.clone()).collect();
        let all = catalog.tools();
        let mut seen = tools.iter().map(|(at, _)| &all[*at].tool.id.server);
        let scope = Self {
            has_code: !in_code.is_empty() && seen.any(|server| in_code.contains(server)),
            has_unasked: tools.iter().any(|(_, judgement)| judgement.may_allow()),
            in_code,
            catalog,
            tools,
        };
        lens.sieve.check(|alias| scope.has_alias(alias))?;
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

    /// Whether a call of some tool may run unasked.
    pub fn has_unasked(&self) -> bool {
        self.has_unasked
    }

    /// All tools in scope, in the catalog's order.
    pub fn tools(&self) -> impl Iterator<Item = (&Entry, &Judgement)> {
        let all = self.catalog.tools();
        self.tools
            .iter()
            .map(|(at, judgement)| (&all[*at], judgement))
    }

    /// The tools that are shown each by itself.
    pub fn direct(&self) -> impl Iterator<Item = (&Entry, &Judgement)> {
        self.tools().filter(|(entry, _)| !self.is_in_code(entry))
    }

    /// The tools that are shown to scripts.
    pub fn in_code(&self) -> impl Iterator<Item = (&Entry, &Judgement)> {
        let tools = self.has_code.then(|| self.tools()).into_iter().flatten();
        tools.filter(|(entry, _)| self.is_in_code(entry))
    }

    /// Whether any tool is shown to scripts.
    pub fn has_code(&self) -> bool {
        self.has_code
    }

    /// The servers whose tools are shown to scripts, whether there are any or not.
    pub fn scripted_servers(&self) -> impl Iterator<Item = &ServerName> {
        self.in_code.iter()
    }

    /// Whether a tool is shown to scripts, if it is shown at all.
    pub fn is_in_code(&self, entry: &Entry) -> bool {
        self.in_code.contains(&entry.tool.id.server)
    }

    pub fn judgement(&self, entry: &Entry) -> Option<&Judgement> {
        let found = self.tools.binary_search_by_key(&entry.index, |(at, _)| *at);
        found.ok().map(|at| &self.tools[at].1)
    }

    /// Finds the tool that a name stands for, among those in scope.
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

//! Names in grants, rules and lists that refer to nothing.
//!
//! Such a name is an error where it was just written. Where the server or tool went away later, it
//! stays a problem that the gateway shows until someone removes it; it never grants anything.

use std::fmt;

use crate::catalog::{Catalog, ServerListing};
use crate::config::{Config, ServerConfig};
use crate::name::ServerName;
use crate::pattern::{Selector, SelectorMode};
use crate::policy::{RuleSpec, ToolList, Verdict};

/// A name that refers to nothing, or a list that lets nothing through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameProblem {
    pub owner: NameOwner,
    /// The name as written, or the key of the list.
    pub name: String,
    pub reason: String,
}

/// Part of the configuration that contains a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOwner {
    Key(String),
    Role(String),
    VirtualServer(String),
    /// Permission rule, by its config key.
    Rule(String),
    BlockedTools,
    Allowlist,
    /// Tool lists of a server.
    Server(ServerName),
}

impl NameProblem {
    /// Whether `before`, the problems of an earlier configuration, contains this one. Rules have no
    /// names, so they are compared by what they name.
    pub fn is_in(&self, before: &[Self]) -> bool {
        before.iter().any(|other| {
            let is_rule = |owner: &NameOwner| matches!(owner, NameOwner::Rule(_));
            let same_owner =
                self.owner == other.owner || (is_rule(&self.owner) && is_rule(&other.owner));
            same_owner && self.name == other.name && self.reason == other.reason
        })
    }
}

impl Config {
    /// Finds names of servers that are not configured, and of tools that a server does not offer.
    /// Tools are checked for the servers that have a listing in the catalog.
    pub fn find_name_problems(&self, catalog: &Catalog) -> Vec<NameProblem> {
        let names = self.server_names();
        let check = NameCheck {
            names: &names,
            catalog,
        };
        let mut problems = Vec::new();
        for key in &self.keys {
            let owner = NameOwner::Key(key.name.clone());
            problems.extend(check.grants(&owner, key.tools.as_deref()));
        }
        for role in &self.roles {
            let owner = NameOwner::Role(role.name.clone());
            problems.extend(check.grants(&owner, role.tools.as_deref()));
        }
        for server in &self.virtual_servers {
            let owner = NameOwner::VirtualServer(server.name.clone());
            problems.extend(check.grants(&owner, Some(&server.tools)));
        }
        for text in &self.blocked_tools {
            let reason = check.check_text(text, SelectorMode::Wide);
            problems.extend(reason.map(|reason| NameProblem {
                owner: NameOwner::BlockedTools,
                name: text.clone(),
                reason,
            }));
        }
        problems.extend(self.permissions.rules.iter().filter_map(|r| check.rule(r)));
        for name in self.security.allow.iter().flatten() {
            if names.iter().all(|known| known.as_str() != name) {
                problems.push(NameProblem {
                    owner: NameOwner::Allowlist,
                    name: name.clone(),
                    reason: format!("no server named `{name}`"),
                });
            }
        }
        for server in &self.servers {
            let listing = catalog.listing(&server.name);
            problems.extend(server.find_list_problems(listing.map(|listing| &**listing)));
        }
        problems
    }

    /// Returns the servers of which a list, grant or rule names single tools or prompts.
    pub fn servers_with_named_tools(&self) -> Vec<&ServerConfig> {
        let names = self.server_names();
        let keys = self.keys.iter().filter_map(|key| key.tools.as_ref());
        let roles = self.roles.iter().filter_map(|role| role.tools.as_ref());
        let virtual_servers = self.virtual_servers.iter().map(|server| &server.tools);
        let texts = keys.chain(roles).chain(virtual_servers).flatten();
        let texts = texts.chain(&self.blocked_tools);
        let mut selectors: Vec<Selector> = texts
            .map(|text| Selector::parse_or_none(text, &names, SelectorMode::Wide))
            .collect();
        let rules = self.permissions.rules.iter();
        selectors.extend(rules.map(|rule| rule.selector(&names)));
        selectors.retain(Selector::is_exact);
        let rules = self.permissions.rules.iter();
        let prompts: Vec<(&str, &str)> = rules.filter_map(RuleSpec::exact_prompt).collect();
        let has_names = |list: &ToolList| *list != ToolList::All && *list != ToolList::none();
        let is_named = |server: &&ServerConfig| {
            let (mut selectors, mut prompts) = (selectors.iter(), prompts.iter());
            has_names(&server.lists.execute)
                || has_names(&server.lists.auto_execute)
                || prompts.any(|(name, _)| *name == server.name.as_str())
                || selectors.any(|selector| selector.may_match_server(&server.name))
        };
        self.servers.iter().filter(is_named).collect()
    }
}

impl ServerConfig {
    /// Finds tools in the server's lists that it does not offer, and lists that let nothing through.
    /// Tools are checked if there is a listing.
    pub fn find_list_problems(&self, listing: Option<&ServerListing>) -> Vec<NameProblem> {
        let problem = |name: &str, reason: String| NameProblem {
            owner: NameOwner::Server(self.name.clone()),
            name: name.to_owned(),
            reason,
        };
        let mut problems = Vec::new();
        if let Some(reason) = self.lists.describe_empty() {
            problems.push(problem("tools_to_execute", reason.to_owned()));
        }
        let Some(listing) = listing else {
            return problems;
        };
        for (key, list) in [
            ("tools_to_execute", &self.lists.execute),
            ("tools_to_auto_execute", &self.lists.auto_execute),
        ] {
            let ToolList::Only(names) = list else {
                continue;
            };
            let is_unknown = |name: &&String| {
                let mut tools = listing.tools.iter();
                tools.all(|tool| tool.id.tool.as_str() != name.as_str())
            };
            for name in names.iter().filter(is_unknown) {
                let reason =
                    format!("`{key}` names `{name}`, a tool that the server does not have");
                problems.push(problem(name, reason));
            }
        }
        problems
    }
}

impl fmt::Display for NameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.owner, self.reason)
    }
}

/// Writes the config key.
impl fmt::Display for NameOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(name) => write!(f, "keys.{name}.tools"),
            Self::Role(name) => write!(f, "roles.{name}.tools"),
            Self::VirtualServer(name) => write!(f, "virtual_servers.{name}.tools"),
            Self::Rule(config_key) => f.write_str(config_key),
            Self::BlockedTools => f.write_str("mcp.blocked_tools"),
            Self::Allowlist => f.write_str("security.mcp_server_allowlist"),
            Self::Server(name) => write!(f, "server {name}"),
        }
    }
}

struct NameCheck<'a> {
    names: &'a [ServerName],
    catalog: &'a Catalog,
}

impl NameCheck<'_> {
    fn grants(&self, owner: &NameOwner, texts: Option<&[String]>) -> Vec<NameProblem> {
        let texts = texts.unwrap_or_default().iter();
        let problem = |text: &String| {
            let reason = self.check_text(text, SelectorMode::Narrow)?;
            Some(NameProblem {
                owner: owner.clone(),
                name: text.clone(),
                reason,
            })
        };
        texts.filter_map(problem).collect()
    }

    fn rule(&self, rule: &RuleSpec) -> Option<NameProblem> {
        if rule.is_for_agent_code() {
            return None;
        }
        let reason = match (rule.check(self.names), &rule.tool) {
            (Err(error), _) => error.to_string(),
            (Ok(()), Some(text)) => self.find_unknown_tool(text, &rule.selector(self.names))?,
            (Ok(()), None) => self.find_unknown_prompt(rule)?,
        };
        let subjects = [&rule.tool, &rule.server, &rule.resource, &rule.prompt];
        Some(NameProblem {
            owner: NameOwner::Rule(rule.config_key.clone()),
            name: subjects.into_iter().find_map(Clone::clone)?,
            reason,
        })
    }

    /// Describes the prompt that a rule names if its server does not have it. A server without a
    /// listing may have any prompt. Resources need not be listed to be read.
    fn find_unknown_prompt(&self, rule: &RuleSpec) -> Option<String> {
        let (server, name) = rule.exact_prompt()?;
        let is_named = |known: &&ServerName| known.as_str() == server;
        let listing = self.catalog.listing(self.names.iter().find(is_named)?)?;
        let mut prompts = listing.prompts.iter();
        let is_known = prompts.any(|prompt| {
            prompt.key == name
                // `ask` and `deny` match in any case.
                || rule.verdict > Verdict::Manual && prompt.key.to_lowercase() == name.to_lowercase()
        });
        (!is_known).then(|| {
            format!("`{server}.{name}` names a prompt that server `{server}` does not have")
        })
    }

    fn check_text(&self, text: &str, mode: SelectorMode) -> Option<String> {
        match Selector::parse(text, self.names, mode) {
            Err(error) => Some(error.to_string()),
            Ok(selector) => self.find_unknown_tool(text, &selector),
        }
    }

    /// Describes the tool that a selector names if no server has it. A server without a listing may
    /// have any tool.
    fn find_unknown_tool(&self, text: &str, selector: &Selector) -> Option<String> {
        if !selector.is_exact() {
            return None;
        }
        let mut named = self.names.iter().filter(|s| selector.may_match_server(s));
        let all_listed = named.clone().all(|s| self.catalog.listing(s).is_some());
        let mut tools = self.catalog.tools().iter();
        if !all_listed || tools.any(|entry| selector.matches(&entry.tool.id)) {
            return None;
        }
        Some(match (named.next(), named.next()) {
            (Some(server), None) => {
                format!("`{text}` names a tool that server `{server}` does not have")
            }
            _ => format!("`{text}` names a tool that no server has"),
        })
    }
}

//! The specification once more, as plainly as possible and with nothing of the gateway's code.
//!
//! Only data is shared: the [`Case`] and the verdicts' names. What the specification leaves open
//! is settled here as its readers would expect: an `allow` rule opens (the longest server name, and
//! an exact text that fits two servers means nothing), all other rules close; a rule's `server` is
//! a glob over server names beside which `tool` is a glob over tool names.

use super::case::Case;
use crate::policy::{Hint, RuleSpec, Verdict};

/// A tool, and the alias that the gateway gave it.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) server: String,
    pub(super) name: String,
    pub(super) alias: String,
    pub(super) read_only: Option<bool>,
    pub(super) destructive: Option<bool>,
}

/// A text that cannot be understood, in `include-tools`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TwoMeanings(pub(super) String);

/// What a text is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Closing,
    Granting,
    Including,
}

impl Tool {
    pub(super) fn id(&self) -> String {
        format!("{}.{}", self.server, self.name)
    }
}

/// What is said of each tool, or the texts of which the gateway must complain about one.
pub(super) fn sight(
    case: &Case,
    servers: &[String],
    tools: &[Tool],
) -> Result<Vec<Option<Verdict>>, Vec<TwoMeanings>> {
    let seen: Vec<Option<Verdict>> = tools
        .iter()
        .map(|tool| in_scope(case, servers, tool).then(|| verdict(case, servers, tool)))
        .collect();
    let is_alias = |text: &str| {
        let mut pairs = tools.iter().zip(&seen);
        pairs.any(|(tool, seen)| seen.is_some() && tool.alias == text)
    };
    let included = case.filters.include_tools.iter().flatten();
    let unclear: Vec<TwoMeanings> = included
        .filter(|text| {
            let known = known_servers(case, servers);
            is_exact(text) && fitting_servers(text, &known) > 1 && !is_alias(text)
        })
        .map(|text| TwoMeanings(text.clone()))
        .collect();
    if unclear.is_empty() {
        Ok(seen)
    } else {
        Err(unclear)
    }
}

fn in_scope(case: &Case, servers: &[String], tool: &Tool) -> bool {
    !case.gate.off
        && server_is_open(case, &tool.server, servers)
        && clients_leave(case, &tool.server)
        && is_executable(case, tool)
        && !any(&case.gate.blocked, servers, tool, Use::Closing)
        && caller_may(case, servers, tool)
        && tools_leave(case, servers, tool)
        && !is_denied(case, servers, tool)
}

fn server_is_open(case: &Case, server: &String, servers: &[String]) -> bool {
    let gate = &case.gate;
    servers.contains(server)
        && !gate.disabled_servers.contains(server)
        && (gate.allowlist.is_empty() || gate.allowlist.contains(server))
        && !gate.denylist.contains(server)
}

fn clients_leave(case: &Case, server: &str) -> bool {
    let fits = |list: &[String]| list.iter().any(|pattern| glob(pattern, server));
    let included = case.filters.include_clients.as_deref().is_none_or(fits);
    let excluded = case.filters.exclude_clients.as_deref().is_some_and(fits);
    included && !excluded
}

fn is_executable(case: &Case, tool: &Tool) -> bool {
    match case.gate.execute.get(&tool.server) {
        Some(names) => names.contains(&tool.name),
        None => true,
    }
}

fn caller_may(case: &Case, servers: &[String], tool: &Tool) -> bool {
    let grants = |list: &[String]| any(list, servers, tool, Use::Granting);
    let by_key = case.caller.key.as_deref().is_none_or(grants);
    let mut defined = case
        .caller
        .roles
        .iter()
        .filter_map(|(_, list)| list.as_deref())
        .peekable();
    let by_roles = defined.peek().is_none() || defined.any(grants);
    by_key && by_roles
}

/// The servers that exist for the caller's filters: those of which its grants may name a tool.
fn known_servers(case: &Case, servers: &[String]) -> Vec<String> {
    let may_name = |list: &[String], server: &str| {
        list.iter().any(|text| {
            if let Some((named, _)) = before_a_dot(text, servers) {
                return named == server;
            }
            let meant = readings(text, servers);
            let longest = meant.iter().filter_map(|(server, _)| *server).map(str::len);
            let longest = longest.max();
            let unclear = is_exact(text) && fitting_servers(text, servers) > 1;
            meant.is_empty()
                || meant.iter().any(|(named, _)| {
                    let counts = |named: &str| named == server && Some(named.len()) == longest;
                    !unclear && named.is_none_or(counts)
                })
        })
    };
    let roles: Vec<String> = case
        .caller
        .roles
        .iter()
        .filter_map(|(_, list)| list.clone())
        .flatten()
        .collect();
    let restricted = case.caller.roles.iter().any(|(_, list)| list.is_some());
    let known = servers.iter().filter(|server| {
        let by_key = case.caller.key.as_deref();
        by_key.is_none_or(|list| may_name(list, server))
            && (!restricted || may_name(&roles, server))
    });
    known.cloned().collect()
}

fn tools_leave(case: &Case, servers: &[String], tool: &Tool) -> bool {
    let servers = &known_servers(case, servers);
    let included = |list: &[String]| any(list, servers, tool, Use::Including);
    let excluded = |list: &[String]| any(list, servers, tool, Use::Closing);
    case.filters.include_tools.as_deref().is_none_or(included)
        && !case.filters.exclude_tools.as_deref().is_some_and(excluded)
}

fn is_denied(case: &Case, servers: &[String], tool: &Tool) -> bool {
    let mut rules = case.permissions.rules.iter();
    rules.any(|rule| rule.verdict == Verdict::Deny && rule_matches(rule, case, servers, tool))
}

fn verdict(case: &Case, servers: &[String], tool: &Tool) -> Verdict {
    let rules = case.permissions.rules.iter();
    let matching = rules.filter(|rule| rule_matches(rule, case, servers, tool));
    if let Some(strictest) = matching
        .map(|rule| rule.verdict)
        .max_by_key(|v| strictness(*v))
    {
        return strictest;
    }
    let auto = case.gate.auto.get(&tool.server);
    let by_lists = match auto.is_some_and(|names| names.contains(&tool.name)) {
        true => Verdict::Allow,
        false => Verdict::Manual,
    };
    match case.permissions.default {
        Some(default) if strictness(default) > strictness(by_lists) => default,
        _ => by_lists,
    }
}

fn strictness(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Manual => 1,
        Verdict::Ask => 2,
        Verdict::Deny => 3,
    }
}

/// Whether a rule speaks of a tool whatever the arguments.
fn rule_matches(rule: &RuleSpec, case: &Case, servers: &[String], tool: &Tool) -> bool {
    let when = &rule.when;
    let has_role = |role: &String| case.caller.roles.iter().any(|(name, _)| name == role);
    let is_here = |name: &String| case.permissions.environment.as_ref() == Some(name);
    when.arguments.is_empty()
        && (when.roles.is_empty() || when.roles.iter().any(has_role))
        && (when.environments.is_empty() || when.environments.iter().any(is_here))
        && when.hint.is_none_or(|hint| is_marked(tool, hint))
        && rule_names(rule, servers, tool)
}

fn rule_names(rule: &RuleSpec, servers: &[String], tool: &Tool) -> bool {
    let text = rule.tool.as_deref().unwrap_or("*");
    match &rule.server {
        Some(server) => glob(server, &tool.server) && fits_name(text, tool),
        None if rule.verdict == Verdict::Allow => names(text, servers, tool, Use::Granting),
        None => names(text, servers, tool, Use::Closing),
    }
}

fn is_marked(tool: &Tool, hint: Hint) -> bool {
    let read_only = tool.read_only == Some(true);
    match hint {
        Hint::ReadOnly => read_only,
        Hint::Destructive => !read_only && tool.destructive != Some(false),
    }
}

fn any(list: &[String], servers: &[String], tool: &Tool, usage: Use) -> bool {
    list.iter().any(|text| names(text, servers, tool, usage))
}

/// Whether a text means this tool.
fn names(text: &str, servers: &[String], tool: &Tool, usage: Use) -> bool {
    let is_alias = text == tool.alias;
    if let Some((server, pattern)) = before_a_dot(text, servers).filter(|_| usage != Use::Closing) {
        return server == tool.server && fits_name(pattern, tool);
    }
    if usage != Use::Closing && is_exact(text) && fitting_servers(text, servers) > 1 {
        return usage == Use::Including && is_alias;
    }
    let meant = readings(text, servers);
    let longest = meant
        .iter()
        .filter_map(|(server, _)| *server)
        .map(str::len)
        .max();
    let counts = |server: &str| usage == Use::Closing || Some(server.len()) == longest;
    let fits = |(server, pattern): &(Option<&str>, &str)| {
        server.is_none_or(|server| server == tool.server && counts(server))
            && fits_name(pattern, tool)
    };
    is_alias || meant.iter().any(fits)
}

/// The server that a text names clearly, because a dot follows, which no server's name has.
fn before_a_dot<'a>(text: &'a str, servers: &[String]) -> Option<(&'a str, &'a str)> {
    let (server, tool) = text.split_once('.')?;
    let known = servers.iter().any(|known| known == server);
    (known && !tool.is_empty()).then_some((server, tool))
}

/// The servers, none for all, and the globs over their tools that a text may stand for.
fn readings<'a>(text: &'a str, servers: &'a [String]) -> Vec<(Option<&'a str>, &'a str)> {
    if text == "*" {
        return vec![(None, "*")];
    }
    if let Some(tool) = text.strip_prefix("*.") {
        return vec![(None, tool)];
    }
    let mut found = Vec::new();
    for server in servers {
        for (before, after) in [("", "_"), ("", "-"), ("", "."), ("mcp__", "__")] {
            let rest = text.strip_prefix(before);
            let rest = rest.and_then(|rest| rest.strip_prefix(server.as_str()));
            let rest = rest.and_then(|rest| rest.strip_prefix(after));
            if let Some(tool) = rest.filter(|tool| !tool.is_empty()) {
                found.push((Some(server.as_str()), tool));
            }
        }
    }
    found
}

fn fitting_servers(text: &str, servers: &[String]) -> usize {
    if before_a_dot(text, servers).is_some() {
        return 1;
    }
    let mut found: Vec<&str> = readings(text, servers)
        .into_iter()
        .filter_map(|(server, _)| server)
        .collect();
    found.dedup();
    found.len()
}

fn is_exact(text: &str) -> bool {
    !text.contains('*') && !text.contains('?')
}

fn fits_name(pattern: &str, tool: &Tool) -> bool {
    glob(pattern, &tool.name) || glob(pattern, &plain(&tool.name))
}

/// A raw name with everything odd replaced.
pub(super) fn plain(name: &str) -> String {
    let usual = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars()
        .map(|c| if usual(c) { c } else { '_' })
        .collect()
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut characters = text.chars();
    let mut rest = pattern.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            glob(rest.as_str(), text)
                || (characters.next().is_some() && glob(pattern, characters.as_str()))
        }
        Some('?') => characters.next().is_some() && glob(rest.as_str(), characters.as_str()),
        Some(c) => characters.next() == Some(c) && glob(rest.as_str(), characters.as_str()),
    }
}

#[test]
fn the_oracle_reads_globs() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("a*c", "abbc", true),
        ("a*c", "abcd", false),
        ("?", "é", true),
        ("??", "é", false),
        ("*?", "", false),
    ] {
        assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
    }
}

//! Independent, deliberately simple implementation of the specification.
//!
//! It shares only data with the gateway: the [`Case`] and the verdict names. Points that the
//! specification leaves open are settled as users would expect: an `allow` rule grants (the longest
//! server name wins, and an ambiguous exact text means nothing), all other rules restrict; with
//! `server`, a glob over server names, `tool` is a glob over raw tool names.

use super::case::Case;
use crate::policy::{Hint, RuleSpec, Verdict};

/// A tool and the alias that the gateway assigned to it.
#[derive(Clone, Debug)]
pub(super) struct OracleTool {
    pub(super) server: String,
    pub(super) name: String,
    pub(super) alias: String,
    pub(super) read_only: Option<bool>,
    pub(super) destructive: Option<bool>,
}

/// A resource or prompt of a server.
#[derive(Clone, Debug)]
pub(super) struct OracleItem {
    pub(super) server: String,
    pub(super) kind: OracleItemKind,
    /// URI or name.
    pub(super) key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OracleItemKind {
    Resource,
    Prompt,
}

/// An ambiguous text in `include-tools`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AmbiguousText(pub(super) String);

/// Purpose of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Restricting,
    Granting,
    Including,
}

impl OracleTool {
    pub(super) fn id(&self) -> String {
        format!("{}.{}", self.server, self.name)
    }
}

/// Verdict on each tool, or the ambiguous texts of which the gateway must report one.
pub(super) fn verdicts(
    case: &Case,
    servers: &[String],
    tools: &[OracleTool],
) -> Result<Vec<Option<Verdict>>, Vec<AmbiguousText>> {
    let verdicts: Vec<Option<Verdict>> = tools
        .iter()
        .map(|tool| in_scope(case, servers, tool).then(|| verdict(case, servers, tool)))
        .collect();
    let is_alias = |text: &str| {
        let mut pairs = tools.iter().zip(&verdicts);
        pairs.any(|(tool, verdicts)| verdicts.is_some() && tool.alias == text)
    };
    let included = case.filters.include_tools.iter().flatten();
    let ambiguous: Vec<AmbiguousText> = included
        .filter(|text| {
            let known = known_servers(case, servers);
            is_exact(text) && count_matching_servers(text, &known) > 1 && !is_alias(text)
        })
        .map(|text| AmbiguousText(text.clone()))
        .collect();
    if ambiguous.is_empty() {
        Ok(verdicts)
    } else {
        Err(ambiguous)
    }
}

fn in_scope(case: &Case, servers: &[String], tool: &OracleTool) -> bool {
    !case.switches.off
        && is_server_enabled(case, &tool.server, servers)
        && client_filters_keep(case, &tool.server)
        && is_executable(case, tool)
        && !any_names(&case.switches.blocked, servers, tool, Use::Restricting)
        && is_granted(case, servers, tool)
        && tool_filters_keep(case, servers, tool)
        && !is_denied(case, servers, tool)
}

/// Verdict on a resource or prompt; `None` if it does not exist for the request. What covers a whole
/// server covers its resources and prompts.
pub(super) fn item_verdict(case: &Case, servers: &[String], item: &OracleItem) -> Option<Verdict> {
    let server = &item.server;
    let known = known_servers(case, servers);
    let covered = |list: &[String], servers: &[String]| {
        let mut texts = list.iter();
        texts.any(|text| covers(text, servers, server, Use::Restricting))
    };
    let filters = &case.filters;
    let in_scope = !case.switches.off
        && is_server_enabled(case, server, servers)
        && client_filters_keep(case, server)
        && !covered(&case.switches.blocked, servers)
        && known.contains(server)
        && filters.include_tools.as_deref().is_none_or(|list| {
            let mut texts = list.iter();
            texts.any(|text| includes_part(text, &known, server))
        })
        && !filters
            .exclude_tools
            .as_deref()
            .is_some_and(|list| covered(list, &known));
    let rules = case.permissions.rules.iter();
    let matching = rules.filter(|rule| rule_matches_item(rule, case, servers, item));
    let strictest = matching
        .map(|rule| rule.verdict)
        .max_by_key(|v| strictness(*v));
    let default = case.permissions.default.unwrap_or(Verdict::Allow);
    let verdict = strictest.unwrap_or(default);
    (in_scope && verdict != Verdict::Deny).then_some(verdict)
}

/// Whether a text names all tools that a server could have.
fn covers(text: &str, servers: &[String], server: &str, usage: Use) -> bool {
    let is_all = |glob: &str| !glob.is_empty() && glob.chars().all(|c| c == '*');
    if let Some((named, glob)) = split_at_dot(text, servers).filter(|_| usage != Use::Restricting) {
        return named == server && is_all(glob);
    }
    let parsed = parse_all(text, servers);
    let longest = parsed
        .iter()
        .filter_map(|(server, _)| *server)
        .map(str::len)
        .max();
    let counts = |named: &str| usage == Use::Restricting || Some(named.len()) == longest;
    parsed.iter().any(|(named, glob)| {
        is_all(glob) && named.is_none_or(|named| named == server && counts(named))
    })
}

/// Whether a text of `include-tools` names a part of a server.
fn includes_part(text: &str, servers: &[String], server: &str) -> bool {
    if let Some((named, _)) = split_at_dot(text, servers) {
        return named == server;
    }
    if is_exact(text) && count_matching_servers(text, servers) > 1 {
        return false;
    }
    let parsed = parse_all(text, servers);
    let longest = parsed
        .iter()
        .filter_map(|(server, _)| *server)
        .map(str::len)
        .max();
    parsed
        .iter()
        .any(|(named, _)| named.is_none_or(|named| named == server && Some(named.len()) == longest))
}

fn rule_matches_item(rule: &RuleSpec, case: &Case, servers: &[String], item: &OracleItem) -> bool {
    let when = &rule.when;
    let has_role = |role: &String| case.caller.roles.iter().any(|(name, _)| name == role);
    let is_active = |name: &String| case.permissions.environment.as_ref() == Some(name);
    let is_restricting = strictness(rule.verdict) >= strictness(Verdict::Ask);
    let key_matches = |pattern: &str| {
        glob(pattern, &item.key)
            || is_restricting && glob(&pattern.to_lowercase(), &item.key.to_lowercase())
    };
    let names_item = match (&rule.resource, &rule.prompt, item.kind) {
        (Some(text), _, OracleItemKind::Resource) => {
            let (server, uri) = text.split_once(':').unwrap();
            glob(server, &item.server) && key_matches(uri)
        }
        (None, Some(text), OracleItemKind::Prompt) => {
            let (server, name) = text.split_once('.').unwrap();
            glob(server, &item.server) && key_matches(name)
        }
        (None, None, _) => {
            let text = rule.tool.as_deref().unwrap_or("*");
            let usage = if rule.verdict == Verdict::Allow {
                Use::Granting
            } else {
                Use::Restricting
            };
            let covers_server = match &rule.server {
                Some(server) => {
                    glob(server, &item.server) && !text.is_empty() && text.chars().all(|c| c == '*')
                }
                None => covers(text, servers, &item.server, usage),
            };
            when.arguments.is_empty() && when.hint.is_none() && covers_server
        }
        _ => false,
    };
    names_item
        && (when.roles.is_empty() || when.roles.iter().any(has_role))
        && (when.environments.is_empty() || when.environments.iter().any(is_active))
}

fn is_server_enabled(case: &Case, server: &String, servers: &[String]) -> bool {
    let switches = &case.switches;
    servers.contains(server)
        && !switches.disabled_servers.contains(server)
        && (switches.allowlist.is_empty() || switches.allowlist.contains(server))
        && !switches.denylist.contains(server)
}

fn client_filters_keep(case: &Case, server: &str) -> bool {
    let fits = |list: &[String]| list.iter().any(|pattern| glob(pattern, server));
    let included = case.filters.include_clients.as_deref().is_none_or(fits);
    let excluded = case.filters.exclude_clients.as_deref().is_some_and(fits);
    included && !excluded
}

fn is_executable(case: &Case, tool: &OracleTool) -> bool {
    match case.switches.execute.get(&tool.server) {
        Some(names) => names.contains(&tool.name),
        None => true,
    }
}

fn is_granted(case: &Case, servers: &[String], tool: &OracleTool) -> bool {
    let grants = |list: &[String]| any_names(list, servers, tool, Use::Granting);
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

/// Servers that exist for the caller's filters: those whose tools its grants may name.
fn known_servers(case: &Case, servers: &[String]) -> Vec<String> {
    let may_name = |list: &[String], server: &str| {
        list.iter().any(|text| {
            if let Some((named, _)) = split_at_dot(text, servers) {
                return named == server;
            }
            let parsed = parse_all(text, servers);
            let longest = parsed
                .iter()
                .filter_map(|(server, _)| *server)
                .map(str::len);
            let longest = longest.max();
            let ambiguous = is_exact(text) && count_matching_servers(text, servers) > 1;
            parsed.is_empty()
                || parsed.iter().any(|(named, _)| {
                    let counts = |named: &str| named == server && Some(named.len()) == longest;
                    !ambiguous && named.is_none_or(counts)
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

fn tool_filters_keep(case: &Case, servers: &[String], tool: &OracleTool) -> bool {
    let servers = &known_servers(case, servers);
    let included = |list: &[String]| any_names(list, servers, tool, Use::Including);
    let excluded = |list: &[String]| any_names(list, servers, tool, Use::Restricting);
    case.filters.include_tools.as_deref().is_none_or(included)
        && !case.filters.exclude_tools.as_deref().is_some_and(excluded)
}

fn is_denied(case: &Case, servers: &[String], tool: &OracleTool) -> bool {
    let mut rules = case.permissions.rules.iter();
    rules.any(|rule| rule.verdict == Verdict::Deny && rule_matches(rule, case, servers, tool))
}

fn verdict(case: &Case, servers: &[String], tool: &OracleTool) -> Verdict {
    let rules = case.permissions.rules.iter();
    let matching = rules.filter(|rule| rule_matches(rule, case, servers, tool));
    if let Some(strictest) = matching
        .map(|rule| rule.verdict)
        .max_by_key(|v| strictness(*v))
    {
        return strictest;
    }
    let auto = case.switches.auto.get(&tool.server);
    let by_lists = if auto.is_some_and(|names| names.contains(&tool.name)) {
        Verdict::Allow
    } else {
        Verdict::Manual
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

/// Whether a rule applies to a tool regardless of the arguments.
fn rule_matches(rule: &RuleSpec, case: &Case, servers: &[String], tool: &OracleTool) -> bool {
    let when = &rule.when;
    let has_role = |role: &String| case.caller.roles.iter().any(|(name, _)| name == role);
    let is_active = |name: &String| case.permissions.environment.as_ref() == Some(name);
    when.arguments.is_empty()
        && (when.roles.is_empty() || when.roles.iter().any(has_role))
        && (when.environments.is_empty() || when.environments.iter().any(is_active))
        && when.hint.is_none_or(|hint| has_hint(tool, hint))
        && rule_names(rule, servers, tool)
}

fn rule_names(rule: &RuleSpec, servers: &[String], tool: &OracleTool) -> bool {
    if rule.resource.is_some() || rule.prompt.is_some() {
        return false;
    }
    let text = rule.tool.as_deref().unwrap_or("*");
    match &rule.server {
        Some(server) => glob(server, &tool.server) && matches_name(text, tool),
        None if rule.verdict == Verdict::Allow => names(text, servers, tool, Use::Granting),
        None => names(text, servers, tool, Use::Restricting),
    }
}

fn has_hint(tool: &OracleTool, hint: Hint) -> bool {
    let read_only = tool.read_only == Some(true);
    match hint {
        Hint::ReadOnly => read_only,
        Hint::Destructive => !read_only && tool.destructive != Some(false),
    }
}

fn any_names(list: &[String], servers: &[String], tool: &OracleTool, usage: Use) -> bool {
    list.iter().any(|text| names(text, servers, tool, usage))
}

/// Whether a text names this tool.
fn names(text: &str, servers: &[String], tool: &OracleTool, usage: Use) -> bool {
    let is_alias = text == tool.alias;
    if let Some((server, pattern)) =
        split_at_dot(text, servers).filter(|_| usage != Use::Restricting)
    {
        return server == tool.server && matches_name(pattern, tool);
    }
    if usage != Use::Restricting && is_exact(text) && count_matching_servers(text, servers) > 1 {
        return usage == Use::Including && is_alias;
    }
    let parsed = parse_all(text, servers);
    let longest = parsed
        .iter()
        .filter_map(|(server, _)| *server)
        .map(str::len)
        .max();
    let counts = |server: &str| usage == Use::Restricting || Some(server.len()) == longest;
    let fits = |(server, pattern): &(Option<&str>, &str)| {
        server.is_none_or(|server| server == tool.server && counts(server))
            && matches_name(pattern, tool)
    };
    is_alias || parsed.iter().any(fits)
}

/// Splits a text at its first dot; unambiguous, because server names contain no dot.
fn split_at_dot<'a>(text: &'a str, servers: &[String]) -> Option<(&'a str, &'a str)> {
    let (server, tool) = text.split_once('.')?;
    let known = servers.iter().any(|known| known == server);
    (known && !tool.is_empty()).then_some((server, tool))
}

/// All interpretations of a text: a server (`None` for all) and a glob over its tools.
fn parse_all<'a>(text: &'a str, servers: &'a [String]) -> Vec<(Option<&'a str>, &'a str)> {
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

fn count_matching_servers(text: &str, servers: &[String]) -> usize {
    if split_at_dot(text, servers).is_some() {
        return 1;
    }
    let mut found: Vec<&str> = parse_all(text, servers)
        .into_iter()
        .filter_map(|(server, _)| server)
        .collect();
    found.dedup();
    found.len()
}

fn is_exact(text: &str) -> bool {
    !text.contains('*') && !text.contains('?')
}

fn matches_name(pattern: &str, tool: &OracleTool) -> bool {
    glob(pattern, &tool.name) || glob(pattern, &sanitize(&tool.name))
}

/// Replaces every character that is not valid in an alias.
pub(super) fn sanitize(name: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars()
        .map(|c| if is_valid(c) { c } else { '_' })
        .collect()
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut chars = text.chars();
    let mut rest = pattern.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            glob(rest.as_str(), text) || (chars.next().is_some() && glob(pattern, chars.as_str()))
        }
        Some('?') => chars.next().is_some() && glob(rest.as_str(), chars.as_str()),
        Some(c) => chars.next() == Some(c) && glob(rest.as_str(), chars.as_str()),
    }
}

#[test]
fn oracle_globs_match() {
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

//! Independent, deliberately simple implementation of the specification.
//!
//! It shares only data with the gateway: the [`Case`] and the verdict names. Points that the
//! specification leaves open are settled as users would expect: an `allow` rule grants (a text that
//! names several servers means nothing), all other rules restrict; with `server`, a glob over server
//! names, `tool` is a glob over raw tool names.

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AmbiguousText(pub(super) String);

/// Purpose of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Restricting,
    Granting,
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
    let exists = |tool: &&OracleTool| exists(case, servers, tool);
    let existing: Vec<&OracleTool> = tools.iter().filter(exists).collect();
    let known = known_servers(case, servers, tools);
    let included = case.filters.include_tools.as_ref();
    let included = included.map(|texts| texts.iter().map(|text| include(text, &known, &existing)));
    let included: Option<Vec<_>> = included.map(Iterator::collect);
    let ambiguous: Vec<AmbiguousText> = included
        .iter()
        .flatten()
        .filter_map(|readings| readings.as_ref().err().cloned())
        .collect();
    if !ambiguous.is_empty() {
        return Err(ambiguous);
    }
    let is_included = |tool: &OracleTool| {
        included.as_ref().is_none_or(|texts| {
            let mut readings = texts.iter().flatten();
            readings.any(|reading| reading.contains(&tool.id()))
        })
    };
    let is_excluded = |tool: &OracleTool| {
        let texts = case.filters.exclude_tools.as_deref();
        texts.is_some_and(|texts| any_names(texts, &known, tool, Use::Restricting))
    };
    let verdict = |tool: &OracleTool| {
        let in_scope = existing.iter().any(|other| other.id() == tool.id())
            && is_included(tool)
            && !is_excluded(tool);
        in_scope.then(|| verdict(case, servers, tool))
    };
    Ok(tools.iter().map(verdict).collect())
}

/// Ids of the tools that a text of `include-tools` selects.
fn include(
    text: &str,
    known: &[String],
    existing: &[&OracleTool],
) -> Result<Vec<String>, AmbiguousText> {
    let readings = include_readings(text, known);
    let matching = |tool: &&&OracleTool| {
        let mut readings = readings.iter();
        tool.alias == text
            || readings.any(|(server, pattern)| {
                server.as_ref().is_none_or(|server| *server == tool.server)
                    && matches_name(pattern, tool)
            })
    };
    let found: Vec<&&OracleTool> = existing.iter().filter(matching).collect();
    let mut servers: Vec<&str> = found.iter().map(|tool| tool.server.as_str()).collect();
    servers.sort_by_key(|server| server.len());
    servers.dedup();
    let everywhere = readings.iter().any(|(server, _)| server.is_none());
    let one = match servers.as_slice() {
        _ if everywhere => None,
        [] => return Ok(Vec::new()),
        [server] => Some(*server),
        [.., longest] if !is_exact(text) => Some(*longest),
        _ => match found.iter().find(|tool| tool.alias == text) {
            Some(tool) => Some(tool.server.as_str()),
            None => return Err(AmbiguousText(text.to_owned())),
        },
    };
    let selected = found
        .iter()
        .filter(|tool| one.is_none_or(|server| tool.server == server));
    Ok(selected.map(|tool| tool.id()).collect())
}

/// Whether a tool exists for the caller and the client filters.
fn exists(case: &Case, servers: &[String], tool: &OracleTool) -> bool {
    !case.switches.off
        && is_server_enabled(case, &tool.server, servers)
        && client_filters_keep(case, &tool.server)
        && is_executable(case, tool)
        && !any_names(&case.switches.blocked, servers, tool, Use::Restricting)
        && is_granted(case, servers, tool)
        && !is_denied(case, servers, tool)
}

/// Verdict on a resource or prompt; `None` if it does not exist for the request. What covers a whole
/// server covers its resources and prompts.
pub(super) fn item_verdict(
    case: &Case,
    servers: &[String],
    tools: &[OracleTool],
    item: &OracleItem,
) -> Option<Verdict> {
    let server = &item.server;
    let known = known_servers(case, servers, tools);
    let covered = |list: &[String], servers: &[String]| {
        let mut texts = list.iter();
        texts.any(|text| covers(text, servers, server, Use::Restricting))
    };
    let filters = &case.filters;
    let in_scope = !case.switches.off
        && is_server_enabled(case, server, servers)
        && client_filters_keep(case, server)
        && !covered(&case.switches.blocked, servers)
        && grants_name_server(case, servers, server)
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
    let readings = match usage {
        Use::Granting => grant_readings(text, servers),
        Use::Restricting => own_readings(text, servers),
    };
    let is_all = |glob: &str| !glob.is_empty() && glob.chars().all(|c| c == '*');
    readings
        .iter()
        .any(|(named, glob)| is_all(glob) && named.as_deref().is_none_or(|named| named == server))
}

/// Whether a text of `include-tools` names a part of a server.
fn includes_part(text: &str, known: &[String], server: &str) -> bool {
    let readings = include_readings(text, known);
    let mut named = readings.iter().map(|(named, _)| named.as_deref());
    named.any(|named| named.is_none_or(|named| named == server))
}

/// Whether the grants of the caller name a server, and not just tools by their aliases.
fn grants_name_server(case: &Case, servers: &[String], server: &str) -> bool {
    let names = |list: &[String]| {
        let mut readings = list.iter().flat_map(|text| grant_readings(text, servers));
        readings.any(|(named, _)| named.is_none_or(|named| named == server))
    };
    let mut by_roles = case
        .caller
        .roles
        .iter()
        .filter_map(|(_, list)| list.as_deref())
        .peekable();
    let by_key = case.caller.key.as_deref().is_none_or(names);
    by_key && (by_roles.peek().is_none() || by_roles.any(names))
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
fn known_servers(case: &Case, servers: &[String], tools: &[OracleTool]) -> Vec<String> {
    let may_name = |list: &[String], server: &str| {
        list.iter().any(|text| {
            let parsed = grant_readings(text, servers);
            let mut tools = tools.iter();
            parsed
                .iter()
                .any(|(named, _)| named.as_deref().is_none_or(|named| named == server))
                // A text that could name two servers grants nothing, even if it is an alias.
                || (count_servers(&own_readings(text, servers)) == 0
                    && tools.any(|tool| tool.alias == *text && tool.server == server))
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
    let readings = match usage {
        Use::Granting => grant_readings(text, servers),
        Use::Restricting => own_readings(text, servers),
    };
    let is_ambiguous = usage == Use::Granting && count_servers(&own_readings(text, servers)) > 1;
    let fits = |(server, pattern): &Reading| {
        server.as_ref().is_none_or(|server| *server == tool.server) && matches_name(pattern, tool)
    };
    (text == tool.alias && !is_ambiguous) || readings.iter().any(fits)
}

/// A server (`None` for all) and a glob over its tools.
type Reading = (Option<String>, String);

fn own_readings(text: &str, servers: &[String]) -> Vec<Reading> {
    let readings = parse_all(text, servers).into_iter();
    readings
        .map(|(server, tool)| (server.map(ToOwned::to_owned), tool.to_owned()))
        .collect()
}

/// Readings of a text of `include-tools`: what precedes a dot is the server, if there is one.
fn include_readings(text: &str, known: &[String]) -> Vec<Reading> {
    match split_at_dot(text).filter(|(server, _)| known.contains(server)) {
        Some((server, tool)) => vec![(Some(server), tool)],
        None => own_readings(text, known),
    }
}

/// Readings of a text that grants: what precedes a dot is the server, and there is only one server.
fn grant_readings(text: &str, servers: &[String]) -> Vec<Reading> {
    if let Some((server, tool)) = split_at_dot(text) {
        let is_known = servers.contains(&server);
        return is_known
            .then_some((Some(server), tool))
            .into_iter()
            .collect();
    }
    let readings = own_readings(text, servers);
    if count_servers(&readings) > 1 {
        return Vec::new();
    }
    readings
}

fn count_servers(readings: &[Reading]) -> usize {
    let mut servers: Vec<&String> = readings.iter().filter_map(|(s, _)| s.as_ref()).collect();
    servers.sort();
    servers.dedup();
    servers.len()
}

/// Splits a text at its first dot if a server may have the name before it.
fn split_at_dot(text: &str) -> Option<(String, String)> {
    let (server, tool) = text.split_once('.')?;
    let is_name = !server.is_empty() && server.len() <= 64 && sanitize(server) == server;
    let is_reserved = server.to_lowercase() == "toolgate";
    (is_name && !is_reserved && !tool.is_empty()).then(|| (server.to_owned(), tool.to_owned()))
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

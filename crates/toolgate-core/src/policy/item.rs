//! Verdicts on resources and prompts.
//!
//! A rule that covers a whole server covers its resources and prompts too; `resource` and `prompt`
//! name some of them. Like conditions on arguments, patterns of `ask` and `deny` rules match loosely,
//! and those of `allow` and `manual` rules strictly.

use super::condition::path;
use super::{Decision, Policy, Rule, RuleSpec, Verdict, strictest_decision};
use crate::name::ServerName;
use crate::pattern::Glob;

const WILDCARDS: [char; 2] = ['*', '?'];

/// A resource or prompt of a server, by its raw URI or name. A template counts as a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerItem<'a> {
    Resource {
        server: &'a ServerName,
        uri: &'a str,
    },
    Prompt {
        server: &'a ServerName,
        name: &'a str,
    },
}

/// Resources or prompts that a rule names.
#[derive(Debug)]
pub(super) struct ItemPattern {
    kind: ItemPatternKind,
    server: Glob,
    /// URI or name.
    item: Glob,
    is_strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemPatternKind {
    Resource,
    Prompt,
}

impl<'a> ServerItem<'a> {
    pub fn server(self) -> &'a ServerName {
        match self {
            Self::Resource { server, .. } | Self::Prompt { server, .. } => server,
        }
    }
}

impl RuleSpec {
    /// Returns the server part of `resource` or `prompt`; `None` if the rule is about tools.
    pub(crate) fn item_server(&self) -> Option<&str> {
        let resource = self.resource.as_deref().and_then(split_resource);
        let split = resource.or_else(|| self.prompt.as_deref().and_then(split_prompt));
        split.map(|(server, _)| server)
    }

    /// Returns the server and name of `prompt` if it names a single prompt of a single server.
    pub(crate) fn exact_prompt(&self) -> Option<(&str, &str)> {
        let split = self.prompt.as_deref().and_then(split_prompt);
        split.filter(|(server, name)| !server.contains(WILDCARDS) && !name.contains(WILDCARDS))
    }
}

/// Splits `SERVER:URI`; `None` if either part is missing.
pub(crate) fn split_resource(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(has_both_parts)
}

/// Splits `SERVER.NAME`; `None` if either part is missing.
pub(crate) fn split_prompt(text: &str) -> Option<(&str, &str)> {
    text.split_once('.').filter(has_both_parts)
}

fn has_both_parts(parts: &(&str, &str)) -> bool {
    !parts.0.is_empty() && !parts.1.is_empty()
}

impl ItemPattern {
    /// Returns the resources or prompts that a rule names; `None` if the rule is about tools.
    pub(super) fn new(spec: &RuleSpec) -> Option<Self> {
        let resource = spec.resource.as_deref().and_then(split_resource);
        let prompt = spec.prompt.as_deref().and_then(split_prompt);
        let (kind, (server, item)) = match (resource, prompt) {
            (Some(parts), _) => (ItemPatternKind::Resource, parts),
            (None, Some(parts)) => (ItemPatternKind::Prompt, parts),
            (None, None) => return None,
        };
        let is_strict = spec.verdict <= Verdict::Manual;
        Some(Self {
            kind,
            server: Glob::new(server),
            item: if is_strict {
                Glob::new(item)
            } else {
                Glob::new(&item.to_lowercase())
            },
            is_strict,
        })
    }

    fn may_match_server(&self, server: &ServerName) -> bool {
        self.server.matches(server.as_str())
    }

    fn matches(&self, item: ServerItem<'_>) -> bool {
        self.may_match_server(item.server())
            && match (self.kind, item) {
                (ItemPatternKind::Resource, ServerItem::Resource { uri, .. }) => {
                    self.matches_uri(uri)
                }
                (ItemPatternKind::Prompt, ServerItem::Prompt { name, .. }) => {
                    self.item.matches(name)
                        || !self.is_strict && self.item.matches(&name.to_lowercase())
                }
                _ => false,
            }
    }

    fn matches_uri(&self, uri: &str) -> bool {
        if self.is_strict {
            return self.item.matches(uri) && !path::has_parent_segment(uri);
        }
        let normalized = normalize_uri(uri);
        let without_query = normalized.split(['?', '#']).next().unwrap_or_default();
        [&uri.to_lowercase(), normalized.as_str(), without_query]
            .into_iter()
            .any(|form| self.item.matches(form) || self.item.matches(&format!("{form}/")))
    }
}

/// Returns the URI as a server might understand it: decoded, in lowercase, without `.` and `..`.
fn normalize_uri(uri: &str) -> String {
    let uri = uri.trim().to_lowercase();
    let Some((scheme, rest)) = uri.split_once(':') else {
        return path::simplify(&path::decode(&uri));
    };
    let rest = path::decode(rest);
    let (authority, tail) = match rest.strip_prefix("//") {
        Some(rest) => rest
            .find(['/', '\\'])
            .map_or((rest, ""), |at| rest.split_at(at)),
        None => ("", rest.as_str()),
    };
    let authority = if scheme == "file" && authority == "localhost" {
        ""
    } else {
        authority
    };
    let tail = path::simplify(tail);
    let tail = if tail == "/" { "" } else { &tail };
    // `file:/x` means `file:///x`.
    if rest.starts_with('/') {
        format!("{scheme}://{authority}{tail}")
    } else {
        format!("{scheme}:{tail}")
    }
}

impl Rule {
    /// Returns whether the rule covers a whole server, whatever its tools are.
    fn covers_server(&self, server: &ServerName, roles: &[String]) -> bool {
        self.arguments.is_empty()
            && self.hint.is_none()
            && self.applies_to_roles(roles)
            && self.selector.covers_server(server)
    }

    fn covers_item(&self, item: ServerItem<'_>, roles: &[String]) -> bool {
        let items = self.items.as_ref();
        self.covers_server(item.server(), roles)
            || self.applies_to_roles(roles) && items.is_some_and(|items| items.matches(item))
    }
}

impl Policy {
    /// Judges a resource or prompt. If no rule matches, it is allowed unless the default is stricter.
    pub fn judge_item(&self, item: ServerItem<'_>, roles: &[String]) -> Decision {
        let rules = self.rules.iter().map(|rule| &**rule);
        let decision = strictest_decision(rules.filter(|rule| rule.covers_item(item, roles)));
        decision.unwrap_or_else(|| self.decide_by_default(Verdict::Allow, "resources"))
    }

    /// Whether any tool of a server may be visible.
    pub fn may_show_tools(&self, server: &ServerName, roles: &[String]) -> bool {
        let rules = || self.rules.iter().map(|rule| &**rule);
        let covering = rules().filter(|rule| rule.covers_server(server, roles));
        match strictest_decision(covering) {
            Some(decision) => decision.verdict < Verdict::Deny,
            None => {
                let shows_some = |rule: &Rule| {
                    rule.verdict < Verdict::Deny
                        && rule.applies_to_roles(roles)
                        && rule.selector.names_server(server)
                };
                self.default != Some(Verdict::Deny) || rules().any(shows_some)
            }
        }
    }

    /// Whether any resource or prompt of a server may be visible.
    pub fn may_show_items(&self, server: &ServerName, roles: &[String]) -> bool {
        let rules = || self.rules.iter().map(|rule| &**rule);
        let covering = rules().filter(|rule| rule.covers_server(server, roles));
        match strictest_decision(covering) {
            // A rule for single items can only be stricter.
            Some(decision) => decision.verdict < Verdict::Deny,
            None => {
                let shows_some = |rule: &Rule| {
                    let items = rule.items.as_ref();
                    rule.verdict < Verdict::Deny
                        && rule.applies_to_roles(roles)
                        && items.is_some_and(|items| items.may_match_server(server))
                };
                self.default != Some(Verdict::Deny) || rules().any(shows_some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Conditions;

    fn pattern(resource: Option<&str>, prompt: Option<&str>, verdict: Verdict) -> ItemPattern {
        ItemPattern::new(&RuleSpec {
            config_key: "rule".to_owned(),
            tool: None,
            server: None,
            resource: resource.map(ToOwned::to_owned),
            prompt: prompt.map(ToOwned::to_owned),
            when: Conditions::default(),
            approval_by: None,
            verdict,
        })
        .unwrap()
    }

    #[test]
    fn deny_matches_every_spelling_of_a_uri_and_allow_only_the_plain_one() {
        let hr = ServerName::parse("hr").unwrap();
        for (glob, uri, allows, denies) in [
            ("file:///etc/*", "file:///etc/passwd", true, true),
            ("file:///etc/*", "file:///tmp/x", false, false),
            ("file:///etc/*", "file:///tmp/../etc/passwd", false, true),
            ("file:///etc/*", "file:///etc/../tmp/x", false, true),
            ("file:///etc/*", "file:///%65tc/passwd", false, true),
            (
                "file:///etc/*",
                "file:///tmp/%2e%2e/etc/passwd",
                false,
                true,
            ),
            ("file:///etc/*", "FILE:///etc/passwd", false, true),
            ("file:///etc/*", "file:/etc/passwd", false, true),
            ("file:///etc/*", "file://localhost/etc/passwd", false, true),
            ("file:///etc/*", "file:////etc//passwd", false, true),
            ("file:///etc/*", "file:///etc", false, true),
            ("hr://salary", "hr://salary", true, true),
            ("hr://salary", "HR://Salary", false, true),
            ("hr://salary", "hr://salary?x=1", false, true),
            ("hr://salary", "hr://salary#x", false, true),
            ("hr://salary/*", "hr://public/../salary/1", false, false),
            ("hr://x/salary/*", "hr://x/public/../salary/1", false, true),
            ("*", "anything", true, true),
        ] {
            let text = format!("hr:{glob}");
            let item = ServerItem::Resource { server: &hr, uri };
            let matches = |verdict| pattern(Some(&text), None, verdict).matches(item);
            assert_eq!(matches(Verdict::Allow), allows, "allow {glob} {uri}");
            assert_eq!(matches(Verdict::Manual), allows, "manual {glob} {uri}");
            assert_eq!(matches(Verdict::Ask), denies, "ask {glob} {uri}");
            assert_eq!(matches(Verdict::Deny), denies, "deny {glob} {uri}");
        }
    }

    #[test]
    fn item_patterns_match_their_server_and_kind() {
        let (hr, fs) = (
            ServerName::parse("hr").unwrap(),
            ServerName::parse("fs").unwrap(),
        );
        let prompt = |server, name| ServerItem::Prompt { server, name };
        for (text, item, expected) in [
            ("hr.greet", prompt(&hr, "greet"), true),
            ("hr.greet", prompt(&hr, "Greet"), true),
            ("hr.g*", prompt(&hr, "greet"), true),
            ("*.greet", prompt(&fs, "greet"), true),
            ("hr.greet", prompt(&fs, "greet"), false),
            ("hr.a.b", prompt(&hr, "a.b"), true),
            (
                "hr.*",
                ServerItem::Resource {
                    server: &hr,
                    uri: "x",
                },
                false,
            ),
        ] {
            let deny = pattern(None, Some(text), Verdict::Deny);
            assert_eq!(deny.matches(item), expected, "{text} {item:?}");
        }
        let allow = pattern(None, Some("hr.greet"), Verdict::Allow);
        assert!(!allow.matches(prompt(&hr, "Greet")));
    }
}

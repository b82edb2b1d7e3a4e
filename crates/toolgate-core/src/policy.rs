//! Permission: what may run, and who decides.
//!
//! The strictest matching rule wins, so the order of rules, files and layers never matters. Rules
//! speak only of tools in scope: what a server's `tools_to_execute` leaves out does not exist.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{ServerName, ToolId};
use crate::pattern::{Glob, ToolPattern};

/// Who decides about a call, from the freest to the strictest.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Runs unasked.
    Allow,
    /// The caller decides.
    Manual,
    /// An approver decides.
    Ask,
    /// Nobody may.
    Deny,
}

/// A list of tools of one server, by raw names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolList {
    All,
    Only(BTreeSet<String>),
}

/// The two lists that every server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolLists {
    pub execute: ToolList,
    pub auto_execute: ToolList,
}

/// A rule as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSpec {
    /// Where it stands, as the user would name it: `permissions.rules[2]`.
    pub place: String,
    pub tool: Option<String>,
    pub server: Option<String>,
    pub verdict: Verdict,
}

/// All rules, read against the configured servers.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    default: Option<Verdict>,
}

/// A verdict and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The config key that decided, as the user wrote it.
    pub because: String,
}

/// Why a rule cannot be read against the configured servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error(
        "`{tool}` names no configured server, so this rule never matches; write `SERVER.TOOL`, `SERVER.*` or `*.TOOL`"
    )]
    NoServer { tool: String },
    #[error(
        "no configured server matches `{server}` (names are case-sensitive), so this rule never matches"
    )]
    NoSuchServer { server: String },
    #[error(
        "`{tool}` fits tools of {servers}; write the server's name followed by a dot, as in `SERVER.TOOL`"
    )]
    Ambiguous { tool: String, servers: String },
}

#[derive(Clone, Debug)]
struct Rule {
    place: String,
    /// The text itself, which may be a tool's alias.
    alias: Option<String>,
    patterns: Vec<ToolPattern>,
    verdict: Verdict,
}

impl ToolList {
    pub fn none() -> Self {
        Self::Only(BTreeSet::new())
    }

    pub fn contains(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(tool),
        }
    }
}

impl RuleSpec {
    /// The rule's meaning for these servers.
    ///
    /// A text with two readings is an error for `allow`, unless it has a wildcard, where the
    /// longest server name is meant; stricter rules cover all readings.
    fn patterns(&self, servers: &[ServerName]) -> Result<Vec<ToolPattern>, RuleError> {
        if let Some(server) = &self.server {
            return Ok(vec![ToolPattern {
                server: Glob::new(server),
                tool: Glob::new(self.tool.as_deref().unwrap_or("*")),
            }]);
        }
        let tool = self.tool.as_deref().unwrap_or("*");
        let mut readings = ToolPattern::readings(tool, servers);
        if readings.is_empty() {
            return Err(RuleError::NoServer {
                tool: tool.to_owned(),
            });
        }
        if self.verdict == Verdict::Allow && readings.len() > 1 {
            if !tool.contains(['*', '?']) {
                let fits = servers
                    .iter()
                    .filter(|server| crate::pattern::spelled(tool, server).next().is_some())
                    .map(|server| format!("`{server}`"));
                return Err(RuleError::Ambiguous {
                    tool: tool.to_owned(),
                    servers: fits.collect::<Vec<_>>().join(" and "),
                });
            }
            readings.truncate(1);
        }
        Ok(readings)
    }

    pub fn check(&self, servers: &[ServerName]) -> Result<(), RuleError> {
        let patterns = self.patterns(servers)?;
        let matched = |pattern: &ToolPattern| {
            servers
                .iter()
                .any(|server| pattern.server.matches(server.as_str()))
        };
        match (&self.server, patterns.iter().any(matched)) {
            (Some(server), false) => Err(RuleError::NoSuchServer {
                server: server.clone(),
            }),
            _ => Ok(()),
        }
    }
}

impl Policy {
    /// Reads the rules against the configured servers; rules that name none never match.
    pub fn build(specs: &[RuleSpec], default: Option<Verdict>, servers: &[ServerName]) -> Self {
        let rules = specs
            .iter()
            .map(|spec| Rule {
                place: spec.place.clone(),
                alias: spec.tool.clone().filter(|_| spec.server.is_none()),
                patterns: spec.patterns(servers).unwrap_or_default(),
                verdict: spec.verdict,
            })
            .collect();
        Self { rules, default }
    }

    /// The verdict on a tool; none if it is not in scope at all.
    pub fn decide(&self, id: &ToolId, alias: &str, lists: &ToolLists) -> Option<Decision> {
        if !lists.execute.contains(id.tool.as_str()) {
            return None;
        }
        let strictest = self
            .rules
            .iter()
            .filter(|rule| rule.matches(id, alias))
            .max_by_key(|rule| rule.verdict);
        Some(match strictest {
            Some(rule) => Decision {
                verdict: rule.verdict,
                because: rule.place.clone(),
            },
            None => self.by_lists(id, lists),
        })
    }

    fn by_lists(&self, id: &ToolId, lists: &ToolLists) -> Decision {
        let (verdict, key) = if lists.auto_execute.contains(id.tool.as_str()) {
            (Verdict::Allow, "tools_to_auto_execute")
        } else {
            (Verdict::Manual, "tools_to_execute")
        };
        match self.default {
            Some(default) if default > verdict => Decision {
                verdict: default,
                because: "permissions.default".to_owned(),
            },
            _ => Decision {
                verdict,
                because: key.to_owned(),
            },
        }
    }
}

impl Rule {
    fn matches(&self, id: &ToolId, alias: &str) -> bool {
        self.alias.as_deref() == Some(alias) || self.patterns.iter().any(|p| p.matches(id))
    }
}

#[cfg(test)]
mod tests;

//! Permission: what may run, and who decides.
//!
//! The strictest matching rule wins, so the order of rules, files and layers never matters. Rules
//! speak only of tools in scope: what a server's `tools_to_execute` leaves out does not exist.
//! What is known before a call's arguments is a [`Judgement`]; with them it becomes a [`Decision`].

mod condition;

use std::collections::BTreeSet;
use std::sync::Arc;

use condition::ArgumentCondition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{Entry, Hints};
use crate::name::{ServerName, ToolId};
use crate::pattern::{Glob, Reading, Selector, SelectorError};

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
    pub when: Conditions,
    pub verdict: Verdict,
}

/// What else must hold for a rule to match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Arguments by name, each with the patterns of which its value must fit one.
    pub arguments: Vec<(String, Vec<String>)>,
    /// The caller has one of these roles; none for any caller.
    pub roles: Vec<String>,
    /// The gateway runs in one of these environments; none for any.
    pub environments: Vec<String>,
    pub hint: Option<Hint>,
}

/// What the server says of a tool's effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// The tool is marked as read-only.
    ReadOnly,
    /// The tool is not marked as harmless.
    Destructive,
}

/// All rules, read against the configured servers.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    default: Option<Verdict>,
}

/// A tool, as far as rules look at it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub id: &'a ToolId,
    pub alias: &'a str,
    pub hints: Hints,
}

/// A verdict and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The config key that decided, as the user wrote it.
    pub because: Arc<str>,
}

/// What can be said of a tool before its arguments are known.
#[derive(Clone, Debug)]
pub struct Judgement {
    decision: Decision,
    /// Whether a rule decided; if not, any rule that the arguments fit does.
    by_rule: bool,
    /// Rules that match if the arguments fit.
    conditional: Option<Arc<[Arc<Rule>]>>,
}

/// Why a rule cannot be read against the configured servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error(transparent)]
    Selector(#[from] SelectorError),
    #[error(
        "no configured server matches `{server}` (names are case-sensitive), so this rule never matches"
    )]
    NoSuchServer { server: String },
}

#[derive(Debug)]
struct Rule {
    place: Arc<str>,
    /// None if it is not clear what it names.
    selector: Option<Selector>,
    arguments: Vec<ArgumentCondition>,
    roles: Vec<String>,
    hint: Option<Hint>,
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
    fn selector(&self, servers: &[ServerName]) -> Option<Selector> {
        let tool = self.tool.as_deref().unwrap_or("*");
        match &self.server {
            Some(server) => Some(Selector::of_servers(server, tool)),
            None => Selector::meant(tool, servers, self.verdict.reading()),
        }
    }

    pub fn check(&self, servers: &[ServerName]) -> Result<(), RuleError> {
        let Some(server) = &self.server else {
            let tool = self.tool.as_deref().unwrap_or("*");
            Selector::read(tool, servers, self.verdict.reading())?;
            return Ok(());
        };
        let glob = Glob::new(server);
        match servers.iter().any(|name| glob.matches(name.as_str())) {
            true => Ok(()),
            false => Err(RuleError::NoSuchServer {
                server: server.clone(),
            }),
        }
    }
}

impl Verdict {
    /// How what leads to this verdict is to be read: an `allow` says as little as it may.
    pub fn reading(self) -> Reading {
        match self {
            Self::Allow => Reading::Narrow,
            Self::Manual | Self::Ask | Self::Deny => Reading::Wide,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Manual => "manual",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl Policy {
    /// Reads the rules against the configured servers; rules that name none never match, nor do
    /// rules for other environments.
    pub fn build(
        specs: &[RuleSpec],
        default: Option<Verdict>,
        servers: &[ServerName],
        environment: Option<&str>,
    ) -> Self {
        let here = |spec: &&RuleSpec| {
            let named = &spec.when.environments;
            named.is_empty() || named.iter().any(|name| Some(name.as_str()) == environment)
        };
        let rules = specs.iter().filter(here).map(|spec| {
            let conditions = spec.when.arguments.iter();
            Arc::new(Rule {
                place: spec.place.as_str().into(),
                selector: spec.selector(servers),
                arguments: conditions
                    .map(|(name, patterns)| ArgumentCondition::new(name, patterns, spec.verdict))
                    .collect(),
                roles: spec.when.roles.clone(),
                hint: spec.when.hint,
                verdict: spec.verdict,
            })
        });
        Self {
            rules: rules.collect(),
            default,
        }
    }

    /// What is said of a tool before its arguments are known; none if it is not in scope at all.
    pub fn judge(
        &self,
        subject: Subject<'_>,
        roles: &[String],
        lists: &ToolLists,
    ) -> Option<Judgement> {
        if !lists.execute.contains(subject.id.tool.as_str()) {
            return None;
        }
        let matching = self.rules.iter().filter(|rule| rule.covers(subject, roles));
        let (conditional, plain): (Vec<_>, Vec<_>) =
            matching.partition(|rule| !rule.arguments.is_empty());
        let strictest = plain.into_iter().max_by_key(|rule| rule.verdict);
        Some(Judgement {
            decision: match strictest {
                Some(rule) => rule.decision(),
                None => self.by_lists(subject.id, lists),
            },
            by_rule: strictest.is_some(),
            conditional: (!conditional.is_empty())
                .then(|| conditional.into_iter().map(Arc::clone).collect()),
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
                because: "permissions.default".into(),
            },
            _ => Decision {
                verdict,
                because: key.into(),
            },
        }
    }
}

impl Judgement {
    /// The decision as far as it is known without arguments.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether no call can ever run, so that the tool does not exist.
    pub fn is_hidden(&self) -> bool {
        let may_open = !self.by_rule && self.conditional.is_some();
        self.decision.verdict == Verdict::Deny && !may_open
    }

    /// Whether a call's arguments can change the decision.
    pub fn depends_on_arguments(&self) -> bool {
        self.conditional.is_some()
    }

    /// Whether there can be a call that runs unasked.
    pub fn may_allow(&self) -> bool {
        let mut conditional = self.conditional.iter().flat_map(|rules| rules.iter());
        self.decision.verdict == Verdict::Allow
            || (!self.by_rule && conditional.any(|rule| rule.verdict == Verdict::Allow))
    }

    /// The decision on a call with these arguments.
    pub fn on(&self, arguments: &Value) -> Decision {
        let rules = self.conditional.iter().flat_map(|rules| rules.iter());
        let fitting = rules.filter(|rule| rule.arguments.iter().all(|c| c.fits(arguments)));
        match fitting.max_by_key(|rule| rule.verdict) {
            Some(rule) if !self.by_rule || rule.verdict > self.decision.verdict => rule.decision(),
            _ => self.decision.clone(),
        }
    }
}

impl Rule {
    fn covers(&self, subject: Subject<'_>, roles: &[String]) -> bool {
        let selected = self
            .selector
            .as_ref()
            .is_some_and(|selector| selector.matches(subject.id, subject.alias));
        selected
            && (self.roles.is_empty() || self.roles.iter().any(|role| roles.contains(role)))
            && self.hint.is_none_or(|hint| hint.fits(subject.hints))
    }

    fn decision(&self) -> Decision {
        Decision {
            verdict: self.verdict,
            because: Arc::clone(&self.place),
        }
    }
}

impl Hint {
    /// Nothing said means the worst.
    fn fits(self, hints: Hints) -> bool {
        let read_only = hints.read_only == Some(true);
        match self {
            Self::ReadOnly => read_only,
            Self::Destructive => !read_only && hints.destructive != Some(false),
        }
    }
}

impl<'a> From<&'a Entry> for Subject<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self {
            id: &entry.tool.id,
            alias: &entry.alias,
            hints: entry.tool.hints,
        }
    }
}

#[cfg(test)]
mod tests;

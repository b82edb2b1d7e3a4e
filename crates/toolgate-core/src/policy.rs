//! Permissions: which calls may run, and who decides.
//!
//! The strictest matching rule wins, so the order of rules, files and layers never matters. Rules
//! apply only to tools in scope: a tool missing from its server's `tools_to_execute` does not exist.
//! A [`Judgement`] is the policy's result for a tool before the arguments are known; together with
//! the arguments it yields a [`Decision`].

mod condition;
mod item;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use condition::ArgumentCondition;
use item::ItemPattern;
pub use item::ServerItem;
pub(crate) use item::{split_prompt, split_resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{CatalogEntry, DefinitionReview, ToolHints};
use crate::config::Approvers;
use crate::name::{ServerName, ToolId};
use crate::pattern::{Glob, Selector, SelectorError, SelectorMode};

/// Who decides about a call, from least to most strict.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call runs without confirmation.
    Allow,
    /// The caller decides.
    Manual,
    /// An approver decides.
    Ask,
    /// The call is refused.
    Deny,
}

/// Set of tools of one server, by raw name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolList {
    All,
    Only(BTreeSet<String>),
}

/// The two tool lists of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolLists {
    pub execute: ToolList,
    pub auto_execute: ToolList,
}

/// A permission rule as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSpec {
    /// Config key of the rule, such as `permissions.rules[2]`.
    pub config_key: String,
    pub tool: Option<String>,
    pub server: Option<String>,
    /// Resources as `SERVER:URI`, both with wildcards; then the rule is not about tools.
    pub resource: Option<String>,
    /// Prompts as `SERVER.NAME`, both with wildcards; then the rule is not about tools.
    pub prompt: Option<String>,
    pub when: Conditions,
    /// Who may approve calls for which the rule asks; `None` if the rule does not say so.
    pub approval_by: Option<Approvers>,
    pub verdict: Verdict,
}

/// Additional conditions for a rule to match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Arguments by name, each with patterns; the value must match at least one of them.
    pub arguments: Vec<(String, Vec<String>)>,
    /// The caller has one of these roles; empty matches any caller.
    pub roles: Vec<String>,
    /// The gateway runs in one of these environments; empty matches any.
    pub environments: Vec<String>,
    pub hint: Option<Hint>,
}

/// Effect of a tool according to its server's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// The tool is annotated as read-only.
    ReadOnly,
    /// The tool is annotated neither as read-only nor as non-destructive.
    Destructive,
}

/// All rules, resolved against the configured servers.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    default: Option<Verdict>,
}

/// The properties of a tool that rules inspect.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub id: &'a ToolId,
    pub alias: &'a str,
    pub hints: ToolHints,
    pub review: DefinitionReview,
}

/// A verdict and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// Config key that decided, as the user wrote it.
    pub decided_by: Arc<str>,
    /// Those who may approve the call according to all rules that ask; `None` if no rule says so.
    pub approval_by: Option<Approvers>,
}

/// Result of the policy for a tool before the arguments are known.
#[derive(Clone, Debug)]
pub struct Judgement {
    decision: Decision,
    /// Whether a rule made `decision`. If not, any conditional rule that matches the arguments
    /// overrides it.
    by_rule: bool,
    /// Rules that match only if the arguments do.
    conditional: Option<Arc<[Arc<Rule>]>>,
}

/// Error returned when a rule cannot be resolved against the configured servers.
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
    config_key: Arc<str>,
    /// Selects nothing if the rule is ambiguous, or not about tools.
    selector: Selector,
    items: Option<ItemPattern>,
    arguments: Vec<ArgumentCondition>,
    roles: Vec<String>,
    hint: Option<Hint>,
    approval_by: Option<Approvers>,
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

impl ToolLists {
    /// Says that the lists let no tool through, and what to do.
    pub fn describe_empty(&self) -> Option<&'static str> {
        if self.execute != ToolList::none() {
            return None;
        }
        Some(if self.auto_execute == ToolList::none() {
            "`tools_to_execute` is absent or empty, so no tool of the server can be used; list tools, or write `[\"*\"]` for all"
        } else {
            "`tools_to_execute` is absent or empty, so `tools_to_auto_execute` has no effect; a tool must be in both lists"
        })
    }
}

/// Lists tools by name; `"*"` stands for all, as in the configuration.
impl<const N: usize> From<[&str; N]> for ToolList {
    fn from(names: [&str; N]) -> Self {
        if names.contains(&"*") {
            Self::All
        } else {
            Self::Only(names.into_iter().map(ToOwned::to_owned).collect())
        }
    }
}

impl RuleSpec {
    /// Resolves the rule against these servers. A rule that is ambiguous, or not about tools, selects
    /// nothing.
    pub(crate) fn selector(&self, servers: &[ServerName]) -> Selector {
        if self.resource.is_some() || self.prompt.is_some() {
            return Selector::default();
        }
        let tool = self.tool.as_deref().unwrap_or("*");
        match &self.server {
            Some(server) => Selector::from_globs(server, tool),
            None => Selector::parse_or_none(tool, servers, self.verdict.selector_mode()),
        }
    }

    /// Whether the rule is for a built-in tool of agent-code, such as `Bash`, which can be no MCP
    /// tool.
    pub(crate) fn is_for_agent_code(&self) -> bool {
        let is_word = |text: &String| {
            text.starts_with(|c: char| c.is_ascii_uppercase())
                && text.chars().all(|c| c.is_ascii_alphanumeric())
        };
        self.server.is_none() && self.tool.as_ref().is_some_and(is_word)
    }

    pub fn check(&self, servers: &[ServerName]) -> Result<(), RuleError> {
        let Some(server) = self.server.as_deref().or(self.item_server()) else {
            let tool = self.tool.as_deref().unwrap_or("*");
            Selector::parse(tool, servers, self.verdict.selector_mode())?;
            return Ok(());
        };
        let glob = Glob::new(server);
        if servers.iter().any(|name| glob.matches(name.as_str())) {
            Ok(())
        } else {
            Err(RuleError::NoSuchServer {
                server: server.to_owned(),
            })
        }
    }
}

impl Verdict {
    /// All verdicts, from the least to the most strict.
    pub const ALL: [Self; 4] = [Self::Allow, Self::Manual, Self::Ask, Self::Deny];

    /// Mode for selectors that lead to this verdict: `allow` is narrow, everything else wide.
    pub fn selector_mode(self) -> SelectorMode {
        match self {
            Self::Allow => SelectorMode::Narrow,
            Self::Manual | Self::Ask | Self::Deny => SelectorMode::Wide,
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
    /// Resolves the rules against the configured servers. Rules that name no configured server and
    /// rules for other environments never match.
    pub fn build(
        specs: &[RuleSpec],
        default: Option<Verdict>,
        servers: &[ServerName],
        environment: Option<&str>,
    ) -> Self {
        let is_active = |spec: &&RuleSpec| {
            let environments = &spec.when.environments;
            environments.is_empty()
                || environments
                    .iter()
                    .any(|name| Some(name.as_str()) == environment)
        };
        let rules = specs.iter().filter(is_active).map(|spec| {
            let conditions = spec.when.arguments.iter();
            Arc::new(Rule {
                config_key: spec.config_key.as_str().into(),
                selector: spec.selector(servers),
                items: ItemPattern::new(spec),
                arguments: conditions
                    .map(|(name, patterns)| ArgumentCondition::new(name, patterns, spec.verdict))
                    .collect(),
                roles: spec.when.roles.clone(),
                hint: spec.when.hint,
                approval_by: spec.approval_by,
                verdict: spec.verdict,
            })
        });
        Self {
            rules: rules.collect(),
            default,
        }
    }

    /// Judges a tool before its arguments are known; `None` if it is not in scope.
    pub fn judge(
        &self,
        subject: Subject<'_>,
        roles: &[String],
        lists: &ToolLists,
    ) -> Option<Judgement> {
        if !lists.execute.contains(subject.id.tool.as_str()) {
            return None;
        }
        let matching = self
            .rules
            .iter()
            .filter(|rule| rule.applies_to(subject, roles));
        let (conditional, plain): (Vec<_>, Vec<_>) =
            matching.partition(|rule| !rule.arguments.is_empty());
        let strictest = strictest_decision(plain.into_iter().map(|rule| &**rule));
        Some(Judgement {
            by_rule: strictest.is_some(),
            decision: strictest.unwrap_or_else(|| self.decide_by_lists(subject.id, lists)),
            conditional: (!conditional.is_empty())
                .then(|| conditional.into_iter().map(Arc::clone).collect()),
        })
    }

    fn decide_by_lists(&self, id: &ToolId, lists: &ToolLists) -> Decision {
        let (verdict, key) = if lists.auto_execute.contains(id.tool.as_str()) {
            (Verdict::Allow, "tools_to_auto_execute")
        } else {
            (Verdict::Manual, "tools_to_execute")
        };
        self.decide_by_default(verdict, key)
    }

    /// Returns the verdict that `key` gives, or the default if that is stricter.
    fn decide_by_default(&self, verdict: Verdict, key: &str) -> Decision {
        match self.default {
            Some(default) if default > verdict => Decision {
                verdict: default,
                decided_by: "permissions.default".into(),
                approval_by: None,
            },
            _ => Decision {
                verdict,
                decided_by: key.into(),
                approval_by: None,
            },
        }
    }
}

impl Judgement {
    /// Decision if no conditional rule matches the arguments.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether no call can ever run, so the tool must be treated as absent.
    pub fn is_hidden(&self) -> bool {
        let can_be_overridden = !self.by_rule && self.conditional.is_some();
        self.decision.verdict == Verdict::Deny && !can_be_overridden
    }

    /// Whether a call's arguments can change the decision.
    pub fn depends_on_arguments(&self) -> bool {
        self.conditional.is_some()
    }

    /// Whether some call may run without confirmation.
    pub fn can_allow(&self) -> bool {
        let mut conditional = self.conditional.iter().flat_map(|rules| rules.iter());
        self.decision.verdict == Verdict::Allow
            || (!self.by_rule && conditional.any(|rule| rule.verdict == Verdict::Allow))
    }

    /// Decides on a call with these arguments.
    pub fn decide(&self, arguments: &Value) -> Decision {
        let rules = self.conditional.iter().flat_map(|rules| rules.iter());
        let matching = rules.filter(|rule| rule.arguments.iter().all(|c| c.matches(arguments)));
        match strictest_decision(matching.map(|rule| &**rule)) {
            Some(decision) if self.by_rule => decision.stricter(self.decision.clone()),
            Some(decision) => decision,
            None => self.decision.clone(),
        }
    }
}

/// Returns the decision of several matching rules; `None` if there is none.
fn strictest_decision<'r>(rules: impl Iterator<Item = &'r Rule>) -> Option<Decision> {
    rules.map(Rule::decision).reduce(Decision::stricter)
}

impl Decision {
    /// Returns the stricter decision. If both have the same verdict, only those whom both accept may
    /// approve the call.
    fn stricter(self, other: Self) -> Self {
        match self.verdict.cmp(&other.verdict) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal => Self {
                approval_by: match (self.approval_by, other.approval_by) {
                    (Some(one), Some(two)) => Some(one.intersect(two)),
                    (one, two) => one.or(two),
                },
                ..other
            },
        }
    }
}

impl Rule {
    fn applies_to(&self, subject: Subject<'_>, roles: &[String]) -> bool {
        self.selector.matches(subject.id)
            && self.applies_to_roles(roles)
            && self.hint.is_none_or(|hint| hint.matches(subject.hints))
    }

    fn applies_to_roles(&self, roles: &[String]) -> bool {
        self.roles.is_empty() || self.roles.iter().any(|role| roles.contains(role))
    }

    fn decision(&self) -> Decision {
        Decision {
            verdict: self.verdict,
            decided_by: Arc::clone(&self.config_key),
            approval_by: self.approval_by,
        }
    }
}

impl Hint {
    /// An absent annotation counts as the least safe value.
    fn matches(self, hints: ToolHints) -> bool {
        let read_only = hints.read_only == Some(true);
        match self {
            Self::ReadOnly => read_only,
            Self::Destructive => !read_only && hints.destructive != Some(false),
        }
    }
}

impl<'a> From<&'a CatalogEntry> for Subject<'a> {
    fn from(entry: &'a CatalogEntry) -> Self {
        Self {
            id: &entry.tool.id,
            alias: &entry.alias,
            hints: entry.tool.hints,
            review: entry.review,
        }
    }
}

#[cfg(test)]
mod tests;

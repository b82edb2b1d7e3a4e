//! Reviews all definitions of a catalog.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use toolgate_core::Catalog;
use toolgate_core::catalog::{DefinitionReview, Tool};
use toolgate_core::config::{DefinitionSettings, OnDefinitionChange, OnSuspiciousDefinition};
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::scan::{DefinitionFinding, DefinitionScanner};

use super::TrustedDefinitions;

/// Tools named in the description of a problem.
const MAX_NAMED_TOOLS: usize = 5;

/// Whether a definition is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefinitionState {
    /// Seen for the first time, and not stored yet.
    New,
    /// It is the one that is trusted.
    Trusted,
    /// Another definition of the tool is trusted.
    Changed,
    /// A server that was known before added it, with the name of this other server's tool.
    Shadowing(ToolId),
}

/// What a review depends on.
pub(super) struct ReviewInput {
    pub(super) catalog: Arc<Catalog>,
    pub(super) settings: Arc<HashMap<ServerName, DefinitionSettings>>,
    pub(super) trusted: TrustedDefinitions,
}

/// A definition that was reviewed.
#[derive(Clone, Debug)]
pub(super) struct ReviewedDefinition {
    pub(super) tool: Arc<Tool>,
    pub(super) alias: Arc<str>,
    pub(super) settings: DefinitionSettings,
    pub(super) state: DefinitionState,
    pub(super) findings: Vec<DefinitionFinding>,
    /// Whether an administrator trusts exactly this definition.
    is_approved: bool,
}

impl DefinitionState {
    /// Returns the name used in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Trusted => "trusted",
            Self::Changed => "changed",
            Self::Shadowing(_) => "shadowing",
        }
    }
}

impl ReviewedDefinition {
    pub(super) fn review(&self) -> DefinitionReview {
        DefinitionReview {
            is_trusted: self.state == DefinitionState::Trusted,
            is_harmless: self.is_approved || self.findings.is_empty(),
        }
    }

    pub(super) fn is_hidden(&self) -> bool {
        let DefinitionReview {
            is_trusted,
            is_harmless,
        } = self.review();
        (self.settings.on_change == OnDefinitionChange::Pin && !is_trusted)
            || (self.settings.on_suspicion == OnSuspiciousDefinition::Block && !is_harmless)
    }

    /// Whether an administrator should read the definition.
    pub(super) fn needs_attention(&self) -> bool {
        let is_untrusted = match self.state {
            DefinitionState::Changed | DefinitionState::Shadowing(_) => true,
            DefinitionState::New | DefinitionState::Trusted => false,
        };
        is_untrusted || !self.review().is_harmless
    }
}

/// Reviews the definitions of all servers whose definitions are watched.
pub(super) fn review(input: &ReviewInput) -> Vec<ReviewedDefinition> {
    let ReviewInput {
        catalog,
        settings,
        trusted,
    } = input;
    let scanner = DefinitionScanner::new(catalog);
    let by_name = trusted_by_name(trusted);
    let first_seen = |id: &ToolId| {
        let trusted = trusted.tools.get(id);
        trusted.map_or(i64::MAX, |trusted| trusted.first_seen)
    };
    let mut reviewed = Vec::new();
    let conditional = catalog.conditional_tools();
    for entry in catalog.tools().iter().chain(&conditional) {
        let tool = &entry.tool;
        let settings = settings.get(&tool.id.server).copied();
        let Some(settings) = settings.filter(|settings| !settings.is_off()) else {
            continue;
        };
        let findings = if settings.on_suspicion == OnSuspiciousDefinition::Off {
            Vec::new()
        } else {
            scanner.scan(tool, &first_seen)
        };
        let is_approved = trusted.tools.get(&tool.id).is_some_and(|trusted| {
            trusted.trusted_by.is_some() && trusted.hash == tool.contract_hash()
        });
        reviewed.push(ReviewedDefinition {
            state: if settings.on_change == OnDefinitionChange::Off {
                DefinitionState::Trusted
            } else {
                state_of(tool, catalog, trusted, &by_name)
            },
            tool: Arc::clone(tool),
            alias: Arc::clone(&entry.alias),
            settings,
            findings,
            is_approved,
        });
    }
    reviewed
}

fn trusted_by_name(trusted: &TrustedDefinitions) -> HashMap<&ToolName, Vec<&ToolId>> {
    let mut by_name: HashMap<&ToolName, Vec<&ToolId>> = HashMap::new();
    for id in trusted.tools.keys() {
        by_name.entry(&id.tool).or_default().push(id);
    }
    by_name
}

fn state_of(
    tool: &Tool,
    catalog: &Catalog,
    trusted: &TrustedDefinitions,
    by_name: &HashMap<&ToolName, Vec<&ToolId>>,
) -> DefinitionState {
    if let Some(known) = trusted.tools.get(&tool.id) {
        return if known.hash == tool.contract_hash() {
            DefinitionState::Trusted
        } else {
            DefinitionState::Changed
        };
    }
    if !trusted.servers.contains(&tool.id.server) {
        return DefinitionState::New;
    }
    let same_name = by_name.get(&tool.id.tool).into_iter().flatten();
    // A second server with the same program has the same definitions.
    let differs = |id: &&&ToolId| {
        let other = trusted.tools.get(**id);
        let is_other_server = id.server != tool.id.server && catalog.listing(&id.server).is_some();
        is_other_server && other.is_some_and(|other| other.hash != tool.contract_hash())
    };
    match same_name.filter(differs).min() {
        Some(other) => DefinitionState::Shadowing((*other).clone()),
        None => DefinitionState::New,
    }
}

/// Describes each server whose definitions an administrator should read.
pub(super) fn summarize(reviewed: &[ReviewedDefinition]) -> Vec<(ServerName, String)> {
    let mut by_server: BTreeMap<&ServerName, Vec<&ReviewedDefinition>> = BTreeMap::new();
    for definition in reviewed.iter().filter(|one| one.needs_attention()) {
        let server = &definition.tool.id.server;
        by_server.entry(server).or_default().push(definition);
    }
    let mut problems = Vec::new();
    for (server, definitions) in by_server {
        let mut add = |what: &str, tools: Vec<&ReviewedDefinition>| {
            if !tools.is_empty() {
                problems.push((server.clone(), describe(what, &tools)));
            }
        };
        let with_state = |matches: fn(&DefinitionState) -> bool| {
            let definitions = definitions.iter().copied();
            definitions.filter(|one| matches(&one.state)).collect()
        };
        add(
            "changed since it was trusted",
            with_state(|state| *state == DefinitionState::Changed),
        );
        add(
            "has the name of another server's tool",
            with_state(|state| matches!(state, DefinitionState::Shadowing(_))),
        );
        let suspicious = definitions.iter().copied();
        let suspicious = suspicious.filter(|one| !one.review().is_harmless);
        add("looks suspicious", suspicious.collect());
    }
    problems
}

fn describe(what: &str, tools: &[&ReviewedDefinition]) -> String {
    let named = tools.iter().take(MAX_NAMED_TOOLS);
    let named: Vec<String> = named.map(|one| format!("`{}`", one.tool.id.tool)).collect();
    let more = match tools.len().saturating_sub(MAX_NAMED_TOOLS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let effect = if tools.iter().all(|one| one.is_hidden()) {
        "hidden until the definition is trusted"
    } else {
        "read it, then trust it"
    };
    format!(
        "the definition of {}{more} {what}; {effect}",
        named.join(", ")
    )
}

/// Logs definitions that an administrator should read and that were not in the last review.
pub(super) fn log_changes(before: &[ReviewedDefinition], now: &[ReviewedDefinition]) {
    let key = |one: &ReviewedDefinition| (one.tool.id.clone(), one.tool.contract_hash().to_owned());
    let reported = before.iter().filter(|one| one.needs_attention()).map(key);
    let reported: HashSet<(ToolId, String)> = reported.collect();
    let now = now.iter().filter(|one| one.needs_attention());
    for definition in now.filter(|one| !reported.contains(&key(one))) {
        let findings = definition.findings.iter();
        let findings: Vec<&str> = findings.map(|finding| finding.what.as_str()).collect();
        tracing::warn!(
            tool = %definition.tool.id,
            state = definition.state.as_str(),
            hidden = definition.is_hidden(),
            findings = findings.join("; "),
            "an administrator should read the definition of a tool"
        );
    }
}

//! Resolves the name in a call to a tool in the caller's scope.
//!
//! Hidden and absent tools produce the same error; suggestions only come from the scope.

use std::sync::Arc;

use toolgate_core::catalog::{CatalogEntry, DefinitionReview, Resolution, ToolHints};
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::pattern::strip_server_prefixes;
use toolgate_core::policy::{Judgement, Subject};
use toolgate_core::scope::{Filters, Scope};
use toolgate_mcp::registry::{Registry, ServerUnavailable};

use super::rules::Rules;
use crate::call::CallError;
use crate::caller::Caller;

/// Minimum Jaro-Winkler similarity for a name to be suggested.
const MIN_SIMILARITY: f64 = 0.82;
const MAX_SUGGESTIONS: usize = 3;
/// Longer names cannot be tool names, so comparing them would only waste time.
const MAX_COMPARED_NAME_LEN: usize = 128;
/// Above this scope size, computing suggestions is too expensive.
const MAX_COMPARED_TOOLS: usize = 1000;

/// Resolves tool names for one call.
#[derive(Clone, Copy)]
pub(super) struct Finder<'a> {
    pub(super) rules: &'a Rules,
    pub(super) scope: &'a Scope,
    pub(super) registry: &'a Registry,
    pub(super) caller: &'a Caller,
    pub(super) filters: &'a Filters,
}

/// A tool in scope and the judgement on it.
#[derive(Clone, Debug)]
pub(super) struct ResolvedTool {
    pub(super) entry: CatalogEntry,
    pub(super) judgement: Judgement,
    /// The requested tool, if this one is its fallback.
    pub(super) fallback_for: Option<ToolId>,
}

/// A tool on a server that has not connected yet, which may or may not exist.
struct UnconnectedTool {
    id: ToolId,
    unavailable: ServerUnavailable,
}

impl Finder<'_> {
    pub(super) fn find(
        &self,
        name: &str,
        server: Option<&ServerName>,
    ) -> Result<ResolvedTool, CallError> {
        let unknown = || CallError::Unknown {
            name: name.chars().take(MAX_COMPARED_NAME_LEN).collect(),
            nearest: self.suggestions(name),
        };
        if let Some(server) = server {
            let id = ToolId {
                server: server.clone(),
                tool: ToolName::new(name),
            };
            let entry = self.scope.catalog().tool(&id);
            return entry
                .and_then(|entry| self.resolve_entry(entry))
                .ok_or_else(unknown);
        }
        match self.scope.resolve(name) {
            Resolution::Found(entry) => self.resolve_entry(entry).ok_or_else(unknown),
            Resolution::Unknown => {
                let found = self.find_on_unconnected_server(name).ok_or_else(unknown)?;
                self.find_fallback(&found.id)
                    .ok_or(CallError::Unavailable(found.unavailable))
            }
            Resolution::Ambiguous(entries) => Err(CallError::Ambiguous {
                name: name.to_owned(),
                aliases: entries
                    .iter()
                    .map(|entry| entry.alias.to_string())
                    .collect(),
            }),
        }
    }

    /// Returns the tool that replaces `id` while its server is unavailable.
    pub(super) fn find_fallback(&self, id: &ToolId) -> Option<ResolvedTool> {
        let server_rules = self.rules.servers.get(&id.server)?;
        let same = ToolId {
            server: server_rules.server.fallback.clone()?,
            tool: id.tool.clone(),
        };
        let target = self.resolve_entry(self.scope.catalog().tool(&same)?)?;
        Some(ResolvedTool {
            fallback_for: Some(id.clone()),
            ..target
        })
    }

    fn resolve_entry(&self, entry: &CatalogEntry) -> Option<ResolvedTool> {
        Some(ResolvedTool {
            entry: entry.clone(),
            judgement: self.scope.judgement(entry)?.clone(),
            fallback_for: None,
        })
    }

    /// Returns the tool that a name may mean on a server that has not connected yet.
    fn find_on_unconnected_server(&self, name: &str) -> Option<UnconnectedTool> {
        let principal = self.rules.principal(self.caller).ok()?;
        let view = self.rules.access.view(principal, self.filters);
        let candidates = self.rules.servers.values().flat_map(|server_rules| {
            let server = &server_rules.server.name;
            strip_server_prefixes(name, server).map(move |tool| (server, ToolName::new(tool)))
        });
        candidates
            .filter_map(|(server, tool)| {
                let id = ToolId {
                    server: server.clone(),
                    tool,
                };
                view.judge(Subject {
                    id: &id,
                    alias: name,
                    hints: ToolHints::default(),
                    review: DefinitionReview::PASSED,
                })?;
                let status = self.registry.entry(server)?.status();
                let unavailable = ServerUnavailable {
                    server: server.clone(),
                    status: Arc::clone(&status),
                };
                let is_unconnected = status.session.is_none();
                is_unconnected.then_some(UnconnectedTool { id, unavailable })
            })
            .next()
    }

    /// Returns the aliases most similar to `name`, in backticks.
    fn suggestions(&self, name: &str) -> Vec<String> {
        if name.len() > MAX_COMPARED_NAME_LEN || self.scope.len() > MAX_COMPARED_TOOLS {
            return Vec::new();
        }
        let mut scored: Vec<(f64, &CatalogEntry)> = self
            .scope
            .tools()
            .map(|(entry, _)| {
                let alias = strsim::jaro_winkler(name, &entry.alias);
                let bare = strsim::jaro_winkler(name, entry.tool.id.tool.as_str());
                (alias.max(bare), entry)
            })
            .filter(|(score, _)| *score >= MIN_SIMILARITY)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let nearest = scored.iter().take(MAX_SUGGESTIONS);
        nearest
            .map(|(_, entry)| format!("`{}`", entry.alias))
            .collect()
    }
}

//! Finds the tool that a call means, among those that exist for its caller.

use std::sync::Arc;

use toolgate_core::catalog::{Entry, Hints, Resolution};
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::pattern::spelled;
use toolgate_core::policy::{Judgement, Subject};
use toolgate_core::scope::{Filters, Scope};
use toolgate_mcp::registry::{Away, Registry};

use super::rules::Rules;
use crate::call::CallError;
use crate::caller::Caller;

/// Names that are near enough to be suggested.
const SIMILAR: f64 = 0.82;
const SUGGESTIONS: usize = 3;
/// No tool is called so; comparing would only cost time.
const LONGEST_COMPARED: usize = 128;
/// Comparing with more tools costs more than a wrong name is worth.
const MOST_COMPARED: usize = 1000;

/// Where to look, and for whom.
#[derive(Clone, Copy)]
pub(super) struct Finder<'a> {
    pub(super) rules: &'a Rules,
    pub(super) scope: &'a Scope,
    pub(super) registry: &'a Registry,
    pub(super) caller: &'a Caller,
    pub(super) filters: &'a Filters,
}

/// A tool in scope, and what is said of it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) entry: Entry,
    pub(super) judgement: Judgement,
    /// The tool that was asked for, where this one stands in for it.
    pub(super) instead_of: Option<ToolId>,
}

impl Finder<'_> {
    pub(super) fn find(
        &self,
        name: &str,
        server: Option<&ServerName>,
    ) -> Result<Target, CallError> {
        let unknown = || CallError::Unknown {
            name: name.chars().take(LONGEST_COMPARED).collect(),
            nearest: self.nearest(name),
        };
        if let Some(server) = server {
            let id = ToolId {
                server: server.clone(),
                tool: ToolName::new(name),
            };
            let entry = self.scope.catalog().tool(&id);
            return entry
                .and_then(|entry| self.target(entry))
                .ok_or_else(unknown);
        }
        match self.scope.resolve(name) {
            Resolution::Found(entry) => self.target(entry).ok_or_else(unknown),
            Resolution::Unknown => self.awaited(name).unwrap_or_else(|| Err(unknown())),
            Resolution::Ambiguous(entries) => Err(CallError::Ambiguous {
                name: name.to_owned(),
                aliases: entries
                    .iter()
                    .map(|entry| entry.alias.to_string())
                    .collect(),
            }),
        }
    }

    /// The tool that takes over while the server of `id` is away.
    pub(super) fn stand_in(&self, id: &ToolId) -> Option<Target> {
        let served = self.rules.servers.get(&id.server)?;
        let same = ToolId {
            server: served.server.fallback.clone()?,
            tool: id.tool.clone(),
        };
        let target = self.target(self.scope.catalog().tool(&same)?)?;
        Some(Target {
            instead_of: Some(id.clone()),
            ..target
        })
    }

    fn target(&self, entry: &Entry) -> Option<Target> {
        Some(Target {
            entry: entry.clone(),
            judgement: self.scope.judgement(entry)?.clone(),
            instead_of: None,
        })
    }

    /// A name that may well be a tool of a server that has not been up yet: its fallback's tool, or
    /// how that server is.
    fn awaited(&self, name: &str) -> Option<Result<Target, CallError>> {
        let principal = self.rules.principal(self.caller).ok()?;
        let lens = self.rules.access.lens(principal, self.filters);
        let candidates = self.rules.servers.values().flat_map(|served| {
            let server = &served.server.name;
            spelled(name, server).map(move |tool| (server, ToolName::new(tool)))
        });
        let (id, status) = candidates
            .filter_map(|(server, tool)| {
                let id = ToolId {
                    server: server.clone(),
                    tool,
                };
                lens.judge(Subject {
                    id: &id,
                    alias: name,
                    hints: Hints::default(),
                })?;
                let status = self.registry.entry(server)?.status();
                status.session.is_none().then_some((id, status))
            })
            .next()?;
        let away = Away {
            server: id.server.clone(),
            status: Arc::clone(&status),
        };
        Some(self.stand_in(&id).ok_or(CallError::Away(away)))
    }

    fn nearest(&self, name: &str) -> Vec<String> {
        if name.len() > LONGEST_COMPARED || self.scope.len() > MOST_COMPARED {
            return Vec::new();
        }
        let mut scored: Vec<(f64, &Entry)> = self
            .scope
            .tools()
            .map(|(entry, _)| {
                let alias = strsim::jaro_winkler(name, &entry.alias);
                let bare = strsim::jaro_winkler(name, entry.tool.id.tool.as_str());
                (alias.max(bare), entry)
            })
            .filter(|(score, _)| *score >= SIMILAR)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let nearest = scored.iter().take(SUGGESTIONS);
        nearest
            .map(|(_, entry)| format!("`{}`", entry.alias))
            .collect()
    }
}

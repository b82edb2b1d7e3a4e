//! What one call may find: names resolved among the tools that exist for its caller.

use toolgate_core::catalog::{Catalog, Entry, Resolution};
use toolgate_core::name::{ToolId, ToolName};
use toolgate_core::pattern::spelled;
use toolgate_core::policy::Decision;
use toolgate_mcp::registry::{Away, Registry};

use super::Rules;
use crate::call::CallError;

/// Names that are near enough to be suggested.
const SIMILAR: f64 = 0.82;
const SUGGESTIONS: usize = 3;
/// No tool is called so; comparing would only cost time.
const LONGEST_COMPARED: usize = 128;

/// The catalog as one caller sees it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) rules: &'a Rules,
    pub(super) catalog: &'a Catalog,
    pub(super) registry: &'a Registry,
}

/// A tool in scope, and the verdict on it.
pub(super) struct Found<'a> {
    pub(super) entry: &'a Entry,
    pub(super) decision: Decision,
    /// The tool that was asked for, where this one stands in for it.
    pub(super) instead_of: Option<ToolId>,
}

impl<'a> Scope<'a> {
    pub(super) fn resolve(&self, name: &str) -> Result<Found<'a>, CallError> {
        let unknown = || CallError::Unknown {
            name: name.chars().take(LONGEST_COMPARED).collect(),
            nearest: self.nearest(name),
        };
        match self
            .catalog
            .resolve(name, |entry| self.rules.decide(entry).is_some())
        {
            Resolution::Found(entry) => self.found(entry).ok_or_else(unknown),
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
    pub(super) fn stand_in(&self, id: &ToolId) -> Option<Found<'a>> {
        let server = self.rules.servers.get(&id.server)?;
        let same = ToolId {
            server: server.fallback.clone()?,
            tool: id.tool.clone(),
        };
        let found = self.found(self.catalog.tool(&same)?)?;
        Some(Found {
            instead_of: Some(id.clone()),
            ..found
        })
    }

    fn found(&self, entry: &'a Entry) -> Option<Found<'a>> {
        let decision = self.rules.decide(entry)?;
        Some(Found {
            entry,
            decision,
            instead_of: None,
        })
    }

    /// A name that may well be a tool of a server that has not been up yet: its fallback's tool, or
    /// how that server is.
    fn awaited(&self, name: &str) -> Option<Result<Found<'a>, CallError>> {
        let candidates = self.rules.servers.values().flat_map(|server| {
            spelled(name, &server.name).map(move |tool| (server, ToolName::new(tool)))
        });
        let (id, status) = candidates
            .filter_map(|(server, tool)| {
                let id = ToolId {
                    server: server.name.clone(),
                    tool,
                };
                self.rules.decide_named(&id, name)?;
                let status = self.registry.entry(&server.name)?.status();
                status.session.is_none().then_some((id, status))
            })
            .next()?;
        let away = Away {
            server: id.server.clone(),
            status,
        };
        Some(self.stand_in(&id).ok_or(CallError::Away(away)))
    }

    fn nearest(&self, name: &str) -> Vec<String> {
        if name.len() > LONGEST_COMPARED {
            return Vec::new();
        }
        let tools = self.catalog.tools().iter();
        let visible = tools.filter(|entry| self.rules.decide(entry).is_some());
        let mut scored: Vec<(f64, &Entry)> = visible
            .map(|entry| {
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

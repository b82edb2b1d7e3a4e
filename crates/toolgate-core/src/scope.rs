//! Scope: the tools that exist for a request.
//!
//! A tool must pass every `Gate`: the configuration must enable it, the caller's key and roles must
//! grant it, the request's filters must keep it, and no rule may deny it. The same gates decide and
//! explain, so an explanation always matches the decision.

mod access;
mod filter;
mod gate;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use access::{AccessRules, Principal, ToolGrant};
pub use filter::{FilterError, Filters, UnmatchedFilter};
pub use gate::{AccessView, GateResult};

use crate::catalog::{Catalog, CatalogEntry, Resolution};
use crate::name::ServerName;
use crate::policy::Judgement;

/// The tools that exist for a request, each with its judgement.
#[derive(Debug)]
pub struct Scope {
    catalog: Arc<Catalog>,
    /// Catalog indexes and judgements, ascending by index.
    tools: Vec<(usize, Judgement)>,
    /// Servers whose tools are exposed to scripts.
    code_mode_servers: BTreeSet<ServerName>,
    /// Whether any tool in scope belongs to one of them.
    has_code_mode_tools: bool,
    /// Whether any tool may run without confirmation.
    has_auto_executable: bool,
    unmatched_filters: Vec<UnmatchedFilter>,
}

impl Scope {
    /// Builds the scope by judging every tool of the catalog.
    pub fn build(view: AccessView<'_>, catalog: Arc<Catalog>) -> Result<Self, FilterError> {
        let view = view.resolve_filters(&catalog)?;
        let entries = catalog.tools().iter();
        let tools: Vec<(usize, Judgement)> = entries
            .filter_map(|entry| Some((entry.index, view.judge(entry.into())?)))
            .collect();
        let code_mode_servers: BTreeSet<_> = view
            .rules
            .servers
            .iter()
            .filter(|(_, access)| access.code_mode)
            .map(|(name, _)| name.clone())
            .collect();
        let all = catalog.tools();
        let mut seen = tools.iter().map(|(index, _)| &all[*index].tool.id.server);
        Ok(Self {
            has_code_mode_tools: !code_mode_servers.is_empty()
                && seen.any(|server| code_mode_servers.contains(server)),
            has_auto_executable: tools.iter().any(|(_, judgement)| judgement.can_allow()),
            code_mode_servers,
            unmatched_filters: view.unmatched_filters().to_vec(),
            catalog,
            tools,
        })
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub fn len(&self) -> usize {
        self.tools.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Names in the request's filters that match nothing that exists for the caller.
    pub fn unmatched_filters(&self) -> &[UnmatchedFilter] {
        &self.unmatched_filters
    }

    /// Whether some call of a tool in scope may run without confirmation.
    pub fn has_auto_executable(&self) -> bool {
        self.has_auto_executable
    }

    /// All tools in scope, in the catalog's order.
    pub fn tools(&self) -> impl Iterator<Item = (&CatalogEntry, &Judgement)> {
        let all = self.catalog.tools();
        self.tools
            .iter()
            .map(|(index, judgement)| (&all[*index], judgement))
    }

    /// Tools exposed directly to the model.
    pub fn direct_tools(&self) -> impl Iterator<Item = (&CatalogEntry, &Judgement)> {
        self.tools()
            .filter(|(entry, _)| !self.is_code_mode_tool(entry))
    }

    /// Tools exposed to scripts.
    pub fn code_mode_tools(&self) -> impl Iterator<Item = (&CatalogEntry, &Judgement)> {
        let tools = self
            .has_code_mode_tools
            .then(|| self.tools())
            .into_iter()
            .flatten();
        tools.filter(|(entry, _)| self.is_code_mode_tool(entry))
    }

    /// Whether any tool in scope is exposed to scripts.
    pub fn has_code_mode_tools(&self) -> bool {
        self.has_code_mode_tools
    }

    /// Servers configured for code mode, whether or not they have tools in scope.
    pub fn code_mode_servers(&self) -> impl Iterator<Item = &ServerName> {
        self.code_mode_servers.iter()
    }

    /// Whether a tool, if in scope, is exposed to scripts.
    pub fn is_code_mode_tool(&self, entry: &CatalogEntry) -> bool {
        self.code_mode_servers.contains(&entry.tool.id.server)
    }

    pub fn judgement(&self, entry: &CatalogEntry) -> Option<&Judgement> {
        let found = self
            .tools
            .binary_search_by_key(&entry.index, |(index, _)| *index);
        found.ok().map(|index| &self.tools[index].1)
    }

    /// Looks up a tool by name among those in scope.
    pub fn resolve(&self, name: &str) -> Resolution<'_> {
        self.catalog
            .resolve(name, |entry| self.judgement(entry).is_some())
    }
}

#[cfg(test)]
mod tests;

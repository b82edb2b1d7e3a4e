//! Filters that a request may send to narrow its scope.

use crate::catalog::{CatalogEntry, ClientProfile};
use crate::name::{ServerName, ToolId};
use crate::nearest::find_nearest;
use crate::pattern::{Glob, Selector, SelectorMode};

/// Filters of a request. An absent list does not filter; an empty include list removes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filters {
    pub include_clients: Option<Vec<String>>,
    pub exclude_clients: Option<Vec<String>>,
    pub include_tools: Option<Vec<String>>,
    pub exclude_tools: Option<Vec<String>>,
    /// Restricts the scope to one server, for clients connected to a single server.
    pub server: Option<ServerName>,
    /// Restricts the scope to a virtual server.
    pub virtual_server: Option<String>,
    /// Selects what servers list for the clients of a profile.
    pub client: Option<ClientProfile>,
}

/// Error returned for an ambiguous filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` in `x-bf-mcp-include-tools` is ambiguous; write the server name followed by a dot, as in `SERVER.TOOL`"
)]
pub struct FilterError {
    pub text: String,
}

/// A name in a filter that matches nothing that exists for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` in `{header}` matches nothing{}", format_suggestion(.suggestion.as_ref()))]
pub struct UnmatchedFilter {
    pub header: &'static str,
    pub text: String,
    pub suggestion: Option<String>,
}

/// Maximum number of unmatched names that are reported.
const MAX_UNMATCHED: usize = 16;

impl UnmatchedFilter {
    fn new(header: &'static str, text: &str, suggestion: Option<&str>) -> Self {
        Self {
            header,
            text: text.to_owned(),
            suggestion: suggestion.map(ToOwned::to_owned),
        }
    }
}

/// Filters resolved against the configured servers.
#[derive(Debug)]
pub(super) struct CompiledFilters {
    filters: Filters,
    include_clients: Option<Vec<Glob>>,
    exclude_clients: Vec<Glob>,
    include_tools: Option<Vec<IncludedTools>>,
    exclude_tools: Vec<Selector>,
    /// Tools of the virtual server, if the request is limited to one.
    virtual_server: Option<Vec<Selector>>,
}

/// A text of `include-tools`.
#[derive(Debug)]
struct IncludedTools {
    text: String,
    /// One selector per server that the text may name, longest server name first.
    readings: Vec<Selector>,
}

impl Filters {
    pub const INCLUDE_CLIENTS: &str = "x-bf-mcp-include-clients";
    pub const EXCLUDE_CLIENTS: &str = "x-bf-mcp-exclude-clients";
    pub const INCLUDE_TOOLS: &str = "x-bf-mcp-include-tools";
    pub const EXCLUDE_TOOLS: &str = "x-bf-mcp-exclude-tools";

    /// Parses the names in the values of one header; repeated headers form one list.
    pub fn parse_list<'v>(values: impl IntoIterator<Item = &'v str>) -> Option<Vec<String>> {
        let mut values = values.into_iter().peekable();
        values.peek()?;
        let names = values.flat_map(|value| value.split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        Some(names.map(ToOwned::to_owned).collect())
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there are tool filters, which must be resolved against the servers.
    pub(super) fn has_tool_filters(&self) -> bool {
        self.include_tools.is_some() || self.exclude_tools.is_some()
    }

    /// Total number of names in all lists.
    pub fn name_count(&self) -> usize {
        let lists = [
            &self.include_clients,
            &self.exclude_clients,
            &self.include_tools,
            &self.exclude_tools,
        ];
        lists.into_iter().flatten().map(Vec::len).sum()
    }

    /// Total size of the names in all lists.
    pub fn name_bytes(&self) -> usize {
        let lists = [
            &self.include_clients,
            &self.exclude_clients,
            &self.include_tools,
            &self.exclude_tools,
        ];
        let names = lists.into_iter().flatten().flatten();
        names.map(String::len).sum()
    }

    fn list_for_header(&self, header: &str) -> Option<&Vec<String>> {
        match header {
            Self::INCLUDE_CLIENTS => self.include_clients.as_ref(),
            Self::EXCLUDE_CLIENTS => self.exclude_clients.as_ref(),
            Self::INCLUDE_TOOLS => self.include_tools.as_ref(),
            _ => self.exclude_tools.as_ref(),
        }
    }
}

impl CompiledFilters {
    /// Resolves filters. `virtual_server` holds the tools of the virtual server, if any.
    pub(super) fn new(
        filters: &Filters,
        servers: &[ServerName],
        virtual_server: Option<Vec<Selector>>,
    ) -> Self {
        let globs = |list: &Vec<String>| list.iter().map(|text| Glob::new(text)).collect();
        let include = |text: &String| IncludedTools {
            text: text.clone(),
            readings: Selector::parse_each(text, servers),
        };
        let exclude_tools = filters.exclude_tools.iter().flatten();
        Self {
            include_clients: filters.include_clients.as_ref().map(globs),
            exclude_clients: filters
                .exclude_clients
                .as_ref()
                .map(globs)
                .unwrap_or_default(),
            include_tools: filters
                .include_tools
                .as_ref()
                .map(|texts| texts.iter().map(include).collect()),
            exclude_tools: exclude_tools
                .map(|text| Selector::parse_or_none(text, servers, SelectorMode::Wide))
                .collect(),
            virtual_server,
            filters: filters.clone(),
        }
    }

    /// Resolves texts that may name several servers against the tools that exist for the caller.
    pub(super) fn resolve(&mut self, existing: &[&CatalogEntry]) -> Result<(), FilterError> {
        let included = self.include_tools.iter_mut().flatten();
        for included in included.filter(|included| included.readings.len() > 1) {
            included.resolve(existing)?;
        }
        Ok(())
    }

    /// Returns the names that match none of the tools that exist for the caller, or none of its
    /// servers; only the first of many.
    pub(super) fn find_unmatched(
        &self,
        existing: &[&CatalogEntry],
        servers: &[&ServerName],
    ) -> Vec<UnmatchedFilter> {
        let names = || servers.iter().map(|server| server.as_str());
        let aliases = || existing.iter().map(|entry| &*entry.alias);
        let clients = [Filters::INCLUDE_CLIENTS, Filters::EXCLUDE_CLIENTS];
        let clients = clients.into_iter().flat_map(|header| {
            let texts = self.filters.list_for_header(header).into_iter().flatten();
            texts.map(move |text| (header, text))
        });
        let clients = clients.filter(|(_, text)| {
            let glob = Glob::new(text);
            !names().any(|name| glob.matches(name))
        });
        let clients = clients
            .map(|(header, text)| UnmatchedFilter::new(header, text, find_nearest(text, names())));
        let matches = |selectors: &[Selector]| {
            let mut existing = existing.iter();
            existing.any(|entry| selectors.iter().any(|s| s.matches(&entry.tool.id)))
        };
        let included = self.include_tools.iter().flatten();
        let included = included
            .filter(|included| !matches(&included.readings))
            .map(|included| (Filters::INCLUDE_TOOLS, &included.text));
        let excluded = self.filters.exclude_tools.iter().flatten();
        let excluded = excluded
            .zip(&self.exclude_tools)
            .filter(|(_, selector)| !matches(std::slice::from_ref(selector)))
            .map(|(text, _)| (Filters::EXCLUDE_TOOLS, text));
        let tools = included.chain(excluded).map(|(header, text)| {
            UnmatchedFilter::new(header, text, find_nearest(text, aliases()))
        });
        // A suggestion compares a name with all others, so the bound comes before it.
        clients.chain(tools).take(MAX_UNMATCHED).collect()
    }

    pub(super) fn includes_client(&self, server: &ServerName) -> bool {
        let matches = |globs: &Vec<Glob>| globs.iter().any(|glob| glob.matches(server.as_str()));
        let single_server = self.filters.server.as_ref();
        let virtual_server = self.virtual_server.as_ref();
        self.include_clients.as_ref().is_none_or(matches)
            && single_server.is_none_or(|single_server| single_server == server)
            && virtual_server.is_none_or(|virtual_server| {
                virtual_server.iter().any(|s| s.may_match_server(server))
            })
    }

    pub(super) fn excludes_client(&self, server: &ServerName) -> bool {
        let mut globs = self.exclude_clients.iter();
        globs.any(|glob| glob.matches(server.as_str()))
    }

    /// Whether the virtual server, if the request is limited to one, names this server and with it
    /// its resources and prompts.
    pub(super) fn includes_resources(&self, server: &ServerName) -> bool {
        let names = |selectors: &Vec<Selector>| selectors.iter().any(|s| s.names_server(server));
        self.virtual_server.as_ref().is_none_or(names)
    }

    pub(super) fn includes_tool(&self, id: &ToolId) -> bool {
        let matches = |selectors: &Vec<Selector>| selectors.iter().any(|s| s.matches(id));
        let included = |texts: &Vec<IncludedTools>| texts.iter().any(|t| matches(&t.readings));
        self.include_tools.as_ref().is_none_or(included)
            && self.virtual_server.as_ref().is_none_or(matches)
    }

    pub(super) fn excludes_tool(&self, id: &ToolId) -> bool {
        self.exclude_tools.iter().any(|s| s.matches(id))
    }

    /// Whether any list names something.
    pub(super) fn has_names(&self) -> bool {
        self.filters.name_count() > 0
    }

    /// Whether the tool filters keep any part of a server. They remove its resources and prompts if
    /// they name no part of it to include, or exclude all of it.
    pub(super) fn keeps_part_of(&self, server: &ServerName) -> bool {
        let names_part = |included: &Vec<IncludedTools>| {
            let mut readings = included.iter().flat_map(|included| &included.readings);
            readings.any(|selector| selector.names_server(server))
        };
        let mut excluded = self.exclude_tools.iter();
        self.include_tools.as_ref().is_none_or(names_part)
            && !excluded.any(|selector| selector.covers_server(server))
    }

    /// Value of a header as sent, for display.
    pub(super) fn header_text(&self, header: &str) -> Option<String> {
        self.filters
            .list_for_header(header)
            .map(|list| list.join(","))
    }
}

impl IncludedTools {
    /// Keeps the one reading that names existing tools. If several do, a glob selects the server
    /// with the longest name, and an exact text must be an alias.
    fn resolve(&mut self, existing: &[&CatalogEntry]) -> Result<(), FilterError> {
        let exists = |reading: &Selector| existing.iter().any(|e| reading.matches(&e.tool.id));
        self.readings.retain(exists);
        if self.text.contains(['*', '?']) {
            self.readings.truncate(1);
        }
        if self.readings.len() > 1 {
            let by_alias = existing.iter().find(|entry| *entry.alias == *self.text);
            let Some(entry) = by_alias else {
                return Err(FilterError {
                    text: self.text.clone(),
                });
            };
            self.readings
                .retain(|reading| reading.names_server(&entry.tool.id.server));
        }
        Ok(())
    }
}

fn format_suggestion(suggestion: Option<&String>) -> String {
    suggestion
        .map(|suggestion| format!("; did you mean `{suggestion}`?"))
        .unwrap_or_default()
}

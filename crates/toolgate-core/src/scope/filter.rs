//! Filters that a request may send to narrow its scope.

use crate::name::{ServerName, ToolId};
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
}

/// Error returned for an ambiguous filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` in `x-bf-mcp-include-tools` is ambiguous; write the server name followed by a dot, as in `SERVER.TOOL`"
)]
pub struct FilterError {
    pub text: String,
}

/// Filters resolved against the configured servers.
#[derive(Debug)]
pub(super) struct CompiledFilters {
    filters: Filters,
    include_clients: Option<Vec<Glob>>,
    exclude_clients: Vec<Glob>,
    include_tools: Option<Vec<Selector>>,
    exclude_tools: Vec<Selector>,
    /// Tools of the virtual server, if the request is limited to one.
    virtual_server: Option<Vec<Selector>>,
    /// Texts that are unambiguous only if they are an alias.
    ambiguous: Vec<String>,
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
        let mut ambiguous = Vec::new();
        let include_tools = filters.include_tools.as_ref().map(|texts| {
            let mut selectors = Vec::new();
            for text in texts {
                selectors.push(
                    Selector::parse_or_alias(text, servers, SelectorMode::Narrow).unwrap_or_else(
                        || {
                            ambiguous.push(text.clone());
                            Selector::from_alias(text)
                        },
                    ),
                );
            }
            selectors
        });
        let exclude_tools = filters.exclude_tools.iter().flatten();
        Self {
            include_clients: filters.include_clients.as_ref().map(globs),
            exclude_clients: filters
                .exclude_clients
                .as_ref()
                .map(globs)
                .unwrap_or_default(),
            include_tools,
            exclude_tools: exclude_tools
                .filter_map(|text| Selector::parse_or_alias(text, servers, SelectorMode::Wide))
                .collect(),
            virtual_server,
            ambiguous,
            filters: filters.clone(),
        }
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

    pub(super) fn includes_tool(&self, id: &ToolId, alias: &str) -> bool {
        let matches = |selectors: &Vec<Selector>| selectors.iter().any(|s| s.matches(id, alias));
        self.include_tools.as_ref().is_none_or(matches)
            && self.virtual_server.as_ref().is_none_or(matches)
    }

    pub(super) fn excludes_tool(&self, id: &ToolId, alias: &str) -> bool {
        self.exclude_tools.iter().any(|s| s.matches(id, alias))
    }

    /// Whether the tool filters keep any part of a server. They remove its resources and prompts if
    /// they name no part of it to include, or exclude all of it.
    pub(super) fn keeps_part_of(&self, server: &ServerName) -> bool {
        let names_part = |selectors: &Vec<Selector>| {
            let mut selectors = selectors.iter();
            selectors.any(|selector| selector.names_server(server))
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

    /// Fails if an ambiguous text is not an alias in scope.
    pub(super) fn check_ambiguous(
        &self,
        has_alias: impl Fn(&str) -> bool,
    ) -> Result<(), FilterError> {
        match self.ambiguous.iter().find(|text| !has_alias(text)) {
            Some(text) => Err(FilterError { text: text.clone() }),
            None => Ok(()),
        }
    }
}

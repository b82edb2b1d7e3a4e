//! The four filters that a request may send, and what they leave.

use crate::name::{ServerName, ToolId};
use crate::pattern::{Glob, Reading, Selector};

/// What a request narrows its scope to; absent lists say nothing, an empty include leaves nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filters {
    pub include_clients: Option<Vec<String>>,
    pub exclude_clients: Option<Vec<String>>,
    pub include_tools: Option<Vec<String>>,
    pub exclude_tools: Option<Vec<String>>,
    /// The only server, where a client talks to one alone.
    pub server: Option<ServerName>,
    /// The virtual server, where a client talks to one.
    pub virtual_server: Option<String>,
}

/// A filter that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` in `x-bf-mcp-include-tools` can be read in two ways; write the server's name followed by a dot, as in `SERVER.TOOL`"
)]
pub struct FilterError {
    pub text: String,
}

/// Filters read against the configured servers.
#[derive(Debug)]
pub(super) struct Sieve {
    filters: Filters,
    include_clients: Option<Vec<Glob>>,
    exclude_clients: Vec<Glob>,
    include_tools: Option<Vec<Selector>>,
    exclude_tools: Vec<Selector>,
    within: Option<Vec<Selector>>,
    /// Texts that are clear only if they are an alias.
    ambiguous: Vec<String>,
}

impl Filters {
    pub const INCLUDE_CLIENTS: &str = "x-bf-mcp-include-clients";
    pub const EXCLUDE_CLIENTS: &str = "x-bf-mcp-exclude-clients";
    pub const INCLUDE_TOOLS: &str = "x-bf-mcp-include-tools";
    pub const EXCLUDE_TOOLS: &str = "x-bf-mcp-exclude-tools";

    /// The names in one header's values; a header sent several times is one list.
    pub fn list<'v>(values: impl IntoIterator<Item = &'v str>) -> Option<Vec<String>> {
        let mut values = values.into_iter().peekable();
        values.peek()?;
        let names = values.flat_map(|value| value.split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        Some(names.map(ToOwned::to_owned).collect())
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether tools are named, which is to be read against the servers.
    pub(super) fn names_tools(&self) -> bool {
        self.include_tools.is_some() || self.exclude_tools.is_some()
    }

    /// How many names there are in all.
    pub fn size(&self) -> usize {
        let lists = [
            &self.include_clients,
            &self.exclude_clients,
            &self.include_tools,
            &self.exclude_tools,
        ];
        lists.into_iter().flatten().map(Vec::len).sum()
    }

    fn list_of(&self, header: &str) -> Option<&Vec<String>> {
        match header {
            Self::INCLUDE_CLIENTS => self.include_clients.as_ref(),
            Self::EXCLUDE_CLIENTS => self.exclude_clients.as_ref(),
            Self::INCLUDE_TOOLS => self.include_tools.as_ref(),
            _ => self.exclude_tools.as_ref(),
        }
    }
}

impl Sieve {
    /// What a virtual server has stands in `within`.
    pub(super) fn new(
        filters: &Filters,
        servers: &[ServerName],
        within: Option<Vec<Selector>>,
    ) -> Self {
        let globs = |list: &Vec<String>| list.iter().map(|text| Glob::new(text)).collect();
        let mut ambiguous = Vec::new();
        let include_tools = filters.include_tools.as_ref().map(|texts| {
            let mut selectors = Vec::new();
            for text in texts {
                selectors.push(
                    Selector::meant(text, servers, Reading::Narrow).unwrap_or_else(|| {
                        ambiguous.push(text.clone());
                        Selector::alias(text)
                    }),
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
                .filter_map(|text| Selector::meant(text, servers, Reading::Wide))
                .collect(),
            within,
            ambiguous,
            filters: filters.clone(),
        }
    }

    pub(super) fn includes_client(&self, server: &ServerName) -> bool {
        let matches = |globs: &Vec<Glob>| globs.iter().any(|glob| glob.matches(server.as_str()));
        let only = self.filters.server.as_ref();
        let within = self.within.as_ref();
        self.include_clients.as_ref().is_none_or(matches)
            && only.is_none_or(|only| only == server)
            && within.is_none_or(|within| within.iter().any(|s| s.names(server)))
    }

    pub(super) fn excludes_client(&self, server: &ServerName) -> bool {
        let mut globs = self.exclude_clients.iter();
        globs.any(|glob| glob.matches(server.as_str()))
    }

    pub(super) fn includes_tool(&self, id: &ToolId, alias: &str) -> bool {
        let matches = |selectors: &Vec<Selector>| selectors.iter().any(|s| s.matches(id, alias));
        self.include_tools.as_ref().is_none_or(matches) && self.within.as_ref().is_none_or(matches)
    }

    pub(super) fn excludes_tool(&self, id: &ToolId, alias: &str) -> bool {
        self.exclude_tools.iter().any(|s| s.matches(id, alias))
    }

    /// A header as it was sent, for people.
    pub(super) fn was_sent(&self, header: &str) -> Option<String> {
        self.filters.list_of(header).map(|list| list.join(","))
    }

    /// Texts with two readings are an error unless they are an alias in scope.
    pub(super) fn check(&self, has_alias: impl Fn(&str) -> bool) -> Result<(), FilterError> {
        match self.ambiguous.iter().find(|text| !has_alias(text)) {
            Some(text) => Err(FilterError { text: text.clone() }),
            None => Ok(()),
        }
    }
}

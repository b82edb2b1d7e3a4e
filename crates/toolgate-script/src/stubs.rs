//! What scripts can call, said in Python: names, signatures, files and documentation.
//!
//! [`Bindings`] give every server and tool of a catalog an identifier. They are made once for a
//! catalog and narrowed to what a caller may see, and named by that alone.
//! All texts are bounded and the same bytes each time, whatever a server says of its tools.

mod docs;
mod files;
mod identifier;
mod shape;
mod signature;
mod text;
mod unknown;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use toolgate_core::catalog;
use toolgate_core::name::{ServerName, ToolId};

pub use files::Level;
pub use unknown::Unknown;

use crate::preview::Mentions;
use crate::protocol;
use identifier::{Use, assign};
use signature::Schemas;

/// Servers and their tools by the names that scripts call them.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Ordered by identifier.
    servers: Vec<Server>,
}

/// A server as scripts know it.
#[derive(Clone, Debug)]
pub struct Server {
    pub identifier: Arc<str>,
    pub name: ServerName,
    /// Ordered by identifier.
    tools: Vec<Arc<Tool>>,
}

/// A tool as scripts know it.
#[derive(Debug)]
pub struct Tool {
    pub identifier: String,
    pub source: Arc<catalog::Tool>,
    /// Made when it is first asked for.
    signature: OnceLock<String>,
    parameters: OnceLock<Vec<protocol::Parameter>>,
}

impl Bindings {
    /// Binds tools of any servers, in any order.
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a Arc<catalog::Tool>>) -> Self {
        let mut by_server: BTreeMap<&ServerName, Vec<Arc<Tool>>> = BTreeMap::new();
        for tool in tools {
            let tools = by_server.entry(&tool.id.server).or_default();
            tools.push(Arc::new(Tool::new(
                tool.id.tool.to_string(),
                Arc::clone(tool),
            )));
        }
        let servers = by_server.into_iter().map(|(name, tools)| Server {
            identifier: name.as_str().into(),
            name: name.clone(),
            tools: identified(tools),
        });
        Self::of(servers.collect())
    }

    /// What would be bound if only the `visible` tools existed: of what a caller does not see,
    /// identifiers tell nothing either.
    #[must_use]
    pub fn only(&self, visible: impl Fn(&ToolId) -> bool) -> Self {
        let servers = self.servers.iter().filter_map(|server| {
            let tools = server.tools.iter();
            let left: Vec<_> = tools
                .filter(|tool| visible(&tool.source.id))
                .cloned()
                .collect();
            (!left.is_empty()).then(|| Server {
                tools: match left.len() == server.tools.len() {
                    true => left,
                    false => identified(left),
                },
                ..server.clone()
            })
        });
        Self::of(servers.collect())
    }

    fn of(mut servers: Vec<Server>) -> Self {
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let identifiers = assign(&names, Use::Server);
        for (server, identifier) in servers.iter_mut().zip(identifiers) {
            server.identifier = identifier.into();
        }
        servers.sort_by(|a, b| a.identifier.cmp(&b.identifier));
        Self { servers }
    }

    /// Ordered by identifier.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The tool that a script calls by these identifiers.
    pub fn called(&self, server: &str, tool: &str) -> Option<&Arc<Tool>> {
        self.server(server)?.tool(tool)
    }

    /// The server that scripts know by this identifier.
    pub fn server(&self, identifier: &str) -> Option<&Server> {
        let place = self
            .servers
            .binary_search_by(|server| (*server.identifier).cmp(identifier));
        place.ok().map(|at| &self.servers[at])
    }

    /// The server that somebody means: by identifier or name, in any case, as a file or not.
    pub fn find_server(&self, spelling: &str) -> Result<&Server, Unknown> {
        self.meant(spelling)
            .ok_or_else(|| self.unknown_server(spelling))
    }

    /// The tool that somebody means, spelled like a server.
    pub fn find_tool(&self, server: &str, tool: &str) -> Result<(&Server, &Arc<Tool>), Unknown> {
        let server = self.find_server(server)?;
        match server.meant(tool) {
            Some(tool) => Ok((server, tool)),
            None => Err(self.unknown_tool(server, tool)),
        }
    }

    fn meant(&self, spelling: &str) -> Option<&Server> {
        let wanted = bare(spelling);
        let is_name = |server: &&Server| server.name.as_str() == wanted;
        self.server(wanted)
            .or_else(|| self.servers.iter().find(is_name))
            .or_else(|| {
                let wanted = folded(wanted);
                let is_meant = |server: &&Server| {
                    folded(&server.identifier) == wanted || server.name.folded() == wanted
                };
                self.servers.iter().find(is_meant)
            })
    }

    /// What `getToolDocs` says.
    pub fn docs(&self, server: &str, tool: &str) -> Result<String, Unknown> {
        let (server, tool) = self.find_tool(server, tool)?;
        let view = tool.source.view();
        Ok(docs::docs(
            &server.identifier,
            &tool.identifier,
            &tool.schemas(),
            &view.description.unwrap_or_default(),
        ))
    }
}

impl Server {
    /// Ordered by identifier.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// The tool that scripts know by this identifier.
    pub fn tool(&self, identifier: &str) -> Option<&Arc<Tool>> {
        let place = self
            .tools
            .binary_search_by(|tool| tool.identifier.as_str().cmp(identifier));
        place.ok().map(|at| &self.tools[at])
    }

    /// The server as the worker of a script knows it: with the tools that the script may call, so
    /// that others cost nothing.
    pub fn for_script(&self, mentions: &Mentions) -> protocol::Server {
        let named = mentions.tools.get(&*self.identifier);
        let named = named
            .into_iter()
            .flatten()
            .filter_map(|name| self.tool(name));
        let tools: Vec<&Arc<Tool>> = match mentions.servers.contains(&*self.identifier) {
            true => self.tools.iter().collect(),
            false => named.collect(),
        };
        let tools = tools.into_iter().map(|tool| protocol::Tool {
            name: tool.identifier.clone(),
            parameters: tool.parameters().to_vec(),
        });
        protocol::Server {
            name: self.identifier.to_string(),
            tools: tools.collect(),
        }
    }

    fn meant(&self, spelling: &str) -> Option<&Arc<Tool>> {
        let wanted = bare(spelling);
        let wanted = wanted
            .rsplit_once(['.', '/'])
            .filter(|(server, _)| {
                folded(server) == folded(&self.identifier) || *server == self.name.as_str()
            })
            .map_or(wanted, |(_, tool)| tool);
        self.tool(wanted)
            .or_else(|| {
                self.tools
                    .iter()
                    .find(|tool| tool.source.id.tool.as_str() == wanted)
            })
            .or_else(|| {
                let wanted = folded(wanted);
                let is_meant = |tool: &&Arc<Tool>| {
                    folded(&tool.identifier) == wanted
                        || folded(tool.source.id.tool.as_str()) == wanted
                };
                self.tools.iter().find(is_meant)
            })
    }
}

impl Tool {
    fn new(identifier: String, source: Arc<catalog::Tool>) -> Self {
        Self {
            identifier,
            source,
            signature: OnceLock::new(),
            parameters: OnceLock::new(),
        }
    }

    /// One line that says how to call it, without a line break at its end.
    pub fn signature(&self) -> &str {
        self.signature.get_or_init(|| {
            let description = self.source.view().description.unwrap_or_default();
            signature::line(&self.identifier, &self.schemas(), &description)
        })
    }

    /// The arguments that it takes, in the order of its signature.
    pub fn parameters(&self) -> &[protocol::Parameter] {
        self.parameters.get_or_init(|| self.schemas().for_worker())
    }

    fn schemas(&self) -> Schemas {
        let view = self.source.view();
        Schemas::parse(view.input_schema, view.output_schema)
    }
}

/// Tools of one server with the identifiers that they have beside one another, ordered by these.
fn identified(mut tools: Vec<Arc<Tool>>) -> Vec<Arc<Tool>> {
    tools.sort_by(|a, b| a.source.id.tool.cmp(&b.source.id.tool));
    tools.dedup_by(|a, b| a.source.id.tool == b.source.id.tool);
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool.source.id.tool.as_str())
        .collect();
    let identifiers = assign(&names, Use::Tool);
    for (tool, identifier) in tools.iter_mut().zip(identifiers) {
        if tool.identifier != identifier {
            *tool = Arc::new(Tool::new(identifier, Arc::clone(&tool.source)));
        }
    }
    tools.sort_by(|a, b| a.identifier.cmp(&b.identifier));
    tools
}

/// A name without what makes it the name of a file.
fn bare(spelling: &str) -> &str {
    let name = spelling.trim().trim_start_matches("./").trim_matches('/');
    let name = match name.get(..8) {
        Some(folder) if folder.eq_ignore_ascii_case("servers/") => &name[8..],
        _ => name,
    };
    let end = name.len().saturating_sub(4);
    match name.get(end..) {
        Some(ending) if ending.eq_ignore_ascii_case(".pyi") => &name[..end],
        _ => name.strip_suffix(".py").unwrap_or(name),
    }
}

/// The form under which two spellings count as the same.
fn folded(name: &str) -> String {
    name.to_lowercase().replace(['-', '.', ' '], "_")
}

#[cfg(test)]
mod tests;

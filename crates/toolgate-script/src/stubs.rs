//! Python stubs of the tools that scripts can call: identifiers, signatures, files and documentation.
//!
//! [`Bindings`] assigns an identifier to every server and tool of a catalog. Bindings are created once per
//! catalog and filtered by what a caller may see; identifiers depend only on visible tools. All output
//! is deterministic and bounded in size, whatever a server says about its tools.

mod docs;
mod files;
mod identifier;
mod schema_types;
mod signature;
mod text;
mod unknown;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use toolgate_core::catalog;
use toolgate_core::name::{ServerName, ToolId};

pub use files::FileLevel;
pub use unknown::UnknownName;

use crate::preview::Mentions;
use crate::protocol;
use identifier::{IdentifierUse, assign_identifiers};
use signature::Schemas;

/// Servers and tools by the identifiers that scripts use.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Sorted by identifier.
    servers: Vec<ServerBinding>,
}

/// A server and its identifier in scripts.
#[derive(Clone, Debug)]
pub struct ServerBinding {
    pub identifier: Arc<str>,
    pub name: ServerName,
    /// Sorted by identifier.
    tools: Vec<Arc<ToolBinding>>,
}

/// A tool and its identifier in scripts.
#[derive(Debug)]
pub struct ToolBinding {
    pub identifier: String,
    pub source: Arc<catalog::Tool>,
    /// Created on first use.
    signature: OnceLock<String>,
    parameters: OnceLock<Vec<protocol::ScriptParameter>>,
}

impl Bindings {
    /// Creates bindings for tools of any servers, in any order.
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a Arc<catalog::Tool>>) -> Self {
        let mut by_server: BTreeMap<&ServerName, Vec<Arc<ToolBinding>>> = BTreeMap::new();
        for tool in tools {
            let tools = by_server.entry(&tool.id.server).or_default();
            tools.push(Arc::new(ToolBinding::new(
                tool.id.tool.to_string(),
                Arc::clone(tool),
            )));
        }
        let servers = by_server.into_iter().map(|(name, tools)| ServerBinding {
            identifier: name.as_str().into(),
            name: name.clone(),
            tools: assign_tool_identifiers(tools),
        });
        Self::from_servers(servers.collect())
    }

    /// Returns the bindings as if only the `visible` tools existed.
    ///
    /// Identifiers are reassigned so that they reveal nothing about hidden tools.
    #[must_use]
    pub fn filter_tools(&self, visible: impl Fn(&ToolId) -> bool) -> Self {
        let servers = self.servers.iter().filter_map(|server| {
            let tools = server.tools.iter();
            let visible_tools: Vec<_> = tools
                .filter(|tool| visible(&tool.source.id))
                .cloned()
                .collect();
            (!visible_tools.is_empty()).then(|| ServerBinding {
                tools: if visible_tools.len() == server.tools.len() {
                    visible_tools
                } else {
                    assign_tool_identifiers(visible_tools)
                },
                ..server.clone()
            })
        });
        Self::from_servers(servers.collect())
    }

    fn from_servers(mut servers: Vec<ServerBinding>) -> Self {
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let identifiers = assign_identifiers(&names, IdentifierUse::Server);
        for (server, identifier) in servers.iter_mut().zip(identifiers) {
            server.identifier = identifier.into();
        }
        servers.sort_by(|a, b| a.identifier.cmp(&b.identifier));
        Self { servers }
    }

    /// Returns the servers, sorted by identifier.
    pub fn servers(&self) -> &[ServerBinding] {
        &self.servers
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the tool with these identifiers.
    pub fn tool(&self, server: &str, tool: &str) -> Option<&Arc<ToolBinding>> {
        self.server(server)?.tool(tool)
    }

    /// Returns the server with this identifier.
    pub fn server(&self, identifier: &str) -> Option<&ServerBinding> {
        let index = self
            .servers
            .binary_search_by(|server| (*server.identifier).cmp(identifier));
        index.ok().map(|at| &self.servers[at])
    }

    /// Finds a server by identifier, name or file name, ignoring case.
    pub fn find_server(&self, spelling: &str) -> Result<&ServerBinding, UnknownName> {
        self.resolve_server(spelling)
            .ok_or_else(|| self.unknown_server(spelling))
    }

    /// Finds a tool by any spelling accepted for its server and itself.
    pub fn find_tool(
        &self,
        server: &str,
        tool: &str,
    ) -> Result<(&ServerBinding, &Arc<ToolBinding>), UnknownName> {
        let server = self.find_server(server)?;
        match server.resolve_tool(tool) {
            Some(tool) => Ok((server, tool)),
            None => Err(self.unknown_tool(server, tool)),
        }
    }

    fn resolve_server(&self, spelling: &str) -> Option<&ServerBinding> {
        let name = strip_file_parts(spelling);
        let is_name = |server: &&ServerBinding| server.name.as_str() == name;
        self.server(name)
            .or_else(|| self.servers.iter().find(is_name))
            .or_else(|| {
                let name = fold_name(name);
                let is_match = |server: &&ServerBinding| {
                    fold_name(&server.identifier) == name || server.name.to_folded() == name
                };
                self.servers.iter().find(is_match)
            })
    }

    /// Returns the output of `getToolDocs`.
    pub fn docs(&self, server: &str, tool: &str) -> Result<String, UnknownName> {
        let (server, tool) = self.find_tool(server, tool)?;
        let view = tool.source.view();
        Ok(docs::format_docs(
            &server.identifier,
            &tool.identifier,
            &tool.schemas(),
            &view.description.unwrap_or_default(),
        ))
    }
}

impl ServerBinding {
    /// Returns the tools, sorted by identifier.
    pub fn tools(&self) -> &[Arc<ToolBinding>] {
        &self.tools
    }

    /// Returns the tool with this identifier.
    pub fn tool(&self, identifier: &str) -> Option<&Arc<ToolBinding>> {
        let index = self
            .tools
            .binary_search_by(|tool| tool.identifier.as_str().cmp(identifier));
        index.ok().map(|at| &self.tools[at])
    }

    /// Returns the server as sent to the worker, with only the tools that the script may call.
    pub fn to_script_server(&self, mentions: &Mentions) -> protocol::ScriptServer {
        let tools: Vec<&Arc<ToolBinding>> = if mentions.servers.contains(&*self.identifier) {
            self.tools.iter().collect()
        } else {
            let names = mentions.tools.get(&*self.identifier);
            names
                .into_iter()
                .flatten()
                .filter_map(|name| self.tool(name))
                .collect()
        };
        let tools = tools.into_iter().map(|tool| protocol::ScriptTool {
            name: tool.identifier.clone(),
            parameters: tool.parameters().to_vec(),
        });
        protocol::ScriptServer {
            name: self.identifier.to_string(),
            tools: tools.collect(),
        }
    }

    fn resolve_tool(&self, spelling: &str) -> Option<&Arc<ToolBinding>> {
        let name = strip_file_parts(spelling);
        let name = name
            .rsplit_once(['.', '/'])
            .filter(|(server, _)| {
                fold_name(server) == fold_name(&self.identifier) || *server == self.name.as_str()
            })
            .map_or(name, |(_, tool)| tool);
        self.tool(name)
            .or_else(|| {
                self.tools
                    .iter()
                    .find(|tool| tool.source.id.tool.as_str() == name)
            })
            .or_else(|| {
                let name = fold_name(name);
                let is_match = |tool: &&Arc<ToolBinding>| {
                    fold_name(&tool.identifier) == name
                        || fold_name(tool.source.id.tool.as_str()) == name
                };
                self.tools.iter().find(is_match)
            })
    }
}

impl ToolBinding {
    fn new(identifier: String, source: Arc<catalog::Tool>) -> Self {
        Self {
            identifier,
            source,
            signature: OnceLock::new(),
            parameters: OnceLock::new(),
        }
    }

    /// Returns the signature on one line, without a trailing line break.
    pub fn signature(&self) -> &str {
        self.signature.get_or_init(|| {
            let description = self.source.view().description.unwrap_or_default();
            signature::signature_line(&self.identifier, &self.schemas(), &description)
        })
    }

    /// Returns the parameters, in the order of the signature.
    pub fn parameters(&self) -> &[protocol::ScriptParameter] {
        self.parameters
            .get_or_init(|| self.schemas().to_script_parameters())
    }

    fn schemas(&self) -> Schemas {
        let view = self.source.view();
        Schemas::parse(view.input_schema, view.output_schema)
    }
}

/// Assigns identifiers to the tools of one server and sorts by them.
fn assign_tool_identifiers(mut tools: Vec<Arc<ToolBinding>>) -> Vec<Arc<ToolBinding>> {
    tools.sort_by(|a, b| a.source.id.tool.cmp(&b.source.id.tool));
    tools.dedup_by(|a, b| a.source.id.tool == b.source.id.tool);
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool.source.id.tool.as_str())
        .collect();
    let identifiers = assign_identifiers(&names, IdentifierUse::Tool);
    for (tool, identifier) in tools.iter_mut().zip(identifiers) {
        if tool.identifier != identifier {
            *tool = Arc::new(ToolBinding::new(identifier, Arc::clone(&tool.source)));
        }
    }
    tools.sort_by(|a, b| a.identifier.cmp(&b.identifier));
    tools
}

/// Strips the directory and the extension of a stub file from a name.
fn strip_file_parts(spelling: &str) -> &str {
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

/// Normalizes a name so that equivalent spellings become equal.
fn fold_name(name: &str) -> String {
    name.to_lowercase().replace(['-', '.', ' '], "_")
}

#[cfg(test)]
mod tests;

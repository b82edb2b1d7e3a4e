//! The part of the gateway that a client connects to, and how it introduces itself.

use std::fmt;

use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::clean::json::bound_text;
use toolgate_core::name::ServerName;
use toolgate_core::scope::Filters;
use toolgate_mcp::extensions::Extensions;
use toolgate_mcp::handshake::{LATEST_LEGACY_VERSION, UpstreamSession};
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::task;

use super::era_adapter::server_info;
use super::meta::SUPPORTED_VERSIONS;
use super::to_raw;
use crate::caller::Caller;
use crate::gateway::Gateway;

/// Instructions for clients of [`McpEndpoint::All`].
const INSTRUCTIONS: &str = "Tools of several servers behind one gateway; each tool name starts with the name of its server. Prompts are named `SERVER.PROMPT`, resources `toolgate://SERVER/URI`.";

/// Added where the caller has tools for scripts.
const CODE_MODE_INSTRUCTIONS: &str = " Tools of some servers are called from scripts: list them with `listToolFiles`, read their stubs with `readToolFile`, and run a script with `executeToolCode`.";

/// Maximum size of the instructions of one server, and of all together.
const MAX_SERVER_INSTRUCTIONS_BYTES: usize = 2 * 1024;
const MAX_INSTRUCTIONS_BYTES: usize = 16 * 1024;

/// Capabilities in both eras. Tasks are an extension in the modern one.
const CAPABILITIES: &str = r#""tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true},"completions":{},"logging":{}"#;
const LEGACY_TASKS: &str = r#""tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// The part of the gateway that a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpEndpoint {
    /// All upstream servers, presented as one.
    All,
    /// A single upstream server, with its raw names.
    Server(ServerName),
    /// A virtual server: a named subset of the tools.
    Virtual(String),
}

impl McpEndpoint {
    /// Returns whether the endpoint exists for the caller.
    pub(super) fn exists_for(&self, gateway: &Gateway, caller: &Caller) -> bool {
        let is_configured = match self {
            Self::All => return true,
            Self::Server(name) => {
                let entries = gateway.servers().list();
                entries.iter().any(|entry| entry.server.name == *name)
            }
            Self::Virtual(name) => gateway.tools().virtual_server(name).is_some(),
        };
        is_configured
            && gateway
                .servers()
                .has_visible(caller, &self.narrow(Filters::default()))
    }

    /// Narrows the filters of a request to this endpoint.
    pub(super) fn narrow(&self, filters: Filters) -> Filters {
        let (server, virtual_server) = match self {
            Self::All => (None, None),
            Self::Server(name) => (Some(name.clone()), None),
            Self::Virtual(name) => (None, Some(name.clone())),
        };
        Filters {
            server,
            virtual_server,
            ..filters
        }
    }

    /// Returns the server whose names and URIs are passed through unchanged.
    pub(super) fn single_server(&self) -> Option<&ServerName> {
        match self {
            Self::Server(name) => Some(name),
            Self::All | Self::Virtual(_) => None,
        }
    }

    /// Returns the result of `initialize`.
    pub(super) fn initialize_result(
        &self,
        gateway: &Gateway,
        caller: &Caller,
        version: &str,
    ) -> Box<RawValue> {
        let capabilities = if version == LATEST_LEGACY_VERSION {
            format!("{{{CAPABILITIES},{LEGACY_TASKS}}}")
        } else {
            format!("{{{CAPABILITIES}}}")
        };
        let capabilities = self.extensions(gateway, caller).replace_in(&capabilities);
        let result = Object::new()
            .text("protocolVersion", version)
            .raw("capabilities", &capabilities)
            .raw("serverInfo", server_info());
        to_raw(&self.append_instructions(result, gateway, caller))
    }

    /// Returns the result of `server/discover`.
    pub(super) fn discover_result(&self, gateway: &Gateway, caller: &Caller) -> Box<RawValue> {
        let versions =
            to_raw_value(&SUPPORTED_VERSIONS).map_or_else(|_| "[]".to_owned(), |v| v.to_string());
        let extensions = self.extensions(gateway, caller).with(task::EXTENSION);
        let capabilities = extensions.replace_in(&format!("{{{CAPABILITIES}}}"));
        let result = Object::new()
            .raw("supportedVersions", &versions)
            .raw("capabilities", &capabilities);
        to_raw(&self.append_instructions(result, gateway, caller))
    }

    /// Returns the extensions that servers declare: the only server, or all that have tools for the caller.
    fn extensions(&self, gateway: &Gateway, caller: &Caller) -> Extensions {
        match self {
            Self::Server(name) => server_session(gateway, name)
                .map(|session| session.extensions)
                .unwrap_or_default(),
            Self::All | Self::Virtual(_) => {
                let servers = servers_with_tools(gateway, caller, &self.narrow(Filters::default()));
                let sessions = servers
                    .iter()
                    .filter_map(|name| server_session(gateway, name));
                sessions.fold(Extensions::default(), |joined, session| {
                    joined.join(&session.extensions)
                })
            }
        }
    }

    fn append_instructions(&self, object: Object, gateway: &Gateway, caller: &Caller) -> Object {
        let instructions = match self {
            Self::All => Some(all_instructions(gateway, caller)),
            Self::Server(name) => server_instructions(gateway, name),
            Self::Virtual(name) => {
                let server = gateway.tools().virtual_server(name);
                server.and_then(|server| server.description)
            }
        };
        match instructions {
            Some(text) => object.text("instructions", &text),
            None => object,
        }
    }
}

impl fmt::Display for McpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Server(name) => write!(f, "server {name}"),
            Self::Virtual(name) => write!(f, "virtual {name}"),
        }
    }
}

/// Returns the instructions of all servers that have tools for the caller, after the gateway's own.
fn all_instructions(gateway: &Gateway, caller: &Caller) -> String {
    let mut text = INSTRUCTIONS.to_owned();
    let Ok(scope) = gateway.scope(caller, &Filters::default()) else {
        return text;
    };
    if scope.has_code_mode_tools() {
        text.push_str(CODE_MODE_INSTRUCTIONS);
    }
    for name in &servers_with_tools(gateway, caller, &Filters::default()) {
        let Some(mut instructions) = server_instructions(gateway, name) else {
            continue;
        };
        bound_text(&mut instructions, MAX_SERVER_INSTRUCTIONS_BYTES);
        // Quoted, so that a server cannot imitate the section of another one.
        let instructions = instructions.trim().replace('\n', "\n> ");
        let section = format!("\n\n# {name}\n> {instructions}");
        if text.len() + section.len() > MAX_INSTRUCTIONS_BYTES {
            text.push_str("\n\nFurther servers have instructions that are left out here.");
            break;
        }
        text.push_str(&section);
    }
    text
}

/// Returns the servers that have tools for a request, ordered by name.
fn servers_with_tools(gateway: &Gateway, caller: &Caller, filters: &Filters) -> Vec<ServerName> {
    let Ok(scope) = gateway.scope(caller, filters) else {
        return Vec::new();
    };
    let tools = scope.tools();
    let mut servers: Vec<&ServerName> = tools.map(|(entry, _)| &entry.tool.id.server).collect();
    servers.dedup();
    servers.sort();
    servers.dedup();
    servers.into_iter().cloned().collect()
}

fn server_instructions(gateway: &Gateway, name: &ServerName) -> Option<String> {
    server_session(gateway, name)?.instructions
}

/// Returns how a server introduced itself, if it ever was connected.
fn server_session(gateway: &Gateway, name: &ServerName) -> Option<UpstreamSession> {
    let entries = gateway.servers().list();
    let entry = entries.iter().find(|entry| entry.server.name == *name)?;
    entry.status().session.clone()
}

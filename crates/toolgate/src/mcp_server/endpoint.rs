//! The part of the gateway that a client connects to, and how it introduces itself.

use std::borrow::Cow;

use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::name::ServerName;
use toolgate_core::scope::Filters;
use toolgate_mcp::jsonrpc::Object;

use super::era_adapter::server_info;
use super::meta::SUPPORTED_VERSIONS;
use super::to_raw;
use crate::caller::Caller;
use crate::gateway::Gateway;

/// Instructions for clients of [`McpEndpoint::All`].
const INSTRUCTIONS: &str = "Tools of several servers behind one gateway; each tool name starts with the name of its server. Prompts are named `SERVER.PROMPT`, resources `toolgate://SERVER/URI`.";

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true},"completions":{},"logging":{}}"#;

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
    pub(super) fn initialize_result(&self, gateway: &Gateway, version: &str) -> Box<RawValue> {
        let result = Object::new()
            .text("protocolVersion", version)
            .raw("capabilities", CAPABILITIES)
            .raw("serverInfo", server_info());
        to_raw(&self.append_instructions(result, gateway))
    }

    /// Returns the result of `server/discover`.
    pub(super) fn discover_result(&self, gateway: &Gateway) -> Box<RawValue> {
        let versions =
            to_raw_value(&SUPPORTED_VERSIONS).map_or_else(|_| "[]".to_owned(), |v| v.to_string());
        let result = Object::new()
            .raw("supportedVersions", &versions)
            .raw("capabilities", CAPABILITIES);
        to_raw(&self.append_instructions(result, gateway))
    }

    fn append_instructions(&self, object: Object, gateway: &Gateway) -> Object {
        let instructions = match self {
            Self::All => Some(Cow::Borrowed(INSTRUCTIONS)),
            Self::Server(name) => server_instructions(gateway, name).map(Cow::Owned),
            Self::Virtual(name) => {
                let server = gateway.tools().virtual_server(name);
                server.and_then(|server| server.description.map(Cow::Owned))
            }
        };
        match instructions {
            Some(text) => object.text("instructions", &text),
            None => object,
        }
    }
}

fn server_instructions(gateway: &Gateway, name: &ServerName) -> Option<String> {
    let entries = gateway.servers().list();
    let entry = entries.iter().find(|entry| entry.server.name == *name)?;
    entry.status().session.as_ref()?.instructions.clone()
}

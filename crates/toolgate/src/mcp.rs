//! The gateway as an MCP server: answers the requests of MCP clients.
//!
//! An [`McpServer`] presents all upstream servers as one, with unique names that can be mapped back
//! to their server; or a single upstream server with its raw names; or a virtual server. Transports
//! live elsewhere. Everything goes through the [`Gateway`], so clients only see what the caller may
//! use.

mod approval;
mod batch;
mod items;
mod legacy_client;
mod list_changes;
mod names;
mod request_context;
mod request_notifier;
mod resource_subscriptions;
mod tool_pages;
mod tools;

use std::borrow::Cow;

pub use legacy_client::LegacyClient;
pub use list_changes::{ListChanges, ListenStream};
pub use request_context::McpRequestContext;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
pub use tool_pages::EncodedToolPage;
pub(crate) use tool_pages::ToolPageCache;
use toolgate_core::name::ServerName;
use toolgate_core::scope::Filters;
pub use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, Object, RpcError, RpcResult};
use toolgate_mcp::serve::{
    Caching, RESOURCE_NOT_FOUND, SUPPORTED_VERSIONS, adapt_for_legacy, adapt_for_modern,
    empty_object, method_not_found, rpc_error,
};
use toolgate_mcp::transport::RequestError;

use crate::call::CallError;
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::result::is_input_required;

/// Instructions for clients of [`McpEndpoint::All`].
const INSTRUCTIONS: &str = "Tools of several servers behind one gateway; each tool name starts with the name of its server. Prompts are named `SERVER.PROMPT`, resources `toolgate://SERVER/URI`.";

/// Maximum number of items on a page of a list.
const PAGE_SIZE: usize = 1000;

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

/// Answers the requests of MCP clients at one endpoint.
#[derive(Clone, Debug)]
pub struct McpServer {
    gateway: Gateway,
    endpoint: McpEndpoint,
    instructions: Option<Cow<'static, str>>,
}

#[derive(Deserialize, Default)]
struct ListParams {
    #[serde(default)]
    cursor: Option<String>,
}

impl McpServer {
    /// Creates the server for an endpoint; `None` if the endpoint does not exist for the caller.
    pub fn open(gateway: &Gateway, endpoint: McpEndpoint, caller: &Caller) -> Option<Self> {
        let instructions = match &endpoint {
            McpEndpoint::All => Some(Cow::Borrowed(INSTRUCTIONS)),
            McpEndpoint::Server(name) => {
                let entries = gateway.servers().list();
                let entry = entries.iter().find(|entry| entry.server.name == *name)?;
                let status = entry.status();
                let session = status.session.as_ref();
                session.and_then(|session| session.instructions.clone().map(Cow::Owned))
            }
            McpEndpoint::Virtual(name) => gateway
                .tools()
                .virtual_server(name)?
                .description
                .map(Cow::Owned),
        };
        let server = Self {
            gateway: gateway.clone(),
            endpoint,
            instructions,
        };
        let filters = server.filters(Filters::default());
        let exists =
            server.endpoint == McpEndpoint::All || gateway.servers().has_visible(caller, &filters);
        exists.then_some(server)
    }

    /// Adds the filters of this endpoint to those of a request.
    pub fn filters(&self, filters: Filters) -> Filters {
        Filters {
            server: match &self.endpoint {
                McpEndpoint::Server(name) => Some(name.clone()),
                McpEndpoint::All | McpEndpoint::Virtual(_) => None,
            },
            virtual_server: match &self.endpoint {
                McpEndpoint::Virtual(name) => Some(name.clone()),
                McpEndpoint::All | McpEndpoint::Server(_) => None,
            },
            ..filters
        }
    }

    /// Returns the result of `initialize`.
    pub fn initialize_result(&self, version: &str) -> Box<RawValue> {
        let result = Object::new()
            .text("protocolVersion", version)
            .raw("capabilities", CAPABILITIES)
            .raw("serverInfo", server_info());
        to_raw(&self.with_instructions(result))
    }

    /// Returns the result of `server/discover`.
    pub fn discover_result(&self) -> Box<RawValue> {
        let versions =
            to_raw_value(&SUPPORTED_VERSIONS).map_or_else(|_| "[]".to_owned(), |v| v.to_string());
        let result = Object::new()
            .raw("supportedVersions", &versions)
            .raw("capabilities", CAPABILITIES);
        to_raw(&self.with_instructions(result))
    }

    fn with_instructions(&self, object: Object) -> Object {
        match &self.instructions {
            Some(text) => object.text("instructions", text),
            None => object,
        }
    }

    /// Handles a request of either era.
    pub async fn handle_request(
        &self,
        context: &McpRequestContext,
        method: &str,
        params: Option<&RawValue>,
    ) -> RpcResult {
        if method == "tools/list" {
            return self.list_tools(context, params).map(|page| page.to_raw());
        }
        let caching = match method {
            "server/discover"
            | "resources/list"
            | "resources/templates/list"
            | "prompts/list"
            | "resources/read" => Caching::Private,
            _ => Caching::None,
        };
        let answer = self.dispatch(context, method, params).await;
        let answer = answer.map(|result| adapt_result(result, context.era, caching));
        match context.era {
            Era::Legacy => answer,
            Era::Modern => answer.map_err(|error| match error.code {
                RESOURCE_NOT_FOUND => RpcError {
                    code: INVALID_PARAMS,
                    ..error
                },
                _ => error,
            }),
        }
    }

    /// Dispatches by method. Everything but tool calls is boxed, to keep their futures small.
    async fn dispatch(
        &self,
        context: &McpRequestContext,
        method: &str,
        params: Option<&RawValue>,
    ) -> RpcResult {
        match (method, context.era) {
            ("ping", Era::Legacy) => Ok(empty_object()),
            ("logging/setLevel", Era::Legacy) => self.set_log_level(context, params),
            ("server/discover", Era::Modern) => Ok(self.discover_result()),
            ("tools/call", _) => self.call_tool(context, params).await,
            ("resources/list", _) => self.list_resources(context, params),
            ("resources/templates/list", _) => self.list_templates(context, params),
            ("resources/read", _) => Box::pin(self.read_resource(context, params)).await,
            ("prompts/list", _) => self.list_prompts(context, params),
            ("prompts/get", _) => Box::pin(self.get_prompt(context, params)).await,
            ("completion/complete", _) => Box::pin(self.complete(context, params)).await,
            ("resources/subscribe", Era::Legacy) => Box::pin(self.subscribe(context, params)).await,
            ("resources/unsubscribe", Era::Legacy) => Self::unsubscribe(context, params),
            _ => Err(method_not_found(method)),
        }
    }

    /// Returns whether names and URIs are passed through unchanged, because they belong to a single
    /// server.
    fn uses_raw_names(&self) -> bool {
        matches!(self.endpoint, McpEndpoint::Server(_))
    }
}

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true},"completions":{},"logging":{}}"#;

/// Encodes one page of a list, starting after the cursor. `items` must be sorted by key.
fn encode_page<'a>(
    member: &str,
    items: impl Iterator<Item = (String, &'a RawValue)>,
    cursor: Option<&str>,
) -> RpcResult {
    let after = cursor.map(names::decode_cursor).transpose();
    let after = after.map_err(|()| rpc_error(INVALID_PARAMS, "unknown cursor"))?;
    let mut items = items.skip_while(|(key, _)| after.as_ref().is_some_and(|after| key <= after));
    let mut list = String::from("[");
    let mut last = None;
    for (key, definition) in items.by_ref().take(PAGE_SIZE) {
        if last.is_some() {
            list.push(',');
        }
        list.push_str(definition.get());
        last = Some(key);
    }
    list.push(']');
    let page = Object::new().raw(member, &list);
    Ok(to_raw(&match (items.next(), last) {
        (Some(_), Some(last)) => page.text("nextCursor", &names::encode_cursor(&last)),
        _ => page,
    }))
}

/// Parses the parameters of a request. Absent parameters count as empty.
fn parse_params<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| rpc_error(INVALID_PARAMS, error.to_string()))
}

/// Converts the error of a request other than a tool call.
fn to_rpc_error(error: &CallError) -> RpcError {
    match server_rpc_error(error) {
        Some(error) => error.clone(),
        None => rpc_error(INTERNAL_ERROR, error.to_string()),
    }
}

/// Returns the JSON-RPC error sent by the upstream server, if that is the cause.
fn server_rpc_error(error: &CallError) -> Option<&RpcError> {
    match error {
        CallError::Server {
            cause: RequestError::Rpc(error),
            ..
        }
        | CallError::Server {
            cause: RequestError::Status {
                rpc: Some(error), ..
            },
            ..
        } => Some(error),
        _ => None,
    }
}

/// Adapts a result to the client's era.
fn adapt_result(result: Box<RawValue>, era: Era, caching: Caching) -> Box<RawValue> {
    match era {
        Era::Legacy => adapt_for_legacy(result),
        Era::Modern if is_input_required(&result) => result,
        Era::Modern => adapt_for_modern(result, caching, server_info()),
    }
}

const fn server_info() -> &'static str {
    concat!(
        r#"{"name":"toolgate","title":"Toolgate","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}"#
    )
}

fn to_raw(object: &Object) -> Box<RawValue> {
    RawValue::from_string(object.to_string()).unwrap_or_else(|_| empty_object())
}

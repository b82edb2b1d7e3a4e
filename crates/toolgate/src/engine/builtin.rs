//! The gateway's built-in tools. They belong to no upstream server and are recorded under the
//! reserved server name.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::Catalog;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::policy::{ServerItem, Verdict};
use toolgate_core::scope::{Filters, Scope};
use toolgate_llm::tools::OfferedTool;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::lane::UpstreamRequest;

use super::dispatch::TimeLimit;
use super::item_request::ItemRequest;
use super::result_store::{ResultChunk, ResultStore};
use super::script::CodeTool;
use super::{CallContext, CallProgress, Engine, Inner};
use crate::call::{Arguments, CallError, RequestContext, ToolCall};
use crate::caller::Caller;
use crate::result::{ToolResult, error_result};

/// A tool implemented by the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BuiltinTool {
    /// Reads further parts of a truncated result.
    ReadResult,
    /// Lists the resources of all servers.
    ListResources,
    ReadResource,
    /// A code mode tool.
    Code(CodeTool),
}

/// Arguments of `ReadMcpResource`.
pub(super) struct ReadResourceArguments<'a> {
    pub(super) uri: &'a str,
    /// If absent, the URI determines the server.
    pub(super) server: Option<&'a str>,
}

impl BuiltinTool {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "toolgate_read_result"
            | "toolgate-read_result"
            | "mcp__toolgate__read_result"
            | "toolgate.read_result" => Self::ReadResult,
            "ListMcpResources" => Self::ListResources,
            "ReadMcpResource" => Self::ReadResource,
            name => Self::Code(CodeTool::from_name(name)?),
        })
    }

    /// Returns the tool definition sent to models.
    pub(crate) fn model_definition(self) -> OfferedTool<'static> {
        let (alias, description, parameters) = match self {
            Self::ReadResult => (
                "toolgate_read_result",
                "Reads more of a tool result that was too large to return in full.",
                r#"{"type":"object","properties":{"handle":{"type":"string","description":"The handle given at the end of the truncated result"},"offset":{"type":"integer","description":"Byte offset to read from; 0 is the start"}},"required":["handle"]}"#,
            ),
            Self::ListResources => (
                "ListMcpResources",
                "Lists the resources (files, records, documents) that connected servers provide.",
                r#"{"type":"object","properties":{"server":{"type":"string","description":"List only this server's resources"}}}"#,
            ),
            Self::ReadResource => (
                READ_RESOURCE,
                "Reads a resource of a connected server by its URI.",
                r#"{"type":"object","properties":{"uri":{"type":"string"},"server":{"type":"string","description":"The server to read from, if several provide this URI"}},"required":["uri"]}"#,
            ),
            Self::Code(tool) => {
                let definition = tool.definition();
                (
                    definition.name,
                    definition.description,
                    definition.parameters,
                )
            }
        };
        OfferedTool {
            alias,
            id: None,
            description,
            parameters,
        }
    }

    /// Returns the id under which calls are recorded.
    pub(super) fn id(self) -> ToolId {
        ToolId {
            server: ServerName::builtin(),
            tool: ToolName::new(match self {
                Self::ReadResult => "read_result",
                Self::ListResources => "ListMcpResources",
                Self::ReadResource => READ_RESOURCE,
                Self::Code(tool) => tool.definition().name,
            }),
        }
    }
}

/// The name used in `tools_to_auto_execute`.
pub(super) const READ_RESOURCE: &str = "ReadMcpResource";

impl<'a> ReadResourceArguments<'a> {
    pub(super) fn parse(arguments: &'a Arguments) -> Option<Self> {
        let value = arguments.value();
        Some(Self {
            uri: value["uri"].as_str()?,
            server: value["server"].as_str(),
        })
    }
}

/// Formats the visible resources of the given servers, one JSON object per line.
fn format_resource_list(
    catalog: &Catalog,
    servers: &[ServerName],
    is_visible: impl Fn(ServerItem<'_>) -> bool,
) -> ToolResult {
    let mut lines = Vec::new();
    for server in servers {
        let Some(listing) = catalog.listing(server) else {
            continue;
        };
        for item in listing.resources.iter().chain(&listing.templates) {
            let uri = item.key.as_str();
            if !is_visible(ServerItem::Resource { server, uri }) {
                continue;
            }
            let definition = match serde_json::from_str::<Value>(item.definition.get()) {
                Ok(definition) => definition,
                Err(error) => {
                    tracing::warn!(%server, %error, "leaving out resource that cannot be parsed");
                    continue;
                }
            };
            let mut line = json!({"server": server});
            for key in [
                "uri",
                "uriTemplate",
                "name",
                "title",
                "description",
                "mimeType",
            ] {
                if let Some(value) = definition.get(key) {
                    line[key] = value.clone();
                }
            }
            lines.push(line.to_string());
        }
    }
    let text = if lines.is_empty() {
        "no server provides resources".to_owned()
    } else {
        lines.join("\n")
    };
    ToolResult::from_value(&json!({"content": [{"type": "text", "text": text}]}))
}

/// Converts the result of `resources/read` to a tool result. Text becomes text blocks; anything
/// else is passed on unchanged. A result without contents becomes an error, since an empty one would
/// look like an empty resource.
fn format_resource_contents(read: &RawValue) -> ToolResult {
    #[derive(Deserialize)]
    struct Read {
        contents: Vec<Value>,
    }
    let contents = match serde_json::from_str::<Read>(read.get()) {
        Ok(read) => read.contents,
        Err(error) => {
            let text = format!("the server's response cannot be read: {error}");
            return ToolResult::from_value(
                &json!({"isError": true, "content": [{"type": "text", "text": text}]}),
            );
        }
    };
    let blocks: Vec<Value> = contents
        .iter()
        .map(|content| match content["text"].as_str() {
            Some(text) => json!({"type": "text", "text": text}),
            None => json!({"type": "resource", "resource": content}),
        })
        .collect();
    ToolResult::from_value(&json!({"content": blocks}))
}

/// Reads a chunk of a stored result.
fn read_result(
    results: &ResultStore,
    caller: &Caller,
    arguments: &Arguments,
    max_bytes: usize,
) -> ToolResult {
    let value = arguments.value();
    let offset = value["offset"].as_u64().unwrap_or(0);
    let handle = value["handle"].as_str().unwrap_or_default();
    let answer = match results.read(caller, handle, offset, max_bytes) {
        Some(chunk) => json!({"content": [{"type": "text", "text": format_chunk(handle, chunk)}]}),
        None => json!({"isError": true, "content": [{"type": "text", "text":
            "no result is stored under this `handle`: it has expired or belongs to another caller; call the tool again"}]}),
    };
    ToolResult::from_value(&answer)
}

fn format_chunk(handle: &str, chunk: ResultChunk) -> String {
    let ResultChunk {
        text,
        offset,
        next,
        total,
    } = chunk;
    match next {
        None => text,
        Some(next) => {
            let more: Value = json!({"handle": handle, "offset": next});
            format!("{text}\n[bytes {offset} to {next} of {total}; to read more: {more}]")
        }
    }
}

impl Engine {
    /// Returns the built-in tools offered to a model in addition to those in scope.
    pub(crate) fn builtin_tools(
        &self,
        caller: &Caller,
        filters: &Filters,
        scope: &Scope,
        was_truncated: bool,
    ) -> Vec<BuiltinTool> {
        let mut tools = Vec::new();
        if scope.has_code_mode_tools() {
            tools.extend(CodeTool::ALL.map(BuiltinTool::Code));
        }
        let resource_tools = self.0.rules.load().manager.resource_tools;
        // A caller whose key is invalid is offered nothing here; its request fails elsewhere.
        let servers = self.resources().servers(caller, filters);
        let mut servers = servers.unwrap_or_default().into_iter();
        let has_some = |server: ServerName| {
            let listing = scope.catalog().listing(&server);
            listing.is_some_and(|listing| {
                !listing.resources.is_empty() || !listing.templates.is_empty()
            })
        };
        if resource_tools && servers.any(has_some) {
            tools.extend([BuiltinTool::ListResources, BuiltinTool::ReadResource]);
        }
        if was_truncated {
            tools.push(BuiltinTool::ReadResult);
        }
        tools
    }
}

impl Inner {
    /// Returns the built-in tool that a call names, if it is available to this caller.
    pub(super) fn find_builtin(&self, context: &CallContext) -> Option<BuiltinTool> {
        let ToolCall { name, server, .. } = &context.call;
        let tool = BuiltinTool::from_name(name).filter(|_| server.is_none())?;
        let exists = match tool {
            BuiltinTool::ReadResult => true,
            BuiltinTool::ListResources | BuiltinTool::ReadResource => {
                context.rules.manager.resource_tools
                    && !self.servers_with_resources(context).is_empty()
            }
            BuiltinTool::Code(_) => context.scope.has_code_mode_tools(),
        };
        exists.then_some(tool)
    }

    /// Returns the servers whose resources are visible to a call.
    pub(super) fn servers_with_resources(&self, context: &CallContext) -> Vec<ServerName> {
        let CallContext { rules, caller, .. } = context;
        let servers = rules.servers_with_resources(caller, &context.call.request.filters);
        // Fails only for an invalid key, which sees nothing.
        servers.unwrap_or_default()
    }

    pub(super) async fn run_builtin(
        self: &Arc<Self>,
        context: &CallContext,
        tool: BuiltinTool,
        progress: &mut CallProgress,
    ) -> Result<ToolResult, CallError> {
        let record = &mut progress.attempt.record;
        record.verdict = Some(Verdict::Allow.as_str().to_owned());
        record.rule = Some("toolgate".to_owned());
        let arguments = context.call.arguments.clone()?;
        let catalog = context.scope.catalog();
        match tool {
            BuiltinTool::ReadResult => {
                let max_bytes = context.rules.results.max_bytes;
                Ok(read_result(
                    &self.result_store,
                    &context.caller,
                    &arguments,
                    max_bytes,
                ))
            }
            BuiltinTool::ListResources => {
                let mut servers = self.servers_with_resources(context);
                if let Some(only) = arguments.value()["server"].as_str() {
                    servers.retain(|server| server.as_str() == only);
                }
                let (rules, caller) = (&context.rules, &context.caller);
                let filters = &context.call.request.filters;
                let is_visible =
                    |item: ServerItem<'_>| rules.judge_item(caller, filters, item).is_ok();
                Ok(format_resource_list(catalog, &servers, is_visible))
            }
            BuiltinTool::ReadResource => self.read_resource(context, &arguments, progress).await,
            BuiltinTool::Code(tool) => self.run_code_tool(context, tool, &arguments, record).await,
        }
    }

    pub(super) async fn read_resource(
        &self,
        context: &CallContext,
        arguments: &Arguments,
        progress: &mut CallProgress,
    ) -> Result<ToolResult, CallError> {
        let Some(ReadResourceArguments { uri, server }) = ReadResourceArguments::parse(arguments)
        else {
            return Ok(error_result(
                "`uri` is missing; call `ListMcpResources` to list the available URIs",
            ));
        };
        let offers = |name: &&ServerName| match server {
            Some(server) => name.as_str() == server,
            None => {
                let listing = context.scope.catalog().listing(name);
                let mut items = listing.into_iter().flat_map(|listing| &listing.resources);
                items.any(|item| item.key == uri)
            }
        };
        let mut readable = self.servers_with_resources(context);
        readable.retain(|server| {
            let item = ServerItem::Resource { server, uri };
            let filters = &context.call.request.filters;
            let judged = context.rules.judge_item(&context.caller, filters, item);
            judged.is_ok()
        });
        let found: Vec<&ServerName> = readable.iter().filter(offers).collect();
        let [server] = found.as_slice() else {
            let text = if found.is_empty() {
                "no server offers this `uri`; call `ListMcpResources` to list the available URIs, or set `server` if the URI matches one of its templates"
            } else {
                "several servers offer this `uri`; choose one with `server`"
            };
            return Ok(error_result(text));
        };
        let server_rules = context.rules.servers.get(*server);
        let is_automatic = server_rules.is_some_and(|server_rules| {
            server_rules
                .server
                .lists
                .auto_execute
                .contains(READ_RESOURCE)
        });
        let upstream = UpstreamRequest {
            method: "resources/read",
            params: Object::new().text("uri", uri),
            name: Some(uri.to_owned()),
            ..UpstreamRequest::default()
        };
        // A tool result cannot relay an input request from `resources/read`, so the server must not
        // see a client that accepts one.
        let request = RequestContext {
            modern_client: None,
            ..(*context.call.request).clone()
        };
        let params = upstream.params.clone();
        let item_request = ItemRequest {
            rules: &context.rules,
            caller: &context.caller,
            context: &request,
            item: ServerItem::Resource { server, uri },
            method: upstream.method,
            params: &params,
            limit: TimeLimit::start(context.rules.server_timeout(server)),
        };
        let permit = self.authorize_item(&item_request, progress).await?;
        let record = &mut progress.attempt.record;
        if !is_automatic && record.verdict.as_deref() == Some(Verdict::Allow.as_str()) {
            record.verdict = Some(Verdict::Manual.as_str().to_owned());
        }
        let read = self
            .send_item_request(&item_request, permit, upstream, progress)
            .await?;
        Ok(self.sanitize_result(format_resource_contents(&read).into_raw(), &context.rules))
    }
}

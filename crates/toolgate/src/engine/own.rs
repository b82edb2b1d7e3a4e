//! The gateway's own tools. They belong to no server, and are known under the reserved name.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::Catalog;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::policy::Verdict;
use toolgate_core::scope::{Filters, Scope};
use toolgate_llm::tools::Offered;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::lane::Ask;
use tracing::Span;

use super::dispatch;
use super::kept::{Kept, Part};
use super::rules::Rules;
use super::script::CodeTool;
use super::{Engine, Inner, Journey};
use crate::audit::Record;
use crate::call::{Arguments, CallError, Request, ToolCall};
use crate::caller::Caller;
use crate::code_mode::answer::advice;
use crate::result::ToolResult;
use crate::trace;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnTool {
    /// Reads on in a large result.
    ReadResult,
    /// Lists what servers offer to be read.
    ListResources,
    ReadResource,
    /// One of those by which scripts are written and run.
    Code(CodeTool),
}

/// What `ReadMcpResource` is asked for.
pub(super) struct Wanted<'a> {
    pub(super) uri: &'a str,
    /// None if the URI is to tell.
    pub(super) server: Option<&'a str>,
}

impl OwnTool {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "toolgate_read_result"
            | "toolgate-read_result"
            | "mcp__toolgate__read_result"
            | "toolgate.read_result" => Self::ReadResult,
            "ListMcpResources" => Self::ListResources,
            "ReadMcpResource" => Self::ReadResource,
            name => Self::Code(CodeTool::named(name)?),
        })
    }

    /// As models are told of it.
    pub(crate) fn offered(self) -> Offered<'static> {
        let (alias, description, parameters) = match self {
            Self::ReadResult => (
                "toolgate_read_result",
                "Reads on in a tool result that was too large to be shown whole.",
                r#"{"type":"object","properties":{"handle":{"type":"string","description":"The handle named at the end of the cut result"},"offset":{"type":"integer","description":"Byte to read from; 0 is the start"}},"required":["handle"]}"#,
            ),
            Self::ListResources => (
                "ListMcpResources",
                "Lists the resources (files, records, documents) that connected servers offer to be read.",
                r#"{"type":"object","properties":{"server":{"type":"string","description":"Only those of this server"}}}"#,
            ),
            Self::ReadResource => (
                READ_RESOURCE,
                "Reads a resource of a connected server by its URI.",
                r#"{"type":"object","properties":{"uri":{"type":"string"},"server":{"type":"string","description":"The server that offers it, where several do"}},"required":["uri"]}"#,
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
        Offered {
            alias,
            id: None,
            description,
            parameters,
        }
    }

    /// The id under which it is recorded.
    pub(super) fn id(self) -> ToolId {
        ToolId {
            server: ServerName::own(),
            tool: ToolName::new(match self {
                Self::ReadResult => "read_result",
                Self::ListResources => "ListMcpResources",
                Self::ReadResource => READ_RESOURCE,
                Self::Code(tool) => tool.definition().name,
            }),
        }
    }
}

/// As it stands in `tools_to_auto_execute`.
pub(super) const READ_RESOURCE: &str = "ReadMcpResource";

impl<'a> Wanted<'a> {
    pub(super) fn read(arguments: &'a Arguments) -> Option<Self> {
        let value = arguments.value();
        Some(Self {
            uri: value["uri"].as_str()?,
            server: value["server"].as_str(),
        })
    }
}

/// The resources of some servers, as JSON that a model reads.
pub(super) fn listed(catalog: &Catalog, servers: &[ServerName]) -> ToolResult {
    let mut lines = Vec::new();
    for server in servers {
        let Some(offer) = catalog.offer(server) else {
            continue;
        };
        for item in offer.resources.iter().chain(&offer.templates) {
            let definition: Value = serde_json::from_str(item.definition.get()).unwrap_or_default();
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
    let text = match lines.is_empty() {
        true => "no server offers resources".to_owned(),
        false => lines.join("\n"),
    };
    ToolResult::from_value(&json!({"content": [{"type": "text", "text": text}]}))
}

/// What was read, as a tool's result: texts as texts, all else as it came.
pub(super) fn contents(read: &RawValue) -> ToolResult {
    let read: Value = serde_json::from_str(read.get()).unwrap_or_default();
    let contents = read["contents"].as_array().map(Vec::as_slice);
    let blocks: Vec<Value> = contents
        .unwrap_or_default()
        .iter()
        .map(|content| match content["text"].as_str() {
            Some(text) => json!({"type": "text", "text": text}),
            None => json!({"type": "resource", "resource": content}),
        })
        .collect();
    ToolResult::from_value(&json!({"content": blocks}))
}

/// Reads on in a result that was too large for a model.
pub(super) fn read_result(
    kept: &Kept,
    caller: &Caller,
    arguments: &Arguments,
    most: usize,
) -> ToolResult {
    let value = arguments.value();
    let offset = value["offset"].as_u64().unwrap_or(0);
    let handle = value["handle"].as_str().unwrap_or_default();
    let answer = match kept.read(caller, handle, offset, most) {
        Some(part) => json!({"content": [{"type": "text", "text": shown(handle, part)}]}),
        None => json!({"isError": true, "content": [{"type": "text", "text":
            "no result is kept under this `handle`: it was kept for a while only, or belongs to another caller; call the tool again"}]}),
    };
    ToolResult::from_value(&answer)
}

fn shown(handle: &str, part: Part) -> String {
    let Part {
        text,
        offset,
        next,
        total,
    } = part;
    match next {
        None => text,
        Some(next) => {
            let more: Value = json!({"handle": handle, "offset": next});
            format!("{text}\n[bytes {offset} to {next} of {total}; for more: {more}]")
        }
    }
}

impl Engine {
    /// The gateway's own tools that a model is offered beside those in scope.
    pub(crate) fn own_tools(
        &self,
        caller: &Caller,
        filters: &Filters,
        scope: &Scope,
        was_cut: bool,
    ) -> Vec<OwnTool> {
        let mut tools = Vec::new();
        if scope.has_code() {
            tools.extend(CodeTool::ALL.map(OwnTool::Code));
        }
        let resource_tools = self.0.rules.load().manager.resource_tools;
        let servers = self.servers_with_resources(caller, filters);
        let mut servers = servers.unwrap_or_default().into_iter();
        let has_some = |server: ServerName| {
            let offer = scope.catalog().offer(&server);
            offer.is_some_and(|offer| !offer.resources.is_empty() || !offer.templates.is_empty())
        };
        if resource_tools && servers.any(has_some) {
            tools.extend([OwnTool::ListResources, OwnTool::ReadResource]);
        }
        if was_cut {
            tools.push(OwnTool::ReadResult);
        }
        tools
    }
}

impl Inner {
    /// The gateway's own tool that a call means, if it exists for this caller.
    pub(super) fn own_tool(&self, journey: &Journey) -> Option<OwnTool> {
        let ToolCall { name, server, .. } = &journey.call;
        let own = OwnTool::named(name).filter(|_| server.is_none())?;
        let exists = match own {
            OwnTool::ReadResult => true,
            OwnTool::ListResources | OwnTool::ReadResource => {
                journey.rules.manager.resource_tools && !self.readable(journey).is_empty()
            }
            OwnTool::Code(_) => journey.scope.has_code(),
        };
        exists.then_some(own)
    }

    /// The servers whose resources exist for a call.
    pub(super) fn readable(&self, journey: &Journey) -> Vec<ServerName> {
        let Journey { rules, caller, .. } = journey;
        let servers = rules.with_resources(caller, &journey.call.request.filters);
        servers.unwrap_or_default()
    }

    pub(super) async fn run_own(
        self: &Arc<Self>,
        journey: &Journey,
        tool: OwnTool,
        record: &mut Record,
    ) -> Result<ToolResult, CallError> {
        record.verdict = Some(Verdict::Allow.as_str().to_owned());
        record.rule = Some("toolgate".to_owned());
        let arguments = journey.call.arguments.clone()?;
        let catalog = journey.scope.catalog();
        match tool {
            OwnTool::ReadResult => {
                let most = journey.rules.results.max_bytes;
                Ok(read_result(&self.kept, &journey.caller, &arguments, most))
            }
            OwnTool::ListResources => {
                let mut servers = self.readable(journey);
                if let Some(only) = arguments.value()["server"].as_str() {
                    servers.retain(|server| server.as_str() == only);
                }
                Ok(listed(catalog, &servers))
            }
            OwnTool::ReadResource => self.read_resource(journey, &arguments, record).await,
            OwnTool::Code(tool) => self.run_code_tool(journey, tool, &arguments, record).await,
        }
    }

    pub(super) async fn read_resource(
        &self,
        journey: &Journey,
        arguments: &Arguments,
        record: &mut Record,
    ) -> Result<ToolResult, CallError> {
        let Some(Wanted { uri, server }) = Wanted::read(arguments) else {
            return Ok(advice("`uri` is missing; `ListMcpResources` lists them"));
        };
        let offers = |name: &&ServerName| match server {
            Some(server) => name.as_str() == server,
            None => {
                let offer = journey.scope.catalog().offer(name);
                let mut items = offer.into_iter().flat_map(|offer| &offer.resources);
                items.any(|item| item.key == uri)
            }
        };
        let readable = self.readable(journey);
        let found: Vec<&ServerName> = readable.iter().filter(offers).collect();
        let [server] = found.as_slice() else {
            let text = match found.is_empty() {
                true => {
                    "no server offers this `uri`; `ListMcpResources` lists them, and `server` says whose template it fits"
                }
                false => "several servers offer this `uri`; say which one with `server`",
            };
            return Ok(advice(text));
        };
        let served = journey.rules.servers.get(*server);
        let unasked =
            served.is_some_and(|served| served.server.lists.auto_execute.contains(READ_RESOURCE));
        if !unasked {
            record.verdict = Some(Verdict::Manual.as_str().to_owned());
        }
        let ask = Ask {
            method: "resources/read",
            params: Object::new().text("uri", uri),
            name: Some(uri.to_owned()),
            ..Ask::default()
        };
        // A tool's result cannot ask what a resource wants to know.
        let request = Request {
            guest: None,
            ..(*journey.call.request).clone()
        };
        let read = self
            .ask(&journey.rules, &journey.caller, &request, server, ask)
            .await?;
        Ok(self.tidied(contents(&read).into_raw(), &journey.rules))
    }

    /// Asks a server for something that is no tool call.
    pub(super) async fn ask(
        &self,
        rules: &Rules,
        caller: &Caller,
        request: &Request,
        server: &ServerName,
        ask: Ask,
    ) -> Result<Box<RawValue>, CallError> {
        rules.sees_resources(caller, &request.filters, server)?;
        let trace = trace::outgoing(&*self.parts.tracer, &Span::current(), request);
        let mut headers = rules.forwarded(server, &request.headers);
        trace.onto_headers(&mut headers);
        let ask = Ask {
            headers,
            meta: trace.onto_meta(request.meta.clone()),
            ear: request.ear.clone(),
            guest: request.guest.clone(),
            log_level: request.log_level,
            ..ask
        };
        let within = rules.server_timeout(server);
        let after = rules.patience(request, server, within);
        let own = request.session.as_ref();
        let own = own.filter(|_| rules.has_own_lanes(server));
        dispatch::ask(&self.parts.registry, server, own, ask, (within, after)).await
    }
}

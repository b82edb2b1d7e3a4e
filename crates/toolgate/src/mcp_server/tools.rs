//! `tools/list` and `tools/call`.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::catalog::repair::to_legacy_tool;
use toolgate_core::catalog::{ItemKind, TaskSupport, Tool};
use toolgate_core::name::ServerName;
use toolgate_core::scope::Scope;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{
    self, HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, RpcError, RpcResult,
};

use super::approval::CallReply;
use super::era_adapter::{Caching, adapt_result, with_optional_tasks};
use super::method::ToolCallParams;
use super::names::{self, map_items, qualify_links, qualify_meta};
use super::page::encode_page;
use super::request::{RequestHandler, server_rpc_error};
use super::tool_pages::{EncodedToolPage, ListFormat};
use crate::call::{CallError, Outcome, RequiredApproval, ToolCall};
use crate::code_mode;
use crate::store::unix_millis;

impl RequestHandler {
    /// Returns the result of `tools/list`, adapted to the client's era.
    pub(super) fn list_tools(&self, cursor: Option<&str>) -> Result<EncodedToolPage, RpcError> {
        let scope = self.gateway().scope(&self.caller, &self.context.filters);
        let scope = scope.map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))?;
        let encode = || {
            let tools = self.sorted_tools(&scope);
            let tools = tools.iter().map(|(name, raw)| (name.clone(), &**raw));
            let page = encode_page("tools", tools, cursor)?;
            Ok(adapt_result(page, self.era, Caching::Private).into())
        };
        if cursor.is_some() {
            return encode();
        }
        let format = ListFormat {
            uses_raw_names: self.endpoint.single_server().is_some(),
            era: self.era,
        };
        self.server.tool_pages().get(&scope, format, encode)
    }

    /// Returns the tools of a scope for the client's era, each with the key that it is sorted by: its name
    /// at this endpoint, or its position in the list of the only server.
    fn sorted_tools<'a>(&self, scope: &'a Scope) -> Vec<(String, Cow<'a, RawValue>)> {
        let catalog = scope.catalog();
        let task_servers = self.modern_task_servers();
        let adapt =
            |tool: &Tool, definition| self.adapt_definition(tool, definition, &task_servers);
        let mut tools: Vec<(String, Cow<'_, RawValue>)> = match self.endpoint.single_server() {
            Some(server) => {
                let listing = catalog.listing(server);
                let tools = scope.tools().map(|(entry, _)| {
                    let name = entry.tool.id.tool.as_str();
                    let key = names::position_key(listing, ItemKind::Tool, name);
                    let definition = Cow::Borrowed(&*entry.tool.definition);
                    (key, adapt(&entry.tool, definition))
                });
                tools.collect()
            }
            None => {
                let code = if scope.has_code_mode_tools() {
                    code_mode::definitions()
                } else {
                    &[]
                };
                let tools = scope.direct_tools().map(|(entry, _)| {
                    let server = &entry.tool.id.server;
                    let is_listed = |uri: &str| names::is_listed_resource(catalog, server, uri);
                    let definition = qualify_meta(entry.aliased_definition(), server, &is_listed);
                    (entry.alias.to_string(), adapt(&entry.tool, definition))
                });
                let code = code.iter();
                tools
                    .chain(code.map(|(name, raw)| (name.clone(), Cow::Borrowed(&**raw))))
                    .collect()
            }
        };
        tools.sort_by(|a, b| a.0.cmp(&b.0));
        tools
    }

    /// Adapts a definition to the client's era. A tool that requires a task does not do so here, since the
    /// gateway runs it to its end for a client that asks for no task.
    fn adapt_definition<'a>(
        &self,
        tool: &Tool,
        definition: Cow<'a, RawValue>,
        task_servers: &[ServerName],
    ) -> Cow<'a, RawValue> {
        if self.era == Era::Modern {
            return definition;
        }
        let definition = match to_legacy_tool(&definition) {
            Cow::Owned(adapted) => Cow::Owned(adapted),
            Cow::Borrowed(_) => definition,
        };
        let may_be_task = match tool.task_support {
            TaskSupport::Required => true,
            TaskSupport::Optional => return definition,
            TaskSupport::Forbidden => task_servers.contains(&tool.id.server),
        };
        match with_optional_tasks(&definition) {
            Some(adapted) if may_be_task => Cow::Owned(adapted),
            _ => definition,
        }
    }

    /// Returns the modern servers that may run any call as a task. Their tools do not say so.
    fn modern_task_servers(&self) -> Vec<ServerName> {
        let entries = self.gateway().servers().list();
        let entries = entries.iter().filter(|entry| {
            let session = &entry.status().session;
            session
                .as_ref()
                .is_some_and(|session| session.era == Era::Modern && session.capabilities.tasks)
        });
        entries.map(|entry| entry.server.name.clone()).collect()
    }

    pub(super) async fn call_tool(&self, params: ToolCallParams) -> RpcResult {
        let call = ToolCall {
            name: params.name,
            id: None,
            server: self.endpoint.single_server().cloned(),
            arguments: params.arguments,
            request: Arc::clone(&self.context),
        };
        match self.call_with_approval(call).await {
            CallReply::Finished(outcome) => Ok(self.client_result(outcome)),
            CallReply::Failed(error) => error_result(&error),
            CallReply::InputRequired(result) => Ok(result),
            CallReply::Rejected(error) => Err(error),
        }
    }

    /// Returns the server's result, with resource links that resolve at this endpoint.
    pub(super) fn client_result(&self, outcome: Outcome) -> Box<RawValue> {
        let Outcome { tool, result, .. } = outcome;
        let raw = result.into_raw();
        if self.endpoint.single_server().is_some() {
            return raw;
        }
        let catalog = self.catalog();
        let is_listed = |uri: &str| names::is_listed_resource(&catalog, &tool.server, uri);
        let raw = match qualify_meta(&raw, &tool.server, &is_listed) {
            Cow::Owned(qualified) => qualified,
            Cow::Borrowed(_) => raw,
        };
        if raw.get().contains("\"resource") {
            map_items(&raw, "content", |block| qualify_links(block, &tool.server))
        } else {
            raw
        }
    }
}

/// Converts a failed call: protocol-level failures become JSON-RPC errors, everything else a result
/// with `isError` that the model can read.
fn error_result(error: &CallError) -> RpcResult {
    if let Some(error) = server_rpc_error(error) {
        return Err(error.clone());
    }
    match error {
        CallError::Unknown { .. } | CallError::Ambiguous { .. } | CallError::Filter(_) => {
            Err(RpcError::new(INVALID_PARAMS, error.to_string()))
        }
        error if error.is_unrecorded() => Err(RpcError::new(INTERNAL_ERROR, error.to_string())),
        CallError::HeaderMismatch(message) => Err(RpcError::new(HEADER_MISMATCH, message)),
        error => {
            let mut result = json!({
                "content": [{"type": "text", "text": error.to_string()}],
                "isError": true,
            });
            if let Some(RequiredApproval { id, expires_at, .. }) = error.required_approval() {
                let approval = json!({"id": id, "expiresAtMs": unix_millis(expires_at)});
                result["_meta"] = json!({"toolgate/approval": approval});
            }
            Ok(to_raw_value(&result).unwrap_or_else(|_| jsonrpc::empty_object()))
        }
    }
}

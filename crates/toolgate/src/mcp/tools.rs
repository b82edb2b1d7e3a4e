//! `tools/list` and `tools/call`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolgate_core::catalog::{Resolution, replace_text_member};
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::scope::Scope;
use toolgate_mcp::jsonrpc::{INVALID_PARAMS, RpcError, RpcResult};
use toolgate_mcp::param_header;
use toolgate_mcp::serve::{Caching, empty_object, rpc_error};

use super::items::{map_items, map_member};
use super::{
    EncodedToolPage, ListParams, McpEndpoint, McpRequestContext, McpServer, adapt_result,
    encode_page, names, parse_params, server_rpc_error,
};
use crate::call::{Arguments, CallError, Outcome, RequiredApproval, ToolCall};
use crate::code_mode;
use crate::store::unix_millis;

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl McpServer {
    /// Returns the result of `tools/list`.
    pub fn list_tools(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> Result<EncodedToolPage, RpcError> {
        let filters = &context.request.filters;
        let scope = self.gateway.scope(&context.caller, filters);
        let scope = scope.map_err(|error| rpc_error(INVALID_PARAMS, error.to_string()))?;
        let encode = |cursor: Option<&str>| {
            let page = encode_page("tools", self.sorted_tools(&scope).into_iter(), cursor)?;
            Ok(adapt_result(page, context.era, Caching::Private).into())
        };
        let ListParams { cursor } = parse_params(params)?;
        match cursor {
            Some(cursor) => encode(Some(&cursor)),
            None => {
                let pages = self.gateway.tool_pages();
                pages.get(&scope, (self.uses_raw_names(), context.era), || {
                    encode(None)
                })
            }
        }
    }

    /// Returns the tools of a scope, sorted by their names at this endpoint.
    fn sorted_tools<'a>(&self, scope: &'a Scope) -> Vec<(String, &'a RawValue)> {
        let code = if scope.has_code_mode_tools() {
            code_mode::definitions()
        } else {
            &[]
        };
        let mut tools: Vec<(String, &RawValue)> = if self.uses_raw_names() {
            scope
                .tools()
                .map(|(entry, _)| (entry.tool.id.tool.to_string(), &*entry.tool.definition))
                .collect()
        } else {
            scope
                .direct_tools()
                .map(|(entry, _)| (entry.alias.to_string(), entry.aliased_definition()))
                .chain(code.iter().map(|(name, raw)| (name.clone(), &**raw)))
                .collect()
        };
        tools.sort_by(|a, b| a.0.cmp(&b.0));
        tools
    }

    pub(super) async fn call_tool(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let raw_params = params;
        let params: CallParams<'_> = parse_params(params)?;
        let arguments = params.arguments.map_or("", RawValue::get);
        let call = ToolCall {
            name: params.name,
            id: None,
            server: match &self.endpoint {
                McpEndpoint::Server(name) => Some(name.clone()),
                McpEndpoint::All | McpEndpoint::Virtual(_) => None,
            },
            arguments: Arguments::parse(arguments),
            request: std::sync::Arc::clone(&context.request),
        };
        match self.call_with_approval(context, call, raw_params).await {
            Ok(Ok(outcome)) => Ok(self.client_result(outcome)),
            Ok(Err(error)) => error_result(&error),
            Err(answer) => answer,
        }
    }

    /// Returns a description of the first parameter header that contradicts the arguments.
    pub fn header_mismatch(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> Option<String> {
        let params: CallParams<'_> = parse_params(params).ok()?;
        let scope = self
            .gateway
            .scope(&context.caller, &context.request.filters);
        let scope = scope.ok()?;
        let entry = match &self.endpoint {
            McpEndpoint::Server(server) => scope.catalog().tool(&ToolId {
                server: server.clone(),
                tool: ToolName::new(&params.name),
            })?,
            McpEndpoint::All | McpEndpoint::Virtual(_) => match scope.resolve(&params.name) {
                Resolution::Found(entry) => entry,
                Resolution::Unknown | Resolution::Ambiguous(_) => return None,
            },
        };
        scope.judgement(entry)?;
        if !param_header::may_have_annotations(&entry.tool) {
            return None;
        }
        let arguments = params.arguments.unwrap_or(RawValue::NULL);
        param_header::verify_headers(&entry.tool.view(), arguments, &context.request.headers).err()
    }

    /// Returns the server's result, with resource links that resolve at this endpoint.
    fn client_result(&self, outcome: Outcome) -> Box<RawValue> {
        let Outcome { tool, result, .. } = outcome;
        let raw = result.into_raw();
        if self.uses_raw_names() || !raw.get().contains("\"resource") {
            raw
        } else {
            map_items(&raw, "content", |block| qualify_links(block, &tool.server))
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
            Err(rpc_error(INVALID_PARAMS, error.to_string()))
        }
        error => {
            let mut result = json!({
                "content": [{"type": "text", "text": error.to_string()}],
                "isError": true,
            });
            if let Some(RequiredApproval { id, expires_at, .. }) = error.required_approval() {
                let approval = json!({"id": id, "expiresAtMs": unix_millis(expires_at)});
                result["_meta"] = json!({"toolgate/approval": approval});
            }
            Ok(to_raw_value(&result).unwrap_or_else(|_| empty_object()))
        }
    }
}

/// Qualifies the URI of a resource or resource link in a content block.
pub(super) fn qualify_links(block: &RawValue, server: &ServerName) -> Box<RawValue> {
    let head: BTreeMap<String, &RawValue> = serde_json::from_str(block.get()).unwrap_or_default();
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    let kind = head.get("type").and_then(|raw| text(raw));
    match kind.as_deref() {
        Some("resource_link") => qualify_uri_member(block, server),
        Some("resource") => {
            map_member(block, "resource", |inner| qualify_uri_member(inner, server))
        }
        _ => block.to_owned(),
    }
}

/// Qualifies the `uri` member of an object.
pub(super) fn qualify_uri_member(object: &RawValue, server: &ServerName) -> Box<RawValue> {
    let value: Value = serde_json::from_str(object.get()).unwrap_or_default();
    match value["uri"].as_str() {
        Some(uri) => replace_text_member(object, "uri", &names::qualify_uri(server, uri)),
        None => object.to_owned(),
    }
}

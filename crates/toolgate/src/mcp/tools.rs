//! `tools/list` and `tools/call`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolgate_core::catalog::{Resolution, with_text};
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_core::scope::Scope;
use toolgate_mcp::jsonrpc::{Answer, INVALID_PARAMS, RpcError};
use toolgate_mcp::param_header;
use toolgate_mcp::serve::{Caching, empty_object, rpc};

use super::items::{each, member};
use super::{Asker, Door, Face, ListParams, Page, page, read, said_by_server, stamped, uri};
use crate::call::{Arguments, CallError, Needed, Outcome, ToolCall};
use crate::code_mode;
use crate::store::millis;

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl Door {
    /// What `tools/list` is answered with.
    pub fn tools(&self, asker: &Asker, params: Option<&RawValue>) -> Result<Page, RpcError> {
        let filters = &asker.request.filters;
        let scope = self.gateway.scope(&asker.caller, filters);
        let scope = scope.map_err(|error| rpc(INVALID_PARAMS, error.to_string()))?;
        let encode = |cursor: Option<&str>| {
            let page = page("tools", self.sorted(&scope).into_iter(), cursor)?;
            Ok(stamped(page, asker.era, Caching::Private).into())
        };
        let ListParams { cursor } = read(params)?;
        match cursor {
            Some(cursor) => encode(Some(&cursor)),
            None => {
                let pages = self.gateway.pages();
                pages.get(&scope, (self.is_raw(), asker.era), || encode(None))
            }
        }
    }

    /// The tools of a scope by their names at this door.
    fn sorted<'a>(&self, scope: &'a Scope) -> Vec<(String, &'a RawValue)> {
        let code = match scope.has_code() {
            true => code_mode::definitions(),
            false => &[],
        };
        let mut tools: Vec<(String, &RawValue)> = match self.is_raw() {
            true => scope
                .tools()
                .map(|(entry, _)| (entry.tool.id.tool.to_string(), &*entry.tool.definition))
                .collect(),
            false => scope
                .direct()
                .map(|(entry, _)| (entry.alias.to_string(), entry.aliased()))
                .chain(code.iter().map(|(name, raw)| (name.clone(), &**raw)))
                .collect(),
        };
        tools.sort_by(|a, b| a.0.cmp(&b.0));
        tools
    }

    pub(super) async fn call_tool(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let whole = params;
        let params: CallParams<'_> = read(params)?;
        let arguments = params.arguments.map_or("", RawValue::get);
        let call = ToolCall {
            name: params.name,
            id: None,
            server: match &self.face {
                Face::Server(name) => Some(name.clone()),
                Face::All | Face::Virtual(_) => None,
            },
            arguments: Arguments::parse(arguments),
            request: std::sync::Arc::clone(&asker.request),
        };
        match self.call_asking(asker, call, whole).await {
            Ok(Ok(outcome)) => Ok(self.result(outcome)),
            Ok(Err(error)) => refused(&error),
            Err(answer) => answer,
        }
    }

    /// What headers say otherwise than the arguments that they repeat.
    pub fn header_mismatch(&self, asker: &Asker, params: Option<&RawValue>) -> Option<String> {
        let params: CallParams<'_> = read(params).ok()?;
        let scope = self.gateway.scope(&asker.caller, &asker.request.filters);
        let scope = scope.ok()?;
        let entry = match &self.face {
            Face::Server(server) => scope.catalog().tool(&ToolId {
                server: server.clone(),
                tool: ToolName::new(&params.name),
            })?,
            Face::All | Face::Virtual(_) => match scope.resolve(&params.name) {
                Resolution::Found(entry) => entry,
                Resolution::Unknown | Resolution::Ambiguous(_) => return None,
            },
        };
        scope.judgement(entry)?;
        if !param_header::may_have(&entry.tool) {
            return None;
        }
        let arguments = params.arguments.unwrap_or(RawValue::NULL);
        param_header::compare(&entry.tool.view(), arguments, &asker.request.headers).err()
    }

    /// The server's result; links in it lead through this door.
    fn result(&self, outcome: Outcome) -> Box<RawValue> {
        let Outcome { tool, result, .. } = outcome;
        let raw = result.into_raw();
        match self.is_raw() || !raw.get().contains("\"resource") {
            true => raw,
            false => each(&raw, "content", |block| with_link(block, &tool.server)),
        }
    }
}

/// What concerns the protocol is an error of it; what concerns the tool, a result for the model.
fn refused(error: &CallError) -> Answer {
    if let Some(error) = said_by_server(error) {
        return Err(error.clone());
    }
    match error {
        CallError::Unknown { .. } | CallError::Ambiguous { .. } | CallError::Filter(_) => {
            Err(rpc(INVALID_PARAMS, error.to_string()))
        }
        error => {
            let mut result = json!({
                "content": [{"type": "text", "text": error.to_string()}],
                "isError": true,
            });
            if let Some(Needed { id, expires_at, .. }) = error.needed() {
                let approval = json!({"id": id, "expiresAtMs": millis(expires_at)});
                result["_meta"] = json!({"toolgate/approval": approval});
            }
            Ok(to_raw_value(&result).unwrap_or_else(|_| empty_object()))
        }
    }
}

/// A block whose resource, or link to one, leads through this door.
pub(super) fn with_link(block: &RawValue, server: &ServerName) -> Box<RawValue> {
    let head: BTreeMap<String, &RawValue> = serde_json::from_str(block.get()).unwrap_or_default();
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    let kind = head.get("type").and_then(|raw| text(raw));
    match kind.as_deref() {
        Some("resource_link") => with_uri(block, server),
        Some("resource") => member(block, "resource", |inner| with_uri(inner, server)),
        _ => block.to_owned(),
    }
}

/// An object whose `uri` leads through this door.
pub(super) fn with_uri(object: &RawValue, server: &ServerName) -> Box<RawValue> {
    let value: Value = serde_json::from_str(object.get()).unwrap_or_default();
    match value["uri"].as_str() {
        Some(own) => with_text(object, "uri", &uri::wrap(server, own)),
        None => object.to_owned(),
    }
}

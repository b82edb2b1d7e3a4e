//! Arguments of modern calls that HTTP repeats in headers (`x-mcp-header` in a tool's input schema). Only a
//! call that the gateway refuses for lack of them needs the tool's definition, which is then looked up.

use std::collections::HashMap;

use http::HeaderMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate::jsonrpc::{self, HEADER_MISMATCH, Object};
use toolgate::param_header;
use toolgate_core::catalog::ToolView;

use super::gateway::{self, GatewayEndpoint, GatewayError};
use super::message::{self, GatewayMessage, ModernRequest};

/// Maximum number of pages of tools that are searched.
const MAX_PAGES: usize = 1000;

/// Definitions of tools whose calls need further headers, by name.
#[derive(Debug, Default)]
pub(super) struct MirroredArguments(Mutex<HashMap<String, Box<RawValue>>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
    next_cursor: Option<String>,
}

impl MirroredArguments {
    /// Adds the headers that a call needs, as far as they are known.
    pub(super) fn insert(&self, name: &str, line: &str, headers: &mut HeaderMap) {
        let definitions = self.0.lock();
        let Some(definition) = definitions.get(name) else {
            return;
        };
        let view = serde_json::from_str::<ToolView<'_>>(definition.get());
        if let (Ok(view), Some((_, arguments))) = (view, message::call_parts(line)) {
            // Invalid arguments are for the gateway to refuse.
            let _ = param_header::insert_headers(&view, arguments, headers);
        }
    }

    /// Looks up the definition of a called tool. Returns whether there is one.
    pub(super) async fn look_up(
        &self,
        gateway: &GatewayEndpoint,
        name: &str,
        line: &str,
    ) -> Result<bool, GatewayError> {
        let Some((meta, _)) = message::call_parts(line) else {
            return Ok(false);
        };
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let text = list_tools(gateway, meta, cursor.as_deref()).await?;
            let page = text.as_deref().and_then(GatewayMessage::parse);
            let page = page.and_then(|message| message.result);
            let page = page.and_then(|page| serde_json::from_str::<ToolPage<'_>>(page.get()).ok());
            let Some(page) = page else {
                return Ok(false);
            };
            let is_called = |definition: &&&RawValue| {
                serde_json::from_str::<ToolView<'_>>(definition.get())
                    .is_ok_and(|view| view.name == name)
            };
            if let Some(definition) = page.tools.iter().find(is_called) {
                let definition = (*definition).to_owned();
                self.0.lock().insert(name.to_owned(), definition);
                return Ok(true);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(false)
    }
}

/// Returns whether the gateway refused a request for lack of headers.
pub(super) fn is_header_mismatch(message: &str) -> bool {
    #[derive(Deserialize)]
    struct Code {
        code: i64,
    }
    let error = GatewayMessage::parse(message).and_then(|message| message.error);
    let code = error.and_then(|error| serde_json::from_str::<Code>(error.get()).ok());
    code.is_some_and(|error| error.code == HEADER_MISMATCH)
}

/// Requests a page of tools on behalf of the client.
async fn list_tools(
    gateway: &GatewayEndpoint,
    meta: &RawValue,
    cursor: Option<&str>,
) -> Result<Option<String>, GatewayError> {
    const METHOD: &str = "tools/list";
    let params = match cursor {
        Some(cursor) => Object::new().text("cursor", cursor),
        None => Object::new(),
    };
    let params = params.raw("_meta", meta.get());
    let line = jsonrpc::request(0, METHOD, &params, &Object::new());
    let params = RawValue::from_string(params.to_string()).ok();
    let Some(modern) = ModernRequest::parse(METHOD, params.as_deref()) else {
        return Ok(None);
    };
    let headers = gateway::modern_headers(METHOD, &modern);
    gateway.post(&line, headers).await?.next().await
}

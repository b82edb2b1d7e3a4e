//! What the zoo offers: tools, resources and prompts as raw definitions, and their pages.
//!
//! The definitions are written in `catalog.json`, from which only the white space between
//! tokens is taken away, so that each fits on one line of stdio.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::flags::Offer;
use super::rpc::{INVALID_PARAMS, RpcError, quoted};

/// Everything that can be listed, read or got.
#[derive(Debug)]
pub(crate) struct Catalog {
    document: Document,
    extra_tools: Vec<Box<RawValue>>,
    page: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    tools: Vec<Box<RawValue>>,
    malformed: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    resource_templates: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    contents: HashMap<String, Box<RawValue>>,
    fail: Box<RawValue>,
    kinds: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Definition {
    name: String,
    input_schema: Option<serde_json::Value>,
}

impl Catalog {
    pub(crate) fn new(offer: &Offer) -> Self {
        let text = compact(include_str!("catalog.json"));
        let mut document: Document = serde_json::from_str(&text).expect("`catalog.json` is valid");
        if !offer.malformed {
            document.malformed.clear();
        }
        Self {
            document,
            extra_tools: (1..=offer.tools).map(extra_tool).collect(),
            page: offer.page.map_or(usize::MAX, |page| page.max(1)),
        }
    }

    /// The raw result of one of the four lists; `None` if the method is none of them.
    pub(crate) fn list(
        &self,
        method: &str,
        cursor: Option<&str>,
    ) -> Option<Result<String, RpcError>> {
        let (key, items): (_, Vec<&RawValue>) = match method {
            "tools/list" => ("tools", self.tools().collect()),
            "resources/list" => ("resources", refs(&self.document.resources)),
            "resources/templates/list" => {
                ("resourceTemplates", refs(&self.document.resource_templates))
            }
            "prompts/list" => ("prompts", refs(&self.document.prompts)),
            _ => return None,
        };
        Some(self.page_of(key, &items, cursor))
    }

    /// The input schema of the first listed tool of that name: `Some(Null)` if it has none.
    pub(crate) fn tool_schema(&self, name: &str) -> Option<serde_json::Value> {
        self.tools()
            .filter_map(|raw| serde_json::from_str::<Definition>(raw.get()).ok())
            .find(|definition| definition.name == name)
            .map(|definition| definition.input_schema.unwrap_or_default())
    }

    /// The raw result of reading a resource.
    pub(crate) fn read(&self, uri: &str) -> Option<String> {
        if let Some(content) = self.document.contents.get(uri) {
            return Some(format!(r#"{{"contents":[{content}]}}"#));
        }
        let item = uri.strip_prefix("zoo://item/")?;
        let (uri, text) = (quoted(uri), quoted(&format!("item {item}")));
        Some(format!(
            r#"{{"contents":[{{"uri":{uri},"mimeType":"text/plain","text":{text}}}]}}"#
        ))
    }

    /// The raw result of getting a prompt.
    pub(crate) fn prompt(&self, name: &str, arguments: &str) -> Result<String, RpcError> {
        let text = match name {
            "greet" => {
                let arguments: HashMap<String, String> = serde_json::from_str(arguments)
                    .map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))?;
                let who = arguments.get("who").ok_or_else(|| {
                    RpcError::new(INVALID_PARAMS, "missing required argument `who`")
                })?;
                format!("Say hello to {who}.")
            }
            "plain" => "Say something.".to_owned(),
            _ => {
                let message = format!("unknown prompt `{name}`");
                return Err(RpcError::new(INVALID_PARAMS, message));
            }
        };
        let text = quoted(&text);
        Ok(format!(
            r#"{{"description":"A prompt of the zoo.","messages":[{{"role":"user","content":{{"type":"text","text":{text}}}}}]}}"#
        ))
    }

    /// The raw result of the tool `fail`.
    pub(crate) fn fail(&self) -> String {
        self.document.fail.get().to_owned()
    }

    /// The raw result of the tool `kinds`.
    pub(crate) fn kinds(&self) -> String {
        self.document.kinds.get().to_owned()
    }

    fn tools(&self) -> impl Iterator<Item = &RawValue> {
        let Document {
            tools, malformed, ..
        } = &self.document;
        tools
            .iter()
            .chain(malformed)
            .chain(&self.extra_tools)
            .map(|raw| &**raw)
    }

    fn page_of(
        &self,
        key: &str,
        items: &[&RawValue],
        cursor: Option<&str>,
    ) -> Result<String, RpcError> {
        let start = match cursor {
            None => 0,
            Some(cursor) => cursor
                .strip_prefix("zoo-page-")
                .and_then(|start| start.parse().ok())
                .filter(|start| *start < items.len())
                .ok_or_else(|| {
                    RpcError::new(INVALID_PARAMS, format!("unknown cursor `{cursor}`"))
                })?,
        };
        let end = start.saturating_add(self.page).min(items.len());
        let page: Vec<&str> = items[start..end].iter().map(|raw| raw.get()).collect();
        let next = if end < items.len() {
            format!(r#","nextCursor":"zoo-page-{end}""#)
        } else {
            String::new()
        };
        Ok(format!(r#"{{"{key}":[{}]{next}}}"#, page.join(",")))
    }
}

fn refs(items: &[Box<RawValue>]) -> Vec<&RawValue> {
    items.iter().map(|raw| &**raw).collect()
}

fn extra_tool(number: usize) -> Box<RawValue> {
    let text = format!(
        r#"{{"name":"tool_{number:04}","description":"Extra tool {number}: returns its arguments.","inputSchema":{{"type":"object","properties":{{"value":{{"type":"string"}}}}}}}}"#
    );
    RawValue::from_string(text).expect("a definition is JSON")
}

/// The JSON without the white space between its tokens; every token keeps its text.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    json.chars()
        .filter(|character| {
            let keep = in_string || !character.is_ascii_whitespace();
            if *character == '"' && !escaped {
                in_string = !in_string;
            }
            escaped = *character == '\\' && !escaped;
            keep
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::compact;

    #[test]
    fn compact_touches_no_token() {
        let pretty = "{ \"a \\\" b\" : [ -0.0 ,\n 1e400 ], \"\\\\\" : \" \" }";
        assert_eq!(compact(pretty), r#"{"a \" b":[-0.0,1e400],"\\":" "}"#);
    }
}

//! What the zoo offers: tools, resources and prompts as raw definitions, and their pages.
//!
//! The definitions are written in `catalog.json`, from which only the white space between
//! tokens is taken away, so that each fits on one line of stdio.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::change::Change;
use super::fixture;
use super::flags::Offer;
use super::rpc::{INVALID_PARAMS, RpcError, quoted};

/// Everything that can be listed, read or got.
#[derive(Debug)]
pub(crate) struct Catalog {
    document: Document,
    extra_tools: Vec<Box<RawValue>>,
    page: usize,
    more: More,
}

/// Which lists show what comes and goes.
#[derive(Debug, Default)]
struct More {
    tools: AtomicBool,
    prompts: AtomicBool,
    resources: AtomicBool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    tools: Vec<Box<RawValue>>,
    #[serde(default)]
    malformed: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    resource_templates: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    #[serde(default)]
    dynamic: Dynamic,
    #[serde(default)]
    contents: HashMap<String, Box<RawValue>>,
    #[serde(default)]
    fail: Box<RawValue>,
    #[serde(default)]
    kinds: Box<RawValue>,
}

/// What comes and goes.
#[derive(Debug, Default, Deserialize)]
struct Dynamic {
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Definition {
    name: String,
    input_schema: Option<serde_json::Value>,
}

impl Catalog {
    pub(crate) fn new(offer: &Offer) -> Self {
        let text = compact(match offer.fixtures {
            true => fixture::CATALOG,
            false => include_str!("catalog.json"),
        });
        let mut document: Document = serde_json::from_str(&text).expect("`catalog.json` is valid");
        if !offer.malformed {
            document.malformed.clear();
        }
        Self {
            document,
            extra_tools: (1..=offer.tools).map(extra_tool).collect(),
            page: offer.page.map_or(usize::MAX, |page| page.max(1)),
            more: More::default(),
        }
    }

    /// Shows what comes and goes, or hides it again.
    pub(crate) fn change(&self, change: &Change) {
        if let Some(shown) = self.more.shown(change) {
            shown.fetch_not(Ordering::Relaxed);
        }
    }

    /// Whether the list that may change so shows what comes and goes.
    pub(crate) fn shows_more(&self, change: &Change) -> bool {
        let shown = self.more.shown(change);
        shown.is_some_and(|shown| shown.load(Ordering::Relaxed))
    }

    /// The raw result of one of the four lists; `None` if the method is none of them.
    pub(crate) fn list(
        &self,
        method: &str,
        cursor: Option<&str>,
    ) -> Option<Result<String, RpcError>> {
        let (key, items): (_, Vec<&RawValue>) = match method {
            "tools/list" => ("tools", self.tools().collect()),
            "resources/list" => {
                let more = self.more(&Change::Resources, &self.document.dynamic.resources);
                let fixed = refs(&self.document.resources).into_iter();
                ("resources", fixed.chain(more).collect())
            }
            "resources/templates/list" => {
                ("resourceTemplates", refs(&self.document.resource_templates))
            }
            "prompts/list" => {
                let more = self.more(&Change::Prompts, &self.document.dynamic.prompts);
                let fixed = refs(&self.document.prompts).into_iter();
                ("prompts", fixed.chain(more).collect())
            }
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
            .chain(self.more(&Change::Tools, &self.document.dynamic.tools))
    }

    fn more<'a>(
        &self,
        change: &Change,
        items: &'a [Box<RawValue>],
    ) -> impl Iterator<Item = &'a RawValue> + use<'a> {
        let shown = if self.shows_more(change) { items } else { &[] };
        shown.iter().map(|raw| &**raw)
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

impl More {
    fn shown(&self, change: &Change) -> Option<&AtomicBool> {
        match change {
            Change::Tools => Some(&self.tools),
            Change::Prompts => Some(&self.prompts),
            Change::Resources => Some(&self.resources),
            Change::Resource(_) => None,
        }
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

//! The zoo's tools, resources and prompts as raw definitions, and their pagination.
//!
//! The definitions live in `catalog.json`. Only the white space between tokens is removed, so
//! that each definition fits on one line of stdio.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::change::Change;
use super::fixture;
use super::flags::FeatureFlags;
use super::rpc::{INVALID_PARAMS, ZooError, json_string};
use super::task_tools;

/// Everything that `*/list`, `resources/read` and `prompts/get` serve.
#[derive(Debug)]
pub(crate) struct ZooCatalog {
    document: Document,
    extra_tools: Vec<Box<RawValue>>,
    page_size: usize,
    redefinition: Option<Redefinition>,
    tools_file: Option<PathBuf>,
    dynamic_lists: DynamicLists,
}

/// Content of the file that `--tools-from` names. The zoo's own items take the place of absent ones.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolsFile {
    tools: Vec<Box<RawValue>>,
    resources: Option<Vec<Box<RawValue>>>,
    resource_templates: Option<Vec<Box<RawValue>>>,
    prompts: Option<Vec<Box<RawValue>>>,
    /// Results of tools and prompts by name.
    #[serde(default)]
    results: HashMap<String, Box<RawValue>>,
}

/// Another definition of the tool `say`, used while a file exists.
#[derive(Debug)]
struct Redefinition {
    file: PathBuf,
    definition: Box<RawValue>,
}

/// The lists that currently include their dynamic entries.
#[derive(Debug, Default)]
struct DynamicLists {
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

/// Entries that can be added and removed at run time.
#[derive(Debug, Default, Deserialize)]
struct Dynamic {
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolDefinition {
    name: String,
    input_schema: Option<serde_json::Value>,
}

impl ZooCatalog {
    pub(crate) fn new(features: &FeatureFlags) -> Self {
        let text = compact(if features.fixtures {
            fixture::CATALOG_JSON
        } else {
            include_str!("catalog.json")
        });
        let mut document: Document =
            serde_json::from_str(&text).expect("`catalog.json` is invalid");
        if !features.malformed {
            document.malformed.clear();
        }
        let task_tools = features.tasks.then(task_tools::definitions);
        let task_tools = task_tools.into_iter().flatten();
        let append = features.append_to.as_ref().map(|_| append_tool());
        Self {
            document,
            extra_tools: (1..=features.tools)
                .map(extra_tool)
                .chain(append)
                .chain(task_tools)
                .collect(),
            redefinition: features.redefine_while.clone().map(Redefinition::new),
            tools_file: features.tools_from.clone(),
            page_size: features.page.map_or(usize::MAX, |page| page.max(1)),
            dynamic_lists: DynamicLists::default(),
        }
    }

    /// Adds the dynamic entries of the changed list, or removes them again.
    pub(crate) fn apply(&self, change: &Change) {
        if let Some(flag) = self.dynamic_lists.flag(change) {
            flag.fetch_not(Ordering::Relaxed);
        }
    }

    /// Returns whether the list that this change affects includes its dynamic entries.
    pub(crate) fn shows_dynamic(&self, change: &Change) -> bool {
        let flag = self.dynamic_lists.flag(change);
        flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Returns the raw result of a list method; `None` if the method is not one of the four.
    pub(crate) fn list(
        &self,
        method: &str,
        cursor: Option<&str>,
    ) -> Option<Result<String, ZooError>> {
        if let Some((key, items)) = self
            .read_tools_file()
            .and_then(|file| file.into_list(method))
        {
            return Some(self.list_page(key, &as_refs(&items), cursor));
        }
        let (key, items): (_, Vec<&RawValue>) = match method {
            "tools/list" => ("tools", self.tools().collect()),
            "resources/list" => {
                let dynamic =
                    self.dynamic_entries(&Change::Resources, &self.document.dynamic.resources);
                let fixed = as_refs(&self.document.resources).into_iter();
                ("resources", fixed.chain(dynamic).collect())
            }
            "resources/templates/list" => (
                "resourceTemplates",
                as_refs(&self.document.resource_templates),
            ),
            "prompts/list" => {
                let dynamic =
                    self.dynamic_entries(&Change::Prompts, &self.document.dynamic.prompts);
                let fixed = as_refs(&self.document.prompts).into_iter();
                ("prompts", fixed.chain(dynamic).collect())
            }
            _ => return None,
        };
        Some(self.list_page(key, &items, cursor))
    }

    /// Returns the result of a tool or prompt in the file that `--tools-from` names.
    pub(crate) fn result_from_file(&self, name: &str) -> Option<String> {
        let file = self.read_tools_file()?;
        Some(file.results.get(name)?.get().to_owned())
    }

    fn read_tools_file(&self) -> Option<ToolsFile> {
        let text = std::fs::read_to_string(self.tools_file.as_ref()?);
        let text = compact(&text.expect("the file of `--tools-from` cannot be read"));
        Some(serde_json::from_str(&text).expect("the file of `--tools-from` is invalid"))
    }

    /// Returns the input schema of the first listed tool of this name; `Some(Null)` if it has none.
    pub(crate) fn tool_schema(&self, name: &str) -> Option<serde_json::Value> {
        let file = self.read_tools_file();
        let from_file = file.iter().flat_map(|file| as_refs(&file.tools));
        from_file
            .chain(self.tools())
            .filter_map(|raw| serde_json::from_str::<ToolDefinition>(raw.get()).ok())
            .find(|definition| definition.name == name)
            .map(|definition| definition.input_schema.unwrap_or_default())
    }

    /// Returns the raw result of `resources/read`.
    pub(crate) fn read_resource(&self, uri: &str) -> Option<String> {
        if let Some(content) = self.document.contents.get(uri) {
            return Some(format!(r#"{{"contents":[{content}]}}"#));
        }
        let item = uri.strip_prefix("zoo://item/")?;
        let (uri, text) = (json_string(uri), json_string(&format!("item {item}")));
        Some(format!(
            r#"{{"contents":[{{"uri":{uri},"mimeType":"text/plain","text":{text}}}]}}"#
        ))
    }

    /// Returns the raw result of `prompts/get`.
    pub(crate) fn prompt(&self, name: &str, arguments: &str) -> Result<String, ZooError> {
        if let Some(result) = self.result_from_file(name) {
            return Ok(result);
        }
        let text = match name {
            "greet" => {
                let arguments: HashMap<String, String> = serde_json::from_str(arguments)
                    .map_err(|error| ZooError::new(INVALID_PARAMS, error.to_string()))?;
                let who = arguments.get("who").ok_or_else(|| {
                    ZooError::new(INVALID_PARAMS, "missing required argument `who`")
                })?;
                format!("Say hello to {who}.")
            }
            "plain" => "Say something.".to_owned(),
            _ => {
                let message = format!("unknown prompt `{name}`");
                return Err(ZooError::new(INVALID_PARAMS, message));
            }
        };
        let text = json_string(&text);
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
            .map(|raw| self.current_definition(raw))
            .chain(self.dynamic_entries(&Change::Tools, &self.document.dynamic.tools))
    }

    fn current_definition<'a>(&'a self, raw: &'a RawValue) -> &'a RawValue {
        match &self.redefinition {
            Some(Redefinition { file, definition })
                if raw.get().starts_with(r#"{"name":"say","#) && file.exists() =>
            {
                definition
            }
            _ => raw,
        }
    }

    fn dynamic_entries<'a>(
        &self,
        change: &Change,
        items: &'a [Box<RawValue>],
    ) -> impl Iterator<Item = &'a RawValue> + use<'a> {
        let shown = if self.shows_dynamic(change) {
            items
        } else {
            &[]
        };
        shown.iter().map(|raw| &**raw)
    }

    fn list_page(
        &self,
        key: &str,
        items: &[&RawValue],
        cursor: Option<&str>,
    ) -> Result<String, ZooError> {
        let start = match cursor {
            None => 0,
            Some(cursor) => cursor
                .strip_prefix("zoo-page-")
                .and_then(|start| start.parse().ok())
                .filter(|start| *start < items.len())
                .ok_or_else(|| {
                    ZooError::new(INVALID_PARAMS, format!("unknown cursor `{cursor}`"))
                })?,
        };
        let end = start.saturating_add(self.page_size).min(items.len());
        let page: Vec<&str> = items[start..end].iter().map(|raw| raw.get()).collect();
        let next = if end < items.len() {
            format!(r#","nextCursor":"zoo-page-{end}""#)
        } else {
            String::new()
        };
        Ok(format!(r#"{{"{key}":[{}]{next}}}"#, page.join(",")))
    }
}

impl ToolsFile {
    /// Returns the items of a list, if the file has them.
    fn into_list(self, method: &str) -> Option<(&'static str, Vec<Box<RawValue>>)> {
        match method {
            "tools/list" => Some(("tools", self.tools)),
            "resources/list" => Some(("resources", self.resources?)),
            "resources/templates/list" => Some(("resourceTemplates", self.resource_templates?)),
            "prompts/list" => Some(("prompts", self.prompts?)),
            _ => None,
        }
    }
}

impl Redefinition {
    fn new(file: PathBuf) -> Self {
        let text = r#"{"name":"say","description":"Sends the text to everyone.","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"to":{"type":"string"}},"required":["text"]}}"#;
        let definition = RawValue::from_string(text.to_owned());
        let definition = definition.expect("the other definition of `say` is not valid JSON");
        Self { file, definition }
    }
}

impl DynamicLists {
    fn flag(&self, change: &Change) -> Option<&AtomicBool> {
        match change {
            Change::Tools => Some(&self.tools),
            Change::Prompts => Some(&self.prompts),
            Change::Resources => Some(&self.resources),
            Change::Resource(_) => None,
        }
    }
}

fn as_refs(items: &[Box<RawValue>]) -> Vec<&RawValue> {
    items.iter().map(|raw| &**raw).collect()
}

fn extra_tool(number: usize) -> Box<RawValue> {
    let text = format!(
        r#"{{"name":"tool_{number:04}","description":"Extra tool {number}: returns its arguments.","inputSchema":{{"type":"object","properties":{{"value":{{"type":"string"}}}}}}}}"#
    );
    RawValue::from_string(text).expect("extra tool definition is not valid JSON")
}

fn append_tool() -> Box<RawValue> {
    let text = r#"{"name":"append","description":"Appends a line to the file that `--append-to` names.","inputSchema":{"type":"object","properties":{"line":{"type":"string"}},"required":["line"]}}"#;
    RawValue::from_string(text.to_owned()).expect("the definition of `append` is not valid JSON")
}

/// Removes the white space between JSON tokens and keeps every token's text.
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
    fn compact_preserves_token_text() {
        let pretty = "{ \"a \\\" b\" : [ -0.0 ,\n 1e400 ], \"\\\\\" : \" \" }";
        assert_eq!(compact(pretty), r#"{"a \" b":[-0.0,1e400],"\\":" "}"#);
    }
}

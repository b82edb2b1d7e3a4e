//! Tool definitions as models see them: encoded once, then spliced into requests.

mod schema;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::config::Dialect;

use crate::body::RequestBody;

/// A tool that is offered to models.
#[derive(Clone, Copy, Debug)]
pub struct OfferedTool<'a> {
    /// Name that models see.
    pub alias: &'a str,
    /// Server name and raw tool name; `None` for the gateway's own tools.
    pub id: Option<(&'a str, &'a str)>,
    pub description: &'a str,
    /// JSON Schema of the arguments.
    pub parameters: &'a str,
}

/// Format in which definitions are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DefinitionFormat {
    pub dialect: Dialect,
    /// Whether references in schemas must be inlined.
    pub flat: bool,
}

/// Encoded definitions in one format, in order.
#[derive(Debug, Default)]
pub struct ToolDefinitions {
    tools: Vec<Definition>,
    /// All definitions, separated by commas.
    joined: String,
}

#[derive(Debug)]
struct Definition {
    /// Position in [`ToolDefinitions::joined`].
    range: std::ops::Range<usize>,
    /// Normalized names under which clients may send the tool.
    spellings: Vec<String>,
    /// Name suffix if a client prefixes its own name for the gateway, as OpenCode does.
    suffix: Option<String>,
}

/// Names of the tools that the caller sends in a request.
#[derive(Debug, Default)]
pub struct CallerTools {
    exact: HashSet<String>,
    normalized: HashSet<String>,
    /// Whether any tool is hosted by the provider or is not called by name.
    has_provider_tools: bool,
}

#[derive(Deserialize)]
struct ToolHead<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function: Option<FunctionHead<'a>>,
    #[serde(borrow, rename = "type", default)]
    kind: Option<Cow<'a, str>>,
    #[serde(default)]
    input_schema: Option<IgnoredAny>,
    /// Tools in a `namespace`, in which Codex groups the tools of an MCP server.
    #[serde(borrow, default)]
    tools: Vec<Self>,
}

#[derive(Deserialize)]
struct FunctionHead<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

impl ToolDefinitions {
    pub fn new<'a>(form: DefinitionFormat, tools: impl Iterator<Item = OfferedTool<'a>>) -> Self {
        let mut definitions = Self::default();
        for tool in tools {
            if !definitions.joined.is_empty() {
                definitions.joined.push(',');
            }
            let start = definitions.joined.len();
            definitions.joined.push_str(&encode_definition(form, &tool));
            definitions.tools.push(Definition {
                range: start..definitions.joined.len(),
                spellings: spellings(&tool),
                suffix: tool.id.map(|_| format!("_{}", normalize_name(tool.alias))),
            });
        }
        definitions
    }

    /// Returns the definitions that the caller does not send itself, separated by commas.
    pub fn excluding(&self, caller_tools: &CallerTools) -> Cow<'_, str> {
        if caller_tools.exact.is_empty() || !self.tools.iter().any(|tool| caller_tools.has(tool)) {
            return Cow::Borrowed(&self.joined);
        }
        let others = self.tools.iter().filter(|tool| !caller_tools.has(tool));
        let others: Vec<&str> = others
            .map(|tool| &self.joined[tool.range.clone()])
            .collect();
        Cow::Owned(others.join(","))
    }

    /// Returns the encoded size in bytes.
    pub fn len(&self) -> usize {
        self.joined.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl CallerTools {
    /// Reads the tools of a request. Malformed ones are skipped here and left to the provider to
    /// reject.
    pub fn from_body(body: &RequestBody) -> Self {
        let mut caller_tools = Self::default();
        for tool in raw_tools(body) {
            if let Ok(head) = serde_json::from_str(tool.get()) {
                caller_tools.add(&head);
            }
        }
        caller_tools
    }

    /// Returns whether any tool is run by the provider or is not called by name.
    pub fn has_provider_tools(&self) -> bool {
        self.has_provider_tools
    }

    pub fn contains(&self, name: &str) -> bool {
        self.exact.contains(name)
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty()
    }

    fn add(&mut self, head: &ToolHead<'_>) {
        let kind = head.kind.as_deref().unwrap_or("function");
        let is_function = head.function.is_some() || matches!(kind, "function" | "namespace");
        // Anthropic uses `custom` for ordinary tools, OpenAI for tools without a schema.
        let is_custom = kind == "custom" && head.input_schema.is_some();
        self.has_provider_tools |= !is_function && !is_custom;
        let function = head
            .function
            .as_ref()
            .and_then(|function| function.name.as_deref());
        // A tool without a name is skipped by `insert`.
        let name = head.name.as_deref().or(function).unwrap_or("");
        for inner in &head.tools {
            if let Some(inner) = inner.name.as_deref() {
                self.insert(inner);
                self.insert(&format!("{name}__{inner}"));
            }
        }
        self.insert(name);
    }

    fn insert(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        self.exact.insert(name.to_owned());
        let normalized = normalize_name(name);
        // A client connected to the gateway over MCP prefixes its own name for the gateway.
        let behind = normalized
            .strip_prefix("mcp__")
            .and_then(|rest| rest.split_once("__"));
        if let Some((_, tool)) = behind {
            self.normalized.insert(tool.to_owned());
        }
        self.normalized.insert(normalized);
    }

    fn has(&self, tool: &Definition) -> bool {
        let suffix = tool.suffix.as_deref();
        let ends = |name: &String| suffix.is_some_and(|suffix| name.ends_with(suffix));
        let mut spellings = tool.spellings.iter();
        spellings.any(|spelling| self.normalized.contains(spelling))
            || self.normalized.iter().any(ends)
    }
}

/// Returns the tool namespaces of a Responses request.
pub fn tool_namespaces(body: &RequestBody) -> Vec<String> {
    #[derive(Deserialize)]
    struct Namespace {
        #[serde(rename = "type", default)]
        kind: String,
        #[serde(default)]
        name: String,
    }
    raw_tools(body)
        .into_iter()
        .filter(|tool| tool.get().contains("\"namespace\""))
        .filter_map(|tool| serde_json::from_str::<Namespace>(tool.get()).ok())
        .filter(|tool| tool.kind == "namespace")
        .map(|tool| tool.name)
        .collect()
}

/// Returns the entries of `tools`. A value that is not an array is left to the provider to reject.
fn raw_tools(body: &RequestBody) -> Vec<&RawValue> {
    let tools = body.get("tools");
    let tools = tools.and_then(|tools| serde_json::from_str(tools).ok());
    tools.unwrap_or_default()
}

fn normalize_name(name: &str) -> String {
    name.replace(['-', '.'], "_")
}

/// Returns the normalized alias and the names that Claude Code, Gemini CLI, Codex and OpenCode give
/// to tools of MCP servers.
fn spellings(tool: &OfferedTool<'_>) -> Vec<String> {
    let mut spellings = vec![normalize_name(tool.alias)];
    if let Some((server, name)) = tool.id {
        let (server, name) = (normalize_name(server), normalize_name(name));
        spellings.push(format!("mcp__{server}__{name}"));
        spellings.push(format!("mcp_{server}_{name}"));
        spellings.push(format!("{server}_{name}"));
        spellings.dedup();
    }
    spellings
}

fn encode_definition(form: DefinitionFormat, tool: &OfferedTool<'_>) -> String {
    let OfferedTool {
        alias, description, ..
    } = tool;
    let schema: Value = serde_json::from_str(tool.parameters).unwrap_or_else(|error| {
        // Safe, because arguments are validated against the original schema.
        tracing::warn!(tool = alias, %error, "unreadable tool schema; offering the tool without it");
        Value::Null
    });
    let schema = schema::adapt_schema(&schema, form.flat);
    let definition = match form.dialect {
        Dialect::Chat => json!({"type": "function",
            "function": {"name": alias, "description": description, "parameters": schema}}),
        Dialect::Responses => json!({"type": "function", "name": alias,
            "description": description, "parameters": schema, "strict": false}),
        Dialect::Messages => {
            json!({"name": alias, "description": description, "input_schema": schema})
        }
    };
    definition.to_string()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn offered<'a>(alias: &'a str, server: &'a str, tool: &'a str) -> OfferedTool<'a> {
        OfferedTool {
            alias,
            id: Some((server, tool)),
            description: "d",
            parameters: r#"{"type":"object"}"#,
        }
    }

    #[test]
    fn definitions_exclude_caller_tools_under_any_spelling() {
        let tools = [
            offered("files_read", "files", "read"),
            offered("web_get-page", "web", "get-page"),
        ];
        let form = DefinitionFormat {
            dialect: Dialect::Chat,
            flat: false,
        };
        let definitions = ToolDefinitions::new(form, tools.into_iter());
        let remaining = |tools: &str| {
            let body = Bytes::from(format!("{{\"tools\":{tools}}}"));
            let caller_tools = CallerTools::from_body(&RequestBody::parse(body).unwrap());
            let remaining = format!("[{}]", definitions.excluding(&caller_tools));
            let remaining: Vec<Value> = serde_json::from_str(&remaining).unwrap();
            let names = remaining
                .iter()
                .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<String>>().join(" ")
        };
        assert_eq!(remaining("[]"), "files_read web_get-page");
        for name in [
            "files_read",
            "mcp__files__read",
            "mcp_files_read",
            "files-read",
            "mcp__toolgate__files_read",
            "gate_files_read",
        ] {
            let chat = format!(r#"[{{"type":"function","function":{{"name":"{name}"}}}}]"#);
            assert_eq!(remaining(&chat), "web_get-page", "{name}");
            let flat = format!(r#"[{{"type":"function","name":"{name}"}}]"#);
            assert_eq!(remaining(&flat), "web_get-page", "{name}");
        }
        let namespace = r#"[{"type":"namespace","name":"mcp__web","tools":[{"type":"function","name":"get_page"}]}]"#;
        assert_eq!(remaining(namespace), "files_read");
        assert_eq!(
            remaining(r#"[{"type":"web_search"},{"name":"read"}]"#),
            "files_read web_get-page"
        );
        // A malformed tool does not hide the others.
        assert_eq!(
            remaining(r#"[7,{"name":8},{"type":"function","name":"files_read"}]"#),
            "web_get-page"
        );
    }

    #[test]
    fn namespaces_are_found_beside_malformed_tools() {
        let body = r#"{"tools":[{"type":7},{"type":"namespace","name":"mcp__web"},{"type":"function","name":"namespace"}]}"#;
        let body = RequestBody::parse(Bytes::from_static(body.as_bytes())).unwrap();
        assert_eq!(tool_namespaces(&body), ["mcp__web"]);
    }
}

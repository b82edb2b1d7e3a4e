//! Tool definitions as models are given them: encoded once, then spliced into requests.

mod schema;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use toolgate_core::config::Dialect;

use crate::body::Body;

/// A tool to be offered to models.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    /// The name that models see.
    pub alias: &'a str,
    /// Whose it is, and its name there; none for the gateway's own.
    pub id: Option<(&'a str, &'a str)>,
    pub description: &'a str,
    /// A JSON schema.
    pub parameters: &'a str,
}

/// How definitions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub dialect: Dialect,
    /// Whether schemas must do without references.
    pub flat: bool,
}

/// Definitions in one form, in order, encoded.
#[derive(Debug, Default)]
pub struct Definitions {
    tools: Vec<Definition>,
    /// All of them, with commas between them.
    joined: String,
}

#[derive(Debug)]
struct Definition {
    /// Where it stands in the text of all.
    range: std::ops::Range<usize>,
    /// The ways in which clients may spell it.
    spellings: Vec<String>,
    /// How it ends where a client puts its own name for the gateway in front, as OpenCode does.
    ending: Option<String>,
}

/// The names of the tools that a request brings, in the one spelling in which they are compared.
#[derive(Debug, Default)]
pub struct OwnTools {
    exact: HashSet<String>,
    folded: HashSet<String>,
    /// Whether a tool is none that is called by its name: one of the provider's own.
    foreign: bool,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function: Option<Function<'a>>,
    #[serde(borrow, rename = "type", default)]
    kind: Option<Cow<'a, str>>,
    #[serde(default)]
    input_schema: Option<IgnoredAny>,
    /// Of a `namespace`, as Codex wraps the tools of an MCP server.
    #[serde(borrow, default)]
    tools: Vec<Self>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

impl Definitions {
    pub fn new<'a>(form: Form, tools: impl Iterator<Item = Offered<'a>>) -> Self {
        let mut definitions = Self::default();
        for tool in tools {
            if !definitions.joined.is_empty() {
                definitions.joined.push(',');
            }
            let start = definitions.joined.len();
            definitions.joined.push_str(&encoded(form, &tool));
            definitions.tools.push(Definition {
                range: start..definitions.joined.len(),
                spellings: spellings(&tool),
                ending: tool.id.map(|_| format!("_{}", fold(tool.alias))),
            });
        }
        definitions
    }

    /// All that a request does not bring itself, with commas between them.
    pub fn besides(&self, own: &OwnTools) -> Cow<'_, str> {
        if own.exact.is_empty() || !self.tools.iter().any(|tool| own.has(tool)) {
            return Cow::Borrowed(&self.joined);
        }
        let others = self.tools.iter().filter(|tool| !own.has(tool));
        let others: Vec<&str> = others
            .map(|tool| &self.joined[tool.range.clone()])
            .collect();
        Cow::Owned(others.join(","))
    }

    /// Bytes that they take.
    pub fn len(&self) -> usize {
        self.joined.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl OwnTools {
    /// The tools in a request; what cannot be read is left to the provider to refuse.
    pub fn of(body: &Body) -> Self {
        let heads = body
            .get("tools")
            .and_then(|tools| serde_json::from_str(tools).ok());
        let heads: Vec<Head<'_>> = heads.unwrap_or_default();
        let mut own = Self::default();
        for head in &heads {
            own.add(head);
        }
        own
    }

    /// Whether there are tools that the provider runs itself, or that are called in another way.
    pub fn has_foreign(&self) -> bool {
        self.foreign
    }

    pub fn contains(&self, name: &str) -> bool {
        self.exact.contains(name)
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty()
    }

    fn add(&mut self, head: &Head<'_>) {
        let kind = head.kind.as_deref().unwrap_or("function");
        let named = head.function.is_some() || matches!(kind, "function" | "namespace");
        // Anthropic's word for a tool of the caller's own is OpenAI's for one without a schema.
        let custom = kind == "custom" && head.input_schema.is_some();
        self.foreign |= !named && !custom;
        let function = head
            .function
            .as_ref()
            .and_then(|function| function.name.as_deref());
        let name = head.name.as_deref().or(function).unwrap_or_default();
        for inner in &head.tools {
            let inner = inner.name.as_deref().unwrap_or_default();
            self.insert(inner);
            self.insert(&format!("{name}__{inner}"));
        }
        self.insert(name);
    }

    fn insert(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        self.exact.insert(name.to_owned());
        let folded = fold(name);
        // A client that reaches the gateway by MCP puts its own name for it in front.
        let behind = folded
            .strip_prefix("mcp__")
            .and_then(|rest| rest.split_once("__"));
        if let Some((_, tool)) = behind {
            self.folded.insert(tool.to_owned());
        }
        self.folded.insert(folded);
    }

    fn has(&self, tool: &Definition) -> bool {
        let ending = tool.ending.as_deref();
        let ends = |name: &String| ending.is_some_and(|ending| name.ends_with(ending));
        let mut spellings = tool.spellings.iter();
        spellings.any(|spelling| self.folded.contains(spelling)) || self.folded.iter().any(ends)
    }
}

/// The names under which a request of the Responses API wraps tools.
pub fn namespaces(body: &Body) -> Vec<String> {
    #[derive(Deserialize)]
    struct Wrapped {
        #[serde(rename = "type", default)]
        kind: String,
        #[serde(default)]
        name: String,
    }
    let tools = body
        .get("tools")
        .filter(|tools| tools.contains("\"namespace\""));
    let tools: Vec<Wrapped> = tools
        .and_then(|tools| serde_json::from_str(tools).ok())
        .unwrap_or_default();
    let wrapped = tools.into_iter().filter(|tool| tool.kind == "namespace");
    wrapped.map(|tool| tool.name).collect()
}

fn fold(name: &str) -> String {
    name.replace(['-', '.'], "_")
}

/// As the alias is, and as Claude Code, Gemini CLI, Codex and OpenCode name tools of MCP servers.
fn spellings(tool: &Offered<'_>) -> Vec<String> {
    let mut spellings = vec![fold(tool.alias)];
    if let Some((server, name)) = tool.id {
        let (server, name) = (fold(server), fold(name));
        spellings.push(format!("mcp__{server}__{name}"));
        spellings.push(format!("mcp_{server}_{name}"));
        spellings.push(format!("{server}_{name}"));
        spellings.dedup();
    }
    spellings
}

fn encoded(form: Form, tool: &Offered<'_>) -> String {
    let Offered {
        alias, description, ..
    } = tool;
    let schema: Value = serde_json::from_str(tool.parameters).unwrap_or_default();
    let schema = schema::adapted(&schema, form.flat);
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

    fn offered<'a>(alias: &'a str, server: &'a str, tool: &'a str) -> Offered<'a> {
        Offered {
            alias,
            id: Some((server, tool)),
            description: "d",
            parameters: r#"{"type":"object"}"#,
        }
    }

    #[test]
    fn what_a_client_brings_is_not_doubled_however_it_spells_it() {
        let tools = [
            offered("files_read", "files", "read"),
            offered("web_get-page", "web", "get-page"),
        ];
        let form = Form {
            dialect: Dialect::Chat,
            flat: false,
        };
        let definitions = Definitions::new(form, tools.into_iter());
        let left = |tools: &str| {
            let body = Bytes::from(format!("{{\"tools\":{tools}}}"));
            let own = OwnTools::of(&Body::read(body).unwrap());
            let left = format!("[{}]", definitions.besides(&own));
            let left: Vec<Value> = serde_json::from_str(&left).unwrap();
            let names = left
                .iter()
                .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<String>>().join(" ")
        };
        assert_eq!(left("[]"), "files_read web_get-page");
        for spelled in [
            "files_read",
            "mcp__files__read",
            "mcp_files_read",
            "files-read",
            "mcp__toolgate__files_read",
            "gate_files_read",
        ] {
            let chat = format!(r#"[{{"type":"function","function":{{"name":"{spelled}"}}}}]"#);
            assert_eq!(left(&chat), "web_get-page", "{spelled}");
            let flat = format!(r#"[{{"type":"function","name":"{spelled}"}}]"#);
            assert_eq!(left(&flat), "web_get-page", "{spelled}");
        }
        let wrapped = r#"[{"type":"namespace","name":"mcp__web","tools":[{"type":"function","name":"get_page"}]}]"#;
        assert_eq!(left(wrapped), "files_read");
        assert_eq!(
            left(r#"[{"type":"web_search"},{"name":"read"}]"#),
            "files_read web_get-page"
        );
    }
}

//! A single tool as its server defines it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::canonical_text;
use crate::hash::sha256_hex;
use crate::name::{ServerName, ToolId, ToolName};
use crate::schema::{Schema, UnusableSchema};

/// A tool: its id, its definition, and the values parsed from it.
#[derive(Debug)]
pub struct Tool {
    pub id: ToolId,
    /// As the server sent it byte for byte, unless it was repaired.
    pub definition: Box<RawValue>,
    /// The definition as the server sent it, if it was repaired.
    unrepaired: Option<Box<RawValue>>,
    /// SHA-256 of the definition as the server sent it, in hex.
    pub hash: String,
    pub hints: ToolHints,
    pub task_support: TaskSupport,
    /// Whether the server's definition contained hidden text, which was removed.
    pub had_hidden_text: bool,
    /// Compiled on the first call.
    schema: OnceLock<Result<Schema, UnusableSchema>>,
    /// Compiled on the first result; `None` if there is none.
    output_schema: OnceLock<Option<Result<Schema, UnusableSchema>>>,
    contract_hash: OnceLock<String>,
}

/// A definition as a server sent it, and after its repair.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolDefinition<'a> {
    /// Without hidden text.
    pub(super) sent: &'a RawValue,
    pub(super) repaired: &'a RawValue,
    /// Whether hidden text was removed.
    pub(super) had_hidden_text: bool,
}

/// Annotations about a tool's effects. Treat an absent hint as the least safe value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// Whether a legacy server runs calls of a tool as tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

/// Fields of a tool definition, borrowed from it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolView<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow)]
    pub title: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub description: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub input_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    pub output_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    pub annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub icons: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Annotations {
    #[serde(deserialize_with = "deserialize_hint")]
    read_only_hint: Option<bool>,
    #[serde(deserialize_with = "deserialize_hint")]
    destructive_hint: Option<bool>,
    #[serde(deserialize_with = "deserialize_hint")]
    idempotent_hint: Option<bool>,
    #[serde(deserialize_with = "deserialize_hint")]
    open_world_hint: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Execution {
    task_support: TaskSupport,
}

/// Deserializes a hint. One that is not a boolean counts as absent and does not affect the others.
fn deserialize_hint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_bool())
}

impl Tool {
    /// Parses a definition. The error describes the problem to an administrator.
    pub(super) fn parse(
        server: &ServerName,
        definition: ToolDefinition<'_>,
    ) -> Result<Self, String> {
        let ToolDefinition { sent, repaired, .. } = definition;
        let view: ToolView<'_> =
            serde_json::from_str(repaired.get()).map_err(|error| error.to_string())?;
        // Annotations that are not an object, or repeat a hint, give no hints, so the tool
        // counts as destructive. A repair would leave the last of the repeated hints.
        let hints = members(sent)
            .get("annotations")
            .and_then(|raw| serde_json::from_str::<Annotations>(raw.get()).ok())
            .unwrap_or_default();
        let execution = members(sent)
            .get("execution")
            .and_then(|raw| serde_json::from_str::<Execution>(raw.get()).ok())
            .unwrap_or_default();
        let is_repaired = sent.get() != repaired.get();
        Ok(Self {
            id: ToolId {
                server: server.clone(),
                tool: ToolName::new(&view.name),
            },
            hash: sha256_hex(sent.get()),
            unrepaired: is_repaired.then(|| sent.to_owned()),
            definition: repaired.to_owned(),
            task_support: execution.task_support,
            had_hidden_text: definition.had_hidden_text,
            schema: OnceLock::new(),
            output_schema: OnceLock::new(),
            contract_hash: OnceLock::new(),
            hints: ToolHints {
                read_only: hints.read_only_hint,
                destructive: hints.destructive_hint,
                idempotent: hints.idempotent_hint,
                open_world: hints.open_world_hint,
            },
        })
    }

    /// The definition as the server sent it, without hidden text. It is what is hashed, trusted and
    /// remembered, so that no repair hides a change.
    pub fn sent_definition(&self) -> &RawValue {
        self.unrepaired.as_deref().unwrap_or(&self.definition)
    }

    /// The definition as the server sent it, if it was repaired.
    pub fn unrepaired_definition(&self) -> Option<&RawValue> {
        self.unrepaired.as_deref()
    }

    /// Compiled input schema. A tool without a schema accepts any arguments.
    pub fn schema(&self) -> Result<&Schema, &UnusableSchema> {
        let compiled = self.schema.get_or_init(|| match self.view().input_schema {
            Some(schema) => Schema::compile(schema),
            None => Schema::compile(RawValue::TRUE),
        });
        compiled.as_ref()
    }

    /// Compiled output schema; `None` if the tool has none.
    pub fn output_schema(&self) -> Option<Result<&Schema, &UnusableSchema>> {
        let compiled = self
            .output_schema
            .get_or_init(|| self.view().output_schema.map(Schema::compile));
        compiled.as_ref().map(Result::as_ref)
    }

    /// SHA-256, in hex, of what an approver of a call agrees to: name, description, annotations and
    /// schemas, as the server sent them. Other members, key order and whitespace do not matter.
    pub fn contract_hash(&self) -> &str {
        self.contract_hash.get_or_init(|| {
            let ToolView {
                name, description, ..
            } = self.view();
            let sent = members(self.sent_definition());
            let mut text = String::new();
            let mut add = |part: Option<&str>| {
                // The length keeps adjacent parts apart.
                let part = part.map(|part| format!("{}:{part}", part.len()));
                text.push_str(part.as_deref().unwrap_or("-"));
            };
            add(Some(&name));
            add(description.as_deref());
            for member in ["annotations", "inputSchema", "outputSchema"] {
                let raw = sent.get(member).filter(|raw| raw.get() != "null");
                add(raw.map(|raw| canonical_text(raw)).as_deref());
            }
            sha256_hex(text)
        })
    }

    /// Parses the fields of the definition.
    pub fn view(&self) -> ToolView<'_> {
        // `parse` has deserialized the same text, so this cannot fail.
        serde_json::from_str(self.definition.get()).unwrap_or_default()
    }
}

/// Returns the members of a definition; of two with the same name, the last one.
fn members(definition: &RawValue) -> HashMap<String, &RawValue> {
    // Every definition of a tool has been parsed as an object.
    serde_json::from_str(definition.get()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ItemKind;
    use crate::catalog::repair::repair;

    fn parse(sent: &str) -> Tool {
        let server = ServerName::parse("s").unwrap();
        let sent = RawValue::from_string(sent.to_owned()).unwrap();
        let definition = ToolDefinition {
            sent: &sent,
            repaired: &repair(ItemKind::Tool, &sent).unwrap().definition,
            had_hidden_text: false,
        };
        Tool::parse(&server, definition).unwrap()
    }

    fn hints(annotations: &str) -> ToolHints {
        let text = format!(r#"{{"name":"t","annotations":{annotations}}}"#);
        parse(&text).hints
    }

    #[test]
    fn invalid_hint_does_not_affect_the_others() {
        let found = hints(
            r#"{"title":5,"readOnlyHint":"yes","destructiveHint":false,"idempotentHint":null,"openWorldHint":true}"#,
        );
        let expected = ToolHints {
            destructive: Some(false),
            open_world: Some(true),
            ..ToolHints::default()
        };
        assert_eq!(found, expected);
    }

    fn contract_hash(definition: &str) -> String {
        parse(definition).contract_hash().to_owned()
    }

    #[test]
    fn contract_hash_changes_with_every_part_that_an_approver_agrees_to() {
        let definitions = [
            r#"{"name":"t"}"#,
            r#"{"name":"T"}"#,
            r#"{"name":"t","description":""}"#,
            r#"{"name":"t","description":"a"}"#,
            r#"{"name":"t","description":"a "}"#,
            r#"{"name":"t1","description":""}"#,
            r#"{"name":"t","annotations":{}}"#,
            r#"{"name":"t","annotations":{"readOnlyHint":true}}"#,
            r#"{"name":"t","annotations":{"title":"a"}}"#,
            r#"{"name":"t","inputSchema":{}}"#,
            r#"{"name":"t","outputSchema":{}}"#,
            r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"string"}}}}"#,
            r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"string","description":"x"}}}}"#,
            r#"{"name":"t","inputSchema":{"required":["a","b"]}}"#,
            r#"{"name":"t","inputSchema":{"required":["b","a"]}}"#,
            // Parsers may read either of two equal keys.
            r#"{"name":"t","inputSchema":{"title":"a","title":"b"}}"#,
            r#"{"name":"t","inputSchema":{"title":"c","title":"b"}}"#,
            r#"{"name":"t","inputSchema":{"title":"b"}}"#,
            r#"{"name":"t","inputSchema":{"maximum":1}}"#,
            r#"{"name":"t","inputSchema":{"maximum":1.0}}"#,
        ];
        let hashes: std::collections::HashSet<_> =
            definitions.iter().map(|text| contract_hash(text)).collect();
        assert_eq!(hashes.len(), definitions.len());
    }

    #[test]
    fn contract_hash_ignores_display_members_order_and_whitespace() {
        let expected = contract_hash(
            r#"{"name":"t","description":"é","inputSchema":{"type":"object","properties":{"a":{},"b":{}}}}"#,
        );
        for same in [
            r#"{"name":"t","description":"é","inputSchema":{"type":"object","properties":{"a":{},"b":{}}},"_meta":{"n":1}}"#,
            r#"{"name":"t","description":"é","inputSchema":{"type":"object","properties":{"a":{},"b":{}}},"icons":[{"src":"x"}]}"#,
            r#"{"name":"t","title":"T","description":"é","inputSchema":{"type":"object","properties":{"a":{},"b":{}}},"x-new":1}"#,
            r#"{"inputSchema":{"properties":{"b":{},"a":{}}, "type": "object"}, "description":"\u00e9", "name":"\u0074"}"#,
        ] {
            assert_eq!(contract_hash(same), expected, "{same}");
        }
    }

    #[test]
    fn hashes_are_those_of_the_definition_as_sent() {
        let sent = r#"{"name":"t","description":null,"inputSchema":{"properties":null}}"#;
        let tool = parse(sent);
        let repaired = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
        assert_eq!(tool.definition.get(), repaired);
        assert_eq!(tool.unrepaired_definition().unwrap().get(), sent);
        assert_eq!(tool.hash, sha256_hex(sent));
        assert_eq!(
            tool.contract_hash(),
            sha256_hex(r#"1:t--19:{"properties":null}-"#)
        );
        assert_ne!(tool.contract_hash(), parse(repaired).contract_hash());
        assert!(parse(repaired).unrepaired_definition().is_none());
    }

    #[test]
    fn unreadable_annotations_give_no_hints() {
        for annotations in [
            "null",
            "true",
            r#"{"readOnlyHint":false,"readOnlyHint":true}"#,
        ] {
            assert_eq!(hints(annotations), ToolHints::default(), "{annotations}");
        }
    }
}

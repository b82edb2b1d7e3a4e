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

/// A tool: its id, its definition byte for byte, and the values parsed from it.
#[derive(Debug)]
pub struct Tool {
    pub id: ToolId,
    pub definition: Box<RawValue>,
    /// SHA-256 of the definition, in hex.
    pub hash: String,
    pub hints: ToolHints,
    /// Whether the server's definition contained hidden text, which was removed.
    pub had_hidden_text: bool,
    /// Compiled on the first call.
    schema: OnceLock<Result<Schema, UnusableSchema>>,
    /// Compiled on the first result; `None` if there is none.
    output_schema: OnceLock<Option<Result<Schema, UnusableSchema>>>,
    contract_hash: OnceLock<String>,
}

/// Annotations about a tool's effects. Treat an absent hint as the least safe value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
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

/// Deserializes a hint. One that is not a boolean counts as absent and does not affect the others.
fn deserialize_hint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_bool())
}

impl Tool {
    /// Parses a definition. The error describes the problem to an administrator.
    pub(super) fn parse(server: &ServerName, definition: &RawValue) -> Result<Self, String> {
        check_definition(definition)?;
        let view: ToolView<'_> =
            serde_json::from_str(definition.get()).map_err(|error| error.to_string())?;
        // Annotations that are not an object, or repeat a hint, give no hints, so the tool
        // counts as destructive.
        let hints = view
            .annotations
            .and_then(|raw| serde_json::from_str::<Annotations>(raw.get()).ok())
            .unwrap_or_default();
        Ok(Self {
            id: ToolId {
                server: server.clone(),
                tool: ToolName::new(&view.name),
            },
            hash: sha256_hex(definition.get()),
            definition: definition.to_owned(),
            had_hidden_text: false,
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
    /// schemas. Other members, key order and whitespace do not matter.
    pub fn contract_hash(&self) -> &str {
        self.contract_hash.get_or_init(|| {
            let ToolView {
                name,
                description,
                annotations,
                input_schema,
                output_schema,
                ..
            } = self.view();
            let mut text = String::new();
            let mut add = |part: Option<&str>| {
                // The length keeps adjacent parts apart.
                let part = part.map(|part| format!("{}:{part}", part.len()));
                text.push_str(part.as_deref().unwrap_or("-"));
            };
            add(Some(&name));
            add(description.as_deref());
            for raw in [annotations, input_schema, output_schema] {
                add(raw.map(canonical_text).as_deref());
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

/// Checks a definition before parsing it, because serde's errors do not name the field.
fn check_definition(definition: &RawValue) -> Result<(), String> {
    let fields: HashMap<String, &RawValue> =
        serde_json::from_str(definition.get()).map_err(|_| "not an object".to_owned())?;
    let starts_with = |field: &str, first: char| {
        fields
            .get(field)
            .is_none_or(|raw| raw.get().starts_with(first) || raw.get() == "null")
    };
    for field in ["name", "title", "description"] {
        if !starts_with(field, '"') {
            return Err(format!("`{field}` is not a string"));
        }
    }
    if !starts_with("inputSchema", '{') {
        return Err("`inputSchema` is not an object".to_owned());
    }
    match fields.get("name").map(|name| name.get()) {
        None | Some("null" | r#""""#) => Err("`name` is missing or empty".to_owned()),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(annotations: &str) -> ToolHints {
        let server = ServerName::parse("s").unwrap();
        let text = format!(r#"{{"name":"t","annotations":{annotations}}}"#);
        let definition = RawValue::from_string(text).unwrap();
        Tool::parse(&server, &definition).unwrap().hints
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
        let server = ServerName::parse("s").unwrap();
        let definition = RawValue::from_string(definition.to_owned()).unwrap();
        let tool = Tool::parse(&server, &definition).unwrap();
        tool.contract_hash().to_owned()
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

//! A single tool as its server defines it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// Compiled on the first call.
    schema: OnceLock<Result<Schema, UnusableSchema>>,
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
            schema: OnceLock::new(),
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

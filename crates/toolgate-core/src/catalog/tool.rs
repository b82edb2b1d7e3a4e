//! One tool, as its server defined it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::hash::sha256;
use crate::name::{ServerName, ToolId, ToolName};
use crate::schema::{Schema, Unusable};

/// A tool: its id, its definition byte for byte, and what was read from it.
#[derive(Debug)]
pub struct Tool {
    pub id: ToolId,
    pub definition: Box<RawValue>,
    /// SHA-256 of the definition's bytes, in hex.
    pub hash: String,
    pub hints: Hints,
    /// Compiled when the first call comes.
    schema: OnceLock<Result<Schema, Unusable>>,
}

/// What a server says of a tool's effects; nothing said means the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// The parts of a definition, borrowed from it.
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
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl Tool {
    /// Reads a definition; an error says what is wrong with it, in words for an administrator.
    pub(super) fn read(server: &ServerName, definition: &RawValue) -> Result<Self, String> {
        check(definition)?;
        let view: ToolView<'_> =
            serde_json::from_str(definition.get()).map_err(|error| error.to_string())?;
        let hints = view
            .annotations
            .and_then(|raw| serde_json::from_str::<Annotations>(raw.get()).ok())
            .unwrap_or_default();
        Ok(Self {
            id: ToolId {
                server: server.clone(),
                tool: ToolName::new(&view.name),
            },
            hash: sha256(definition.get()),
            definition: definition.to_owned(),
            schema: OnceLock::new(),
            hints: Hints {
                read_only: hints.read_only_hint,
                destructive: hints.destructive_hint,
                idempotent: hints.idempotent_hint,
                open_world: hints.open_world_hint,
            },
        })
    }

    /// What the tool's arguments must be; a tool without a schema takes any.
    pub fn schema(&self) -> Result<&Schema, &Unusable> {
        let compiled = self.schema.get_or_init(|| match self.view().input_schema {
            Some(schema) => Schema::compile(schema),
            None => Schema::compile(any()),
        });
        compiled.as_ref()
    }

    pub fn view(&self) -> ToolView<'_> {
        serde_json::from_str(self.definition.get()).unwrap_or_default()
    }
}

fn any() -> &'static RawValue {
    RawValue::TRUE
}

/// Says what is wrong with a definition, before it is read as one.
fn check(definition: &RawValue) -> Result<(), String> {
    let fields: HashMap<String, &RawValue> =
        serde_json::from_str(definition.get()).map_err(|_| "it is not an object".to_owned())?;
    let starts_with = |field: &str, first: char| {
        fields
            .get(field)
            .is_none_or(|raw| raw.get().starts_with(first) || raw.get() == "null")
    };
    for field in ["name", "title", "description"] {
        if !starts_with(field, '"') {
            return Err(format!("its `{field}` is not a string"));
        }
    }
    if !starts_with("inputSchema", '{') {
        return Err("its `inputSchema` is not an object".to_owned());
    }
    match fields.get("name").map(|name| name.get()) {
        None | Some("null" | r#""""#) => Err("it has no name".to_owned()),
        Some(_) => Ok(()),
    }
}

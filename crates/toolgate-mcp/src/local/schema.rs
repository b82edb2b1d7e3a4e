//! JSON schemas derived from Rust types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The arguments of a tool that takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoArguments {}

pub(super) fn input_schema<T: JsonSchema>() -> Value {
    derive_schema::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

pub(super) fn output_schema<T: JsonSchema>() -> Value {
    derive_schema::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn derive_schema<T: JsonSchema>(mut settings: SchemaSettings) -> Value {
    // Many clients and models do not follow references; recursive types still use them.
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // Name and documentation of the Rust type mean nothing to a model.
    schema.remove("title");
    schema.remove("description");
    // MCP requires it, but the schema of an enum lists its variants only.
    if !schema
        .as_object()
        .is_some_and(|schema| schema.contains_key("type"))
    {
        schema.insert("type".to_owned(), "object".into());
    }
    schema.to_value()
}

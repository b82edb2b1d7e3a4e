//! The schemas of a tool.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::output_schema::{self, UnusableOutputSchema};
use super::shape::{self, Place, Shape};
use super::{Changes, Unrepairable};

/// The output schema of a tool for clients of the legacy era.
pub(super) enum LegacyOutput {
    Unchanged,
    /// With the `type` that the era demands.
    Typed(Value),
    /// The result is no object, which the era cannot describe.
    None,
}

/// The type of the output schema of a definition.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutputView<'a> {
    #[serde(borrow, default)]
    output_schema: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TypeView<'a> {
    #[serde(borrow, default, rename = "type")]
    name: Option<&'a RawValue>,
}

/// Repairs the input schema of a tool. Returns the repaired schema if it had to be changed.
pub(super) fn repair_input(
    schema: Option<Value>,
    changes: &mut Changes,
) -> Result<Option<Value>, Unrepairable> {
    let mut schema = match schema {
        Some(schema @ Value::Object(_)) => schema,
        // All of these accept any arguments.
        None | Some(Value::Null | Value::Bool(true)) => {
            changes.add("set `inputSchema` to any object".to_owned());
            return Ok(Some(json!({"type": "object"})));
        }
        Some(_) => return Err(Unrepairable::InputSchemaNotAnObject),
    };
    let before = changes.count;
    repair_input_type(&mut schema, changes)?;
    if let Value::Object(object) = &mut schema {
        repair_members(object, &Place::root("inputSchema"), changes);
    }
    Ok((changes.count > before).then_some(schema))
}

/// Repairs the output schema of a tool, or returns why clients cannot use it.
pub(super) fn repair_output(
    schema: &mut Value,
    changes: &mut Changes,
) -> Result<(), UnusableOutputSchema> {
    let Value::Object(object) = schema else {
        return Err(match schema {
            Value::Null => UnusableOutputSchema::Null,
            _ => UnusableOutputSchema::NotAnObject,
        });
    };
    if object.get("type").is_some_and(Value::is_null) {
        object.shift_remove("type");
        changes.add("removed `outputSchema.type` (null)".to_owned());
    }
    repair_members(object, &Place::root("outputSchema"), changes);
    // Clients use the schema that had the id first for all tools, also those of other servers. References
    // to the id are refused below.
    if object.shift_remove("$id").is_some() {
        changes.add("removed `outputSchema.$id` (tools must not share it)".to_owned());
    }
    output_schema::check(schema)
}

/// Returns whether a definition may be another one for clients of the legacy era. Cheap; `false` is
/// certain.
pub(super) fn may_need_legacy_output(definition: &RawValue) -> bool {
    let Ok(OutputView { output_schema }) = serde_json::from_str(definition.get()) else {
        return true;
    };
    let Some(schema) = output_schema else {
        return false;
    };
    let name = serde_json::from_str::<TypeView<'_>>(schema.get()).map(|view| view.name);
    !name.is_ok_and(|name| name.is_some_and(|name| name.get() == r#""object""#))
}

/// Returns the output schema for clients of the legacy era.
pub(super) fn to_legacy_output(schema: &Value) -> LegacyOutput {
    let Value::Object(object) = schema else {
        return LegacyOutput::None;
    };
    match object.get("type") {
        Some(Value::String(name)) if name == "object" => LegacyOutput::Unchanged,
        Some(Value::Array(types)) if types.iter().any(|name| name == "object") => {
            LegacyOutput::Typed(with_object_type(object))
        }
        None => LegacyOutput::Typed(with_object_type(object)),
        Some(_) => LegacyOutput::None,
    }
}

/// Makes the type of arguments `object`, which they always are.
fn repair_input_type(schema: &mut Value, changes: &mut Changes) -> Result<(), Unrepairable> {
    let is_object = |name: &str| name.eq_ignore_ascii_case("object");
    let includes_object = match schema.get("type") {
        Some(Value::String(name)) if name == "object" => return Ok(()),
        Some(Value::String(name)) => is_object(name),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is_object),
        None | Some(Value::Null) => true,
        Some(_) => false,
    };
    let Value::Object(object) = schema else {
        return Err(Unrepairable::InputSchemaNotAnObject);
    };
    if !includes_object {
        return Err(Unrepairable::InputSchemaType);
    }
    changes.add("set `inputSchema.type` to `object`".to_owned());
    *schema = with_object_type(object);
    Ok(())
}

/// Returns a schema with the type `object`, in front of its other members.
fn with_object_type(schema: &Map<String, Value>) -> Value {
    let mut typed = Map::new();
    typed.insert("type".to_owned(), Value::from("object"));
    let others = schema.iter().filter(|(name, _)| *name != "type");
    typed.extend(others.map(|(name, value)| (name.clone(), value.clone())));
    Value::Object(typed)
}

/// Repairs the members of a schema that clients check.
fn repair_members(object: &mut Map<String, Value>, place: &Place<'_>, changes: &mut Changes) {
    for field in shape::SCHEMA {
        field.fit(object, place, changes);
    }
    let place = place.member("properties");
    match object.get_mut("properties") {
        None => {}
        Some(Value::Object(properties)) => repair_properties(properties, &place, changes),
        // What PHP writes for an object without members.
        Some(Value::Array(items)) if items.is_empty() => {
            changes.add(format!("replaced `[]` with `{{}}` at `{place}`"));
            object.insert("properties".to_owned(), json!({}));
        }
        Some(value) => {
            changes.add_removal(&place, value, &Shape::AnyObject);
            object.shift_remove("properties");
        }
    }
}

/// Makes the schema of every property an object. A schema that says nothing takes the place of one that
/// cannot be one.
fn repair_properties(
    properties: &mut Map<String, Value>,
    place: &Place<'_>,
    changes: &mut Changes,
) {
    for (name, schema) in properties {
        let place = place.member(name);
        let (replaced, by) = match schema {
            Value::Object(_) if !has_infinite_number(schema) => continue,
            Value::Object(_) => ("a number that is out of range", json!({})),
            Value::Bool(true) => ("`true`", json!({})),
            Value::Bool(false) => ("`false`", json!({"not": {}})),
            Value::Null => ("`null`", json!({})),
            _ => ("what is not a schema", json!({})),
        };
        changes.add(format!("replaced {replaced} with `{by}` at `{place}`"));
        *schema = by;
    }
}

/// Returns whether a value contains a number that is infinite for most parsers.
fn has_infinite_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_none_or(f64::is_infinite),
        Value::Array(items) => items.iter().any(has_infinite_number),
        Value::Object(members) => members.values().any(has_infinite_number),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

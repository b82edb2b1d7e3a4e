//! Finds keys that a lenient server may take for others.
//!
//! Rules and schemas are checked for the names as written. A key that differs from a parameter only
//! in case would pass them unchecked, and reach the parameter in a server that ignores case.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::fold::fold_name;

/// Maximum number of subschemas considered for one value.
const MAX_SUBSCHEMAS: usize = 64;

/// A key, and the other key or the parameter that it may be taken for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Collision<'a> {
    pub(super) key: &'a str,
    pub(super) other: &'a str,
}

/// Finds a key that collides with another one of the same object, or with a property of the schema.
/// Properties never collide with one another: a server that declares both distinguishes them.
pub(super) fn find_collision<'a>(value: &'a Value, schema: &'a Value) -> Option<Collision<'a>> {
    find_in(value, &[schema], schema)
}

fn find_in<'a>(value: &'a Value, schemas: &[&'a Value], root: &'a Value) -> Option<Collision<'a>> {
    match value {
        Value::Object(object) => {
            let schemas = expand(schemas, root);
            find_in_object(object, &schemas).or_else(|| {
                let mut members = object.iter();
                members
                    .find_map(|(key, value)| find_in(value, &member_schemas(&schemas, key), root))
            })
        }
        Value::Array(items) => {
            let schemas = expand(schemas, root);
            let of_items: Vec<&Value> = schemas.iter().filter_map(|s| s.get("items")).collect();
            items.iter().find_map(|item| find_in(item, &of_items, root))
        }
        _ => None,
    }
}

fn find_in_object<'a>(
    object: &'a Map<String, Value>,
    schemas: &[&'a Value],
) -> Option<Collision<'a>> {
    let properties = || {
        schemas
            .iter()
            .filter_map(|s| s.get("properties")?.as_object())
    };
    let is_declared = |key: &str| properties().any(|properties| properties.contains_key(key));
    // Most calls use nothing but declared names, which need no folding.
    if object.keys().all(|key| is_declared(key)) {
        return None;
    }
    let mut seen: HashMap<_, &str> = HashMap::new();
    for name in properties().flat_map(|properties| properties.keys()) {
        seen.insert(fold_name(name), name);
    }
    let (declared, others): (Vec<&String>, Vec<&String>) =
        object.keys().partition(|key| is_declared(key));
    for key in declared {
        seen.insert(fold_name(key), key);
    }
    others.into_iter().find_map(|key| {
        let other = seen.insert(fold_name(key), key)?;
        Some(Collision { key, other })
    })
}

fn member_schemas<'a>(schemas: &[&'a Value], key: &str) -> Vec<&'a Value> {
    let member = |schema: &&'a Value| {
        let property = schema.get("properties").and_then(|p| p.get(key));
        property.or_else(|| schema.get("additionalProperties"))
    };
    schemas.iter().filter_map(member).collect()
}

/// Adds the subschemas that apply to the same value: references and alternatives.
fn expand<'a>(schemas: &[&'a Value], root: &'a Value) -> Vec<&'a Value> {
    let mut found: Vec<&'a Value> = schemas.to_vec();
    let mut next = 0;
    while next < found.len() && found.len() < MAX_SUBSCHEMAS {
        let schema = found[next];
        next += 1;
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|text| root.pointer(text.strip_prefix('#')?));
        found.extend(target.filter(|target| !found.iter().any(|s| std::ptr::eq(*s, *target))));
        for keyword in ["allOf", "anyOf", "oneOf"] {
            found.extend(
                schema
                    .get(keyword)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten(),
            );
        }
        for keyword in ["if", "then", "else"] {
            found.extend(schema.get(keyword));
        }
    }
    found
}

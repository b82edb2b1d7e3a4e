//! Finds output schemas that clients cannot compile.
//!
//! The TypeScript SDK compiles the output schemas of all tools when it lists them, and fails if it
//! cannot compile one; others fail when the tool is called. So a schema must be valid, all of its
//! references must resolve inside of it, and its patterns must be valid in JavaScript.

use std::collections::HashSet;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::pattern;
use crate::schema::message_text::{escape_line, escape_name};

/// Maximum size of an output schema, in bytes.
const MAX_OUTPUT_SCHEMA_BYTES: usize = 256 * 1024;

/// Drafts of JSON Schema that clients know.
const KNOWN_DRAFTS: [Draft; 4] = [
    Draft::Draft6,
    Draft::Draft7,
    Draft::Draft201909,
    Draft::Draft202012,
];

/// Keywords that identify subschemas, which clients look for also where no subschema is expected.
const IDENTIFIERS: [&str; 3] = ["$anchor", "$dynamicAnchor", "$id"];
/// Keywords whose values are data in which clients look for nothing.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Keywords that clients refuse or understand differently. `id` is the draft 4 spelling of `$id`.
const UNSUPPORTED: [&str; 6] = [
    "$anchor",
    "$async",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveRef",
    "id",
];

/// Keywords whose value is a subschema.
const SUBSCHEMA: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of subschemas.
const SUBSCHEMA_LISTS: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Keywords whose value maps names to subschemas.
const SUBSCHEMA_MAPS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// The reason clients cannot use an output schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnusableOutputSchema {
    #[error("null")]
    Null,
    #[error("not an object")]
    NotAnObject,
    #[error("larger than {MAX_OUTPUT_SCHEMA_BYTES} bytes")]
    TooLong,
    #[error("`$schema` is `{0}`, which clients do not know")]
    Draft(String),
    #[error("not a valid JSON Schema: {0}")]
    Invalid(String),
    #[error("the reference `{0}` does not resolve inside of the schema")]
    Reference(String),
    #[error("`{0}` is not supported by clients")]
    Keyword(&'static str),
    #[error("the pattern `{0}` is not valid in JavaScript")]
    Pattern(String),
}

/// Checks that clients can compile an output schema.
pub(super) fn check(schema: &Value) -> Result<(), UnusableOutputSchema> {
    if schema.to_string().len() > MAX_OUTPUT_SCHEMA_BYTES {
        return Err(UnusableOutputSchema::TooLong);
    }
    let draft = Draft::default().detect(schema);
    if !KNOWN_DRAFTS.contains(&draft) {
        let declared = schema.get("$schema").and_then(Value::as_str);
        let declared = escape_name(declared.unwrap_or_default());
        return Err(UnusableOutputSchema::Draft(declared));
    }
    let valid = match draft {
        // Clients read it as draft 7, which has more keywords.
        Draft::Draft6 => jsonschema::draft7::meta::validate(schema),
        _ => jsonschema::meta::validate(schema),
    };
    valid.map_err(|error| {
        let place = error.instance_path().to_string();
        UnusableOutputSchema::Invalid(escape_line(&format!("{error} at `{place}`"), 200))
    })?;
    check_identifiers(schema)?;
    let (mut subschemas, mut references) = (HashSet::new(), Vec::new());
    let mut pending = vec![schema];
    while let Some(subschema) = pending.pop() {
        subschemas.insert(std::ptr::from_ref(subschema));
        if let Value::Object(object) = subschema {
            check_keywords(object)?;
            references.extend(object.get("$ref").and_then(Value::as_str));
            pending.extend(find_subschemas(object));
        }
    }
    // What is referenced elsewhere was not checked.
    let is_checked = |target: &Value| subschemas.contains(&std::ptr::from_ref(target));
    match references
        .into_iter()
        .find(|reference| !resolve(schema, reference).is_some_and(is_checked))
    {
        Some(reference) => Err(UnusableOutputSchema::Reference(escape_name(reference))),
        None => Ok(()),
    }
}

/// Refuses identifiers inside of a schema: clients resolve them differently, or fail.
fn check_identifiers(root: &Value) -> Result<(), UnusableOutputSchema> {
    let mut pending = vec![root];
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => {
                let is_text = |keyword: &&str| members.get(*keyword).is_some_and(Value::is_string);
                if let Some(keyword) = IDENTIFIERS.into_iter().find(is_text) {
                    return Err(UnusableOutputSchema::Keyword(keyword));
                }
                let others = members.iter();
                let others = others.filter(|(name, _)| !DATA.contains(&name.as_str()));
                pending.extend(others.map(|(_, value)| value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

fn check_keywords(object: &Map<String, Value>) -> Result<(), UnusableOutputSchema> {
    let mut unsupported = UNSUPPORTED.into_iter();
    if let Some(keyword) = unsupported.find(|keyword| object.contains_key(*keyword)) {
        return Err(UnusableOutputSchema::Keyword(keyword));
    }
    // An extension of OpenAPI that the TypeScript SDK knows.
    let can_be_nullable = object.contains_key("type");
    let nullable = object.get("nullable");
    if nullable.is_some_and(|value| !value.is_boolean() || !can_be_nullable) {
        return Err(UnusableOutputSchema::Keyword("nullable"));
    }
    let additional = object.get("additionalItems");
    if additional.is_some_and(|value| !value.is_boolean() && !value.is_object()) {
        return Err(UnusableOutputSchema::Keyword("additionalItems"));
    }
    let empty = Value::Array(Vec::new());
    if object.get("enum") == Some(&empty) {
        return Err(UnusableOutputSchema::Keyword("enum"));
    }
    let patterns = object.get("patternProperties").and_then(Value::as_object);
    let patterns = patterns.into_iter().flat_map(Map::keys).map(String::as_str);
    let mut patterns = patterns.chain(object.get("pattern").and_then(Value::as_str));
    match patterns.find(|text| !pattern::is_valid(text)) {
        Some(text) => Err(UnusableOutputSchema::Pattern(escape_name(text))),
        None => Ok(()),
    }
}

fn find_subschemas(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let single = SUBSCHEMA.iter().filter_map(|keyword| object.get(*keyword));
    let lists = SUBSCHEMA_LISTS
        .iter()
        .filter_map(|keyword| object.get(*keyword)?.as_array());
    let maps = SUBSCHEMA_MAPS
        .iter()
        .filter_map(|keyword| object.get(*keyword)?.as_object());
    let parts = lists.flatten().chain(maps.flat_map(Map::values));
    single.chain(parts)
}

/// Resolves a reference inside of a schema.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    // Clients decode percent signs differently.
    if pointer.contains('%') {
        return None;
    }
    root.pointer(pointer)
}

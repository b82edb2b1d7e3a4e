//! What a tool takes, in one line: `a: number (required), mode: "fast" | "slow"`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{target, words};

/// In characters.
const LONGEST: usize = 600;
const LONGEST_TYPE: usize = 120;
const MOST_VALUES: usize = 8;
const MOST_KEYS: usize = 6;
/// Nested alternatives multiply, and nobody reads them.
const DEEPEST: usize = 2;
const MOST_REFERENCES: usize = 8;

/// The arguments that a tool takes, required ones first; empty if the schema does not say.
pub(super) fn takes(root: &Value) -> String {
    let schema = resolved(root, root);
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return match describe(root, schema).as_str() {
            "anything" | "object" => String::new(),
            shape => format!("The tool takes: {shape}"),
        };
    };
    if properties.is_empty() {
        let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        let text = if closed {
            "The tool takes no arguments"
        } else {
            ""
        };
        return text.to_owned();
    }
    let required: HashSet<&str> = required(schema.get("required")).into_iter().collect();
    let (first, rest): (Vec<_>, Vec<_>) = properties
        .iter()
        .partition(|(name, _)| required.contains(name.as_str()));
    let mark = |needed: bool| if needed { " (required)" } else { "" };
    let parameters = first
        .iter()
        .map(|entry| (entry, true))
        .chain(rest.iter().map(|entry| (entry, false)))
        .map(|((name, schema), needed)| {
            let kind = describe(root, schema);
            format!("{}: {kind}{}", words::name(name), mark(needed))
        });
    format!("The tool takes: {}", within(parameters, LONGEST))
}

/// A schema as a short type: `string | null`, `number[]`, `{path, mode?}`.
pub(super) fn describe(root: &Value, schema: &Value) -> String {
    words::line(&shape(root, schema, 0), LONGEST_TYPE)
}

fn shape(root: &Value, schema: &Value, depth: usize) -> String {
    let Some(object) = schema.as_object() else {
        let word = if schema == &Value::Bool(false) {
            "nothing"
        } else {
            "anything"
        };
        return word.to_owned();
    };
    if depth > DEEPEST {
        return "…".to_owned();
    }
    if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
        return match target(root, reference) {
            Some(target) => shape(root, target, depth),
            None => "anything".to_owned(),
        };
    }
    if let Some(value) = object.get("const") {
        return words::literal(value);
    }
    if let Some(values) = object.get("enum").and_then(Value::as_array) {
        return either(values.iter().map(words::literal));
    }
    for key in ["anyOf", "oneOf"] {
        // With properties of its own, the alternatives only say more of them.
        if let Some(branches) = object.get(key).and_then(Value::as_array)
            && !object.contains_key("properties")
        {
            return either(branches.iter().map(|part| shape(root, part, depth + 1)));
        }
    }
    match object.get("type") {
        Some(Value::String(kind)) => typed(root, object, kind, depth),
        Some(Value::Array(kinds)) => either(
            kinds
                .iter()
                .filter_map(Value::as_str)
                .map(|kind| typed(root, object, kind, depth)),
        ),
        _ => untyped(root, object, depth),
    }
}

fn untyped(root: &Value, object: &Map<String, Value>, depth: usize) -> String {
    if object.contains_key("properties") || object.contains_key("required") {
        return typed(root, object, "object", depth);
    }
    if object.contains_key("items") {
        return typed(root, object, "array", depth);
    }
    match object
        .get("allOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([only]) => shape(root, only, depth + 1),
        _ => "anything".to_owned(),
    }
}

fn typed(root: &Value, object: &Map<String, Value>, kind: &str, depth: usize) -> String {
    match (kind, object.get("items")) {
        ("array", Some(items @ Value::Object(_))) => {
            let items = shape(root, items, depth + 1);
            match items.contains(" | ") {
                true => format!("({items})[]"),
                false => format!("{items}[]"),
            }
        }
        ("object", _) => keys(root, object, depth),
        _ => words::name(kind),
    }
}

/// An object by its keys, with the values that tell alternatives apart.
fn keys(root: &Value, object: &Map<String, Value>, depth: usize) -> String {
    let empty = Map::new();
    let properties = object
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let required = required(object.get("required"));
    let needed: HashSet<&str> = required.iter().copied().collect();
    let mut shown: Vec<String> = Vec::new();
    for name in required.iter().take(MOST_KEYS) {
        let value = properties
            .get(*name)
            .and_then(|property| property.get("const"));
        let value = value.map(|value| format!(": {}", words::literal(value)));
        shown.push(format!(
            "{}{}",
            words::name(name),
            value.unwrap_or_default()
        ));
    }
    let optional = properties
        .keys()
        .filter(|name| !needed.contains(name.as_str()));
    shown.extend(
        optional
            .take((MOST_KEYS + 1).saturating_sub(shown.len()))
            .map(|name| format!("{}?", words::name(name))),
    );
    if shown.is_empty() {
        let values = object
            .get("additionalProperties")
            .filter(|values| values.is_object());
        return match values {
            Some(values) => format!("object of {}", shape(root, values, depth + 1)),
            None => "object".to_owned(),
        };
    }
    if shown.len() > MOST_KEYS || required.len() > MOST_KEYS {
        shown.truncate(MOST_KEYS);
        shown.push("…".to_owned());
    }
    format!("{{{}}}", shown.join(", "))
}

fn either(shapes: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = Vec::new();
    for shape in shapes.take(MOST_VALUES + 1) {
        if shown.contains(&shape) {
            continue;
        }
        if shown.len() == MOST_VALUES {
            shown.push("…".to_owned());
            break;
        }
        shown.push(shape);
    }
    shown.join(" | ")
}

fn required(names: Option<&Value>) -> Vec<&str> {
    let names = names.and_then(Value::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MOST_REFERENCES {
        let reference = schema.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| target(root, reference)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

fn within(parts: impl Iterator<Item = String>, longest: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let separator = if text.is_empty() { "" } else { ", " };
        if text.chars().count() + part.chars().count() > longest {
            text.push_str(separator);
            text.push('…');
            break;
        }
        text.push_str(separator);
        text.push_str(&part);
    }
    text
}

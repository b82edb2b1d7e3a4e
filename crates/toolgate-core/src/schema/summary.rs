//! Summarizes a tool's arguments in one line: `a: number (required), mode: "fast" | "slow"`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{message_text, resolve_reference};

/// Maximum length of a summary.
const MAX_SUMMARY_CHARS: usize = 600;
const MAX_TYPE_CHARS: usize = 120;
const MAX_UNION_MEMBERS: usize = 8;
const MAX_OBJECT_KEYS: usize = 6;
/// Maximum nesting shown; nested alternatives multiply and are not readable.
const MAX_DEPTH: usize = 2;
const MAX_REFERENCE_HOPS: usize = 8;

/// Lists the arguments of a tool, required ones first; empty if the schema defines none.
pub(super) fn summarize_arguments(root: &Value) -> String {
    let schema = follow_references(root, root);
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return match describe_type(root, schema).as_str() {
            "anything" | "object" => String::new(),
            type_text => format!("The tool takes: {type_text}"),
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
    let required: HashSet<&str> = required_names(schema.get("required")).into_iter().collect();
    let (first, rest): (Vec<_>, Vec<_>) = properties
        .iter()
        .partition(|(name, _)| required.contains(name.as_str()));
    let mark = |needed: bool| if needed { " (required)" } else { "" };
    let parameters = first
        .iter()
        .map(|entry| (entry, true))
        .chain(rest.iter().map(|entry| (entry, false)))
        .map(|((name, schema), needed)| {
            let kind = describe_type(root, schema);
            format!(
                "{}: {kind}{}",
                message_text::escape_name(name),
                mark(needed)
            )
        });
    format!(
        "The tool takes: {}",
        join_within(parameters, MAX_SUMMARY_CHARS)
    )
}

/// Formats a schema as a short type: `string | null`, `number[]`, `{path, mode?}`.
pub(super) fn describe_type(root: &Value, schema: &Value) -> String {
    message_text::escape_line(&format_type(root, schema, 0), MAX_TYPE_CHARS)
}

fn format_type(root: &Value, schema: &Value, depth: usize) -> String {
    let Some(object) = schema.as_object() else {
        let word = if schema == &Value::Bool(false) {
            "nothing"
        } else {
            "anything"
        };
        return word.to_owned();
    };
    if depth > MAX_DEPTH {
        return "…".to_owned();
    }
    if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
        return match resolve_reference(root, reference) {
            Some(target) => format_type(root, target, depth),
            None => "anything".to_owned(),
        };
    }
    if let Some(value) = object.get("const") {
        return message_text::format_literal(value);
    }
    if let Some(values) = object.get("enum").and_then(Value::as_array) {
        return join_union(values.iter().map(message_text::format_literal));
    }
    for key in ["anyOf", "oneOf"] {
        // If the schema has properties, the alternatives only refine them.
        if let Some(branches) = object.get(key).and_then(Value::as_array)
            && !object.contains_key("properties")
        {
            return join_union(
                branches
                    .iter()
                    .map(|part| format_type(root, part, depth + 1)),
            );
        }
    }
    match object.get("type") {
        Some(Value::String(kind)) => format_typed(root, object, kind, depth),
        Some(Value::Array(kinds)) => join_union(
            kinds
                .iter()
                .filter_map(Value::as_str)
                .map(|kind| format_typed(root, object, kind, depth)),
        ),
        _ => format_untyped(root, object, depth),
    }
}

fn format_untyped(root: &Value, object: &Map<String, Value>, depth: usize) -> String {
    if object.contains_key("properties") || object.contains_key("required") {
        return format_typed(root, object, "object", depth);
    }
    if object.contains_key("items") {
        return format_typed(root, object, "array", depth);
    }
    match object
        .get("allOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([only]) => format_type(root, only, depth + 1),
        _ => "anything".to_owned(),
    }
}

fn format_typed(root: &Value, object: &Map<String, Value>, kind: &str, depth: usize) -> String {
    match (kind, object.get("items")) {
        ("array", Some(items @ Value::Object(_))) => {
            let items = format_type(root, items, depth + 1);
            if items.contains(" | ") {
                format!("({items})[]")
            } else {
                format!("{items}[]")
            }
        }
        ("object", _) => format_object(root, object, depth),
        _ => message_text::escape_name(kind),
    }
}

/// Formats an object by its keys, with the constant values that distinguish alternatives.
fn format_object(root: &Value, object: &Map<String, Value>, depth: usize) -> String {
    let empty = Map::new();
    let properties = object
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let required = required_names(object.get("required"));
    let needed: HashSet<&str> = required.iter().copied().collect();
    let mut shown: Vec<String> = Vec::new();
    for name in required.iter().take(MAX_OBJECT_KEYS) {
        let value = properties
            .get(*name)
            .and_then(|property| property.get("const"));
        let value = value.map(|value| format!(": {}", message_text::format_literal(value)));
        shown.push(format!(
            "{}{}",
            message_text::escape_name(name),
            value.unwrap_or_default()
        ));
    }
    let optional = properties
        .keys()
        .filter(|name| !needed.contains(name.as_str()));
    shown.extend(
        optional
            .take((MAX_OBJECT_KEYS + 1).saturating_sub(shown.len()))
            .map(|name| format!("{}?", message_text::escape_name(name))),
    );
    if shown.is_empty() {
        let values = object
            .get("additionalProperties")
            .filter(|values| values.is_object());
        return match values {
            Some(values) => format!("object of {}", format_type(root, values, depth + 1)),
            None => "object".to_owned(),
        };
    }
    if shown.len() > MAX_OBJECT_KEYS || required.len() > MAX_OBJECT_KEYS {
        shown.truncate(MAX_OBJECT_KEYS);
        shown.push("…".to_owned());
    }
    format!("{{{}}}", shown.join(", "))
}

fn join_union(types: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = Vec::new();
    for member in types.take(MAX_UNION_MEMBERS + 1) {
        if shown.contains(&member) {
            continue;
        }
        if shown.len() == MAX_UNION_MEMBERS {
            shown.push("…".to_owned());
            break;
        }
        shown.push(member);
    }
    shown.join(" | ")
}

fn required_names(names: Option<&Value>) -> Vec<&str> {
    let names = names.and_then(Value::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn follow_references<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_REFERENCE_HOPS {
        let reference = schema.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| resolve_reference(root, reference)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

fn join_within(parts: impl Iterator<Item = String>, max_chars: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let separator = if text.is_empty() { "" } else { ", " };
        if text.chars().count() + part.chars().count() > max_chars {
            text.push_str(separator);
            text.push('…');
            break;
        }
        text.push_str(separator);
        text.push_str(&part);
    }
    text
}

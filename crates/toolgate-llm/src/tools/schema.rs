//! Schemas as providers take them. What a tool is called with is checked against its own schema,
//! so nothing is lost by saying less here.

use serde_json::{Map, Value, json};

/// References that are followed one behind the other, and in all: some schemas refer to themselves.
const DEEPEST: usize = 6;
const MOST: usize = 200;
/// Bytes that references may bring.
const MOST_BYTES: usize = 128 * 1024;

/// A schema that providers take: an object at the top, with items for every array; and, where it
/// must be `flat`, without references.
pub(super) fn adapted(schema: &Value, flat: bool) -> Value {
    let mut writer = Writer {
        root: schema,
        flat,
        left: MOST,
        bytes: MOST_BYTES,
    };
    let mut schema = match schema.get("$ref") {
        Some(_) => writer.followed(schema, 0),
        None => writer.written(schema, 0),
    };
    let Value::Object(top) = &mut schema else {
        return json!({"type": "object", "properties": {}});
    };
    for name in ["$schema", "$id", "$comment", "$anchor"] {
        top.shift_remove(name);
    }
    for name in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(variants)) = top.shift_remove(name) {
            merge(top, &variants, name == "allOf");
        }
    }
    // Providers refuse these at the top.
    for name in ["not", "enum", "const", "if", "then", "else"] {
        top.shift_remove(name);
    }
    top.insert("type".to_owned(), json!("object"));
    if !top.get("properties").is_some_and(Value::is_object) {
        top.insert("properties".to_owned(), json!({}));
    }
    schema
}

/// The variants of the top as one object: all properties; required is what all of them require,
/// or, where all hold together, what any of them does.
fn merge(top: &mut Map<String, Value>, variants: &[Value], together: bool) {
    let mut properties = match top.shift_remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let list = |of: Option<&Value>| of.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut required: Option<Vec<Value>> = None;
    for variant in variants {
        let own = variant.get("properties").and_then(Value::as_object);
        for (name, schema) in own.into_iter().flatten() {
            properties
                .entry(name.clone())
                .or_insert_with(|| schema.clone());
        }
        let own = list(variant.get("required"));
        required = Some(match (required, together) {
            (None, _) => own,
            (Some(known), false) => {
                let both = known.into_iter().filter(|name| own.contains(name));
                both.collect()
            }
            (Some(known), true) => known.into_iter().chain(own).collect(),
        });
    }
    let mut all = list(top.get("required"));
    for name in required.unwrap_or_default() {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    top.insert("properties".to_owned(), Value::Object(properties));
    if !all.is_empty() {
        top.insert("required".to_owned(), Value::Array(all));
    }
}

struct Writer<'a> {
    root: &'a Value,
    flat: bool,
    /// References that may still be followed, and bytes that they may bring.
    left: usize,
    bytes: usize,
}

impl Writer<'_> {
    /// The schema that a reference leads to, with what stands beside it.
    fn followed(&mut self, schema: &Value, depth: usize) -> Value {
        let root = self.root;
        let target = schema["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix('#'));
        let target = target.and_then(|path| root.pointer(path));
        let target = target.and_then(Value::as_object);
        let beside = schema.as_object().into_iter().flatten();
        let beside = beside.filter(|(name, _)| *name != "$ref");
        let beside = beside.map(|(name, value)| (name.clone(), value.clone()));
        let size = target.map_or(0, |target| Value::Object(target.clone()).to_string().len());
        let mut together = match target {
            Some(target) if depth < DEEPEST && self.left > 0 && size <= self.bytes => {
                target.clone()
            }
            // One that refers to itself, or elsewhere: anything goes.
            _ => return Value::Object(beside.collect()),
        };
        self.left -= 1;
        self.bytes -= size;
        together.extend(beside);
        let together = Value::Object(together);
        match together.get("$ref") {
            Some(_) => self.followed(&together, depth + 1),
            None => self.written(&together, depth + 1),
        }
    }

    fn written(&mut self, schema: &Value, depth: usize) -> Value {
        match schema {
            Value::Object(members) => {
                if self.flat && members.get("$ref").is_some_and(Value::is_string) {
                    return self.followed(schema, depth);
                }
                let mut written = Map::new();
                for (name, value) in members {
                    let value = match name.as_str() {
                        "$defs" | "definitions" if self.flat => continue,
                        // These hold values, not schemas.
                        "enum" | "const" | "default" | "example" | "examples" => value.clone(),
                        // These hold schemas by names of the user's own.
                        "properties" | "patternProperties" | "$defs" | "definitions" => {
                            self.each(value, depth)
                        }
                        _ => self.written(value, depth),
                    };
                    written.insert(name.clone(), value);
                }
                if written.get("type") == Some(&json!("array")) && !written.contains_key("items") {
                    written.insert("items".to_owned(), json!({}));
                }
                Value::Object(written)
            }
            Value::Array(items) => {
                let items = items.iter().map(|item| self.written(item, depth));
                Value::Array(items.collect())
            }
            other => other.clone(),
        }
    }

    fn each(&mut self, schemas: &Value, depth: usize) -> Value {
        let Value::Object(schemas) = schemas else {
            return schemas.clone();
        };
        let schemas = schemas.iter();
        let schemas = schemas.map(|(name, schema)| (name.clone(), self.written(schema, depth)));
        Value::Object(schemas.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_becomes_one_that_providers_take() {
        for (schema, expected) in [
            (json!(true), json!({"type": "object", "properties": {}})),
            (json!({}), json!({"type": "object", "properties": {}})),
            (
                json!({"$schema": "x", "type": "object", "properties": {"a": {"type": "array"}}}),
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
            ),
            (
                json!({"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"x": {"$ref": "#/definitions/B"}}}, "B": {}}}),
                json!({"properties": {"x": {"$ref": "#/definitions/B"}}, "definitions": {"A": {"properties": {"x": {"$ref": "#/definitions/B"}}}, "B": {}}, "type": "object"}),
            ),
            (
                json!({"oneOf": [{"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}, {"properties": {"c": {}, "b": {}}, "required": ["b", "c"]}]}),
                json!({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"], "type": "object"}),
            ),
            (
                json!({"type": "object", "properties": {"$ref": {"type": "string"}, "n": {"enum": [1.50, {"$ref": "#/x"}]}}, "required": ["n"]}),
                json!({"type": "object", "properties": {"$ref": {"type": "string"}, "n": {"enum": [1.50, {"$ref": "#/x"}]}}, "required": ["n"]}),
            ),
        ] {
            assert_eq!(adapted(&schema, false), expected, "{schema}");
        }
    }

    #[test]
    fn a_flat_schema_has_no_references() {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "description": "d"}}, "$defs": {"A": {"type": "array"}}});
        assert_eq!(
            adapted(&schema, true),
            json!({"type": "object", "properties": {"a": {"type": "array", "description": "d", "items": {}}}})
        );
        for schema in [
            json!({"type": "object", "properties": {"node": {"properties": {"next": {"$ref": "#/properties/node"}}}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}}}),
            json!({"$ref": "#"}),
            json!({"properties": {"a": {"$ref": "#/properties/a"}}}),
        ] {
            let text = adapted(&schema, true).to_string();
            assert!(!text.contains("$ref") && text.len() < 50_000, "{text}");
        }
    }
}

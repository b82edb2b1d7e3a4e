//! Adapts tool schemas to what providers accept. Arguments are validated against the original
//! schema, so a looser schema here is safe.

use serde_json::{Map, Value, json};

/// Maximum depth of nested references; some schemas refer to themselves.
const MAX_REF_DEPTH: usize = 6;
/// Maximum number of references inlined in one schema.
const MAX_REFS: usize = 200;
/// Maximum total size of inlined references.
const MAX_REF_BYTES: usize = 128 * 1024;

/// Returns a schema that providers accept: an object at the top level, `items` for every array and,
/// if `flat`, no references.
pub(super) fn adapt_schema(schema: &Value, flat: bool) -> Value {
    let mut adapter = SchemaAdapter {
        root: schema,
        flat,
        refs_left: MAX_REFS,
        bytes_left: MAX_REF_BYTES,
    };
    let mut schema = match schema.get("$ref") {
        Some(_) => adapter.resolve_ref(schema, 0),
        None => adapter.rewrite(schema, 0),
    };
    let Value::Object(top) = &mut schema else {
        return json!({"type": "object", "properties": {}});
    };
    for name in ["$schema", "$id", "$comment", "$anchor"] {
        top.shift_remove(name);
    }
    for name in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(variants)) = top.shift_remove(name) {
            merge_variants(top, &variants, name == "allOf");
        }
    }
    // Providers reject these at the top level.
    for name in ["not", "enum", "const", "if", "then", "else"] {
        top.shift_remove(name);
    }
    top.insert("type".to_owned(), json!("object"));
    if !top.get("properties").is_some_and(Value::is_object) {
        top.insert("properties".to_owned(), json!({}));
    }
    schema
}

/// Merges top-level variants into one object with all their properties. A property is required if
/// every variant requires it or, if `together` (`allOf`), if any does.
fn merge_variants(top: &mut Map<String, Value>, variants: &[Value], together: bool) {
    let mut properties = match top.shift_remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let list = |of: Option<&Value>| of.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut required: Option<Vec<Value>> = None;
    for variant in variants {
        let variant_properties = variant.get("properties").and_then(Value::as_object);
        for (name, schema) in variant_properties.into_iter().flatten() {
            properties
                .entry(name.clone())
                .or_insert_with(|| schema.clone());
        }
        let variant_required = list(variant.get("required"));
        required = Some(match (required, together) {
            (None, _) => variant_required,
            (Some(known), false) => {
                let both = known
                    .into_iter()
                    .filter(|name| variant_required.contains(name));
                both.collect()
            }
            (Some(known), true) => known.into_iter().chain(variant_required).collect(),
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

struct SchemaAdapter<'a> {
    root: &'a Value,
    flat: bool,
    /// Remaining number and total size of references to inline.
    refs_left: usize,
    bytes_left: usize,
}

impl SchemaAdapter<'_> {
    /// Returns the schema that a reference points to, merged with the members beside the `$ref`.
    fn resolve_ref(&mut self, schema: &Value, depth: usize) -> Value {
        let root = self.root;
        let target = schema["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix('#'));
        let target = target.and_then(|path| root.pointer(path));
        let target = target.and_then(Value::as_object);
        let siblings = schema.as_object().into_iter().flatten();
        let siblings = siblings.filter(|(name, _)| *name != "$ref");
        let siblings = siblings.map(|(name, value)| (name.clone(), value.clone()));
        let size = target.map_or(0, |target| Value::Object(target.clone()).to_string().len());
        let mut merged = match target {
            Some(target)
                if depth < MAX_REF_DEPTH && self.refs_left > 0 && size <= self.bytes_left =>
            {
                target.clone()
            }
            // A recursive or external reference: accept anything.
            _ => return Value::Object(siblings.collect()),
        };
        self.refs_left -= 1;
        self.bytes_left -= size;
        merged.extend(siblings);
        let merged = Value::Object(merged);
        match merged.get("$ref") {
            Some(_) => self.resolve_ref(&merged, depth + 1),
            None => self.rewrite(&merged, depth + 1),
        }
    }

    fn rewrite(&mut self, schema: &Value, depth: usize) -> Value {
        match schema {
            Value::Object(members) => {
                if self.flat && members.get("$ref").is_some_and(Value::is_string) {
                    return self.resolve_ref(schema, depth);
                }
                let mut rewritten = Map::new();
                for (name, value) in members {
                    let value = match name.as_str() {
                        "$defs" | "definitions" if self.flat => continue,
                        // These hold values, not schemas.
                        "enum" | "const" | "default" | "example" | "examples" => value.clone(),
                        // These map user-defined names to schemas.
                        "properties" | "patternProperties" | "$defs" | "definitions" => {
                            self.rewrite_each(value, depth)
                        }
                        _ => self.rewrite(value, depth),
                    };
                    rewritten.insert(name.clone(), value);
                }
                if rewritten.get("type") == Some(&json!("array"))
                    && !rewritten.contains_key("items")
                {
                    rewritten.insert("items".to_owned(), json!({}));
                }
                Value::Object(rewritten)
            }
            Value::Array(items) => {
                let items = items.iter().map(|item| self.rewrite(item, depth));
                Value::Array(items.collect())
            }
            other => other.clone(),
        }
    }

    fn rewrite_each(&mut self, schemas: &Value, depth: usize) -> Value {
        let Value::Object(schemas) = schemas else {
            return schemas.clone();
        };
        let schemas = schemas.iter();
        let schemas = schemas.map(|(name, schema)| (name.clone(), self.rewrite(schema, depth)));
        Value::Object(schemas.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapted_schema_is_accepted_by_providers() {
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
            assert_eq!(adapt_schema(&schema, false), expected, "{schema}");
        }
    }

    #[test]
    fn flat_schema_has_no_references() {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "description": "d"}}, "$defs": {"A": {"type": "array"}}});
        assert_eq!(
            adapt_schema(&schema, true),
            json!({"type": "object", "properties": {"a": {"type": "array", "description": "d", "items": {}}}})
        );
        for schema in [
            json!({"type": "object", "properties": {"node": {"properties": {"next": {"$ref": "#/properties/node"}}}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}}}),
            json!({"$ref": "#"}),
            json!({"properties": {"a": {"$ref": "#/properties/a"}}}),
        ] {
            let text = adapt_schema(&schema, true).to_string();
            assert!(!text.contains("$ref") && text.len() < 50_000, "{text}");
        }
    }
}

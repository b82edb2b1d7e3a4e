//! Converts JSON Schemas into compact types for models: `list[{"id": str, "title?": str}] | None`.
//!
//! The notation is a Python expression: an object lists its members, `?` marks the name of an optional
//! member, and `...` stands for omitted parts. Every schema yields a type; the cost of reading and
//! writing it is bounded for any schema.

mod write;

use serde_json::{Map, Value};

/// Maximum number of subschemas read for one type.
const MAX_SCHEMA_NODES: usize = 400;
/// Maximum nesting depth of subschemas.
const MAX_SCHEMA_DEPTH: usize = 40;
/// Maximum number of enumeration values shown.
const MAX_LITERAL_VALUES: usize = 12;
const MAX_VARIANTS: usize = 6;
const MAX_KEY_BYTES: usize = 80;

/// A type read from a schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SchemaType {
    Any,
    Never,
    /// A type without parameters, such as `str` or `int`.
    Plain(&'static str),
    Literal(Vec<Value>, Completeness),
    List(Box<Self>),
    Tuple(Vec<Self>),
    Map(Box<Self>),
    Object(Vec<Field>, Completeness),
    Union(Vec<Self>),
}

/// Whether parts were omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completeness {
    Complete,
    Truncated,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    key: String,
    kind: SchemaType,
    required: bool,
}

/// Reads the type that a schema within `root` describes.
pub(super) fn read_schema(root: &Value, schema: &Value) -> SchemaType {
    let mut reader = SchemaReader {
        root,
        budget: MAX_SCHEMA_NODES,
        open_references: Vec::new(),
    };
    reader.read(schema, 0)
}

/// Resolves a reference within `root`.
pub(super) fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if !pointer.contains('%') {
        return root.pointer(pointer);
    }
    let decoded = pointer
        .replace("%24", "$")
        .replace("%20", " ")
        .replace("%25", "%");
    root.pointer(&decoded)
}

struct SchemaReader<'a> {
    root: &'a Value,
    budget: usize,
    /// References that are being read, to detect cycles.
    open_references: Vec<&'a str>,
}

impl<'a> SchemaReader<'a> {
    fn read(&mut self, schema: &'a Value, depth: usize) -> SchemaType {
        if self.budget == 0 || depth > MAX_SCHEMA_DEPTH {
            return SchemaType::Any;
        }
        self.budget -= 1;
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return SchemaType::Never,
            _ => return SchemaType::Any,
        };
        if matches!(schema.get("not"), Some(Value::Bool(true)))
            || schema
                .get("not")
                .and_then(Value::as_object)
                .is_some_and(Map::is_empty)
        {
            return SchemaType::Never;
        }
        let mut kind = self.read_keywords(schema, depth);
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = self.read_reference(reference, depth);
            kind = self.intersect(kind, target);
        }
        for part in keyword_list(schema, "allOf") {
            if self.budget == 0 {
                break;
            }
            let part = self.read(part, depth + 1);
            kind = self.intersect(kind, part);
        }
        for keyword in ["anyOf", "oneOf"] {
            if schema.get(keyword).is_some_and(Value::is_array) {
                let variants = self.read_variants(keyword_list(schema, keyword), depth);
                kind = self.intersect(kind, variants);
            }
        }
        match schema.get("nullable") {
            Some(Value::Bool(true)) => union(vec![kind, SchemaType::Plain("None")]),
            _ => kind,
        }
    }

    /// Reads the keywords of a schema itself, without references and combinators.
    fn read_keywords(&mut self, schema: &'a Map<String, Value>, depth: usize) -> SchemaType {
        if let Some(value) = schema.get("const") {
            return literal_type(std::slice::from_ref(value));
        }
        if let Some(Value::Array(all)) = schema.get("enum") {
            return literal_type(all);
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.read_named_type(name, schema, depth),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str).take(8);
                let kinds = names
                    .map(|name| self.read_named_type(name, schema, depth))
                    .collect();
                union(kinds)
            }
            _ if schema.contains_key("properties") || schema.contains_key("patternProperties") => {
                self.read_object(schema, depth)
            }
            _ if schema.contains_key("items") || schema.contains_key("prefixItems") => {
                self.read_array(schema, depth)
            }
            _ => SchemaType::Any,
        }
    }

    fn read_named_type(
        &mut self,
        name: &str,
        schema: &'a Map<String, Value>,
        depth: usize,
    ) -> SchemaType {
        match name {
            "string" => SchemaType::Plain("str"),
            "integer" => SchemaType::Plain("int"),
            "number" => SchemaType::Plain("float"),
            "boolean" => SchemaType::Plain("bool"),
            "null" => SchemaType::Plain("None"),
            "array" => self.read_array(schema, depth),
            "object" => self.read_object(schema, depth),
            _ => SchemaType::Any,
        }
    }

    fn read_array(&mut self, schema: &'a Map<String, Value>, depth: usize) -> SchemaType {
        let items = schema.get("items");
        let first = match (schema.get("prefixItems"), items) {
            (Some(Value::Array(first)), _) | (None, Some(Value::Array(first))) => first,
            (_, Some(items)) => return SchemaType::List(Box::new(self.read(items, depth + 1))),
            _ => return SchemaType::Plain("list"),
        };
        let mut kinds: Vec<SchemaType> = first
            .iter()
            .take(MAX_VARIANTS + 1)
            .map(|item| self.read(item, depth + 1))
            .collect();
        let rest = schema
            .get("prefixItems")
            .and(items)
            .filter(|items| items.is_object());
        match rest {
            Some(rest) => {
                kinds.push(self.read(rest, depth + 1));
                SchemaType::List(Box::new(union(kinds)))
            }
            None if kinds.len() > MAX_VARIANTS => SchemaType::Plain("list"),
            None => SchemaType::Tuple(kinds),
        }
    }

    fn read_object(&mut self, schema: &'a Map<String, Value>, depth: usize) -> SchemaType {
        let required: Vec<&str> = keyword_list(schema, "required")
            .iter()
            .filter_map(Value::as_str)
            .take(MAX_SCHEMA_NODES)
            .collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut fields = Vec::new();
        let mut completeness = Completeness::Complete;
        for (key, property) in properties.into_iter().flatten() {
            if self.budget == 0 || key.len() > MAX_KEY_BYTES {
                completeness = Completeness::Truncated;
                continue;
            }
            fields.push(Field {
                key: key.clone(),
                kind: self.read(property, depth + 1),
                required: required.contains(&key.as_str()),
            });
        }
        if !fields.is_empty() || completeness == Completeness::Truncated {
            return SchemaType::Object(fields, completeness);
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let mut others: Vec<SchemaType> = patterns
            .into_iter()
            .flat_map(Map::values)
            .take(MAX_VARIANTS)
            .map(|pattern| self.read(pattern, depth + 1))
            .collect();
        match schema.get("additionalProperties") {
            Some(other @ Value::Object(_)) => others.push(self.read(other, depth + 1)),
            _ if others.is_empty() => return SchemaType::Plain("dict"),
            _ => {}
        }
        SchemaType::Map(Box::new(union(others)))
    }

    fn read_reference(&mut self, reference: &'a str, depth: usize) -> SchemaType {
        let Some(target) = resolve_reference(self.root, reference) else {
            return SchemaType::Any;
        };
        if self.open_references.contains(&reference) {
            let is_object = target.get("properties").is_some() || target["type"] == "object";
            return if is_object {
                SchemaType::Plain("dict")
            } else {
                SchemaType::Any
            };
        }
        self.open_references.push(reference);
        let kind = self.read(target, depth + 1);
        self.open_references.pop();
        kind
    }

    fn read_variants(&mut self, all: &'a [Value], depth: usize) -> SchemaType {
        let mut kinds = Vec::new();
        for variant in all {
            if self.budget == 0 {
                kinds.push(SchemaType::Any);
                break;
            }
            kinds.push(self.read(variant, depth + 1));
        }
        union(kinds)
    }

    /// Approximates the intersection of two types.
    fn intersect(&mut self, first: SchemaType, other: SchemaType) -> SchemaType {
        match (first, other) {
            (SchemaType::Any, kind) | (kind, SchemaType::Any) => kind,
            (
                SchemaType::Plain("dict"),
                kind @ (SchemaType::Object(..) | SchemaType::Map(_) | SchemaType::Union(_)),
            )
            | (kind @ (SchemaType::Object(..) | SchemaType::Map(_)), SchemaType::Plain("dict")) => {
                kind
            }
            (SchemaType::Plain("list"), kind @ (SchemaType::List(_) | SchemaType::Tuple(_))) => {
                kind
            }
            (_, kind @ SchemaType::Literal(..)) => kind,
            (SchemaType::Plain("float"), SchemaType::Plain("int")) => SchemaType::Plain("int"),
            (
                SchemaType::Object(first, completeness),
                SchemaType::Object(other, other_completeness),
            ) => {
                let completeness = match (completeness, other_completeness) {
                    (Completeness::Complete, Completeness::Complete) => Completeness::Complete,
                    _ => Completeness::Truncated,
                };
                SchemaType::Object(self.merge_fields(first, other), completeness)
            }
            (object @ SchemaType::Object(..), SchemaType::Union(variants))
            | (SchemaType::Union(variants), object @ SchemaType::Object(..)) => {
                self.intersect_variants(object, variants)
            }
            (kind, SchemaType::Union(variants)) if variants.contains(&kind) => kind,
            (SchemaType::Union(kinds), kind) if kinds.contains(&kind) => kind,
            (kind, _) => kind,
        }
    }

    fn merge_fields(&mut self, mut fields: Vec<Field>, others: Vec<Field>) -> Vec<Field> {
        for other in others {
            match fields.iter().position(|field| field.key == other.key) {
                Some(at) => {
                    let known = std::mem::replace(&mut fields[at].kind, SchemaType::Any);
                    fields[at].kind = self.intersect(known, other.kind);
                    fields[at].required |= other.required;
                }
                None => fields.push(other),
            }
        }
        fields
    }

    /// Intersects an object type with each variant of a union, if the budget allows.
    fn intersect_variants(&mut self, object: SchemaType, variants: Vec<SchemaType>) -> SchemaType {
        let cost = object.size() * variants.len();
        if cost > self.budget {
            return object;
        }
        self.budget -= cost;
        let joined = variants
            .into_iter()
            .map(|variant| self.intersect(object.clone(), variant));
        union(joined.collect())
    }
}

impl SchemaType {
    /// Removes `None` from a union.
    pub(super) fn without_none(self) -> Self {
        match self {
            Self::Union(kinds) => union(
                kinds
                    .into_iter()
                    .filter(|kind| *kind != Self::Plain("None"))
                    .collect(),
            ),
            kind => kind,
        }
    }

    fn size(&self) -> usize {
        1 + match self {
            Self::List(item) | Self::Map(item) => item.size(),
            Self::Tuple(kinds) | Self::Union(kinds) => kinds.iter().map(Self::size).sum(),
            Self::Object(fields, _) => fields.iter().map(|field| field.kind.size()).sum(),
            Self::Literal(values, _) => values.len(),
            Self::Any | Self::Never | Self::Plain(_) => 0,
        }
    }
}

/// Returns the type of an enumeration of values.
fn literal_type(all: &[Value]) -> SchemaType {
    let is_scalar = |value: &&Value| !value.is_array() && !value.is_object();
    if all
        .iter()
        .take(MAX_LITERAL_VALUES)
        .any(|value| !is_scalar(&value))
    {
        return union(
            all.iter()
                .take(MAX_LITERAL_VALUES)
                .map(|value| SchemaType::Plain(value_type_name(value)))
                .collect(),
        );
    }
    let mut distinct: Vec<Value> = Vec::new();
    for value in all.iter().take(MAX_LITERAL_VALUES * 2) {
        if !distinct.contains(value) {
            distinct.push(value.clone());
        }
    }
    let completeness = if all.len() > MAX_LITERAL_VALUES {
        Completeness::Truncated
    } else {
        Completeness::Complete
    };
    if distinct.is_empty() {
        SchemaType::Never
    } else {
        SchemaType::Literal(distinct, completeness)
    }
}

fn value_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "None",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// Returns the union of types. Literals are merged, and `None` comes last.
pub(super) fn union(kinds: Vec<SchemaType>) -> SchemaType {
    let mut flat: Vec<SchemaType> = Vec::new();
    let mut has_none = false;
    let mut pending = kinds;
    pending.reverse();
    while let Some(kind) = pending.pop() {
        match kind {
            SchemaType::Union(inner) => pending.extend(inner.into_iter().rev()),
            SchemaType::Any => return SchemaType::Any,
            SchemaType::Never => {}
            SchemaType::Plain("None") => has_none = true,
            SchemaType::Literal(values, completeness) => match flat
                .iter_mut()
                .find(|kind| matches!(kind, SchemaType::Literal(..)))
            {
                Some(SchemaType::Literal(known, known_completeness)) => {
                    known.extend(values.into_iter().take(MAX_LITERAL_VALUES * 2));
                    if completeness == Completeness::Truncated || known.len() > MAX_LITERAL_VALUES {
                        *known_completeness = Completeness::Truncated;
                    }
                }
                _ => flat.push(SchemaType::Literal(values, completeness)),
            },
            kind if flat.contains(&kind) => {}
            kind => flat.push(kind),
        }
    }
    if has_none {
        flat.push(SchemaType::Plain("None"));
    }
    match flat.len() {
        0 => SchemaType::Never,
        1 => flat.remove(0),
        _ => SchemaType::Union(flat),
    }
}

fn keyword_list<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema
        .get(keyword)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;

//! JSON Schema as types that a model reads at a glance: `list[{"id": str, "title?": str}] | None`.
//!
//! The notation is an expression of Python: an object is a display of its members, where `?` ends
//! the name of one that may be missing, and `...` stands for what was left out. Any schema gives a
//! type; reading and writing one are bounded, whatever the schema is.

mod write;

use serde_json::{Map, Value};

/// Schemas that are looked at for one type.
const NODES: usize = 400;
/// Schemas within schemas.
const DEPTH: usize = 40;
/// Values of an enumeration that are shown.
const VALUES: usize = 12;
const VARIANTS: usize = 6;
const KEY_BYTES: usize = 80;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Any,
    Never,
    /// `str`, `int` and the like.
    Plain(&'static str),
    Literal(Vec<Value>, More),
    List(Box<Self>),
    Tuple(Vec<Self>),
    Map(Box<Self>),
    Shape(Vec<Field>, More),
    Union(Vec<Self>),
}

/// Whether something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    No,
    Yes,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    key: String,
    kind: Type,
    required: bool,
}

/// Reads the type that a schema within `root` describes.
pub(super) fn read(root: &Value, schema: &Value) -> Type {
    let mut reader = Reader {
        root,
        left: NODES,
        within: Vec::new(),
    };
    reader.read(schema, 0)
}

/// The schema that a reference within `root` means.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    match pointer.contains('%') {
        false => root.pointer(pointer),
        true => root.pointer(
            &pointer
                .replace("%24", "$")
                .replace("%20", " ")
                .replace("%25", "%"),
        ),
    }
}

struct Reader<'a> {
    root: &'a Value,
    left: usize,
    /// References that are being read.
    within: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, schema: &'a Value, depth: usize) -> Type {
        if self.left == 0 || depth > DEPTH {
            return Type::Any;
        }
        self.left -= 1;
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return Type::Never,
            _ => return Type::Any,
        };
        if matches!(schema.get("not"), Some(Value::Bool(true)))
            || schema
                .get("not")
                .and_then(Value::as_object)
                .is_some_and(Map::is_empty)
        {
            return Type::Never;
        }
        let mut kind = self.own(schema, depth);
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let meant = self.reference(reference, depth);
            kind = self.both(kind, meant);
        }
        for part in list(schema, "allOf") {
            if self.left == 0 {
                break;
            }
            let part = self.read(part, depth + 1);
            kind = self.both(kind, part);
        }
        for word in ["anyOf", "oneOf"] {
            if schema.get(word).is_some_and(Value::is_array) {
                let variants = self.variants(list(schema, word), depth);
                kind = self.both(kind, variants);
            }
        }
        match schema.get("nullable") {
            Some(Value::Bool(true)) => union(vec![kind, Type::Plain("None")]),
            _ => kind,
        }
    }

    /// What a schema says itself.
    fn own(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Type {
        if let Some(value) = schema.get("const") {
            return values(std::slice::from_ref(value));
        }
        if let Some(Value::Array(all)) = schema.get("enum") {
            return values(all);
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.named(name, schema, depth),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str).take(8);
                let kinds = names.map(|name| self.named(name, schema, depth)).collect();
                union(kinds)
            }
            _ if schema.contains_key("properties") || schema.contains_key("patternProperties") => {
                self.object(schema, depth)
            }
            _ if schema.contains_key("items") || schema.contains_key("prefixItems") => {
                self.array(schema, depth)
            }
            _ => Type::Any,
        }
    }

    fn named(&mut self, name: &str, schema: &'a Map<String, Value>, depth: usize) -> Type {
        match name {
            "string" => Type::Plain("str"),
            "integer" => Type::Plain("int"),
            "number" => Type::Plain("float"),
            "boolean" => Type::Plain("bool"),
            "null" => Type::Plain("None"),
            "array" => self.array(schema, depth),
            "object" => self.object(schema, depth),
            _ => Type::Any,
        }
    }

    fn array(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Type {
        let items = schema.get("items");
        let first = match (schema.get("prefixItems"), items) {
            (Some(Value::Array(first)), _) | (None, Some(Value::Array(first))) => first,
            (_, Some(items)) => return Type::List(Box::new(self.read(items, depth + 1))),
            _ => return Type::Plain("list"),
        };
        let mut kinds: Vec<Type> = first
            .iter()
            .take(VARIANTS + 1)
            .map(|item| self.read(item, depth + 1))
            .collect();
        let rest = schema
            .get("prefixItems")
            .and(items)
            .filter(|items| items.is_object());
        match rest {
            Some(rest) => {
                kinds.push(self.read(rest, depth + 1));
                Type::List(Box::new(union(kinds)))
            }
            None if kinds.len() > VARIANTS => Type::Plain("list"),
            None => Type::Tuple(kinds),
        }
    }

    fn object(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Type {
        let required: Vec<&str> = list(schema, "required")
            .iter()
            .filter_map(Value::as_str)
            .take(NODES)
            .collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut fields = Vec::new();
        let mut more = More::No;
        for (key, property) in properties.into_iter().flatten() {
            if self.left == 0 || key.len() > KEY_BYTES {
                more = More::Yes;
                continue;
            }
            fields.push(Field {
                key: key.clone(),
                kind: self.read(property, depth + 1),
                required: required.contains(&key.as_str()),
            });
        }
        if !fields.is_empty() || more == More::Yes {
            return Type::Shape(fields, more);
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let mut others: Vec<Type> = patterns
            .into_iter()
            .flat_map(Map::values)
            .take(VARIANTS)
            .map(|pattern| self.read(pattern, depth + 1))
            .collect();
        match schema.get("additionalProperties") {
            Some(other @ Value::Object(_)) => others.push(self.read(other, depth + 1)),
            _ if others.is_empty() => return Type::Plain("dict"),
            _ => {}
        }
        Type::Map(Box::new(union(others)))
    }

    fn reference(&mut self, reference: &'a str, depth: usize) -> Type {
        let Some(meant) = resolve(self.root, reference) else {
            return Type::Any;
        };
        if self.within.contains(&reference) {
            return match meant.get("properties").is_some() || meant["type"] == "object" {
                true => Type::Plain("dict"),
                false => Type::Any,
            };
        }
        self.within.push(reference);
        let kind = self.read(meant, depth + 1);
        self.within.pop();
        kind
    }

    fn variants(&mut self, all: &'a [Value], depth: usize) -> Type {
        let mut kinds = Vec::new();
        for variant in all {
            if self.left == 0 {
                kinds.push(Type::Any);
                break;
            }
            kinds.push(self.read(variant, depth + 1));
        }
        union(kinds)
    }

    /// What is of both types, as far as one can say it.
    fn both(&mut self, one: Type, other: Type) -> Type {
        match (one, other) {
            (Type::Any, kind) | (kind, Type::Any) => kind,
            (Type::Plain("dict"), kind @ (Type::Shape(..) | Type::Map(_) | Type::Union(_)))
            | (kind @ (Type::Shape(..) | Type::Map(_)), Type::Plain("dict")) => kind,
            (Type::Plain("list"), kind @ (Type::List(_) | Type::Tuple(_))) => kind,
            (_, kind @ Type::Literal(..)) => kind,
            (Type::Plain("float"), Type::Plain("int")) => Type::Plain("int"),
            (Type::Shape(one, more), Type::Shape(other, other_more)) => {
                let more = match (more, other_more) {
                    (More::No, More::No) => More::No,
                    _ => More::Yes,
                };
                Type::Shape(self.joined(one, other), more)
            }
            (shape @ Type::Shape(..), Type::Union(variants))
            | (Type::Union(variants), shape @ Type::Shape(..)) => self.each(shape, variants),
            (kind, Type::Union(variants)) if variants.contains(&kind) => kind,
            (Type::Union(kinds), kind) if kinds.contains(&kind) => kind,
            (kind, _) => kind,
        }
    }

    fn joined(&mut self, mut fields: Vec<Field>, others: Vec<Field>) -> Vec<Field> {
        for other in others {
            match fields.iter().position(|field| field.key == other.key) {
                Some(at) => {
                    let known = std::mem::replace(&mut fields[at].kind, Type::Any);
                    fields[at].kind = self.both(known, other.kind);
                    fields[at].required |= other.required;
                }
                None => fields.push(other),
            }
        }
        fields
    }

    /// A shape joined with each of several variants, if that is not too much.
    fn each(&mut self, shape: Type, variants: Vec<Type>) -> Type {
        let cost = shape.size() * variants.len();
        if cost > self.left {
            return shape;
        }
        self.left -= cost;
        let joined = variants
            .into_iter()
            .map(|variant| self.both(shape.clone(), variant));
        union(joined.collect())
    }
}

impl Type {
    /// The type without `None`, where that says nothing new.
    pub(super) fn but_none(self) -> Self {
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
            Self::Shape(fields, _) => fields.iter().map(|field| field.kind.size()).sum(),
            Self::Literal(values, _) => values.len(),
            Self::Any | Self::Never | Self::Plain(_) => 0,
        }
    }
}

/// The type of one of several values.
fn values(all: &[Value]) -> Type {
    let plain = |value: &&Value| !value.is_array() && !value.is_object();
    if all.iter().take(VALUES).any(|value| !plain(&value)) {
        return union(
            all.iter()
                .take(VALUES)
                .map(|value| Type::Plain(kind_of(value)))
                .collect(),
        );
    }
    let mut distinct: Vec<Value> = Vec::new();
    for value in all.iter().take(VALUES * 2) {
        if !distinct.contains(value) {
            distinct.push(value.clone());
        }
    }
    let more = match all.len() > VALUES {
        true => More::Yes,
        false => More::No,
    };
    match distinct.is_empty() {
        true => Type::Never,
        false => Type::Literal(distinct, more),
    }
}

fn kind_of(value: &Value) -> &'static str {
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

/// One of several types; literals are joined, and `None` comes last.
pub(super) fn union(kinds: Vec<Type>) -> Type {
    let mut flat: Vec<Type> = Vec::new();
    let mut none = false;
    let mut pending = kinds;
    pending.reverse();
    while let Some(kind) = pending.pop() {
        match kind {
            Type::Union(inner) => pending.extend(inner.into_iter().rev()),
            Type::Any => return Type::Any,
            Type::Never => {}
            Type::Plain("None") => none = true,
            Type::Literal(values, more) => match flat
                .iter_mut()
                .find(|kind| matches!(kind, Type::Literal(..)))
            {
                Some(Type::Literal(known, known_more)) => {
                    known.extend(values.into_iter().take(VALUES * 2));
                    if more == More::Yes || known.len() > VALUES {
                        *known_more = More::Yes;
                    }
                }
                _ => flat.push(Type::Literal(values, more)),
            },
            kind if flat.contains(&kind) => {}
            kind => flat.push(kind),
        }
    }
    if none {
        flat.push(Type::Plain("None"));
    }
    match flat.len() {
        0 => Type::Never,
        1 => flat.remove(0),
        _ => Type::Union(flat),
    }
}

fn list<'a>(schema: &'a Map<String, Value>, word: &str) -> &'a [Value] {
    schema
        .get(word)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;

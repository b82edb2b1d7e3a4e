//! How much work a schema can make, found before it is compiled.
//!
//! A short schema can make endless work: references multiply (`anyOf` of two references to an
//! `anyOf` of two …), or go in circles. Here a schema gets a *weight*, the most rules that one
//! value can meet, with every reference followed. Rules that go down to the values inside a
//! value count there; `jsonschema` remembers results for objects and arrays, so depth alone does
//! not multiply.

use std::collections::HashMap;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::{Unusable, target, words};

pub(super) const MOST_PATTERNS: usize = 128;
const HEAVIEST: usize = 4096;
/// The most subschemas inside each other for one and the same value: each takes stack.
const HIGHEST: usize = 24;
/// The most steps a check may take, a step being about 10 ns.
const MOST_STEPS: usize = 20_000_000;
/// Numbers that no `f64` can hold are compared digit by digit.
const MOST_HUGE_NUMBERS: usize = 256;

/// Keywords whose subschema looks at the same value.
const SAME: [&str; 5] = ["not", "if", "then", "else", "$ref"];
const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SAME_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose subschema looks at a value inside.
const INSIDE: [&str; 8] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const INSIDE_LISTS: [&str; 2] = ["items", "prefixItems"];
const INSIDE_MAPS: [&str; 4] = ["$defs", "definitions", "patternProperties", "properties"];

#[derive(Clone, Copy, Debug)]
struct Load {
    weight: usize,
    height: usize,
}

struct Scale<'a> {
    root: &'a Value,
    id: &'static str,
    /// By address; `None` while it is being weighed.
    loads: HashMap<*const Value, Option<Load>>,
    patterns: usize,
    heaviest: usize,
    /// Subschemas that look at values inside, still to be weighed.
    open: Vec<&'a Value>,
}

/// The weight of a schema, or why it cannot be used.
pub(super) fn weigh(root: &Value, draft: Draft) -> Result<usize, Unusable> {
    let mut scale = Scale {
        root,
        id: draft.id_keyword(),
        loads: HashMap::new(),
        patterns: 0,
        heaviest: 1,
        open: vec![root],
    };
    while let Some(schema) = scale.open.pop() {
        scale.load(schema, 0)?;
    }
    if scale.patterns > MOST_PATTERNS {
        return Err(Unusable::TooManyPatterns);
    }
    Ok(scale.heaviest)
}

/// Says why arguments would take too long to check against a schema of some weight.
pub(super) fn measure(arguments: &Value, weight: usize) -> Result<(), &'static str> {
    let (mut steps, mut huge) = (0, 0);
    count(arguments, &mut steps, &mut huge);
    if steps.saturating_mul(weight) > MOST_STEPS {
        return Err("they are too large to be checked against the tool's schema; send less");
    }
    if huge > MOST_HUGE_NUMBERS {
        return Err("they hold too many numbers that are out of range; send smaller numbers");
    }
    Ok(())
}

fn count(value: &Value, steps: &mut usize, huge: &mut usize) {
    *steps += 1;
    match value {
        Value::String(text) => *steps += text.len() / 16,
        Value::Number(number) => *huge += usize::from(number.as_f64().is_none()),
        Value::Array(items) => items.iter().for_each(|item| count(item, steps, huge)),
        Value::Object(object) => {
            for (key, value) in object {
                *steps += key.len() / 16;
                count(value, steps, huge);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

impl<'a> Scale<'a> {
    fn load(&mut self, schema: &'a Value, depth: usize) -> Result<Load, Unusable> {
        let Value::Object(object) = schema else {
            return Ok(Load {
                weight: 1,
                height: 1,
            });
        };
        match self.loads.get(&std::ptr::from_ref(schema)) {
            Some(Some(load)) => return Ok(*load),
            Some(None) => return Err(Unusable::Endless(place(object))),
            None => {}
        }
        if depth > HIGHEST {
            return Err(Unusable::TooHeavy);
        }
        self.loads.insert(schema, None);
        self.refuse(schema, object)?;
        let mut load = Load {
            weight: 1 + self.own(object),
            height: 0,
        };
        let mut below: usize = 0;
        for part in self.same(object)? {
            let part = self.load(part, depth + 1)?;
            below = below.saturating_add(part.weight);
            load.height = load.height.max(part.height);
        }
        // What `unevaluated…` needs to know makes everything below be looked at once more.
        let times = 1 + object
            .keys()
            .filter(|key| key.starts_with("unevaluated"))
            .count();
        load.weight = load.weight.saturating_add(below.saturating_mul(times));
        load.height += 1;
        if load.weight > HEAVIEST || load.height > HIGHEST {
            return Err(Unusable::TooHeavy);
        }
        self.heaviest = self.heaviest.max(load.weight);
        self.loads.insert(schema, Some(load));
        self.note_inside(object);
        Ok(load)
    }

    /// Refuses what would change the meaning of references, so that ours is the compiler's.
    fn refuse(&self, schema: &Value, object: &Map<String, Value>) -> Result<(), Unusable> {
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if object.get(keyword).is_some_and(Value::is_string) {
                return Err(Unusable::Unsupported(keyword));
            }
        }
        let is_root = std::ptr::eq(schema, self.root);
        if !is_root && object.get(self.id).is_some_and(Value::is_string) {
            return Err(Unusable::Unsupported(self.id));
        }
        if !is_root && object.contains_key("$schema") {
            return Err(Unusable::Unsupported("$schema"));
        }
        Ok(())
    }

    /// What the keywords of this very schema weigh.
    fn own(&mut self, object: &Map<String, Value>) -> usize {
        let length = |key: &str| match object.get(key) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(entries)) => entries.len(),
            Some(_) => 1,
            None => 0,
        };
        let patterns = length("patternProperties") + length("pattern");
        self.patterns += patterns;
        // Texts of an enumeration are looked up at once, other values one by one.
        patterns + length("enum") / 8 + length("required") / 8
    }

    fn same(&self, object: &'a Map<String, Value>) -> Result<Vec<&'a Value>, Unusable> {
        let mut parts = Vec::new();
        for key in SAME {
            match object.get(key) {
                Some(Value::String(reference)) if key == "$ref" => {
                    let target = target(self.root, reference)
                        .ok_or_else(|| Unusable::Reference(words::name(reference)))?;
                    parts.push(target);
                }
                Some(part) if key != "$ref" => parts.push(part),
                _ => {}
            }
        }
        for key in SAME_LISTS {
            parts.extend(
                object
                    .get(key)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten(),
            );
        }
        for key in SAME_MAPS {
            let map = object.get(key).and_then(Value::as_object);
            parts.extend(map.into_iter().flat_map(Map::values));
        }
        Ok(parts)
    }

    fn note_inside(&mut self, object: &'a Map<String, Value>) {
        self.open
            .extend(INSIDE.iter().filter_map(|key| object.get(*key)));
        for key in INSIDE_LISTS {
            let list = object.get(key).and_then(Value::as_array);
            self.open.extend(list.into_iter().flatten());
        }
        for key in INSIDE_MAPS {
            let map = object.get(key).and_then(Value::as_object);
            self.open.extend(map.into_iter().flat_map(Map::values));
        }
    }
}

/// Where a circle was met, for the administrator.
fn place(object: &Map<String, Value>) -> String {
    match object.get("$ref").and_then(Value::as_str) {
        Some(reference) => words::name(reference),
        None => "#".to_owned(),
    }
}

//! Estimates how much work a schema can cause, before it is compiled.
//!
//! A short schema can cause endless work: references multiply (`anyOf` of two references to an
//! `anyOf` of two …) or form cycles. The *weight* of a schema is the maximum number of rules that
//! apply to one value, with every reference followed. Rules for values inside a value count
//! separately; `jsonschema` caches results for objects and arrays, so depth alone does not
//! multiply.

use std::collections::HashMap;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::{UnusableSchema, message_text, resolve_reference};

pub(super) const MAX_PATTERNS: usize = 128;
const MAX_WEIGHT: usize = 4096;
/// Maximum nesting of subschemas for the same value; each level uses stack.
const MAX_NESTING: usize = 24;
/// Maximum steps of a check; a step takes about 10 ns.
const MAX_CHECK_STEPS: usize = 20_000_000;
/// Maximum count of numbers outside the range of `f64`, which are compared digit by digit.
const MAX_HUGE_NUMBERS: usize = 256;

/// Keywords whose subschema applies to the same value.
const IN_PLACE: [&str; 5] = ["not", "if", "then", "else", "$ref"];
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose subschema applies to a child value.
const CHILD: [&str; 8] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const CHILD_LISTS: [&str; 2] = ["items", "prefixItems"];
const CHILD_MAPS: [&str; 4] = ["$defs", "definitions", "patternProperties", "properties"];

#[derive(Clone, Copy, Debug)]
struct Cost {
    weight: usize,
    nesting: usize,
}

struct CostEstimator<'a> {
    root: &'a Value,
    id: &'static str,
    /// Costs by address; `None` while being computed.
    costs: HashMap<*const Value, Option<Cost>>,
    patterns: usize,
    max_weight: usize,
    /// Subschemas for child values that are still to be processed.
    pending: Vec<&'a Value>,
}

/// Returns the weight of a schema, or the reason why it cannot be used.
pub(super) fn compute_weight(root: &Value, draft: Draft) -> Result<usize, UnusableSchema> {
    let mut estimator = CostEstimator {
        root,
        id: draft.id_keyword(),
        costs: HashMap::new(),
        patterns: 0,
        max_weight: 1,
        pending: vec![root],
    };
    while let Some(schema) = estimator.pending.pop() {
        estimator.cost(schema, 0)?;
    }
    if estimator.patterns > MAX_PATTERNS {
        return Err(UnusableSchema::TooManyPatterns);
    }
    Ok(estimator.max_weight)
}

/// Rejects arguments that would take too long to check against a schema of this weight.
pub(super) fn check_size(arguments: &Value, weight: usize) -> Result<(), &'static str> {
    let (mut steps, mut huge) = (0, 0);
    count_steps(arguments, &mut steps, &mut huge);
    if steps.saturating_mul(weight) > MAX_CHECK_STEPS {
        return Err("they are too large to check against the tool's schema; send less data");
    }
    if huge > MAX_HUGE_NUMBERS {
        return Err("they contain too many numbers that are out of range; send smaller numbers");
    }
    Ok(())
}

fn count_steps(value: &Value, steps: &mut usize, huge: &mut usize) {
    *steps += 1;
    match value {
        Value::String(text) => *steps += text.len() / 16,
        Value::Number(number) => *huge += usize::from(number.as_f64().is_none()),
        Value::Array(items) => items.iter().for_each(|item| count_steps(item, steps, huge)),
        Value::Object(object) => {
            for (key, value) in object {
                *steps += key.len() / 16;
                count_steps(value, steps, huge);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

impl<'a> CostEstimator<'a> {
    fn cost(&mut self, schema: &'a Value, depth: usize) -> Result<Cost, UnusableSchema> {
        let Value::Object(object) = schema else {
            return Ok(Cost {
                weight: 1,
                nesting: 1,
            });
        };
        match self.costs.get(&std::ptr::from_ref(schema)) {
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => return Err(UnusableSchema::EndlessReference(describe_cycle(object))),
            None => {}
        }
        if depth > MAX_NESTING {
            return Err(UnusableSchema::TooHeavy);
        }
        self.costs.insert(schema, None);
        self.reject_unsupported(schema, object)?;
        let mut cost = Cost {
            weight: 1 + self.own_weight(object),
            nesting: 0,
        };
        let mut below: usize = 0;
        for part in self.in_place_subschemas(object)? {
            let part = self.cost(part, depth + 1)?;
            below = below.saturating_add(part.weight);
            cost.nesting = cost.nesting.max(part.nesting);
        }
        // `unevaluated…` makes `jsonschema` evaluate all in-place subschemas once more.
        let times = 1 + object
            .keys()
            .filter(|key| key.starts_with("unevaluated"))
            .count();
        cost.weight = cost.weight.saturating_add(below.saturating_mul(times));
        cost.nesting += 1;
        if cost.weight > MAX_WEIGHT || cost.nesting > MAX_NESTING {
            return Err(UnusableSchema::TooHeavy);
        }
        self.max_weight = self.max_weight.max(cost.weight);
        self.costs.insert(schema, Some(cost));
        self.queue_children(object);
        Ok(cost)
    }

    /// Rejects keywords that change how references resolve, so that `jsonschema` resolves them as
    /// this module does.
    fn reject_unsupported(
        &self,
        schema: &Value,
        object: &Map<String, Value>,
    ) -> Result<(), UnusableSchema> {
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if object.get(keyword).is_some_and(Value::is_string) {
                return Err(UnusableSchema::Unsupported(keyword));
            }
        }
        let is_root = std::ptr::eq(schema, self.root);
        if !is_root && object.get(self.id).is_some_and(Value::is_string) {
            return Err(UnusableSchema::Unsupported(self.id));
        }
        if !is_root && object.contains_key("$schema") {
            return Err(UnusableSchema::Unsupported("$schema"));
        }
        Ok(())
    }

    /// Weight of the schema's own keywords, without subschemas.
    fn own_weight(&mut self, object: &Map<String, Value>) -> usize {
        let length = |key: &str| match object.get(key) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(entries)) => entries.len(),
            Some(_) => 1,
            None => 0,
        };
        let patterns = length("patternProperties") + length("pattern");
        self.patterns += patterns;
        // Strings of an `enum` are found by hash lookup, other values one by one.
        patterns + length("enum") / 8 + length("required") / 8
    }

    fn in_place_subschemas(
        &self,
        object: &'a Map<String, Value>,
    ) -> Result<Vec<&'a Value>, UnusableSchema> {
        let mut parts = Vec::new();
        for key in IN_PLACE {
            match object.get(key) {
                Some(Value::String(reference)) if key == "$ref" => {
                    let target = resolve_reference(self.root, reference).ok_or_else(|| {
                        UnusableSchema::Reference(message_text::escape_name(reference))
                    })?;
                    parts.push(target);
                }
                Some(part) if key != "$ref" => parts.push(part),
                _ => {}
            }
        }
        for key in IN_PLACE_LISTS {
            parts.extend(
                object
                    .get(key)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten(),
            );
        }
        for key in IN_PLACE_MAPS {
            let map = object.get(key).and_then(Value::as_object);
            parts.extend(map.into_iter().flat_map(Map::values));
        }
        Ok(parts)
    }

    fn queue_children(&mut self, object: &'a Map<String, Value>) {
        self.pending
            .extend(CHILD.iter().filter_map(|key| object.get(*key)));
        for key in CHILD_LISTS {
            let list = object.get(key).and_then(Value::as_array);
            self.pending.extend(list.into_iter().flatten());
        }
        for key in CHILD_MAPS {
            let map = object.get(key).and_then(Value::as_object);
            self.pending.extend(map.into_iter().flat_map(Map::values));
        }
    }
}

/// Names the schema where a cycle was found, for the administrator.
fn describe_cycle(object: &Map<String, Value>) -> String {
    match object.get("$ref").and_then(Value::as_str) {
        Some(reference) => message_text::escape_name(reference),
        None => "#".to_owned(),
    }
}

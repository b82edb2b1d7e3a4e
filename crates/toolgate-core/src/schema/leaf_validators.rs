//! Rules of a single schema, without those of its subschemas.
//!
//! `jsonschema` evaluates these rules in a small schema that contains nothing else, so numbers,
//! lengths and patterns mean the same here as in the whole schema.

use std::collections::HashMap;

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value};

use super::validation_options;

/// Cost of compiling a small schema, in steps of the walk.
const COMPILE_COST: usize = 100;

const LEAF_KEYWORDS: [&str; 17] = [
    "type",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "required",
];

/// Validators of single schemas, compiled when they are first needed.
pub(super) struct LeafValidators {
    draft: Draft,
    /// By the address of the schema; `None` if it has no rules of its own.
    compiled: HashMap<*const Value, Option<Validator>>,
}

impl LeafValidators {
    pub(super) fn new(draft: Draft) -> Self {
        Self {
            draft,
            compiled: HashMap::new(),
        }
    }

    /// Returns the validator of a schema, charging for its compilation.
    pub(super) fn get(
        &mut self,
        schema: &Value,
        object: &Map<String, Value>,
        steps: &mut usize,
    ) -> Option<&Validator> {
        let draft = self.draft;
        let validator = self.compiled.entry(schema).or_insert_with(|| {
            let rules = leaf_schema(object);
            if rules.is_empty() {
                return None;
            }
            *steps = steps.saturating_sub(COMPILE_COST);
            // The whole schema compiles, so its rules do too. If not, they count as satisfied.
            validation_options(draft).build(&Value::Object(rules)).ok()
        });
        validator.as_ref()
    }
}

fn leaf_schema(object: &Map<String, Value>) -> Map<String, Value> {
    let mut rules: Map<String, Value> = LEAF_KEYWORDS
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), object.get(key)?.clone())))
        .collect();
    if let Some(dependent) = object.get("dependentRequired") {
        rules.insert("dependentRequired".to_owned(), dependent.clone());
    }
    if object.get("additionalProperties") == Some(&Value::Bool(false)) {
        rules.insert("additionalProperties".to_owned(), Value::Bool(false));
        for key in ["properties", "patternProperties"] {
            let names = object.get(key).and_then(Value::as_object);
            let anything: Map<String, Value> = names
                .into_iter()
                .flat_map(Map::keys)
                .map(|name| (name.clone(), Value::Object(Map::new())))
                .collect();
            rules.insert(key.to_owned(), Value::Object(anything));
        }
    }
    rules
}

//! Converts values that do not fit a schema, where exactly one conversion makes them fit.
//!
//! Models write `"5"` for a number, `"true"` for a boolean, `"[1, 2]"` for a list and `null` for an
//! optional argument that they leave out. The walk visits schema and arguments together, tries the
//! one conversion that each value allows, and skips keywords that it does not know. So that this is
//! sound, `jsonschema` decides in the end whether the converted arguments fit as a whole.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::explain::path::ArgumentPath;
use super::leaf_validators::LeafValidators;
use super::{Schema, resolve_reference};
use crate::json::MAX_DEPTH;

mod candidate;

/// Bounds the work of a conversion: each visit of a value is a step.
const MAX_STEPS: usize = 50_000;
/// Maximum nesting of visits; each uses stack.
const MAX_VISIT_DEPTH: usize = 200;
/// Maximum nesting of converted arguments: that of arguments inside a message.
const MAX_ARGUMENT_DEPTH: usize = MAX_DEPTH - 2;
/// Maximum size of all texts that are parsed as lists and objects.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Bytes of a text that are checked in one step.
const BYTES_PER_STEP: usize = 4096;
/// Entries of a list or object that are checked in one step.
const ENTRIES_PER_STEP: usize = 16;
/// Maximum number of converted values that are named.
const MAX_NAMED_PATHS: usize = 20;

/// Converted arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct CoercedValue {
    pub value: Value,
    /// Locations of the converted values, such as `options.depth` and `items[3]`. Beyond a maximum,
    /// the last text says how many more there are.
    pub paths: Vec<String>,
}

/// A change of one value.
#[derive(Clone, Debug, PartialEq)]
enum Edit {
    Replace(Value),
    /// Removes the value and its key from the object.
    Drop,
}

/// A change of the value at an address.
type LocatedEdit = (*const Value, Edit);

struct Coercion<'a> {
    root: &'a Value,
    draft: Draft,
    steps: usize,
    depth: usize,
    /// Size of the texts that may still be parsed.
    text_bytes: usize,
    leaves: LeafValidators,
    /// Changes that make the visited values fit. Those of an attempt that fails are removed.
    edits: Vec<LocatedEdit>,
}

/// Converts arguments that a schema rejects; `None` if no or no single conversion makes them fit.
pub(super) fn coerce(schema: &Schema, arguments: &Value) -> Option<CoercedValue> {
    let mut coercion = Coercion {
        root: &schema.source,
        draft: schema.draft,
        steps: MAX_STEPS,
        depth: 0,
        text_bytes: MAX_TEXT_BYTES,
        leaves: LeafValidators::new(schema.draft),
        edits: Vec::new(),
    };
    if !coercion.fit_in_place(coercion.root, arguments) || coercion.edits.is_empty() {
        return None;
    }
    let value = apply(arguments, coercion.edits)?;
    if nesting(&value) > MAX_ARGUMENT_DEPTH || schema.validate(&value).is_err() {
        return None;
    }
    let paths = changed_paths(arguments, &value);
    Some(CoercedValue { value, paths })
}

impl<'a> Coercion<'a> {
    /// Makes a value fit a schema, converting the value itself if nothing else helps.
    fn fit(&mut self, schema: &'a Value, value: &Value) -> bool {
        let mark = self.edits.len();
        if self.fit_in_place(schema, value) {
            return true;
        }
        self.edits.truncate(mark);
        let Some(candidate) = value.as_str().and_then(|text| self.parse_candidate(text)) else {
            return false;
        };
        // Edits refer to values by address, so those of the candidate are kept apart.
        let outer = std::mem::take(&mut self.edits);
        let fits = self.fit_in_place(schema, &candidate);
        let inner = std::mem::replace(&mut self.edits, outer);
        let converted = if inner.is_empty() {
            Some(candidate)
        } else {
            apply(&candidate, inner)
        };
        match converted.filter(|_| fits) {
            Some(converted) => {
                self.edits.push((value, Edit::Replace(converted)));
                true
            }
            None => false,
        }
    }

    fn parse_candidate(&mut self, text: &str) -> Option<Value> {
        if self.is_exhausted() {
            return None;
        }
        if candidate::may_be_container(text) {
            self.text_bytes = self.text_bytes.checked_sub(text.len())?;
        }
        candidate::parse(text)
    }

    /// Makes the values inside a value fit a schema; the value itself stays as it is.
    fn fit_in_place(&mut self, schema: &'a Value, value: &Value) -> bool {
        self.charge(1 + value_cost(value));
        if self.is_exhausted() {
            return false;
        }
        match schema {
            Value::Bool(accepts) => *accepts,
            Value::Object(object) => {
                self.depth += 1;
                let fits = self.fit_object(schema, object, value);
                self.depth -= 1;
                fits
            }
            _ => true,
        }
    }

    fn fit_object(
        &mut self,
        schema: &'a Value,
        object: &'a Map<String, Value>,
        value: &Value,
    ) -> bool {
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            let target = resolve_reference(self.root, reference);
            if !target.is_none_or(|target| self.fit_in_place(target, value)) {
                return false;
            }
            // Up to draft 7, keywords next to `$ref` are ignored.
            if matches!(self.draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7) {
                return true;
            }
        }
        let rules = self.leaves.get(schema, object, &mut self.steps);
        if rules.is_some_and(|rules| !rules.is_valid(value)) {
            return false;
        }
        let fits_inside = match value {
            Value::Object(entries) => self.fit_entries(object, entries),
            Value::Array(items) => self.fit_items(object, items),
            _ => true,
        };
        let list = |key: &str| object.get(key).and_then(Value::as_array);
        fits_inside
            && list("allOf").is_none_or(|parts| {
                let mut parts = parts.iter();
                parts.all(|part| self.fit_in_place(part, value))
            })
            && list("anyOf").is_none_or(|branches| self.fit_alternative(branches, value))
            && list("oneOf").is_none_or(|branches| self.fit_alternative(branches, value))
    }

    fn fit_entries(
        &mut self,
        object: &'a Map<String, Value>,
        entries: &Map<String, Value>,
    ) -> bool {
        let properties = object.get("properties").and_then(Value::as_object);
        let others = object
            .get("additionalProperties")
            .filter(|others| others.is_object() && !object.contains_key("patternProperties"));
        for (key, value) in entries {
            let property = properties.and_then(|properties| properties.get(key));
            let Some(schema) = property.or(others) else {
                continue;
            };
            if self.fit(schema, value) {
                continue;
            }
            // An entry of a map that the schema does not name is data, and stays.
            let is_optional = property.is_some() && !self.is_required(object, key);
            if !value.is_null() || !is_optional || self.is_exhausted() {
                return false;
            }
            self.edits.push((value, Edit::Drop));
        }
        true
    }

    fn is_required(&mut self, object: &Map<String, Value>, key: &str) -> bool {
        let required = object.get("required").and_then(Value::as_array);
        let required = required.map(Vec::as_slice).unwrap_or_default();
        self.charge(required.len() / ENTRIES_PER_STEP);
        required.iter().any(|name| name == key)
    }

    fn fit_items(&mut self, object: &'a Map<String, Value>, items: &[Value]) -> bool {
        let first = ["prefixItems", "items"]
            .into_iter()
            .find_map(|key| object.get(key).and_then(Value::as_array));
        let rest = match object.get("items") {
            Some(Value::Array(_)) => object.get("additionalItems"),
            rest => rest,
        };
        items.iter().enumerate().all(|(index, item)| {
            let schema = first.and_then(|first| first.get(index)).or(rest);
            schema.is_none_or(|schema| self.fit(schema, item))
        })
    }

    /// Makes a value fit one of several alternatives. If it fits none as it is, all alternatives that
    /// it can be made to fit must require the same conversions.
    fn fit_alternative(&mut self, branches: &'a [Value], value: &Value) -> bool {
        let mark = self.edits.len();
        let mut found: Option<Vec<LocatedEdit>> = None;
        let mut is_ambiguous = false;
        for branch in branches {
            let fits = self.fit_in_place(branch, value);
            let edits = self.edits.split_off(mark);
            if self.is_exhausted() {
                return false;
            }
            if !fits {
                continue;
            }
            if edits.is_empty() {
                return true;
            }
            match &found {
                None => found = Some(edits),
                Some(others) => is_ambiguous |= *others != edits,
            }
        }
        match found {
            Some(edits) if !is_ambiguous => {
                self.edits.extend(edits);
                true
            }
            _ => false,
        }
    }

    fn charge(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    fn is_exhausted(&self) -> bool {
        self.steps == 0 || self.depth > MAX_VISIT_DEPTH
    }
}

/// Cost of checking a value without the values inside it, in steps.
fn value_cost(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / BYTES_PER_STEP,
        Value::Array(items) => items.len() / ENTRIES_PER_STEP,
        Value::Object(entries) => entries.len() / ENTRIES_PER_STEP,
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns a value with changes applied; `None` if two of them contradict each other.
fn apply(value: &Value, edits: Vec<LocatedEdit>) -> Option<Value> {
    let mut by_address: HashMap<*const Value, Edit> = HashMap::with_capacity(edits.len());
    for (address, edit) in edits {
        match by_address.entry(address) {
            Entry::Vacant(entry) => {
                entry.insert(edit);
            }
            // Several parts of a schema may ask for the same change.
            Entry::Occupied(entry) if *entry.get() == edit => {}
            Entry::Occupied(_) => return None,
        }
    }
    Some(apply_at(value, &by_address))
}

fn apply_at(value: &Value, edits: &HashMap<*const Value, Edit>) -> Value {
    if let Some(Edit::Replace(replacement)) = edits.get(&std::ptr::from_ref(value)) {
        return replacement.clone();
    }
    match value {
        Value::Array(items) => items.iter().map(|item| apply_at(item, edits)).collect(),
        Value::Object(entries) => {
            let kept = entries.iter().filter(|(_, value)| {
                !matches!(edits.get(&std::ptr::from_ref(*value)), Some(Edit::Drop))
            });
            kept.map(|(key, value)| (key.clone(), apply_at(value, edits)))
                .collect::<Map<String, Value>>()
                .into()
        }
        scalar => scalar.clone(),
    }
}

fn nesting(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(nesting).max(),
        Value::Object(entries) => entries.values().map(nesting).max(),
        _ => return 0,
    };
    1 + below.unwrap_or(0)
}

/// Returns the locations of values that were converted or dropped.
fn changed_paths(before: &Value, after: &Value) -> Vec<String> {
    let mut paths = ChangedPaths::default();
    paths.compare(before, after, &ArgumentPath::ROOT);
    if paths.unnamed > 0 {
        paths.named.push(format!("and {} more", paths.unnamed));
    }
    paths.named
}

#[derive(Default)]
struct ChangedPaths {
    named: Vec<String>,
    unnamed: usize,
}

impl ChangedPaths {
    fn compare(&mut self, before: &Value, after: &Value, path: &ArgumentPath<'_>) {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => {
                for (key, value) in before {
                    match after.get(key) {
                        Some(now) => self.compare(value, now, &path.key(key)),
                        None => self.add(&path.key(key)),
                    }
                }
            }
            (Value::Array(before), Value::Array(after)) => {
                for (index, (value, now)) in before.iter().zip(after).enumerate() {
                    self.compare(value, now, &path.index(index));
                }
            }
            (before, after) if before != after => self.add(path),
            _ => {}
        }
    }

    fn add(&mut self, path: &ArgumentPath<'_>) {
        if self.named.len() < MAX_NAMED_PATHS {
            self.named.push(path.to_dotted());
        } else {
            self.unnamed += 1;
        }
    }
}

//! Why arguments do not fit: a walk over schema and arguments that finds words.
//!
//! Only for arguments of which `jsonschema` said that they do not fit; its own list of errors is
//! not used, because it has no bound and clones the arguments for every alternative. The walk
//! knows the keywords that tools use; where it finds nothing, it says so in general words.

use std::collections::{HashMap, HashSet};

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value};

use self::place::Place;
use super::{target, words};

mod alternatives;
mod leaf;
mod place;

const MOST_COMPLAINTS: usize = 8;
const LONGEST_COMPLAINT: usize = 500;
const MOST_STEPS: usize = 50_000;
const DEEPEST: usize = 256;
/// Rules that the walk does not know, or not to the end.
const UNKNOWN: [&str; 7] = [
    "contains",
    "dependencies",
    "not",
    "patternProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];

struct Complaint {
    text: String,
    /// How deep in the arguments it is, and whether the value there has the wrong type.
    depth: usize,
    is_type: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Yes,
    No,
    Unclear,
}

struct Walk<'a> {
    root: &'a Value,
    draft: Draft,
    steps: usize,
    depth: usize,
    leaves: HashMap<*const Value, Option<Validator>>,
    /// Whether a rule was met that the walk does not know.
    is_blind: bool,
    /// What is probably wrong, told only if nothing surely is.
    doubts: Vec<String>,
}

/// What is wrong with arguments, and whether there is more.
pub(super) fn complaints(root: &Value, draft: Draft, arguments: &Value) -> (Vec<String>, bool) {
    let mut walk = Walk {
        root,
        draft,
        steps: MOST_STEPS,
        depth: 0,
        leaves: HashMap::new(),
        is_blind: false,
        doubts: Vec::new(),
    };
    let mut found = Vec::new();
    walk.visit(root, arguments, &Place::ROOT, &mut found);
    let mut texts: Vec<String> = Vec::new();
    let certain = found.into_iter().map(|complaint| complaint.text);
    for text in certain {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.is_empty() {
        texts.append(&mut walk.doubts);
        texts.truncate(1);
    }
    if texts.is_empty() {
        texts.push("they break a rule of the tool's schema; read its description again".to_owned());
    }
    let more = texts.len() > MOST_COMPLAINTS;
    texts.truncate(MOST_COMPLAINTS);
    let cut = |text: &String| words::cut(text, LONGEST_COMPLAINT);
    (texts.iter().map(cut).collect(), more)
}

impl<'a> Walk<'a> {
    fn visit(
        &mut self,
        schema: &'a Value,
        value: &Value,
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) {
        if self.is_done(found) {
            return;
        }
        self.steps -= 1;
        self.depth += 1;
        match schema {
            Value::Bool(false) => {
                found.push(place.complaint(format!("{} is not allowed", place.shown())));
            }
            Value::Object(object) => self.visit_object(schema, object, value, place, found),
            _ => {}
        }
        self.depth -= 1;
    }

    /// Whether to say nothing more: enough is said, or the work is too much.
    fn is_done(&self, found: &[Complaint]) -> bool {
        found.len() > MOST_COMPLAINTS || self.is_tired()
    }

    /// Counts work that is more than a step.
    fn charge(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    fn is_tired(&self) -> bool {
        self.steps == 0 || self.depth > DEEPEST
    }

    fn visit_object(
        &mut self,
        schema: &'a Value,
        object: &'a Map<String, Value>,
        value: &Value,
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) {
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            if let Some(target) = target(self.root, reference) {
                self.visit(target, value, place, found);
            }
            // Until draft 7, what stands beside a reference does not count.
            if matches!(self.draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7) {
                return;
            }
        }
        self.is_blind |= UNKNOWN.iter().any(|key| object.contains_key(*key));
        let before = found.len();
        self.leaf(schema, object, value, place, found);
        if found[before..].iter().any(|complaint| complaint.is_type) {
            return;
        }
        match value {
            Value::Object(entries) => self.visit_entries(object, entries, place, found),
            Value::Array(items) => self.visit_items(object, items, place, found),
            _ => {}
        }
        self.visit_same(object, value, place, found);
    }

    fn visit_entries(
        &mut self,
        object: &'a Map<String, Value>,
        entries: &Map<String, Value>,
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) {
        let properties = object.get("properties").and_then(Value::as_object);
        let others = object
            .get("additionalProperties")
            .filter(|others| others.is_object() && !object.contains_key("patternProperties"));
        for (key, value) in entries {
            if self.is_done(found) {
                return;
            }
            let property = properties.and_then(|properties| properties.get(key));
            if let Some(schema) = property.or(others) {
                self.visit(schema, value, &place.key(key), found);
            }
        }
        if object.get("unevaluatedProperties") == Some(&Value::Bool(false)) {
            let known = self.known(object);
            let names: HashSet<&str> = known.iter().copied().collect();
            let unknown = entries.keys().filter(|key| !names.contains(key.as_str()));
            for key in unknown.take(MOST_COMPLAINTS) {
                self.doubt(place.unknown(key, &known));
            }
        }
    }

    /// Names that a schema speaks of, itself or in its parts.
    fn known(&self, object: &'a Map<String, Value>) -> Vec<&'a str> {
        let mut known = Vec::new();
        let mut open = vec![object];
        // A bound, because parts may refer to each other many times over.
        for _ in 0..256 {
            let Some(object) = open.pop() else { break };
            let properties = object.get("properties").and_then(Value::as_object);
            known.extend(
                properties
                    .into_iter()
                    .flat_map(|map| map.keys().map(String::as_str)),
            );
            let reference = object.get("$ref").and_then(Value::as_str);
            let target = reference.and_then(|reference| target(self.root, reference));
            let parts = ["allOf", "anyOf", "oneOf"]
                .into_iter()
                .filter_map(|key| object.get(key).and_then(Value::as_array))
                .flatten()
                .chain(target);
            open.extend(parts.filter_map(Value::as_object));
        }
        known
    }

    fn visit_items(
        &mut self,
        object: &'a Map<String, Value>,
        items: &[Value],
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) {
        let first = ["prefixItems", "items"]
            .into_iter()
            .find_map(|key| object.get(key).and_then(Value::as_array));
        let rest = match object.get("items") {
            Some(Value::Array(_)) => object.get("additionalItems"),
            rest => rest,
        };
        for (index, item) in items.iter().enumerate() {
            if self.is_done(found) {
                return;
            }
            if let Some(schema) = first.and_then(|first| first.get(index)).or(rest) {
                self.visit(schema, item, &place.index(index), found);
            }
        }
    }

    /// Subschemas that look at the same value.
    fn visit_same(
        &mut self,
        object: &'a Map<String, Value>,
        value: &Value,
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) {
        let list = |key: &str| object.get(key).and_then(Value::as_array);
        for part in list("allOf").into_iter().flatten() {
            self.visit(part, value, place, found);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(branches) = list(key) {
                self.alternatives(key, branches, value, place, found);
            }
        }
        let outcome = match object.get("if") {
            Some(condition) => match self.fit(condition, value, place) {
                Fit::Yes => object.get("then"),
                Fit::No => object.get("else"),
                Fit::Unclear => None,
            },
            None => None,
        };
        if let Some(part) = outcome {
            self.visit(part, value, place, found);
        }
        if let Some(entries) = value.as_object() {
            let dependent = object.get("dependentSchemas").and_then(Value::as_object);
            for (key, part) in dependent.into_iter().flatten() {
                if entries.contains_key(key) {
                    self.visit(part, value, place, found);
                }
            }
        }
        if let Some(part) = object.get("not")
            && self.fit(part, value, place) == Fit::Yes
        {
            let what = super::summary::describe(self.root, part);
            self.doubt(format!("{} must not be {what}", place.shown()));
        }
    }

    /// Whether a value fits, without words.
    fn fit(&mut self, schema: &'a Value, value: &Value, place: &Place<'_>) -> Fit {
        let doubts = std::mem::take(&mut self.doubts);
        let is_blind = std::mem::take(&mut self.is_blind);
        let mut found = Vec::new();
        self.visit(schema, value, place, &mut found);
        let fit = if !found.is_empty() {
            Fit::No
        } else if self.is_blind || self.is_tired() || !self.doubts.is_empty() {
            Fit::Unclear
        } else {
            Fit::Yes
        };
        self.doubts = doubts;
        self.is_blind |= is_blind;
        fit
    }

    fn doubt(&mut self, text: String) {
        if self.doubts.len() < MOST_COMPLAINTS {
            self.doubts.push(text);
        }
    }
}

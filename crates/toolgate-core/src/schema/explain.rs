//! Explains why arguments violate a schema, by walking schema and arguments together.
//!
//! Called only for arguments that `jsonschema` has rejected. Its error list is not used, because it
//! is unbounded and clones the arguments for every alternative. The explainer knows the keywords that
//! tools use; if it finds no cause, it returns a general message.

use std::collections::HashSet;

use jsonschema::Draft;
use serde_json::{Map, Value};

use self::path::ArgumentPath;
use super::leaf_validators::LeafValidators;
use super::{message_text, resolve_reference};

mod alternatives;
mod leaf;
pub(super) mod path;

const MAX_PROBLEMS: usize = 8;
const MAX_PROBLEM_CHARS: usize = 500;
const MAX_STEPS: usize = 50_000;
const MAX_DEPTH: usize = 256;
/// Keywords that the explainer does not support, or only in part.
const UNSUPPORTED_KEYWORDS: [&str; 7] = [
    "contains",
    "dependencies",
    "not",
    "patternProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];

struct Problem {
    text: String,
    /// Depth in the arguments.
    depth: usize,
    /// Whether the value has the wrong type.
    is_wrong_type: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    Unclear,
}

struct Explainer<'a> {
    root: &'a Value,
    draft: Draft,
    steps: usize,
    depth: usize,
    leaves: LeafValidators,
    /// Whether an unsupported keyword was encountered.
    has_unsupported: bool,
    /// Possible problems, reported only if no certain one is found.
    possible_problems: Vec<String>,
}

/// Returns the problems of rejected arguments, and whether there are more.
pub(super) fn find_problems(root: &Value, draft: Draft, arguments: &Value) -> (Vec<String>, bool) {
    let mut explainer = Explainer {
        root,
        draft,
        steps: MAX_STEPS,
        depth: 0,
        leaves: LeafValidators::new(draft),
        has_unsupported: false,
        possible_problems: Vec::new(),
    };
    let mut found = Vec::new();
    explainer.visit(root, arguments, &ArgumentPath::ROOT, &mut found);
    let mut texts: Vec<String> = Vec::new();
    let certain = found.into_iter().map(|problem| problem.text);
    for text in certain {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.is_empty() {
        texts.append(&mut explainer.possible_problems);
        texts.truncate(1);
    }
    if texts.is_empty() {
        texts.push(
            "a rule of the tool's schema is violated; check the tool's description".to_owned(),
        );
    }
    let more = texts.len() > MAX_PROBLEMS;
    texts.truncate(MAX_PROBLEMS);
    let truncate = |text: &String| message_text::truncate(text, MAX_PROBLEM_CHARS);
    (texts.iter().map(truncate).collect(), more)
}

impl<'a> Explainer<'a> {
    fn visit(
        &mut self,
        schema: &'a Value,
        value: &Value,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
    ) {
        if self.is_done(found) {
            return;
        }
        self.steps -= 1;
        self.depth += 1;
        match schema {
            Value::Bool(false) => {
                found.push(path.problem(format!("{} is not allowed", path.to_text())));
            }
            Value::Object(object) => self.visit_object(schema, object, value, path, found),
            _ => {}
        }
        self.depth -= 1;
    }

    /// Whether to stop: enough problems are found, or the work budget is used up.
    fn is_done(&self, found: &[Problem]) -> bool {
        found.len() > MAX_PROBLEMS || self.is_exhausted()
    }

    /// Charges work that costs more than one step.
    fn charge(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    fn is_exhausted(&self) -> bool {
        self.steps == 0 || self.depth > MAX_DEPTH
    }

    fn visit_object(
        &mut self,
        schema: &'a Value,
        object: &'a Map<String, Value>,
        value: &Value,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
    ) {
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            if let Some(target) = resolve_reference(self.root, reference) {
                self.visit(target, value, path, found);
            }
            // Up to draft 7, keywords next to `$ref` are ignored.
            if matches!(self.draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7) {
                return;
            }
        }
        self.has_unsupported |= UNSUPPORTED_KEYWORDS
            .iter()
            .any(|key| object.contains_key(*key));
        let before = found.len();
        self.check_leaf(schema, object, value, path, found);
        if found[before..].iter().any(|problem| problem.is_wrong_type) {
            return;
        }
        match value {
            Value::Object(entries) => self.visit_entries(object, entries, path, found),
            Value::Array(items) => self.visit_items(object, items, path, found),
            _ => {}
        }
        self.visit_in_place(object, value, path, found);
    }

    fn visit_entries(
        &mut self,
        object: &'a Map<String, Value>,
        entries: &Map<String, Value>,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
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
                self.visit(schema, value, &path.key(key), found);
            }
        }
        if object.get("unevaluatedProperties") == Some(&Value::Bool(false)) {
            let known = self.known_properties(object);
            let names: HashSet<&str> = known.iter().copied().collect();
            let unknown = entries.keys().filter(|key| !names.contains(key.as_str()));
            for key in unknown.take(MAX_PROBLEMS) {
                self.add_possible_problem(path.unknown_message(key, &known));
            }
        }
    }

    /// Property names that a schema defines, directly or in its parts.
    fn known_properties(&self, object: &'a Map<String, Value>) -> Vec<&'a str> {
        let mut known = Vec::new();
        let mut open = vec![object];
        // Bounded, because parts may reference each other repeatedly.
        for _ in 0..256 {
            let Some(object) = open.pop() else { break };
            let properties = object.get("properties").and_then(Value::as_object);
            known.extend(
                properties
                    .into_iter()
                    .flat_map(|map| map.keys().map(String::as_str)),
            );
            let reference = object.get("$ref").and_then(Value::as_str);
            let target = reference.and_then(|reference| resolve_reference(self.root, reference));
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
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
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
                self.visit(schema, item, &path.index(index), found);
            }
        }
    }

    /// Visits subschemas that apply to the same value.
    fn visit_in_place(
        &mut self,
        object: &'a Map<String, Value>,
        value: &Value,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
    ) {
        let list = |key: &str| object.get(key).and_then(Value::as_array);
        for part in list("allOf").into_iter().flatten() {
            self.visit(part, value, path, found);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(branches) = list(key) {
                self.check_alternatives(key, branches, value, path, found);
            }
        }
        let outcome = match object.get("if") {
            Some(condition) => match self.evaluate(condition, value, path) {
                Match::Yes => object.get("then"),
                Match::No => object.get("else"),
                Match::Unclear => None,
            },
            None => None,
        };
        if let Some(part) = outcome {
            self.visit(part, value, path, found);
        }
        if let Some(entries) = value.as_object() {
            let dependent = object.get("dependentSchemas").and_then(Value::as_object);
            for (key, part) in dependent.into_iter().flatten() {
                if entries.contains_key(key) {
                    self.visit(part, value, path, found);
                }
            }
        }
        if let Some(part) = object.get("not")
            && self.evaluate(part, value, path) == Match::Yes
        {
            let what = super::summary::describe_type(self.root, part);
            self.add_possible_problem(format!("{} must not be {what}", path.to_text()));
        }
    }

    /// Evaluates whether a value matches, without reporting problems.
    fn evaluate(&mut self, schema: &'a Value, value: &Value, path: &ArgumentPath<'_>) -> Match {
        let possible_problems = std::mem::take(&mut self.possible_problems);
        let has_unsupported = std::mem::take(&mut self.has_unsupported);
        let mut found = Vec::new();
        self.visit(schema, value, path, &mut found);
        let result = if !found.is_empty() {
            Match::No
        } else if self.has_unsupported || self.is_exhausted() || !self.possible_problems.is_empty()
        {
            Match::Unclear
        } else {
            Match::Yes
        };
        self.possible_problems = possible_problems;
        self.has_unsupported |= has_unsupported;
        result
    }

    fn add_possible_problem(&mut self, text: String) {
        if self.possible_problems.len() < MAX_PROBLEMS {
            self.possible_problems.push(text);
        }
    }
}

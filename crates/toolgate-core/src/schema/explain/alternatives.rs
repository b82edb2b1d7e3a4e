//! Explains values that match none of the alternatives of `anyOf` or `oneOf`.
//!
//! The intended alternative is identified by its discriminator (a property with fixed values in
//! every alternative), or else by its type. If neither helps, all alternatives are listed.

use serde_json::{Map, Value};

use super::super::{message_text, resolve_reference, summary};
use super::path::ArgumentPath;
use super::{Explainer, Problem};

const MAX_TRIED_BRANCHES: usize = 64;
const MAX_SHOWN_BRANCHES: usize = 5;
/// Cost of describing alternatives, in steps of the walk.
const LISTING_COST: usize = 200;

struct TriedBranch<'a> {
    schema: &'a Value,
    found: Vec<Problem>,
}

impl<'a> Explainer<'a> {
    pub(super) fn check_alternatives(
        &mut self,
        keyword: &str,
        branches: &'a [Value],
        value: &Value,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
    ) {
        let mut tried = Vec::new();
        for schema in branches.iter().take(MAX_TRIED_BRANCHES) {
            let mut found = Vec::new();
            self.visit(schema, value, path, &mut found);
            tried.push(TriedBranch { schema, found });
        }
        if self.is_exhausted() {
            return;
        }
        let matching: Vec<&Value> = tried
            .iter()
            .filter(|tried| tried.found.is_empty())
            .map(|tried| tried.schema)
            .collect();
        if !matching.is_empty() {
            if keyword == "oneOf" && matching.len() > 1 {
                self.charge(LISTING_COST);
                let labels = self.labels(&matching);
                self.add_possible_problem(format!(
                    "{} must match exactly one of its alternatives, but matches {labels}",
                    path.to_text()
                ));
            }
            return;
        }
        self.charge(LISTING_COST);
        if self.explain_by_discriminator(&mut tried, value, path, found) {
            return;
        }
        let mut possible: Vec<TriedBranch<'a>> = Vec::new();
        let schemas: Vec<&Value> = tried.iter().map(|tried| tried.schema).collect();
        for tried in tried {
            let here = |problem: &Problem| problem.is_wrong_type && problem.depth == path.depth;
            if !tried.found.iter().any(here) {
                possible.push(tried);
            }
        }
        match possible.as_mut_slice() {
            [only] => found.append(&mut only.found),
            [] => found.push(Problem {
                is_wrong_type: true,
                ..path.problem(format!(
                    "{} must be {}, not {}",
                    path.to_text(),
                    self.labels(&schemas),
                    message_text::describe_value(value, path.is_secret)
                ))
            }),
            candidates => found.push(path.problem(self.list_alternatives(candidates, path))),
        }
    }

    /// Explains by the discriminator, if these alternatives have one.
    fn explain_by_discriminator(
        &self,
        tried: &mut [TriedBranch<'a>],
        value: &Value,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
    ) -> bool {
        let Some(entries) = value.as_object() else {
            return false;
        };
        let Some(tag) = self.discriminator(tried) else {
            return false;
        };
        let given = entries.get(tag);
        let is_intended = |tried: &TriedBranch<'a>| {
            given.is_some_and(|given| self.tag_values(tried.schema, tag).contains(&given))
        };
        if let Some(intended) = tried.iter_mut().find(|tried| is_intended(tried)) {
            found.append(&mut intended.found);
            return true;
        }
        let values: Vec<String> = tried
            .iter()
            .flat_map(|tried| self.tag_values(tried.schema, tag))
            .map(message_text::format_literal)
            .collect();
        let values = message_text::join_list(&values, MAX_SHOWN_BRANCHES * 2, "or");
        let below = path.key(tag);
        found.push(below.problem(match given {
            None => format!("{}; it must be {values}", path.missing_message(tag)),
            Some(given) => format!(
                "{} must be {values}, not {}",
                below.to_text(),
                message_text::describe_value(given, below.is_secret)
            ),
        }));
        true
    }

    /// Finds a property that has fixed values in every alternative.
    fn discriminator(&self, tried: &[TriedBranch<'a>]) -> Option<&'a str> {
        let (first, others) = tried.split_first()?;
        if others.is_empty() {
            return None;
        }
        self.properties(first.schema)?
            .keys()
            .take(MAX_TRIED_BRANCHES)
            .map(String::as_str)
            .find(|tag| {
                tried
                    .iter()
                    .all(|tried| !self.tag_values(tried.schema, tag).is_empty())
            })
    }

    fn tag_values(&self, schema: &'a Value, tag: &str) -> Vec<&'a Value> {
        let Some(property) = self.properties(schema).and_then(|map| map.get(tag)) else {
            return Vec::new();
        };
        let listed = property.get("enum").and_then(Value::as_array);
        property
            .get("const")
            .into_iter()
            .chain(listed.into_iter().flatten())
            .collect()
    }

    fn properties(&self, schema: &'a Value) -> Option<&'a Map<String, Value>> {
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| resolve_reference(self.root, reference));
        target
            .unwrap_or(schema)
            .get("properties")
            .and_then(Value::as_object)
    }

    fn labels(&self, schemas: &[&Value]) -> String {
        let mut labels: Vec<String> = Vec::new();
        for schema in schemas {
            let label = summary::describe_type(self.root, schema);
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        message_text::join_list(&labels, MAX_SHOWN_BRANCHES, "or")
    }

    /// Lists alternatives, each with its first problem.
    fn list_alternatives(&self, tried: &[TriedBranch<'a>], path: &ArgumentPath<'_>) -> String {
        let mut shown: Vec<String> = tried
            .iter()
            .take(MAX_SHOWN_BRANCHES)
            .filter_map(|tried| {
                let label = summary::describe_type(self.root, tried.schema);
                let wrong = message_text::truncate(&tried.found.first()?.text, 120);
                Some(format!("{label} (but {wrong})"))
            })
            .collect();
        if tried.len() > MAX_SHOWN_BRANCHES {
            shown.push("…".to_owned());
        }
        format!("{} must be one of: {}", path.to_text(), shown.join(", "))
    }
}

//! What to say of a value that fits none of the alternatives of `anyOf` or `oneOf`.
//!
//! The alternative that was meant is found by its tag (a property with one fixed value in each
//! alternative), or else by its type; only if neither tells, all of them are listed.

use serde_json::{Map, Value};

use super::super::{summary, target, words};
use super::place::Place;
use super::{Complaint, Walk};

const MOST_TRIED: usize = 64;
const MOST_SHOWN: usize = 5;
/// What finding words for alternatives costs, in steps of the walk.
const LISTING: usize = 200;

struct Tried<'a> {
    schema: &'a Value,
    found: Vec<Complaint>,
}

impl<'a> Walk<'a> {
    pub(super) fn alternatives(
        &mut self,
        keyword: &str,
        branches: &'a [Value],
        value: &Value,
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) {
        let mut tried = Vec::new();
        for schema in branches.iter().take(MOST_TRIED) {
            let mut found = Vec::new();
            self.visit(schema, value, place, &mut found);
            tried.push(Tried { schema, found });
        }
        if self.is_tired() {
            return;
        }
        let fitting: Vec<&Value> = tried
            .iter()
            .filter(|tried| tried.found.is_empty())
            .map(|tried| tried.schema)
            .collect();
        if !fitting.is_empty() {
            if keyword == "oneOf" && fitting.len() > 1 {
                self.charge(LISTING);
                let labels = self.labels(&fitting);
                self.doubt(format!(
                    "{} must fit exactly one of its alternatives, and fits {labels}",
                    place.shown()
                ));
            }
            return;
        }
        self.charge(LISTING);
        if self.by_tag(&mut tried, value, place, found) {
            return;
        }
        let mut possible: Vec<Tried<'a>> = Vec::new();
        let schemas: Vec<&Value> = tried.iter().map(|tried| tried.schema).collect();
        for tried in tried {
            let here = |complaint: &Complaint| complaint.is_type && complaint.depth == place.depth;
            if !tried.found.iter().any(here) {
                possible.push(tried);
            }
        }
        match possible.as_mut_slice() {
            [only] => found.append(&mut only.found),
            [] => found.push(Complaint {
                is_type: true,
                ..place.complaint(format!(
                    "{} must be {}, not {}",
                    place.shown(),
                    self.labels(&schemas),
                    words::given(value, place.is_secret)
                ))
            }),
            several => found.push(place.complaint(self.listed(several, place))),
        }
    }

    /// Uses the tag of a discriminated union, if these alternatives have one.
    fn by_tag(
        &self,
        tried: &mut [Tried<'a>],
        value: &Value,
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) -> bool {
        let Some(entries) = value.as_object() else {
            return false;
        };
        let Some(tag) = self.tag(tried) else {
            return false;
        };
        let given = entries.get(tag);
        let is_meant = |tried: &Tried<'a>| {
            given.is_some_and(|given| self.tag_values(tried.schema, tag).contains(&given))
        };
        if let Some(meant) = tried.iter_mut().find(|tried| is_meant(tried)) {
            found.append(&mut meant.found);
            return true;
        }
        let values: Vec<String> = tried
            .iter()
            .flat_map(|tried| self.tag_values(tried.schema, tag))
            .map(words::literal)
            .collect();
        let values = words::list(&values, MOST_SHOWN * 2, "or");
        let below = place.key(tag);
        found.push(below.complaint(match given {
            None => format!("{}; it must be {values}", place.missing(tag)),
            Some(given) => format!(
                "{} must be {values}, not {}",
                below.shown(),
                words::given(given, below.is_secret)
            ),
        }));
        true
    }

    /// A property that has fixed values in every alternative.
    fn tag(&self, tried: &[Tried<'a>]) -> Option<&'a str> {
        let (first, others) = tried.split_first()?;
        if others.is_empty() {
            return None;
        }
        self.properties(first.schema)?
            .keys()
            .take(MOST_TRIED)
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
        let referred = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| target(self.root, reference));
        referred
            .unwrap_or(schema)
            .get("properties")
            .and_then(Value::as_object)
    }

    fn labels(&self, schemas: &[&Value]) -> String {
        let mut labels: Vec<String> = Vec::new();
        for schema in schemas {
            let label = summary::describe(self.root, schema);
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        words::list(&labels, MOST_SHOWN, "or")
    }

    /// All alternatives, each with the first thing that is wrong for it.
    fn listed(&self, tried: &[Tried<'a>], place: &Place<'_>) -> String {
        let mut shown: Vec<String> = tried
            .iter()
            .take(MOST_SHOWN)
            .filter_map(|tried| {
                let label = summary::describe(self.root, tried.schema);
                let wrong = words::cut(&tried.found.first()?.text, 120);
                Some(format!("{label} (but {wrong})"))
            })
            .collect();
        if tried.len() > MOST_SHOWN {
            shown.push("…".to_owned());
        }
        format!("{} must be one of: {}", place.shown(), shown.join(", "))
    }
}

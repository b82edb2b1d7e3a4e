//! The rules of one schema for one value, without the subschemas.
//!
//! `jsonschema` decides them, in a small schema that holds only them; so numbers, lengths and
//! patterns mean the same here as in the whole.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};

use super::super::{options, words};
use super::place::Place;
use super::{Complaint, MOST_COMPLAINTS, Walk};

/// What compiling a small schema costs, in steps of the walk.
const COMPILING: usize = 100;
/// What a complaint costs.
const SAYING: usize = 20;
const MOST_SHOWN: usize = 10;

const RULES: [&str; 17] = [
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

impl<'a> Walk<'a> {
    pub(super) fn leaf(
        &mut self,
        schema: &'a Value,
        object: &'a Map<String, Value>,
        value: &Value,
        place: &Place<'_>,
        found: &mut Vec<Complaint>,
    ) {
        let draft = self.draft;
        let steps = &mut self.steps;
        let validator = self.leaves.entry(schema).or_insert_with(|| {
            let rules = rules(object);
            if rules.is_empty() {
                return None;
            }
            *steps = steps.saturating_sub(COMPILING);
            options(draft).build(&Value::Object(rules)).ok()
        });
        let Some(validator) = validator.as_ref().filter(|rules| !rules.is_valid(value)) else {
            return;
        };
        let errors: Vec<ValidationError<'_>> = validator.iter_errors(value).collect();
        *steps = steps.saturating_sub(SAYING * errors.len());
        // Of a value of the wrong type, or not in the list, the other rules say nothing new.
        let rank = |error: &ValidationError<'_>| match error.kind() {
            ValidationErrorKind::Type { .. } => 0,
            ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. } => 1,
            _ => 2,
        };
        let first = errors.iter().map(rank).min();
        for error in errors.iter().filter(|error| Some(rank(error)) == first) {
            say(error, object, value, place, found);
        }
    }
}

fn rules(object: &Map<String, Value>) -> Map<String, Value> {
    let mut rules: Map<String, Value> = RULES
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

fn say(
    error: &ValidationError<'_>,
    object: &Map<String, Value>,
    value: &Value,
    place: &Place<'_>,
    found: &mut Vec<Complaint>,
) {
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            found.push(place.complaint(place.missing(key)));
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known: Vec<&str> = object
                .get("properties")
                .and_then(Value::as_object)
                .map(|properties| properties.keys().map(String::as_str).collect())
                .unwrap_or_default();
            for key in unexpected.iter().take(MOST_COMPLAINTS + 1) {
                found.push(place.complaint(place.unknown(key, &known)));
            }
        }
        ValidationErrorKind::Type { .. } => found.push(Complaint {
            is_type: true,
            ..place.complaint(wrong_type(object, value, place))
        }),
        kind => {
            let text = match expected(kind, value) {
                Some((expected, true)) => {
                    let given = words::given(value, place.is_secret);
                    format!("{} must {expected}, not {given}", place.shown())
                }
                Some((expected, false)) => format!("{} must {expected}", place.shown()),
                None => format!("{} breaks the rule `{}`", place.shown(), kind.keyword()),
            };
            found.push(place.complaint(text));
        }
    }
}

fn wrong_type(object: &Map<String, Value>, value: &Value, place: &Place<'_>) -> String {
    let expected: Vec<&str> = match object.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.and_then(Value::as_str).into_iter().collect(),
    };
    let hint = match value {
        Value::String(text) if words::is_json(text) => expected
            .iter()
            .find(|kind| matches!(**kind, "object" | "array"))
            .map(|kind| format!("; send the {kind} itself, without quotes around it"))
            .unwrap_or_default(),
        _ => String::new(),
    };
    let expected: Vec<String> = expected
        .iter()
        .map(|kind| words::with_article(kind))
        .collect();
    format!(
        "{} must be {}, not {}{hint}",
        place.shown(),
        words::list(&expected, MOST_SHOWN, "or"),
        words::given(value, place.is_secret)
    )
}

/// What a rule wants, and whether the given value says more.
fn expected(kind: &ValidationErrorKind, value: &Value) -> Option<(String, bool)> {
    let shown = |text: String| Some((text, true));
    let plain = |text: String| Some((text, false));
    match kind {
        ValidationErrorKind::Enum { options } => shown(one_of(options, value)),
        ValidationErrorKind::Constant { expected_value } => {
            shown(format!("be {}", words::literal(expected_value)))
        }
        ValidationErrorKind::Minimum { limit } => shown(format!("be at least {limit}")),
        ValidationErrorKind::Maximum { limit } => shown(format!("be at most {limit}")),
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            shown(format!("be greater than {limit}"))
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => shown(format!("be less than {limit}")),
        ValidationErrorKind::MultipleOf { multiple_of } => {
            shown(format!("be a multiple of {multiple_of}"))
        }
        ValidationErrorKind::MinLength { limit } => {
            shown(format!("have at least {}", counted(*limit, "character")))
        }
        ValidationErrorKind::MaxLength { limit } => {
            shown(format!("have at most {}", counted(*limit, "character")))
        }
        ValidationErrorKind::Pattern { pattern } => {
            shown(format!("match the pattern `{}`", words::line(pattern, 100)))
        }
        ValidationErrorKind::MinItems { limit } => {
            let given = length(value);
            plain(format!(
                "have at least {}, not {given}",
                counted(*limit, "item")
            ))
        }
        ValidationErrorKind::MaxItems { limit } => {
            let given = length(value);
            plain(format!(
                "have at most {}, not {given}",
                counted(*limit, "item")
            ))
        }
        ValidationErrorKind::UniqueItems => plain("not hold the same item twice".to_owned()),
        ValidationErrorKind::MinProperties { limit } => {
            plain(format!("have at least {}", counted(*limit, "key")))
        }
        ValidationErrorKind::MaxProperties { limit } => {
            plain(format!("have at most {}", counted(*limit, "key")))
        }
        _ => None,
    }
}

fn one_of(options: &Value, value: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<String> = options
        .iter()
        .take(MOST_SHOWN + 1)
        .map(words::literal)
        .collect();
    let near = value
        .as_str()
        .and_then(|text| words::nearest(text, options.iter().filter_map(Value::as_str)))
        .map(|near| format!(" (did you mean \"{}\"?)", words::name(near)))
        .unwrap_or_default();
    format!("be {}{near}", words::list(&shown, MOST_SHOWN, "or"))
}

fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

//! Checks a value against the rules of one schema, without its subschemas.
//!
//! `jsonschema` evaluates these rules in a small schema that contains nothing else, so numbers,
//! lengths and patterns mean the same here as in the whole schema.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};

use super::super::{message_text, validation_options};
use super::path::ArgumentPath;
use super::{Explainer, MAX_PROBLEMS, Problem};
use crate::nearest::find_nearest;

/// Cost of compiling a small schema, in steps of the walk.
const COMPILE_COST: usize = 100;
/// Cost of reporting a problem, in steps of the walk.
const REPORT_COST: usize = 20;
const MAX_SHOWN_VALUES: usize = 10;

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

impl<'a> Explainer<'a> {
    pub(super) fn check_leaf(
        &mut self,
        schema: &'a Value,
        object: &'a Map<String, Value>,
        value: &Value,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
    ) {
        let draft = self.draft;
        let steps = &mut self.steps;
        let validator = self.leaves.entry(schema).or_insert_with(|| {
            let rules = leaf_schema(object);
            if rules.is_empty() {
                return None;
            }
            *steps = steps.saturating_sub(COMPILE_COST);
            // The whole schema compiles, so its rules do too. If not, the general message applies.
            validation_options(draft).build(&Value::Object(rules)).ok()
        });
        let Some(validator) = validator.as_ref().filter(|rules| !rules.is_valid(value)) else {
            return;
        };
        let errors: Vec<ValidationError<'_>> = validator.iter_errors(value).collect();
        *steps = steps.saturating_sub(REPORT_COST * errors.len());
        // If the type is wrong or the value is not listed, the other rules add nothing useful.
        let rank = |error: &ValidationError<'_>| match error.kind() {
            ValidationErrorKind::Type { .. } => 0,
            ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. } => 1,
            _ => 2,
        };
        let first = errors.iter().map(rank).min();
        for error in errors.iter().filter(|error| Some(rank(error)) == first) {
            report(error, object, value, path, found);
        }
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

fn report(
    error: &ValidationError<'_>,
    object: &Map<String, Value>,
    value: &Value,
    path: &ArgumentPath<'_>,
    found: &mut Vec<Problem>,
) {
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            // `required` lists strings, so the default is never used.
            let key = property.as_str().unwrap_or_default();
            found.push(path.problem(path.missing_message(key)));
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known: Vec<&str> = object
                .get("properties")
                .and_then(Value::as_object)
                .map(|properties| properties.keys().map(String::as_str).collect())
                .unwrap_or_default();
            for key in unexpected.iter().take(MAX_PROBLEMS + 1) {
                found.push(path.problem(path.unknown_message(key, &known)));
            }
        }
        ValidationErrorKind::Type { .. } => found.push(Problem {
            is_wrong_type: true,
            ..path.problem(wrong_type_message(object, value, path))
        }),
        kind => {
            let text = match describe_requirement(kind, value) {
                Some((expected, true)) => {
                    let given = message_text::describe_value(value, path.is_secret);
                    format!("{} must {expected}, not {given}", path.to_text())
                }
                Some((expected, false)) => format!("{} must {expected}", path.to_text()),
                None => format!("{} violates the rule `{}`", path.to_text(), kind.keyword()),
            };
            found.push(path.problem(text));
        }
    }
}

fn wrong_type_message(
    object: &Map<String, Value>,
    value: &Value,
    path: &ArgumentPath<'_>,
) -> String {
    let expected: Vec<&str> = match object.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.and_then(Value::as_str).into_iter().collect(),
    };
    let hint = match value {
        Value::String(text) if message_text::looks_like_json(text) => expected
            .iter()
            .find(|kind| matches!(**kind, "object" | "array"))
            .map(|kind| format!("; send the {kind} itself, without quotes around it"))
            .unwrap_or_default(),
        _ => String::new(),
    };
    let expected: Vec<String> = expected
        .iter()
        .map(|kind| message_text::with_article(kind))
        .collect();
    format!(
        "{} must be {}, not {}{hint}",
        path.to_text(),
        message_text::join_list(&expected, MAX_SHOWN_VALUES, "or"),
        message_text::describe_value(value, path.is_secret)
    )
}

/// Describes what a rule requires, and whether to show the given value as well.
fn describe_requirement(kind: &ValidationErrorKind, value: &Value) -> Option<(String, bool)> {
    let with_value = |text: String| Some((text, true));
    let without_value = |text: String| Some((text, false));
    match kind {
        ValidationErrorKind::Enum { options } => with_value(describe_enum(options, value)),
        ValidationErrorKind::Constant { expected_value } => with_value(format!(
            "be {}",
            message_text::format_literal(expected_value)
        )),
        ValidationErrorKind::Minimum { limit } => with_value(format!("be at least {limit}")),
        ValidationErrorKind::Maximum { limit } => with_value(format!("be at most {limit}")),
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            with_value(format!("be greater than {limit}"))
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            with_value(format!("be less than {limit}"))
        }
        ValidationErrorKind::MultipleOf { multiple_of } => {
            with_value(format!("be a multiple of {multiple_of}"))
        }
        ValidationErrorKind::MinLength { limit } => {
            with_value(format!("have at least {}", pluralize(*limit, "character")))
        }
        ValidationErrorKind::MaxLength { limit } => {
            with_value(format!("have at most {}", pluralize(*limit, "character")))
        }
        ValidationErrorKind::Pattern { pattern } => with_value(format!(
            "match the pattern `{}`",
            message_text::escape_line(pattern, 100)
        )),
        ValidationErrorKind::MinItems { limit } => {
            let given = array_len(value);
            without_value(format!(
                "have at least {}, not {given}",
                pluralize(*limit, "item")
            ))
        }
        ValidationErrorKind::MaxItems { limit } => {
            let given = array_len(value);
            without_value(format!(
                "have at most {}, not {given}",
                pluralize(*limit, "item")
            ))
        }
        ValidationErrorKind::UniqueItems => {
            without_value("not contain the same item twice".to_owned())
        }
        ValidationErrorKind::MinProperties { limit } => {
            without_value(format!("have at least {}", pluralize(*limit, "key")))
        }
        ValidationErrorKind::MaxProperties { limit } => {
            without_value(format!("have at most {}", pluralize(*limit, "key")))
        }
        _ => None,
    }
}

fn describe_enum(options: &Value, value: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<String> = options
        .iter()
        .take(MAX_SHOWN_VALUES + 1)
        .map(message_text::format_literal)
        .collect();
    let suggestion = value
        .as_str()
        .and_then(|text| find_nearest(text, options.iter().filter_map(Value::as_str)))
        .map(|suggestion| {
            format!(
                " (did you mean \"{}\"?)",
                message_text::escape_name(suggestion)
            )
        })
        .unwrap_or_default();
    format!(
        "be {}{suggestion}",
        message_text::join_list(&shown, MAX_SHOWN_VALUES, "or")
    )
}

fn pluralize(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

fn array_len(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

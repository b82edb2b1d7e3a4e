//! Explains which rules of one schema a value violates, without its subschemas.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};

use super::super::message_text;
use super::path::ArgumentPath;
use super::{Explainer, MAX_PROBLEMS, Problem};
use crate::nearest::find_nearest;

/// Cost of reporting a problem, in steps of the walk.
const REPORT_COST: usize = 20;
const MAX_SHOWN_VALUES: usize = 10;

impl<'a> Explainer<'a> {
    pub(super) fn check_leaf(
        &mut self,
        schema: &'a Value,
        object: &'a Map<String, Value>,
        value: &Value,
        path: &ArgumentPath<'_>,
        found: &mut Vec<Problem>,
    ) {
        let steps = &mut self.steps;
        let validator = self.leaves.get(schema, object, steps);
        let Some(validator) = validator.filter(|rules| !rules.is_valid(value)) else {
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

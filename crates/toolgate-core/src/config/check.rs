//! The first check of a file: its shape, against the JSON Schema that its types give.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::document::{Document, escape};
use super::file::File;
use super::{Finding, Severity, known};

/// A file as far as it could be read: entries with a mistake of shape are left out.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) file: File,
    /// Entries that were left out, as JSON pointers.
    pub(super) left_out: BTreeSet<String>,
}

/// The JSON Schema of the configuration.
pub fn schema() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<File>()
        .into()
}

static COMPILED: LazyLock<Result<(Value, Validator), String>> = LazyLock::new(|| {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).map_err(|error| error.to_string())?;
    Ok((schema, validator))
});

pub(super) fn read(document: &Document, findings: &mut Vec<Finding>) -> Read {
    if let Some((place, message)) = &document.syntax_error {
        findings.push(Finding {
            severity: Severity::Error,
            place: place.clone(),
            message: message.clone(),
        });
        return Read::default();
    }
    let mut value = document.value.clone();
    known::take(document, &mut value, findings);
    let (schema, validator) = match &*COMPILED {
        Ok(compiled) => compiled,
        Err(error) => {
            findings.push(Finding {
                severity: Severity::Error,
                place: document.place(""),
                message: format!("the configuration's schema is broken: {error}"),
            });
            return Read::default();
        }
    };
    let mut left_out = BTreeSet::new();
    for error in validator.iter_errors(&value) {
        for (pointer, message) in explain(&error, schema) {
            findings.push(Finding {
                severity: Severity::Error,
                place: document.place(&pointer),
                message,
            });
            left_out.insert(entry_of(&pointer));
        }
    }
    let mut pointers: Vec<&String> = left_out.iter().collect();
    pointers.sort_by_key(|pointer| Reverse(index_of(pointer)));
    for pointer in pointers {
        prune(&mut value, pointer);
    }
    let file = match serde_json::from_value(value) {
        Ok(file) => file,
        Err(error) => {
            if left_out.is_empty() {
                findings.push(Finding {
                    severity: Severity::Error,
                    place: document.place(""),
                    message: error.to_string(),
                });
            }
            File::default()
        }
    };
    Read { file, left_out }
}

/// Where an error is, and what to do about it; one error may concern several keys.
fn explain(error: &ValidationError<'_>, schema: &Value) -> Vec<(String, String)> {
    let pointer = error.instance_path().as_str().to_owned();
    let keyword = error.schema_path().as_str();
    let owner = keyword
        .rsplit_once('/')
        .and_then(|(owner, _)| schema.pointer(owner))
        .unwrap_or(schema);
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known: Vec<&str> = owner["properties"]
                .as_object()
                .map(|properties| properties.keys().map(String::as_str).collect())
                .unwrap_or_default();
            let said = |key: &String| {
                let message = match nearest(key, known.iter().copied()) {
                    Some(near) => format!("unknown key `{key}`; did you mean `{near}`?"),
                    None => format!("unknown key `{key}`; known here: {}", known.join(", ")),
                };
                (format!("{pointer}/{}", escape(key)), message)
            };
            unexpected.iter().map(said).collect()
        }
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            vec![(pointer, format!("`{key}` is missing"))]
        }
        _ => {
            let found = shown(error.instance());
            let expected = expected(error, owner);
            vec![(pointer, format!("expected {expected}, found {found}"))]
        }
    }
}

fn expected(error: &ValidationError<'_>, owner: &Value) -> String {
    let alternatives = owner["anyOf"].as_array().into_iter().flatten();
    if let Some(text) = std::iter::once(owner)
        .chain(alternatives)
        .find_map(|schema| schema["x-expected"].as_str())
    {
        return text.to_owned();
    }
    let options = options(owner);
    if !options.is_empty() {
        let near = error
            .instance()
            .as_str()
            .and_then(|text| nearest(text, options.iter().map(String::as_str)))
            .map(|near| format!(" (did you mean `{near}`?)"))
            .unwrap_or_default();
        return format!("one of {}{near}", options.join(", "));
    }
    match error.kind() {
        ValidationErrorKind::Type { kind } => match kind {
            TypeKind::Single(kind) => format!("{} {kind}", article(&kind.to_string())),
            TypeKind::Multiple(kinds) => {
                let kinds: Vec<String> = kinds
                    .iter()
                    .map(|kind| kind.to_string())
                    .filter(|kind| kind != "null")
                    .collect();
                format!("{} {}", article(&kinds[0]), kinds.join(" or "))
            }
        },
        ValidationErrorKind::Minimum { limit } => format!("at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("at most {limit}"),
        _ => "something else".to_owned(),
    }
}

/// The words that an enumeration allows, however schemars wrote it.
fn options(schema: &Value) -> Vec<String> {
    let direct = schema["enum"].as_array().into_iter().flatten();
    let constant = std::iter::once(&schema["const"]);
    let nested = ["oneOf", "anyOf"]
        .into_iter()
        .flat_map(|key| schema[key].as_array().into_iter().flatten())
        .flat_map(options);
    direct
        .chain(constant)
        .filter_map(|value| value.as_str().map(str::to_owned))
        .chain(nested)
        .collect()
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

/// What was found, without showing strings: they may be secrets.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The candidate that was probably meant.
pub(super) fn nearest<'a>(
    text: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .map(|candidate| {
            (
                strsim::jaro_winkler(&text.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Takes out what stands at `pointer`, so that the rest can be read.
fn prune(value: &mut Value, pointer: &str) {
    let Some((parent, step)) = pointer.rsplit_once('/') else {
        return;
    };
    match value.pointer_mut(parent) {
        Some(Value::Object(object)) => {
            object.shift_remove(&step.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(array)) => {
            if let Some(index) = step
                .parse()
                .ok()
                .filter(|&index: &usize| index < array.len())
            {
                array.remove(index);
            }
        }
        _ => {}
    }
}

fn index_of(pointer: &str) -> Option<usize> {
    pointer.rsplit('/').next()?.parse().ok()
}

/// The server, rule or setting that a pointer lies in.
fn entry_of(pointer: &str) -> String {
    let steps: Vec<&str> = pointer.split('/').skip(1).collect();
    let depth = match steps.as_slice() {
        ["mcp", "client_configs", ..] | ["permissions", "rules", ..] => 3,
        [
            "mcp_servers" | "keys" | "roles" | "virtual_servers" | "environments",
            ..,
        ] => 2,
        _ => steps.len(),
    };
    steps
        .iter()
        .take(depth)
        .map(|step| format!("/{step}"))
        .collect()
}

//! First check of a file: its structure, against the JSON Schema generated from the serde types.
//!
//! Invalid entries are removed so that the rest can still be checked. What a schema cannot express
//! is checked in `build`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::document::{Document, escape_step};
use super::file::ConfigFile;
use super::{ConfigFinding, Severity, unsupported_keys};
use crate::nearest::find_nearest;

/// A deserialized file without its structurally invalid entries.
#[derive(Debug, Default)]
pub(super) struct CheckedFile {
    pub(super) file: ConfigFile,
    /// JSON pointers of the entries that were removed.
    pub(super) removed: BTreeSet<String>,
}

/// Returns the JSON Schema of the configuration.
pub fn schema() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<ConfigFile>()
        .into()
}

static COMPILED_SCHEMA: LazyLock<Result<(Value, Validator), String>> = LazyLock::new(|| {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).map_err(|error| error.to_string())?;
    Ok((schema, validator))
});

/// Returns the JSON Schema of the configuration; `None` if it does not compile, which every load reports.
pub(super) fn compiled_schema() -> Option<&'static Value> {
    COMPILED_SCHEMA.as_ref().ok().map(|(schema, _)| schema)
}

pub(super) fn check_document(
    document: &Document,
    findings: &mut Vec<ConfigFinding>,
) -> CheckedFile {
    if let Some((location, message)) = &document.syntax_error {
        findings.push(ConfigFinding {
            severity: Severity::Error,
            location: location.clone(),
            message: message.clone(),
        });
        return CheckedFile::default();
    }
    let mut value = document.value.clone();
    unsupported_keys::remove_unsupported_keys(document, &mut value, findings);
    let (schema, validator) = match &*COMPILED_SCHEMA {
        Ok(compiled) => compiled,
        Err(error) => {
            findings.push(ConfigFinding {
                severity: Severity::Error,
                location: document.location(""),
                message: format!(
                    "internal error: the configuration schema does not compile: {error}"
                ),
            });
            return CheckedFile::default();
        }
    };
    let mut removed = BTreeSet::new();
    for error in validator.iter_errors(&value) {
        for (pointer, message) in explain_error(&error, schema) {
            findings.push(ConfigFinding {
                severity: Severity::Error,
                location: document.location(&pointer),
                message,
            });
            removed.insert(enclosing_entry(&pointer));
        }
    }
    // Highest index first, so that a removal does not shift the entries still to be removed.
    let mut pointers: Vec<&String> = removed.iter().collect();
    pointers.sort_by_key(|pointer| Reverse(trailing_index(pointer)));
    for pointer in pointers {
        remove_value(&mut value, pointer);
    }
    let file = match serde_json::from_value(value) {
        Ok(file) => file,
        Err(error) => {
            // If an entry was removed, the file is already rejected, and this error may only be a
            // consequence of the removal.
            if removed.is_empty() {
                findings.push(ConfigFinding {
                    severity: Severity::Error,
                    location: document.location(""),
                    message: error.to_string(),
                });
            }
            ConfigFile::default()
        }
    };
    CheckedFile { file, removed }
}

/// Locations and messages of a validation error; one error may concern several keys.
fn explain_error(error: &ValidationError<'_>, schema: &Value) -> Vec<(String, String)> {
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
            let explain_key = |key: &String| {
                let misplaced = pointer
                    .is_empty()
                    .then(|| find_table_of(key, schema))
                    .flatten();
                let message = match (misplaced, find_nearest(key, known.iter().copied())) {
                    (Some(table), _) => {
                        format!("`{key}` is a key of `{table}`; move it there, as `{table}.{key}`")
                    }
                    (None, Some(suggestion)) => {
                        format!("unknown key `{key}`; did you mean `{suggestion}`?")
                    }
                    (None, None) => {
                        format!("unknown key `{key}`; expected one of {}", known.join(", "))
                    }
                };
                (format!("{pointer}/{}", escape_step(key)), message)
            };
            unexpected.iter().map(explain_key).collect()
        }
        ValidationErrorKind::Required { property } => {
            // `required` lists strings, so the default is never used.
            let key = property.as_str().unwrap_or_default();
            vec![(pointer, format!("`{key}` is missing"))]
        }
        _ => {
            let found = describe_type(error.instance());
            let expected = describe_expected(error, owner);
            vec![(pointer, format!("expected {expected}, found {found}"))]
        }
    }
}

/// Finds the only top-level table that has this key.
fn find_table_of<'a>(key: &str, schema: &'a Value) -> Option<&'a str> {
    let tables = schema["properties"].as_object()?.iter();
    let mut with_key = tables.filter(|(_, table)| table["properties"].get(key).is_some());
    let (table, _) = with_key.next()?;
    with_key.next().is_none().then_some(table.as_str())
}

fn describe_expected(error: &ValidationError<'_>, owner: &Value) -> String {
    let alternatives = owner["anyOf"].as_array().into_iter().flatten();
    if let Some(text) = std::iter::once(owner)
        .chain(alternatives)
        .find_map(|schema| schema["x-expected"].as_str())
    {
        return text.to_owned();
    }
    let options = enum_options(owner);
    if !options.is_empty() {
        let suggestion = error
            .instance()
            .as_str()
            .and_then(|text| find_nearest(text, options.iter().map(String::as_str)))
            .map(|suggestion| format!(" (did you mean `{suggestion}`?)"))
            .unwrap_or_default();
        return format!("one of {}{suggestion}", options.join(", "));
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
        _ => "a different value".to_owned(),
    }
}

/// Collects the allowed values of an enum in any of the forms that schemars generates.
fn enum_options(schema: &Value) -> Vec<String> {
    let direct = schema["enum"].as_array().into_iter().flatten();
    let constant = std::iter::once(&schema["const"]);
    let nested = ["oneOf", "anyOf"]
        .into_iter()
        .flat_map(|key| schema[key].as_array().into_iter().flatten())
        .flat_map(enum_options);
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

/// Describes a value without showing strings, which may be secrets.
fn describe_type(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Removes the value at `pointer`, so that the rest can be deserialized.
fn remove_value(value: &mut Value, pointer: &str) {
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

fn trailing_index(pointer: &str) -> Option<usize> {
    pointer.rsplit('/').next()?.parse().ok()
}

/// Pointer of the server, rule or setting that contains `pointer`.
fn enclosing_entry(pointer: &str) -> String {
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

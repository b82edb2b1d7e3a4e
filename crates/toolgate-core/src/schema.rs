//! Compiles a tool's input schema, and explains or repairs arguments that violate it.
//!
//! Both inputs are untrusted: a server writes the schema, a model the arguments. Nothing is ever
//! fetched, patterns take linear time, and the work of a check is bounded (`bounds`). `jsonschema`
//! decides whether arguments are valid; this module writes the messages (`explain`) and converts
//! values that models write in the wrong type (`coerce`).

use std::fmt;

use jsonschema::{Draft, PatternOptions, ValidationOptions, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

mod bounds;
mod coerce;
mod explain;
mod leaf_validators;
pub(crate) mod message_text;
mod summary;

pub use coerce::CoercedValue;

/// Maximum size of a schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;

/// A compiled input schema.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    source: Value,
    draft: Draft,
    /// Maximum number of rules that apply to any single value of the arguments.
    weight: usize,
}

/// Error returned when a schema cannot be used. The message addresses an administrator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    #[error("the schema is {0} bytes long; the maximum is {MAX_SCHEMA_BYTES}")]
    TooLong(usize),
    #[error("the schema is not valid JSON: {0}")]
    NotJson(String),
    #[error("`$schema` is `{0}`, which is not a known draft of JSON Schema")]
    Draft(String),
    #[error("the schema references `{0}`; only references such as `#/$defs/name` are supported")]
    Reference(String),
    #[error("the schema uses `{0}` in a subschema, which is not supported")]
    Unsupported(&'static str),
    #[error("the schema references itself endlessly at `{0}`")]
    EndlessReference(String),
    #[error("the schema has too many rules for one value; alternatives and references multiply")]
    TooHeavy,
    #[error("the schema has more than {} patterns", bounds::MAX_PATTERNS)]
    TooManyPatterns,
    #[error("the schema is not a valid JSON Schema: {0}")]
    Invalid(String),
}

/// Describes why arguments violate a schema, in enough detail for a model to correct them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaViolation {
    /// Problems found, at most eight.
    pub problems: Vec<String>,
    /// Whether there are further problems.
    pub has_more: bool,
    /// One-line summary of the arguments that the tool takes; empty if the schema does not define any.
    pub usage: String,
}

/// Why arguments are rejected.
#[derive(Clone, Copy, Debug)]
enum Rejection {
    /// Checking them would take too long, as this text says.
    TooLarge(&'static str),
    Invalid,
}

impl Schema {
    pub fn compile(schema: &RawValue) -> Result<Self, UnusableSchema> {
        let text = schema.get();
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(UnusableSchema::TooLong(text.len()));
        }
        let source: Value = serde_json::from_str(text)
            .map_err(|error| UnusableSchema::NotJson(error.to_string()))?;
        let draft = detect_draft(&source)?;
        let weight = bounds::compute_weight(&source, draft)?;
        let validator = validation_options(draft).build(&source).map_err(|error| {
            UnusableSchema::Invalid(message_text::escape_line(&error.to_string(), 300))
        })?;
        Ok(Self {
            validator,
            source,
            draft,
            weight,
        })
    }

    /// The schema as the server sent it.
    pub(crate) fn source(&self) -> &Value {
        &self.source
    }

    /// Validates arguments. The error lists the problems, as far as bounded work can find them.
    pub fn check(&self, arguments: &Value) -> Result<(), SchemaViolation> {
        self.validate(arguments)
            .map_err(|rejection| self.describe(arguments, rejection))
    }

    /// Validates arguments, and converts values that do not fit where exactly one conversion makes
    /// them fit. Returns `None` if the arguments fit as they are. The error is about the arguments
    /// as given.
    pub fn check_or_coerce(
        &self,
        arguments: &Value,
    ) -> Result<Option<CoercedValue>, SchemaViolation> {
        let rejection = match self.validate(arguments) {
            Ok(()) => return Ok(None),
            Err(rejection) => rejection,
        };
        let coerced = match rejection {
            Rejection::Invalid => coerce::coerce(self, arguments),
            Rejection::TooLarge(_) => None,
        };
        coerced
            .map(Some)
            .ok_or_else(|| self.describe(arguments, rejection))
    }

    fn validate(&self, arguments: &Value) -> Result<(), Rejection> {
        bounds::check_size(arguments, self.weight).map_err(Rejection::TooLarge)?;
        if self.validator.is_valid(arguments) {
            Ok(())
        } else {
            Err(Rejection::Invalid)
        }
    }

    fn describe(&self, arguments: &Value, rejection: Rejection) -> SchemaViolation {
        let (problems, has_more) = match rejection {
            Rejection::TooLarge(problem) => (vec![problem.to_owned()], false),
            Rejection::Invalid => explain::find_problems(&self.source, self.draft, arguments),
        };
        SchemaViolation {
            problems,
            has_more,
            usage: summary::summarize_arguments(&self.source),
        }
    }
}

impl fmt::Display for SchemaViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems = self.problems.join("; ");
        write!(
            formatter,
            "the arguments do not match the tool's schema: {problems}"
        )?;
        if self.has_more {
            formatter.write_str("; and more")?;
        }
        if self.usage.is_empty() {
            return Ok(());
        }
        let end = if problems.ends_with('?') && !self.has_more {
            ""
        } else {
            "."
        };
        write!(formatter, "{end} {}", self.usage)
    }
}

impl std::error::Error for SchemaViolation {}

fn detect_draft(source: &Value) -> Result<Draft, UnusableSchema> {
    match Draft::default().detect(source) {
        // `jsonschema` panics on `with_draft(Draft::Unknown)`.
        Draft::Unknown => {
            let declared = source.get("$schema").and_then(Value::as_str);
            Err(UnusableSchema::Draft(message_text::escape_name(
                declared.unwrap_or_default(),
            )))
        }
        draft => Ok(draft),
    }
}

/// Compiler options: no fetching, no format assertions, no backtracking patterns.
fn validation_options(draft: Draft) -> ValidationOptions<'static> {
    let patterns = PatternOptions::regex()
        .size_limit(512 * 1024)
        .dfa_size_limit(256 * 1024);
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(patterns)
}

/// Resolves a local reference such as `#/$defs/name`.
fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    if pointer.contains('%') {
        return None;
    }
    root.pointer(pointer)
}

#[cfg(test)]
mod tests;

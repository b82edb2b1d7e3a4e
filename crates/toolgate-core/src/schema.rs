//! A tool's input schema, compiled once, and what is wrong with arguments that do not fit it.
//!
//! Both sides may be hostile: a server writes the schema, a model the arguments. So nothing is
//! ever fetched, patterns take linear time, and the work of a check has a bound (`bounds`).
//! Whether arguments fit is for `jsonschema` to say; the words for it are ours (`explain`).

use std::fmt;

use jsonschema::{Draft, PatternOptions, ValidationOptions, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

mod bounds;
mod explain;
mod summary;
pub(crate) mod words;

/// The longest schema that is compiled, in bytes.
const LONGEST: usize = 256 * 1024;

/// What a tool takes, ready to check arguments against.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    source: Value,
    draft: Draft,
    /// The most rules that one value of the arguments can meet.
    weight: usize,
}

/// Why a schema cannot be used, in words for an administrator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("the schema is {0} bytes long, and at most {LONGEST} are read")]
    TooLong(usize),
    #[error("the schema is not valid JSON: {0}")]
    NotJson(String),
    #[error("the schema's `$schema` is `{0}`, which is no known draft of JSON Schema")]
    Draft(String),
    #[error("the schema refers to `{0}`; only references such as `#/$defs/name` are followed")]
    Reference(String),
    #[error("the schema uses `{0}` inside, which is not supported")]
    Unsupported(&'static str),
    #[error("the schema refers to itself without end at `{0}`")]
    Endless(String),
    #[error("the schema has too many rules for one value (alternatives and references multiply)")]
    TooHeavy,
    #[error("the schema has more than {} patterns", bounds::MOST_PATTERNS)]
    TooManyPatterns,
    #[error("the schema is not a valid JSON Schema: {0}")]
    Invalid(String),
}

/// How arguments do not fit a tool, in words from which a model can repair them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// At most eight.
    pub complaints: Vec<String>,
    /// Whether there is more to complain about.
    pub more: bool,
    /// What the tool takes, in one line; empty if its schema does not say.
    pub takes: String,
}

impl Schema {
    pub fn compile(schema: &RawValue) -> Result<Self, Unusable> {
        let text = schema.get();
        if text.len() > LONGEST {
            return Err(Unusable::TooLong(text.len()));
        }
        let source: Value =
            serde_json::from_str(text).map_err(|error| Unusable::NotJson(error.to_string()))?;
        let draft = draft(&source)?;
        let weight = bounds::weigh(&source, draft)?;
        let validator = options(draft)
            .build(&source)
            .map_err(|error| Unusable::Invalid(words::line(&error.to_string(), 300)))?;
        Ok(Self {
            validator,
            source,
            draft,
            weight,
        })
    }

    /// Says every way in which arguments do not fit, as far as that takes bounded work.
    pub fn check(&self, arguments: &Value) -> Result<(), Misfit> {
        let complaint = match bounds::measure(arguments, self.weight) {
            Ok(()) if self.validator.is_valid(arguments) => return Ok(()),
            Ok(()) => None,
            Err(complaint) => Some(complaint),
        };
        let (complaints, more) = match complaint {
            Some(complaint) => (vec![complaint.to_owned()], false),
            None => explain::complaints(&self.source, self.draft, arguments),
        };
        Err(Misfit {
            complaints,
            more,
            takes: summary::takes(&self.source),
        })
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.complaints.join("; ");
        write!(formatter, "the arguments do not fit: {said}")?;
        if self.more {
            formatter.write_str("; and more")?;
        }
        if self.takes.is_empty() {
            return Ok(());
        }
        let end = if said.ends_with('?') && !self.more {
            ""
        } else {
            "."
        };
        write!(formatter, "{end} {}", self.takes)
    }
}

impl std::error::Error for Misfit {}

fn draft(source: &Value) -> Result<Draft, Unusable> {
    match Draft::default().detect(source) {
        // `jsonschema` panics if it is told to use it.
        Draft::Unknown => {
            let named = source.get("$schema").and_then(Value::as_str);
            Err(Unusable::Draft(words::name(named.unwrap_or_default())))
        }
        draft => Ok(draft),
    }
}

/// How schemas are compiled: nothing is fetched, no format is asserted, no pattern backtracks.
fn options(draft: Draft) -> ValidationOptions<'static> {
    let patterns = PatternOptions::regex()
        .size_limit(512 * 1024)
        .dfa_size_limit(256 * 1024);
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(patterns)
}

/// What a reference such as `#/$defs/name` stands for.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
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

//! Arguments of a tool call: one JSON object, kept byte for byte as sent.
//!
//! Policies and schemas must check the same object that the server receives, so a text that two
//! parsers could read differently (a duplicate key, or two that differ only in case) is rejected.
//! Validation against a tool's schema lives in [`crate::schema`].

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::hash::sha256_hex;
use crate::schema::{Schema, message_text};

mod collision;
mod keys;

/// A JSON object as raw text and as a parsed value. Clones share both.
#[derive(Clone, Debug)]
pub struct Arguments(Arc<ParsedArguments>);

#[derive(Debug)]
struct ParsedArguments {
    raw: Box<RawValue>,
    value: Value,
}

/// Error returned when arguments are not a JSON object or cannot be read unambiguously.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    #[error("the arguments are not valid JSON: {0}; send one JSON object")]
    NotJson(String),
    #[error("the arguments must be a JSON object such as {{\"key\": \"value\"}}, not {0}")]
    NotObject(&'static str),
    #[error("the key `{0}` appears twice in one object of the arguments; send each key once")]
    DuplicateKey(String),
    #[error("the key `{0}` of the arguments is reserved; use another name")]
    ReservedKey(&'static str),
    #[error(
        "the key `{key}` of the arguments could be taken for `{other}`, because they differ only in case or NUL characters; send each name once, spelled as in the tool's schema"
    )]
    CollidingKeys { key: String, other: String },
}

impl Arguments {
    /// Parses a JSON object. An empty text or `null` counts as `{}`, because models send either for
    /// "no arguments".
    pub fn parse(text: &str) -> Result<Self, ArgumentsError> {
        let text = match text.trim() {
            "" | "null" => "{}",
            text => text,
        };
        let not_json = |error: serde_json::Error| ArgumentsError::NotJson(error.to_string());
        let raw: Box<RawValue> = serde_json::from_str(text).map_err(not_json)?;
        match raw.get().as_bytes().first() {
            Some(b'{') => {}
            Some(b'[') => return Err(ArgumentsError::NotObject("an array")),
            Some(b'"') => return Err(ArgumentsError::NotObject("a string")),
            Some(b't' | b'f') => return Err(ArgumentsError::NotObject("a boolean")),
            _ => return Err(ArgumentsError::NotObject("a number")),
        }
        let count = keys::count_in_text(raw.get()).map_err(ArgumentsError::ReservedKey)?;
        let value: Value = serde_json::from_str(raw.get()).map_err(not_json)?;
        // The parsed value keeps one of each duplicate key, so it has fewer keys than the text.
        if count != keys::count_in_value(&value) {
            // The counts differ, so there is a duplicate to be found.
            let key = keys::find_duplicate(raw.get()).unwrap_or_default();
            return Err(ArgumentsError::DuplicateKey(message_text::escape_name(
                &key,
            )));
        }
        Ok(Self(Arc::new(ParsedArguments { raw, value })))
    }

    /// Writes a JSON object as text, and parses that text: what is checked is what is sent.
    pub fn from_value(value: &Value) -> Result<Self, ArgumentsError> {
        Self::parse(&value.to_string())
    }

    pub fn raw(&self) -> &RawValue {
        &self.0.raw
    }

    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// Rejects a key that a lenient server may take for another one, or for a parameter of the tool.
    pub fn check_keys(&self, schema: Option<&Schema>) -> Result<(), ArgumentsError> {
        let schema = schema.map_or(&Value::Null, Schema::source);
        match collision::find_collision(self.value(), schema) {
            None => Ok(()),
            Some(collision) => Err(ArgumentsError::CollidingKeys {
                key: message_text::escape_name(collision.key),
                other: message_text::escape_name(collision.other),
            }),
        }
    }

    /// SHA-256 of the canonical form, in hex. Key order, whitespace and escapes do not matter; the
    /// digits of a number do (`1.0` is not `1`).
    pub fn digest(&self) -> String {
        let mut text = String::with_capacity(self.raw().get().len());
        write_canonical(self.value(), &mut text);
        sha256_hex(text)
    }
}

/// Canonical form of a JSON text: key order, whitespace and escapes do not matter. A text that two
/// parsers could read differently, or that is nested too deeply, is its own canonical form.
pub(crate) fn canonical_text(raw: &RawValue) -> Cow<'_, str> {
    match parse_unambiguous(raw.get()) {
        Some(value) => {
            let mut text = String::with_capacity(raw.get().len());
            write_canonical(&value, &mut text);
            Cow::Owned(text)
        }
        None => Cow::Borrowed(raw.get()),
    }
}

/// Parses a JSON text; `None` if it is invalid, nested too deeply, or two parsers could read it
/// differently.
pub(crate) fn parse_unambiguous(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    let count = keys::count_in_text(text).ok()?;
    (count == keys::count_in_value(&value)).then_some(value)
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<(&String, &Value)> = object.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                // Serializing a string cannot fail.
                text.push_str(&serde_json::to_string(key).unwrap_or_default());
                text.push(':');
                write_canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests;

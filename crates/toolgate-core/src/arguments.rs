//! The arguments of a tool call: one JSON object, byte for byte as it was sent.
//!
//! What a policy or a schema looks at is the same object that the server gets: a text that two
//! readers could understand differently (a key that stands twice) is refused. Whether arguments
//! fit a tool is not decided here, but in [`crate::schema`].

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::hash::sha256;

use crate::schema::words;

mod keys;

/// A JSON object, byte for byte as it was sent, and what it says; clones share both.
#[derive(Clone, Debug)]
pub struct Arguments(Arc<Read>);

#[derive(Debug)]
struct Read {
    raw: Box<RawValue>,
    value: Value,
}

/// Arguments that are no JSON object, or not a plain one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    #[error("the arguments are not valid JSON: {0}; send one JSON object")]
    NotJson(String),
    #[error("the arguments must be a JSON object such as {{\"key\": \"value\"}}, not {0}")]
    NotObject(&'static str),
    #[error("the key `{0}` stands twice in one object of the arguments; send each key once")]
    Twice(String),
    #[error("the key `{0}` of the arguments is reserved; send another name")]
    Reserved(&'static str),
}

impl Arguments {
    /// Reads a JSON object. Models send nothing at all for "no arguments", so that is `{}`.
    pub fn parse(text: &str) -> Result<Self, BadArguments> {
        let text = match text.trim() {
            "" | "null" => "{}",
            text => text,
        };
        let not_json = |error: serde_json::Error| BadArguments::NotJson(error.to_string());
        let raw: Box<RawValue> = serde_json::from_str(text).map_err(not_json)?;
        match raw.get().as_bytes().first() {
            Some(b'{') => {}
            Some(b'[') => return Err(BadArguments::NotObject("an array")),
            Some(b'"') => return Err(BadArguments::NotObject("a string")),
            Some(b't' | b'f') => return Err(BadArguments::NotObject("a boolean")),
            _ => return Err(BadArguments::NotObject("a number")),
        }
        let count = keys::count(raw.get()).map_err(BadArguments::Reserved)?;
        let value: Value = serde_json::from_str(raw.get()).map_err(not_json)?;
        // Of a key that stands twice the value holds one, so it holds fewer keys than the text.
        if count != keys::held(&value) {
            let key = keys::twice(raw.get()).unwrap_or_default();
            return Err(BadArguments::Twice(words::name(&key)));
        }
        Ok(Self(Arc::new(Read { raw, value })))
    }

    pub fn raw(&self) -> &RawValue {
        &self.0.raw
    }

    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// SHA-256, in hex, of what the arguments say: key order, whitespace and escapes do not
    /// count, the digits of a number do (`1.0` is not `1`).
    pub fn digest(&self) -> String {
        let mut text = String::with_capacity(self.raw().get().len());
        canonical(self.value(), &mut text);
        sha256(text)
    }
}

fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<(&String, &Value)> = object.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&serde_json::to_string(key).unwrap_or_default());
                text.push(':');
                canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests;

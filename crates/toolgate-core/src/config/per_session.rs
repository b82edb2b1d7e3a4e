//! Which clients get stdio processes of their own.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// The clients that get processes of their own from a stdio server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PerSessionValue")]
pub enum PerSession {
    /// Those that can answer requests of the server.
    #[default]
    Auto,
    /// Also legacy clients that only set a log level.
    Always,
    Never,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PerSessionValue {
    Flag(bool),
    Text(String),
}

impl TryFrom<PerSessionValue> for PerSession {
    type Error = String;

    fn try_from(value: PerSessionValue) -> Result<Self, String> {
        match value {
            PerSessionValue::Flag(true) => Ok(Self::Always),
            PerSessionValue::Flag(false) => Ok(Self::Never),
            PerSessionValue::Text(text) if text == "auto" => Ok(Self::Auto),
            PerSessionValue::Text(text) => Err(format!(
                "`{text}` is no value of `per_session`; use \"auto\", true or false"
            )),
        }
    }
}

impl Serialize for PerSession {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Always => serializer.serialize_bool(true),
            Self::Never => serializer.serialize_bool(false),
        }
    }
}

impl JsonSchema for PerSession {
    fn schema_name() -> Cow<'static, str> {
        "PerSession".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"enum": ["auto", true, false]})
    }
}

//! Secrets in the configuration: a literal, or the name of an environment variable.
//!
//! A secret never shows its value in `Debug`, logs or API answers; [`Secret::shown`] is the form
//! that may be shown.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

const MASK: &str = "***";
/// Shorter values are too common in ordinary text to be masked wherever they stand.
const SHORTEST_MASKED: usize = 6;

/// A value that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    Literal(String),
    /// `env.NAME`: read from the gateway's environment when it is needed.
    Env(String),
}

/// The environment variable that a secret names is not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "environment variable `{0}` is not set; set it where the gateway starts, or change `env.{0}` in the config"
)]
pub struct Unset(pub String);

impl Secret {
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix("env.") {
            Some(name) if !name.is_empty() => Self::Env(name.to_owned()),
            _ => Self::Literal(text.to_owned()),
        }
    }

    pub fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Unset> {
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::Env(name) => env(name)
                .filter(|value| !value.is_empty())
                .ok_or_else(|| Unset(name.clone())),
        }
    }

    /// What may be shown of it: the reference, or a mask.
    pub fn shown(&self) -> String {
        match self {
            Self::Literal(_) => MASK.to_owned(),
            Self::Env(name) => format!("env.{name}"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.shown())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |object: &serde_json::Map<String, Value>, key: &str| {
            object
                .get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::parse(&text)),
            Value::Object(object) => {
                let reference = text(&object, "ref").or_else(|| text(&object, "env_var"));
                match (reference, text(&object, "value")) {
                    (Some(name), _) => Ok(Self::Env(
                        name.strip_prefix("env.").unwrap_or(&name).to_owned(),
                    )),
                    (None, Some(value)) => Ok(Self::parse(&value)),
                    (None, None) => Err(de::Error::custom("a secret needs `value` or `ref`")),
                }
            }
            _ => Err(de::Error::custom("a secret is a string")),
        }
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-expected": "a string: the value itself, or \"env.NAME\" for an environment variable",
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": {
                        "value": { "type": "string" },
                        "ref": { "type": "string" },
                        "type": { "enum": ["plain_text", "env"] },
                        "env_var": { "type": "string" },
                        "from_env": { "type": "boolean" }
                    },
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// Replaces known secret values in a text that is about to be shown.
#[derive(Clone, Default)]
pub struct Masker(Arc<[String]>);

impl Masker {
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values
            .into_iter()
            .filter(|value| value.len() >= SHORTEST_MASKED)
            .flat_map(|value| {
                // As JSON writes it, and as JSON in a text of JSON does.
                let once = escaped(&value);
                [escaped(&once), once, value]
            })
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values.into())
    }

    pub fn mask(&self, text: &str) -> String {
        self.masked(text).into_owned()
    }

    /// The same without a copy if there is nothing to hide.
    pub fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let values = self.0.iter();
        values.fold(Cow::Borrowed(text), |text, value| {
            match text.contains(value.as_str()) {
                true => Cow::Owned(text.replace(value, MASK)),
                false => text,
            }
        })
    }
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masker({} values)", self.0.len())
    }
}

/// A text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Hides what is secret in a URL: user, password and query. Other texts stay.
pub fn mask_url(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return text.to_owned();
    };
    let has_user = !url.username().is_empty() || url.password().is_some();
    if !has_user && url.query().is_none() {
        return text.to_owned();
    }
    if has_user && (url.set_username(MASK).is_err() || url.set_password(None).is_err()) {
        return MASK.to_owned();
    }
    if url.query().is_some() {
        url.set_query(Some(MASK));
    }
    url.into()
}

/// The arguments of a command as they may be shown: values of what is called a key, token, secret
/// or password are hidden, and so are variables that are passed on and the secrets of URLs.
pub fn mask_arguments(arguments: &[String]) -> Vec<String> {
    let mut hidden = false;
    let mut shown = Vec::new();
    for argument in arguments {
        let tells = argument.starts_with('-') && sounds_secret(argument);
        let masked = match argument.split_once('=') {
            _ if hidden && !argument.starts_with('-') => match argument.split_once('=') {
                Some((name, _)) => format!("{name}={MASK}"),
                None => MASK.to_owned(),
            },
            Some((name, _)) if sounds_secret(name) => format!("{name}={MASK}"),
            Some((name, value)) if !argument.contains("://") || value.contains("://") => {
                format!("{name}={}", mask_url(value))
            }
            _ => mask_url(argument),
        };
        shown.push(masked);
        hidden = matches!(argument.as_str(), "-e" | "--env") || (tells && !argument.contains('='));
    }
    shown
}

fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "passw", "credential", "auth"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (json, expected) in [
            (r#""plain""#, Secret::Literal("plain".into())),
            (r#""env.TOKEN""#, Secret::Env("TOKEN".into())),
            (
                r#"{"value":"v","type":"plain_text"}"#,
                Secret::Literal("v".into()),
            ),
            (
                r#"{"ref":"TOKEN","type":"env"}"#,
                Secret::Env("TOKEN".into()),
            ),
            (
                r#"{"value":"","env_var":"env.TOKEN","from_env":true}"#,
                Secret::Env("TOKEN".into()),
            ),
        ] {
            assert_eq!(
                serde_json::from_str::<Secret>(json).unwrap(),
                expected,
                "{json}"
            );
        }
    }

    #[test]
    fn never_shown() {
        let secret = Secret::parse("hunter2");
        assert!(!format!("{secret:?} {}", secret.shown()).contains("hunter2"));
        let masker = Masker::new(["hunter2".to_owned(), "hunter2-long".to_owned()]);
        assert_eq!(masker.mask("a hunter2-long b hunter2"), "a *** b ***");
        assert!(!format!("{masker:?}").contains("hunter"));
    }

    #[test]
    fn urls_keep_their_shape_without_credentials() {
        assert_eq!(mask_url("https://h/mcp"), "https://h/mcp");
        assert_eq!(mask_url("postgres://u:pw@h/db"), "postgres://***@h/db");
        assert_eq!(mask_url("http://ghp_token@h/"), "http://***@h/");
        assert_eq!(
            mask_url("https://h/mcp?api_key=s3cr3t&x=1"),
            "https://h/mcp?***"
        );
        assert_eq!(mask_url("https://h/mcp?s3cr3t"), "https://h/mcp?***");
        assert_eq!(mask_url("--flag"), "--flag");
    }

    #[test]
    fn arguments_are_shown_without_secrets() {
        for (given, expected) in [
            (
                &["-y", "pkg", "--dir=/x"][..],
                &["-y", "pkg", "--dir=/x"][..],
            ),
            (&["--api-key=sk-1"], &["--api-key=***"]),
            (&["--token", "t0k", "rest"], &["--token", "***", "rest"]),
            (
                &["-e", "HOME_TOKEN=x", "-e", "A=b"],
                &["-e", "HOME_TOKEN=***", "-e", "A=***"],
            ),
            (&["--url=https://u:p@h/?k=v"], &["--url=https://***@h/?***"]),
            (&["postgres://u:p@h/db"], &["postgres://***@h/db"]),
            (&["--auth", "--verbose"], &["--auth", "--verbose"]),
        ] {
            let given: Vec<String> = given.iter().map(ToString::to_string).collect();
            assert_eq!(mask_arguments(&given), expected);
        }
    }

    #[test]
    fn an_unset_variable_is_named() {
        let error = Secret::parse("env.NOPE").resolve(&|_| None).unwrap_err();
        assert!(error.to_string().contains("`NOPE`"));
    }
}

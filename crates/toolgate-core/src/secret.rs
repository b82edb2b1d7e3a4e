//! Secrets in the configuration: literals, or references to environment variables.
//!
//! A secret never exposes its value in `Debug`, logs or API responses; use
//! [`Secret::to_masked_string`] to display one. [`patterns`] recognizes secrets by their format.

pub mod patterns;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

const MASK: &str = "***";
/// Minimum length of a masked value; shorter ones are too common in ordinary text.
const MIN_MASKED_LEN: usize = 6;

/// A value that must not be displayed.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    Literal(String),
    /// `env.NAME`: read from the gateway's environment on use.
    Env(String),
}

/// Error returned when the environment variable of a secret is not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "environment variable `{0}` is not set; set it in the gateway's environment, or change `env.{0}` in the config"
)]
pub struct UnsetVariable(pub String);

impl Secret {
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix("env.") {
            Some(name) if !name.is_empty() => Self::Env(name.to_owned()),
            _ => Self::Literal(text.to_owned()),
        }
    }

    /// Parses an entry of a list of environment variables: `NAME` takes the value from the gateway's
    /// environment, `NAME=value` sets it. Returns the name and the value.
    pub fn of_variable(entry: &str) -> (&str, Self) {
        match entry.split_once('=') {
            Some((name, value)) => (name, Self::parse(value)),
            None => (entry, Self::Env(entry.to_owned())),
        }
    }

    pub fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<String, UnsetVariable> {
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::Env(name) => env(name)
                .filter(|value| !value.is_empty())
                .ok_or_else(|| UnsetVariable(name.clone())),
        }
    }

    /// Displayable form: the reference, or a mask.
    pub fn to_masked_string(&self) -> String {
        match self {
            Self::Literal(_) => MASK.to_owned(),
            Self::Env(name) => format!("env.{name}"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.to_masked_string())
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
                    (None, None) => Err(de::Error::custom("secret needs `value` or `ref`")),
                }
            }
            _ => Err(de::Error::custom("secret must be a string")),
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
            "x-secret": true,
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

/// Replaces known secret values in text before it is displayed.
#[derive(Clone, Default)]
pub struct Masker(Arc<[String]>);

impl Masker {
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values
            .into_iter()
            .filter(|value| value.len() >= MIN_MASKED_LEN)
            .flat_map(|value| {
                // Also escaped as in JSON, and as in JSON nested in a JSON string.
                let once = escape_json(&value);
                [escape_json(&once), once, value]
            })
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values.into())
    }

    pub fn mask(&self, text: &str) -> String {
        self.mask_cow(text).into_owned()
    }

    /// Like [`Self::mask`], but borrows if there is nothing to replace.
    pub fn mask_cow<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let values = self.0.iter();
        values.fold(Cow::Borrowed(text), |text, value| {
            if text.contains(value.as_str()) {
                Cow::Owned(text.replace(value, MASK))
            } else {
                text
            }
        })
    }
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masker({} values)", self.0.len())
    }
}

/// Escapes a text as in a JSON string, without the quotes.
fn escape_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Masks user, password and query of a URL. Returns any other text unchanged.
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

/// Masks the arguments of a command for display: values of options named like a key, token, secret
/// or password, values of passed environment variables and HTTP headers, credentials in URLs, and
/// anything that looks like a secret. Masking too much is harmless; showing a secret is not.
pub fn mask_arguments(arguments: &[String]) -> Vec<String> {
    let mut next_value = OptionValue::Plain;
    let mut masked_arguments = Vec::new();
    for argument in arguments {
        // Tokens may start with `-`, but options are `-x` or start with `--`.
        let is_option =
            argument.starts_with("--") || (argument.starts_with('-') && argument.len() == 2);
        let masked = if is_option || next_value == OptionValue::Plain {
            mask_argument(argument)
        } else {
            next_value.mask(argument)
        };
        masked_arguments.push(if patterns::find_kind(&masked).is_some() {
            MASK.to_owned()
        } else {
            masked
        });
        next_value = OptionValue::of_option(argument);
    }
    masked_arguments
}

/// Content of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionValue {
    Plain,
    Secret,
    /// An environment variable, `NAME=value`.
    Variable,
    /// An HTTP header, `Name: value`.
    Header,
}

impl OptionValue {
    /// Kind of the value that follows an option, or its `=`.
    fn of_option(name: &str) -> Self {
        match name {
            "-e" | "--env" => Self::Variable,
            "-H" | "--header" | "--headers" => Self::Header,
            // `--token=…` already contains its value.
            _ if name.starts_with('-') && !name.contains('=') && is_secret_name(name) => {
                Self::Secret
            }
            _ => Self::Plain,
        }
    }

    fn mask(self, value: &str) -> String {
        let separator = match self {
            Self::Plain => return mask_assignment(value),
            // A token may contain any character, so no part of it is shown.
            Self::Secret => return MASK.to_owned(),
            Self::Variable => '=',
            Self::Header => ':',
        };
        match value.split_once(separator) {
            Some((name, _)) => format!("{name}{separator}{MASK}"),
            None => MASK.to_owned(),
        }
    }
}

/// Masks an argument that is not the value of the option before it.
fn mask_argument(argument: &str) -> String {
    if let Some((name, value)) = argument.split_once('=') {
        let kind = OptionValue::of_option(name);
        if kind != OptionValue::Plain {
            return format!("{name}={}", kind.mask(value));
        }
    }
    // A short option may be followed by its value directly, as in `-eNAME=value`.
    for (option, separator) in [("-e", '='), ("-H", ':')] {
        if let Some(value) = argument.strip_prefix(option)
            && value.contains(separator)
        {
            let masked = OptionValue::of_option(option).mask(value);
            return format!("{option}{masked}");
        }
    }
    mask_assignment(argument)
}

/// Masks the value of `name=value` if the name looks secret, where the value may be another
/// assignment, and otherwise what the last value shows of URLs and JSON.
fn mask_assignment(text: &str) -> String {
    let looks_like_json = |text: &str| text.starts_with(['{', '[']);
    let mut rest = text;
    while let Some((name, value)) = rest.split_once('=') {
        // The `=` belongs to the query of a URL or to JSON.
        if name.contains("://") || looks_like_json(name) {
            break;
        }
        if is_secret_name(name) {
            return format!("{}{MASK}", &text[..text.len() - value.len()]);
        }
        rest = value;
    }
    let names = &text[..text.len() - rest.len()];
    if looks_like_json(rest) && is_secret_name(rest) {
        return format!("{names}{MASK}");
    }
    format!("{names}{}", mask_url(rest))
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "key",
        "token",
        "secret",
        "passw",
        "pwd",
        "credential",
        "auth",
    ]
    .iter()
    .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_deserialize_from_every_spelling() {
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
    fn secrets_are_never_displayed() {
        let secret = Secret::parse("hunter2");
        assert!(!format!("{secret:?} {}", secret.to_masked_string()).contains("hunter2"));
        let masker = Masker::new(["hunter2".to_owned(), "hunter2-long".to_owned()]);
        assert_eq!(masker.mask("a hunter2-long b hunter2"), "a *** b ***");
        assert!(!format!("{masker:?}").contains("hunter"));
    }

    #[test]
    fn urls_are_masked_without_losing_structure() {
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
    fn command_arguments_are_masked() {
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
    fn secrets_in_any_part_of_an_argument_are_masked() {
        let github = format!("ghp_{}", "a8Kd0fLq2Zx7Vb5Nm3Qw9Er1Ty6Ui4OpSgHj");
        for (given, expected) in [
            (&["--env=MODE=x"][..], &["--env=MODE=***"][..]),
            (&["-e=MODE=x", "-eMODE=x"], &["-e=MODE=***", "-eMODE=***"]),
            (&["--set=api.token=x"], &["--set=api.token=***"]),
            (&["--token", "c2VjcmV0=="], &["--token", "***"]),
            (&["--token", "-c2VjcmV0"], &["--token", "***"]),
            (
                &["--header", "X-Custom: s3cr3t", "--header=X-Custom:s3cr3t"],
                &["--header", "X-Custom:***", "--header=X-Custom:***"],
            ),
            (
                &["-H", "X-Custom: s", "-HX: s"],
                &["-H", "X-Custom:***", "-HX:***"],
            ),
            (&["https://u:p@h/?token=x"], &["https://***@h/?***"]),
            (&["https://u:p@h/?a=https://x/"], &["https://***@h/?***"]),
            (&[r#"--config={"apiKey":"a=b"}"#], &["--config=***"]),
            (&[r#"{"apiKey":"a=b"}"#, "{}"], &["***", "{}"]),
            (&[github.as_str(), "plain"], &["***", "plain"]),
        ] {
            let given: Vec<String> = given.iter().map(ToString::to_string).collect();
            assert_eq!(mask_arguments(&given), expected);
        }
    }

    #[test]
    fn unset_variable_is_named_in_the_error() {
        let error = Secret::parse("env.NOPE").resolve(&|_| None).unwrap_err();
        assert!(error.to_string().contains("`NOPE`"));
    }
}

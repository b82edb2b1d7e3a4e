//! Durations as users write them: `"30s"`, `"1m30s"`, `"500ms"`, `"1.5h"`, or a number of seconds.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Nothing that is configured takes longer; larger numbers are nanoseconds by mistake.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Anything shorter, but nothing at all, is a mistake of the unit.
const SHORTEST: Duration = Duration::from_millis(10);

/// A duration in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Span {
    pub fn parse(text: &str) -> Result<Self, String> {
        let explain = || {
            format!("`{text}` is no duration; write one such as \"30s\", \"1m30s\" or \"500ms\"")
        };
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(explain());
        }
        let mut seconds = 0.0;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(explain)?;
            let number: f64 = rest[..digits].parse().map_err(|_| explain())?;
            rest = &rest[digits..];
            let letters = rest
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(rest.len());
            let unit = match &rest[..letters] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(explain()),
            };
            seconds += number * unit;
            rest = &rest[letters..];
        }
        Self::seconds(seconds)
    }

    fn seconds(seconds: f64) -> Result<Self, String> {
        if !(0.0..=LONGEST.as_secs_f64()).contains(&seconds) {
            return Err(format!(
                "{seconds} seconds is not between 0 and 7 days; write the unit, as in \"10m\""
            ));
        }
        if seconds > 0.0 && seconds < SHORTEST.as_secs_f64() {
            return Err("shorter than 10 ms; write the unit, as in \"10s\"".to_owned());
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parsed = match Value::deserialize(deserializer)? {
            Value::String(text) => Self::parse(&text),
            Value::Number(number) => Self::seconds(number.as_f64().unwrap_or(f64::INFINITY)),
            _ => Err("a duration is a string or a number of seconds".to_owned()),
        };
        parsed.map_err(de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-expected": "a duration such as \"30s\", or a number of seconds, from 10 ms to 7 days",
            "anyOf": [
                { "type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+\s*$" },
                { "type": "number", "minimum": 0, "maximum": LONGEST.as_secs() }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (json, millis) in [
            ("30", 30_000),
            ("0.5", 500),
            (r#""30s""#, 30_000),
            (r#""1m30s""#, 90_000),
            (r#""500ms""#, 500),
            (r#""1.5h""#, 5_400_000),
        ] {
            let span: Span = serde_json::from_str(json).unwrap();
            assert_eq!(span.0.as_millis(), millis, "{json}");
        }
        for json in [
            "-1",
            "600000000000",
            "1e-9",
            r#""""#,
            r#""30""#,
            r#""s""#,
            r#""1 day""#,
            "true",
            "1e400",
        ] {
            assert!(serde_json::from_str::<Span>(json).is_err(), "{json}");
        }
    }
}

//! Durations in configuration files: `"30s"`, `"1m30s"`, `"500ms"`, `"1.5h"`, or a number of seconds.
//!
//! The syntax is that of Go's `time.ParseDuration`, because files of Bifrost, which is written in Go, are
//! accepted unchanged. `humantime` cannot replace the parser: it rejects `.5s`, `5.s` and fractions of a nanosecond, and
//! accepts `1M` as a month.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Maximum duration. Larger numbers are most likely nanoseconds written by mistake.
const MAX_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);

/// Minimum duration other than zero. Smaller numbers most likely have the wrong unit.
const MIN_DURATION: Duration = Duration::from_millis(10);

/// A duration in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigDuration(pub Duration);

impl ConfigDuration {
    pub fn parse(text: &str) -> Result<Self, String> {
        let explain = || {
            format!(
                "`{text}` is not a duration; use a form such as \"30s\", \"1m30s\" or \"500ms\""
            )
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
        Self::from_seconds(seconds)
    }

    fn from_seconds(seconds: f64) -> Result<Self, String> {
        if !(0.0..=MAX_DURATION.as_secs_f64()).contains(&seconds) {
            return Err(format!(
                "{seconds} seconds is not between 0 and 7 days; add a unit, as in \"10m\""
            ));
        }
        if seconds > 0.0 && seconds < MIN_DURATION.as_secs_f64() {
            return Err("duration is shorter than 10 ms; add a unit, as in \"10s\"".to_owned());
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

impl fmt::Display for ConfigDuration {
    /// Formats the duration as users write it: in the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if !self.0.subsec_nanos().is_multiple_of(1_000_000) {
            return write!(f, "{}s", self.0.as_secs_f64());
        }
        match millis {
            0 => f.write_str("0s"),
            _ if millis.is_multiple_of(3_600_000) => write!(f, "{}h", millis / 3_600_000),
            _ if millis.is_multiple_of(60_000) => write!(f, "{}m", millis / 60_000),
            _ if millis.is_multiple_of(1000) => write!(f, "{}s", millis / 1000),
            _ => write!(f, "{millis}ms"),
        }
    }
}

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parsed = match Value::deserialize(deserializer)? {
            Value::String(text) => Self::parse(&text),
            Value::Number(number) => Self::from_seconds(number.as_f64().unwrap_or(f64::INFINITY)),
            _ => Err("duration must be a string or a number of seconds".to_owned()),
        };
        parsed.map_err(de::Error::custom)
    }
}

impl JsonSchema for ConfigDuration {
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
                { "type": "number", "minimum": 0, "maximum": MAX_DURATION.as_secs() }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["30s", "90s", "500ms", "1500ms", "15m", "2h", "0s"] {
            let parsed = ConfigDuration::parse(text).unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        let odd = ConfigDuration::parse("1.0000005s").unwrap();
        assert_eq!(ConfigDuration::parse(&odd.to_string()), Ok(odd));
    }

    #[test]
    fn durations_parse_from_text_and_numbers() {
        for (json, millis) in [
            ("30", 30_000),
            ("0.5", 500),
            (r#""30s""#, 30_000),
            (r#""1m30s""#, 90_000),
            (r#""500ms""#, 500),
            (r#""1.5h""#, 5_400_000),
            // Forms that Go reads and `humantime` does not.
            (r#"".5s""#, 500),
            (r#""5.s""#, 5000),
            (r#""1.00000000001s""#, 1000),
        ] {
            let span: ConfigDuration = serde_json::from_str(json).unwrap();
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
            r#""1M""#,
            "true",
            "1e400",
        ] {
            assert!(
                serde_json::from_str::<ConfigDuration>(json).is_err(),
                "{json}"
            );
        }
    }
}

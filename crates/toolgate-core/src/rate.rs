//! Rates and budgets as users write them: `"60/min"`, `{ usd = 5.0, per = "day" }`.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Number of events allowed per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: NonZeroU32,
    pub per: Period,
}

/// Period over which rates and budgets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Second,
    Minute,
    Hour,
    Day,
    /// Thirty days.
    Month,
}

/// Limits on usage per period, or in total.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    pub calls: Option<u64>,
    /// Model tokens, input and output together.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar, so that sums are exact.
    pub micro_usd: Option<u64>,
    /// `None` counts over the lifetime of the key.
    pub per: Option<Period>,
}

impl Period {
    pub fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 24 * 3600,
            Self::Month => 30 * 24 * 3600,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text.trim() {
            "s" | "sec" | "second" => Self::Second,
            "m" | "min" | "minute" => Self::Minute,
            "h" | "hour" => Self::Hour,
            "d" | "day" => Self::Day,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl Rate {
    pub fn parse(text: &str) -> Result<Self, String> {
        let explain = || {
            format!(
                "`{text}` is not a rate; use a form such as \"10/s\", \"60/min\" or \"1000/hour\""
            )
        };
        let (count, per) = text.split_once('/').ok_or_else(explain)?;
        Ok(Self {
            count: count.trim().parse().map_err(|_| explain())?,
            per: Period::parse(per).ok_or_else(explain)?,
        })
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.count, self.per.as_str())
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for Rate {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "number of calls per period, such as `10/s`, `60/min` or `1000/hour`",
            "x-expected": "a rate such as \"10/s\", \"60/min\" or \"1000/hour\"",
            "pattern": r"^\s*[1-9][0-9]{0,8}\s*/\s*(s|sec|second|m|min|minute|h|hour|d|day)\s*$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_and_round_trip() {
        for (text, displayed) in [
            ("10/s", "10/second"),
            (" 60 / min", "60/minute"),
            ("1/day", "1/day"),
        ] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!(rate.to_string(), displayed);
            assert_eq!(Rate::parse(displayed), Ok(rate));
        }
        for bad in [
            "",
            "0/s",
            "10",
            "x/s",
            "10/fortnight",
            "-1/s",
            "99999999999/s",
        ] {
            assert!(Rate::parse(bad).is_err(), "{bad}");
        }
    }
}

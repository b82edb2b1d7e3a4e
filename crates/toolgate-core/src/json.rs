//! Inspects JSON text without building values from it.

use std::borrow::Cow;
use std::fmt;

use memchr::memmem;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Maximum nesting of JSON that passes through the gateway, inside messages that nest it further. Parsers
/// in many languages recurse; `serde_json` accepts 127 levels.
pub const MAX_DEPTH: usize = 100;

/// Returns whether valid JSON is nested more than `max` levels deep.
pub fn exceeds_depth(json: &str, max: usize) -> bool {
    let openings = memchr::memchr2_iter(b'[', b'{', json.as_bytes());
    // Ordinary texts have too few brackets to be deep, which is faster to find out.
    if openings.take(max + 1).count() <= max {
        return false;
    }
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Members of a JSON object in source order, borrowed from its text.
#[derive(Debug, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Splits an object into its members; `None` if the text is not an object.
    pub fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Returns the last member with this name; the last duplicate wins, as in `serde_json`.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let mut newest_first = self.0.iter().rev();
        let found = newest_first.find(|(known, _)| known == name);
        found.map(|(_, value)| *value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }
}

impl<'a> IntoIterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a RawValue);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<Name<'de>>()? {
                    members.push((name.0, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Member name, borrowed unless it contains escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns whether `word` may occur in a valid JSON text as a name or string. May return a false
/// positive, never a false negative.
pub fn may_contain(json: &str, word: &str) -> bool {
    // Any character may be written as a `\u` escape.
    let contains = |word: &str| memmem::find(json.as_bytes(), word.as_bytes()).is_some();
    contains(word) || contains("\\u")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(!exceeds_depth(&nested(100), MAX_DEPTH));
        assert!(exceeds_depth(&nested(101), MAX_DEPTH));
        assert!(exceeds_depth(&nested(100_000), MAX_DEPTH));
        let wide = format!("[{}]", vec!["{\"a\":[]}"; 1000].join(","));
        assert!(!exceeds_depth(&wide, MAX_DEPTH));
        let text = format!(r#"["\"{}\\", {{}}]"#, "[{".repeat(200));
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        assert!(!exceeds_depth(&text, MAX_DEPTH));
    }

    #[test]
    fn members_keep_source_order_and_last_duplicate_wins() {
        let members = Members::parse(r#"{ "b":1.0, "\u0061" : [ 2 ],"b": "x"}"#).unwrap();
        let seen: Vec<(&str, &str)> = members.iter().map(|(n, raw)| (n, raw.get())).collect();
        assert_eq!(seen, [("b", "1.0"), ("a", "[ 2 ]"), ("b", "\"x\"")]);
        assert_eq!(members.get("b").unwrap().get(), "\"x\"");
        assert!(members.get("c").is_none() && Members::parse("[]").is_none());
    }

    #[test]
    fn may_contain_never_misses_an_escaped_word() {
        for json in [r#"{"isError":true}"#, r#"{"is\u0045rror":true}"#] {
            assert!(may_contain(json, "isError"), "{json}");
        }
        assert!(!may_contain(r#"{"content":["a\n"]}"#, "isError"));
    }
}

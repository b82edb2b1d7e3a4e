//! Looks at JSON text without making values of it.

use std::borrow::Cow;
use std::fmt;

use memchr::memmem;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The members of an object in their order, borrowed from its text.
#[derive(Debug, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Takes an object apart; none if the text is not one.
    pub fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The last member of this name, which is the one that counts.
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

/// A name, borrowed unless it is written with escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Whether a word may stand in a valid JSON text as a name or as a string; false is certain.
pub fn may_say(json: &str, word: &str) -> bool {
    // Any character may be written as an escape.
    let says = |word: &str| memmem::find(json.as_bytes(), word.as_bytes()).is_some();
    says(word) || says("\\u")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_borrowed_in_order_and_the_last_counts() {
        let members = Members::of(r#"{ "b":1.0, "\u0061" : [ 2 ],"b": "x"}"#).unwrap();
        let seen: Vec<(&str, &str)> = members.iter().map(|(n, raw)| (n, raw.get())).collect();
        assert_eq!(seen, [("b", "1.0"), ("a", "[ 2 ]"), ("b", "\"x\"")]);
        assert_eq!(members.get("b").unwrap().get(), "\"x\"");
        assert!(members.get("c").is_none() && Members::of("[]").is_none());
    }

    #[test]
    fn a_word_is_not_missed_however_it_is_written() {
        for json in [r#"{"isError":true}"#, r#"{"is\u0045rror":true}"#] {
            assert!(may_say(json, "isError"), "{json}");
        }
        assert!(!may_say(r#"{"content":["a\n"]}"#, "isError"));
    }
}

//! Request bodies: JSON objects whose top-level members can be read and edited while every other
//! byte stays as the caller sent it.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use toolgate_core::json::Members;

/// Maximum number of top-level members; no API comes close, and lookup is linear.
const MAX_MEMBERS: usize = 512;

/// A JSON object with the byte ranges of its members.
#[derive(Clone, Debug)]
pub struct RequestBody {
    text: Bytes,
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    value: Range<usize>,
}

/// Error returned when a body is rejected.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("request body is not valid UTF-8")]
    NotUtf8,
    #[error("request body is not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
    #[error("request body contains member `{0}` more than once")]
    DuplicateMember(String),
    #[error("request body has more than {MAX_MEMBERS} members")]
    TooManyMembers,
}

/// Pending edits to a body.
#[derive(Debug)]
pub struct BodyEdit<'a> {
    body: &'a RequestBody,
    /// Replacement text by byte range; sorted by position in `finish`.
    changes: Vec<(Range<usize>, Cow<'a, str>)>,
}

impl RequestBody {
    pub fn parse(text: Bytes) -> Result<Self, BodyError> {
        let utf8 = std::str::from_utf8(&text).map_err(|_| BodyError::NotUtf8)?;
        let parsed: Members<'_> = serde_json::from_str(utf8)?;
        let start = utf8.as_ptr().addr();
        let parsed = parsed.into_iter();
        if parsed.len() > MAX_MEMBERS {
            return Err(BodyError::TooManyMembers);
        }
        let mut members: Vec<Member> = Vec::with_capacity(parsed.len());
        for (name, value) in parsed {
            if members.iter().any(|member| member.name == name) {
                return Err(BodyError::DuplicateMember(name.into_owned()));
            }
            let value = value.get();
            // The raw value borrows from the input, so its address gives its offset.
            let from = value.as_ptr().addr() - start;
            members.push(Member {
                name: name.into_owned(),
                value: from..from + value.len(),
            });
        }
        Ok(Self { text, members })
    }

    /// Returns the unmodified body.
    pub fn bytes(&self) -> &Bytes {
        &self.text
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Returns the raw JSON of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        let member = self.member(name)?;
        // Validates only the requested slice, which is cheaper than the whole body.
        std::str::from_utf8(&self.text[member.value.clone()]).ok()
    }

    /// Returns a member that is a JSON string.
    pub fn get_string(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    pub fn edit(&self) -> BodyEdit<'_> {
        BodyEdit {
            body: self,
            changes: Vec::new(),
        }
    }

    fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

impl<'a> BodyEdit<'a> {
    /// Sets a member to a JSON value, replacing an existing one.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        match self.body.member(name) {
            Some(member) => self
                .changes
                .push((member.value.clone(), Cow::Owned(value.to_owned()))),
            None => {
                let member = self.member_prefix(name) + value;
                self.insert_at_end(Cow::Owned(member));
            }
        }
        self
    }

    /// Returns the separator, name and colon that precede the value of an added member.
    fn member_prefix(&self, name: &str) -> String {
        let comma = if self.body.members.is_empty() && self.changes.is_empty() {
            ""
        } else {
            ","
        };
        format!("{comma}{}:", serde_json::Value::from(name))
    }

    fn insert_at_end(&mut self, text: Cow<'a, str>) {
        let brace = self.body.text.iter().rposition(|byte| *byte == b'}');
        let end = brace.unwrap_or_default();
        self.changes.push((end..end, text));
    }

    /// Removes a member, if present.
    #[must_use]
    pub fn remove(mut self, name: &str) -> Self {
        let members = &self.body.members;
        let Some(at) = members.iter().position(|member| member.name == name) else {
            return self;
        };
        let end = members[at].value.end;
        let text = self.body.as_str();
        let range = match at.checked_sub(1) {
            Some(before) => members[before].value.end..end,
            None => {
                let start = text.find('{').map_or(0, |brace| brace + 1);
                let comma = text[end..].find(',').filter(|_| members.len() > 1);
                start..end + comma.map_or(0, |comma| comma + 1)
            }
        };
        self.changes.push((range, Cow::Borrowed("")));
        self
    }

    /// Appends comma-separated JSON items to an array member, creating the array if it is absent or
    /// `null`.
    #[must_use]
    pub fn append(mut self, name: &str, items: &'a str) -> Self {
        if items.is_empty() {
            return self;
        }
        let text = &self.body.text;
        let items = Cow::Borrowed(items);
        // Items may be large, so they stay borrowed until `finish` copies them once.
        match self.body.member(name).map(|member| member.value.clone()) {
            Some(value) if text[value.clone()].ends_with(b"]") => {
                let end = value.end - 1;
                let before = &text[value.start + 1..end];
                if !before.trim_ascii().is_empty() {
                    self.changes.push((end..end, Cow::Borrowed(",")));
                }
                self.changes.push((end..end, items));
            }
            Some(value) => {
                let end = value.end;
                self.changes.push((value, Cow::Borrowed("[")));
                self.changes.push((end..end, items));
                self.changes.push((end..end, Cow::Borrowed("]")));
            }
            None => {
                let prefix = self.member_prefix(name) + "[";
                for part in [Cow::Owned(prefix), items, Cow::Borrowed("]")] {
                    self.insert_at_end(part);
                }
            }
        }
        self
    }

    /// Returns the body with all edits applied.
    pub fn finish(mut self) -> Bytes {
        if self.changes.is_empty() {
            return self.body.text.clone();
        }
        // The sort is stable, so edits at the same position keep their order.
        self.changes.sort_by_key(|(range, _)| range.start);
        let added: usize = self.changes.iter().map(|(_, text)| text.len()).sum();
        let mut out = Vec::with_capacity(self.body.text.len() + added);
        let mut at = 0;
        for (range, text) in &self.changes {
            out.extend_from_slice(&self.body.text[at..range.start]);
            out.extend_from_slice(text.as_bytes());
            at = range.end;
        }
        out.extend_from_slice(&self.body.text[at..]);
        Bytes::from(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str) -> RequestBody {
        RequestBody::parse(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn edits_leave_all_other_bytes_unchanged() {
        let request = body(
            "{ \"model\" : \"p/m\",\n \"x\": 1.0e5, \"tools\":[ {\"a\":1} ], \"é\\u0041\": null }",
        );
        assert_eq!(request.get("éA"), Some("null"));
        let edited = request
            .edit()
            .append("tools", "{},{}")
            .set("model", "\"m\"");
        let edited = edited.set("new", "7").finish();
        assert_eq!(
            edited,
            "{ \"model\" : \"m\",\n \"x\": 1.0e5, \"tools\":[ {\"a\":1} ,{},{}], \"é\\u0041\": null ,\"new\":7}".as_bytes()
        );
        assert_eq!(request.edit().finish(), request.bytes());
    }

    #[test]
    fn append_creates_and_extends_arrays() {
        for (text, expected) in [
            ("{}", "{\"tools\":[1]}"),
            ("{ }", "{ \"tools\":[1]}"),
            ("{\"tools\":null}", "{\"tools\":[1]}"),
            ("{\"tools\":[]}", "{\"tools\":[1]}"),
            ("{\"tools\":[ ]}", "{\"tools\":[ 1]}"),
            ("{\"tools\":[0]}", "{\"tools\":[0,1]}"),
            ("{\"a\":1}", "{\"a\":1,\"tools\":[1]}"),
        ] {
            let edited = body(text).edit().append("tools", "1").finish();
            assert_eq!(edited, expected.as_bytes(), "{text}");
        }
        assert_eq!(
            body("{}").edit().append("tools", "").finish(),
            "{}".as_bytes()
        );
        let two = body("{}").edit().set("a", "1").set("b", "2").finish();
        assert_eq!(two, "{\"a\":1,\"b\":2}".as_bytes());
    }

    #[test]
    fn remove_deletes_member_with_its_comma() {
        for (text, expected) in [
            ("{ \"x\" : 1 }", "{ }"),
            ("{\"x\":[1,2], \"a\":1}", "{ \"a\":1}"),
            ("{\"a\":1, \"x\": {} , \"b\":2}", "{\"a\":1 , \"b\":2}"),
            ("{\"a\":1, \"x\": 3}", "{\"a\":1}"),
            ("{\"a\":1}", "{\"a\":1}"),
        ] {
            assert_eq!(body(text).edit().remove("x").finish(), expected.as_bytes());
        }
    }

    #[test]
    fn parse_rejects_malformed_and_ambiguous_bodies() {
        let read = |text: &'static str| RequestBody::parse(Bytes::from_static(text.as_bytes()));
        for bad in [
            "[]",
            "{\"a\":1",
            "{\"a\":1}{}",
            "nonsense",
            "{\"a\":1,\"\\u0061\":2}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(matches!(
            RequestBody::parse(Bytes::from_static(b"\xff")),
            Err(BodyError::NotUtf8)
        ));
    }
}

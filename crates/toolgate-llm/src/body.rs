//! A request's body: JSON whose members can be read and changed while every other byte stays.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use toolgate_core::json::Members;

/// Members that a body may have; no API has so many.
const MOST: usize = 512;

/// A JSON object, and where its members stand.
#[derive(Clone, Debug)]
pub struct Body {
    text: Bytes,
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    value: Range<usize>,
}

/// Why a body is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body is not UTF-8")]
    NotUtf8,
    #[error("the body is not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
    #[error("`{0}` stands in the body twice")]
    Twice(String),
    #[error("the body has more than {MOST} members")]
    TooMany,
}

/// Changes to a body.
#[derive(Debug)]
pub struct Edit<'a> {
    body: &'a Body,
    /// What is put instead of a range, ordered by place.
    changes: Vec<(Range<usize>, Cow<'a, str>)>,
}

impl Body {
    pub fn read(text: Bytes) -> Result<Self, BodyError> {
        let utf8 = std::str::from_utf8(&text).map_err(|_| BodyError::NotUtf8)?;
        let found: Members<'_> = serde_json::from_str(utf8)?;
        let start = utf8.as_ptr().addr();
        let found = found.into_iter();
        if found.len() > MOST {
            return Err(BodyError::TooMany);
        }
        let mut members: Vec<Member> = Vec::with_capacity(found.len());
        for (name, value) in found {
            if members.iter().any(|member| member.name == name) {
                return Err(BodyError::Twice(name.into_owned()));
            }
            let value = value.get();
            let from = value.as_ptr().addr() - start;
            members.push(Member {
                name: name.into_owned(),
                value: from..from + value.len(),
            });
        }
        Ok(Self { text, members })
    }

    /// The whole body.
    pub fn bytes(&self) -> &Bytes {
        &self.text
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// The JSON of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        let member = self.member(name)?;
        // Only what is asked for is looked at once more.
        std::str::from_utf8(&self.text[member.value.clone()]).ok()
    }

    /// A member that is text.
    pub fn string(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    pub fn edit(&self) -> Edit<'_> {
        Edit {
            body: self,
            changes: Vec::new(),
        }
    }

    fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

impl<'a> Edit<'a> {
    /// Gives a member a value, which is JSON.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        match self.body.member(name) {
            Some(member) => self
                .changes
                .push((member.value.clone(), Cow::Owned(value.to_owned()))),
            None => {
                let member = self.begun(name) + value;
                self.put_last(Cow::Owned(member));
            }
        }
        self
    }

    /// The beginning of a member that is added.
    fn begun(&self, name: &str) -> String {
        let comma = match self.body.members.is_empty() && self.changes.is_empty() {
            true => "",
            false => ",",
        };
        format!("{comma}{}:", serde_json::Value::from(name))
    }

    fn put_last(&mut self, text: Cow<'a, str>) {
        let brace = self.body.text.iter().rposition(|byte| *byte == b'}');
        let end = brace.unwrap_or_default();
        self.changes.push((end..end, text));
    }

    /// Takes a member out.
    #[must_use]
    pub fn remove(mut self, name: &str) -> Self {
        let members = &self.body.members;
        let Some(at) = members.iter().position(|member| member.name == name) else {
            return self;
        };
        let end = members[at].value.end;
        let text = self.body.text();
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

    /// Appends items, which are JSON with commas between them, to a member that is an array. It is
    /// made if it is not there, or is `null`.
    #[must_use]
    pub fn append(mut self, name: &str, items: &'a str) -> Self {
        if items.is_empty() {
            return self;
        }
        let text = &self.body.text;
        let items = Cow::Borrowed(items);
        // Items may be large, so they are copied only once all is put together.
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
                let begun = self.begun(name) + "[";
                for part in [Cow::Owned(begun), items, Cow::Borrowed("]")] {
                    self.put_last(part);
                }
            }
        }
        self
    }

    /// The body with the changes.
    pub fn finish(mut self) -> Bytes {
        if self.changes.is_empty() {
            return self.body.text.clone();
        }
        // Stable, so that two changes at one place keep their order.
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

    fn body(text: &'static str) -> Body {
        Body::read(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn only_what_is_changed_changes() {
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
    fn arrays_are_made_and_filled() {
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
    fn members_are_taken_out() {
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
    fn what_could_be_read_in_two_ways_is_refused() {
        let read = |text: &'static str| Body::read(Bytes::from_static(text.as_bytes()));
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
            Body::read(Bytes::from_static(b"\xff")),
            Err(BodyError::NotUtf8)
        ));
    }
}

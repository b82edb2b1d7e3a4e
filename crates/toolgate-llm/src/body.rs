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

/// Pending edits to a body. Later edits of a member replace or extend earlier ones.
#[derive(Debug)]
pub struct BodyEdit<'a> {
    body: &'a RequestBody,
    /// Edits of existing members, by index in the body; at most one each.
    changed: Vec<(usize, MemberEdit<'a>)>,
    /// New members, in order.
    added: Vec<(String, JsonText<'a>)>,
}

#[derive(Debug)]
enum MemberEdit<'a> {
    Remove,
    Replace(JsonText<'a>),
    /// Text to insert before the closing bracket of an array.
    Extend(Vec<Cow<'a, str>>),
}

/// A JSON value in pieces. Appended items may be large, so they stay borrowed until `finish` copies
/// them once.
#[derive(Debug)]
struct JsonText<'a>(Vec<Cow<'a, str>>);

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
        // `parse` accepts only UTF-8.
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
            changed: Vec::new(),
            added: Vec::new(),
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
        let value = JsonText(vec![Cow::Owned(value.to_owned())]);
        match self.position(name) {
            Some(at) => self.change(at, MemberEdit::Replace(value)),
            None => match self.added_mut(name) {
                Some(added) => *added = value,
                None => self.added.push((name.to_owned(), value)),
            },
        }
        self
    }

    /// Removes a member, if present.
    #[must_use]
    pub fn remove(mut self, name: &str) -> Self {
        match self.position(name) {
            Some(at) => self.change(at, MemberEdit::Remove),
            None => self.added.retain(|(added, _)| added != name),
        }
        self
    }

    /// Appends comma-separated JSON items to an array member. Creates the array if the member is
    /// absent, and replaces a value that is not an array.
    #[must_use]
    pub fn append(mut self, name: &str, items: &'a str) -> Self {
        if items.is_empty() {
            return self;
        }
        let Some(at) = self.position(name) else {
            match self.added_mut(name) {
                Some(added) => added.append(items),
                None => self.added.push((name.to_owned(), JsonText::array(items))),
            }
            return self;
        };
        match self.changed.iter_mut().find(|(changed, _)| *changed == at) {
            Some((_, MemberEdit::Replace(value))) => value.append(items),
            Some((_, MemberEdit::Extend(more))) => {
                more.extend([Cow::Borrowed(","), Cow::Borrowed(items)]);
            }
            Some((_, edit @ MemberEdit::Remove)) => {
                *edit = MemberEdit::Replace(JsonText::array(items));
            }
            None => {
                let value = &self.body.text[self.body.members[at].value.clone()];
                let inner = value.strip_prefix(b"[").map(<[u8]>::trim_ascii);
                let edit = match inner {
                    Some(b"]") => MemberEdit::Extend(vec![Cow::Borrowed(items)]),
                    Some(_) => MemberEdit::Extend(vec![Cow::Borrowed(","), Cow::Borrowed(items)]),
                    None => MemberEdit::Replace(JsonText::array(items)),
                };
                self.changed.push((at, edit));
            }
        }
        self
    }

    /// Returns the body with all edits applied.
    pub fn finish(self) -> Bytes {
        if self.changed.is_empty() && self.added.is_empty() {
            return self.body.text.clone();
        }
        let text = &self.body.text;
        // The body is an object, so both braces exist.
        let open = text.iter().position(|byte| *byte == b'{').unwrap_or(0);
        let close = text.iter().rposition(|byte| *byte == b'}').unwrap_or(open);
        let mut out = Vec::with_capacity(text.len() + self.added_bytes());
        out.extend_from_slice(&text[..=open]);
        let mut is_first = true;
        let mut end = open + 1;
        for (at, member) in self.body.members.iter().enumerate() {
            // The comma, the name, the colon and the whitespace around them.
            let mut lead = &text[end..member.value.start];
            end = member.value.end;
            let edit = self.changed.iter().find(|(changed, _)| *changed == at);
            let edit = edit.map(|(_, edit)| edit);
            if let Some(MemberEdit::Remove) = edit {
                continue;
            }
            if is_first && at > 0 {
                // All members before this one are removed, so their comma goes too.
                let comma = lead.iter().position(|byte| *byte == b',');
                lead = &lead[comma.map_or(0, |comma| comma + 1)..];
            }
            is_first = false;
            out.extend_from_slice(lead);
            let value = &text[member.value.clone()];
            match edit {
                Some(MemberEdit::Replace(value)) => push_pieces(&mut out, &value.0),
                Some(MemberEdit::Extend(more)) => {
                    out.extend_from_slice(&value[..value.len() - 1]);
                    push_pieces(&mut out, more);
                    out.push(b']');
                }
                Some(MemberEdit::Remove) | None => out.extend_from_slice(value),
            }
        }
        out.extend_from_slice(&text[end..close]);
        for (name, value) in &self.added {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            out.extend_from_slice(
                serde_json::Value::from(name.as_str())
                    .to_string()
                    .as_bytes(),
            );
            out.push(b':');
            push_pieces(&mut out, &value.0);
        }
        out.extend_from_slice(&text[close..]);
        Bytes::from(out)
    }

    fn position(&self, name: &str) -> Option<usize> {
        let mut members = self.body.members.iter();
        members.position(|member| member.name == name)
    }

    fn added_mut(&mut self, name: &str) -> Option<&mut JsonText<'a>> {
        let mut added = self.added.iter_mut();
        added.find_map(|(added, value)| (added == name).then_some(value))
    }

    fn change(&mut self, at: usize, edit: MemberEdit<'a>) {
        self.changed.retain(|(changed, _)| *changed != at);
        self.changed.push((at, edit));
    }

    /// Returns an upper bound of the bytes that the edits add.
    fn added_bytes(&self) -> usize {
        let length =
            |pieces: &[Cow<'a, str>]| pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let changed = self.changed.iter().map(|(_, edit)| match edit {
            MemberEdit::Remove => 0,
            MemberEdit::Replace(value) => length(&value.0),
            MemberEdit::Extend(more) => length(more),
        });
        // Four bytes for the quotes, the colon and the comma.
        let added = self.added.iter();
        let added = added.map(|(name, value)| name.len() + 4 + length(&value.0));
        changed.chain(added).sum()
    }
}

impl<'a> JsonText<'a> {
    fn array(items: &'a str) -> Self {
        Self(vec![
            Cow::Borrowed("["),
            Cow::Borrowed(items),
            Cow::Borrowed("]"),
        ])
    }

    /// Appends items if the value is an array, otherwise replaces it by an array of them.
    fn append(&mut self, items: &'a str) {
        let last = self.0.pop();
        let unclosed = last
            .as_deref()
            .and_then(|last| last.trim_end().strip_suffix(']'));
        let Some(unclosed) = unclosed else {
            *self = Self::array(items);
            return;
        };
        // Only a value in one piece can be an empty array.
        let is_empty = self.0.is_empty() && unclosed.trim() == "[";
        self.0.push(Cow::Owned(unclosed.to_owned()));
        if !is_empty {
            self.0.push(Cow::Borrowed(","));
        }
        self.0.extend([Cow::Borrowed(items), Cow::Borrowed("]")]);
    }
}

fn push_pieces(out: &mut Vec<u8>, pieces: &[Cow<'_, str>]) {
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

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
        let two = body("{\"a\":1, \"b\":2 ,\"c\":3}");
        let rest = two.edit().remove("a").remove("b").finish();
        assert_eq!(rest, "{\"c\":3}".as_bytes());
        let replaced = body("{\"a\":1}").edit().remove("a").set("b", "2").finish();
        assert_eq!(replaced, "{\"b\":2}".as_bytes());
    }

    /// One random edit of a member.
    #[derive(Clone, Debug)]
    enum RandomEdit {
        Set(String, Value),
        Remove(String),
        Append(String, Vec<Value>),
    }

    fn name() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["a", "b", "c", "d, \"", "é"]).prop_map(str::to_owned)
    }

    fn value() -> impl Strategy<Value = Value> {
        prop::sample::select(vec![
            json!(null),
            json!(1.5),
            json!("],}{"),
            json!([]),
            json!([1, "a,]"]),
            json!({"a": [1]}),
        ])
    }

    fn random_edit() -> impl Strategy<Value = RandomEdit> {
        prop_oneof![
            (name(), value()).prop_map(|(name, value)| RandomEdit::Set(name, value)),
            name().prop_map(RandomEdit::Remove),
            (name(), prop::collection::vec(value(), 0..3))
                .prop_map(|(name, items)| RandomEdit::Append(name, items)),
        ]
    }

    proptest! {
        /// Compares random edits with the same edits of a parsed object.
        #[test]
        fn random_edits_match_edits_of_the_parsed_object(
            members in prop::collection::btree_map(name(), value(), 0..5),
            edits in prop::collection::vec(random_edit(), 0..8),
            space in prop::sample::select(vec!["", " ", "\n\t"]),
        ) {
            let mut expected: Map<String, Value> = members.into_iter().collect();
            let text = expected.iter().map(|(name, value)| {
                format!("{space}{}{space}:{space}{value:#}{space}", Value::from(name.as_str()))
            });
            let text = format!("{space}{{{}{space}}}{space}", text.collect::<Vec<_>>().join(","));
            let body = RequestBody::parse(Bytes::from(text)).unwrap();
            let appended: Vec<String> = edits
                .iter()
                .map(|edit| match edit {
                    RandomEdit::Append(_, items) => {
                        let items: Vec<String> = items.iter().map(Value::to_string).collect();
                        items.join(",")
                    }
                    _ => String::new(),
                })
                .collect();
            let mut edited = body.edit();
            for (edit, appended) in edits.iter().zip(&appended) {
                edited = match edit {
                    RandomEdit::Set(name, value) => {
                        expected.insert(name.clone(), value.clone());
                        edited.set(name, &value.to_string())
                    }
                    RandomEdit::Remove(name) => {
                        expected.shift_remove(name);
                        edited.remove(name)
                    }
                    RandomEdit::Append(name, items) => {
                        if !items.is_empty() {
                            let member = expected.entry(name.clone()).or_insert(Value::Null);
                            match member {
                                Value::Array(before) => before.extend(items.clone()),
                                other => *other = Value::Array(items.clone()),
                            }
                        }
                        edited.append(name, appended)
                    }
                };
            }
            let edited = edited.finish();
            let parsed: Value = serde_json::from_slice(&edited).unwrap();
            prop_assert_eq!(parsed, Value::Object(expected));
            // The edited body is valid input itself, without duplicate members.
            prop_assert!(RequestBody::parse(edited).is_ok());
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

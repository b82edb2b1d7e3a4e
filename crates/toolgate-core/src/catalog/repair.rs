//! Repairs definitions that clients would reject, and with them the whole list that contains them.
//!
//! The rules are what the MCP schemas of 2025-11-25 and 2026-07-28 demand, and what the official SDKs
//! check beyond that. A repair takes away or adds only what has no effect on the meaning: an optional
//! member that is `null` or has the wrong type is removed, a missing `type: "object"` is added. An output
//! schema that clients cannot compile is removed, too. What cannot be repaired is refused. A definition that needs no repair stays byte for byte the same, and
//! so does one that has been repaired.

mod output_schema;
mod pattern;
mod schema;
mod shape;

use std::borrow::Cow;
use std::collections::HashMap;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use shape::{Field, Place};
use url::Url;

use super::ItemKind;
use crate::plural;

/// Changes of one definition that are described; further ones are only counted.
const MAX_DESCRIBED_CHANGES: usize = 8;

/// A definition that clients accept.
#[derive(Debug)]
pub struct Repair<'a> {
    /// The definition; borrowed if nothing was changed.
    pub definition: Cow<'a, RawValue>,
    /// What was changed, for an administrator; empty if nothing was.
    pub changes: Vec<String>,
}

/// The reason a definition cannot be repaired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrepairable {
    #[error("not an object")]
    NotAnObject,
    #[error("not valid JSON: {0}")]
    InvalidJson(String),
    #[error("`{0}` occurs more than once")]
    Duplicate(&'static str),
    #[error("`{0}` is missing or empty")]
    KeyMissing(&'static str),
    #[error("`{0}` is not a string")]
    KeyNotText(&'static str),
    #[error("`uri` is not an absolute URI, such as `file:///notes.txt`")]
    RelativeUri,
    #[error("`inputSchema` is not an object")]
    InputSchemaNotAnObject,
    #[error("`type` of `inputSchema` is not `object`, but arguments are always an object")]
    InputSchemaType,
}

/// What was changed in a definition.
#[derive(Debug, Default)]
struct Changes {
    described: Vec<String>,
    count: usize,
}

/// A change of one member of a definition.
#[derive(Debug)]
enum Edit {
    Remove,
    Replace(Value),
}

/// A definition that is being repaired.
struct Definition<'a> {
    /// The members in the order and the form in which they were sent.
    sent: Vec<(String, &'a RawValue)>,
    values: Map<String, Value>,
    edits: HashMap<&'static str, Edit>,
    changes: Changes,
}

/// Repairs a definition.
pub fn repair(kind: ItemKind, sent: &RawValue) -> Result<Repair<'_>, Unrepairable> {
    let mut definition = Definition::parse(sent)?;
    let fields = shape::fields(kind);
    definition.check_key(kind)?;
    definition.check_duplicates(kind, fields)?;
    for field in fields {
        definition.repair_member(field);
    }
    match kind {
        ItemKind::Tool => definition.repair_schemas()?,
        ItemKind::Resource | ItemKind::Template => definition.add_name(kind),
        ItemKind::Prompt => {}
    }
    Ok(definition.finish(sent))
}

/// Returns the definition of a tool for clients of the legacy era, where the results of tools are
/// objects. One that has such an output schema, or none, stays the same.
pub fn to_legacy_tool(definition: &RawValue) -> Cow<'_, RawValue> {
    if !schema::may_need_legacy_output(definition) {
        return Cow::Borrowed(definition);
    }
    let Ok(mut parsed) = Definition::parse(definition) else {
        return Cow::Borrowed(definition);
    };
    let output = parsed.values.get("outputSchema");
    match output.map(schema::to_legacy_output) {
        None | Some(schema::LegacyOutput::Unchanged) => return Cow::Borrowed(definition),
        Some(schema::LegacyOutput::Typed(value)) => {
            parsed.edits.insert("outputSchema", Edit::Replace(value));
        }
        Some(schema::LegacyOutput::None) => {
            parsed.edits.insert("outputSchema", Edit::Remove);
        }
    }
    parsed.finish(definition).definition
}

impl<'a> Definition<'a> {
    fn parse(sent: &'a RawValue) -> Result<Self, Unrepairable> {
        if !sent.get().starts_with('{') {
            return Err(Unrepairable::NotAnObject);
        }
        let invalid = |error: serde_json::Error| Unrepairable::InvalidJson(error.to_string());
        let mut deserializer = serde_json::Deserializer::from_str(sent.get());
        Ok(Self {
            sent: deserializer
                .deserialize_map(MembersVisitor)
                .map_err(invalid)?,
            values: serde_json::from_str(sent.get()).map_err(invalid)?,
            edits: HashMap::new(),
            changes: Changes::default(),
        })
    }

    fn check_key(&self, kind: ItemKind) -> Result<(), Unrepairable> {
        let key = kind.key_field();
        let text = match self.values.get(key) {
            None | Some(Value::Null) => return Err(Unrepairable::KeyMissing(key)),
            Some(Value::String(text)) if text.is_empty() => {
                return Err(Unrepairable::KeyMissing(key));
            }
            Some(Value::String(text)) => text,
            Some(_) => return Err(Unrepairable::KeyNotText(key)),
        };
        // Some clients parse the URIs of resources and reject the list if that fails.
        if kind == ItemKind::Resource && Url::parse(text).is_err() {
            return Err(Unrepairable::RelativeUri);
        }
        Ok(())
    }

    /// Refuses two members of the same name, of which parsers may read either.
    fn check_duplicates(&self, kind: ItemKind, fields: &[Field]) -> Result<(), Unrepairable> {
        let other = ["name", kind.key_field(), "inputSchema", "outputSchema"];
        let known = fields.iter().map(|field| field.name).chain(other);
        for name in known {
            let same = self.sent.iter().filter(|(sent, _)| sent == name);
            if same.count() > 1 {
                return Err(Unrepairable::Duplicate(name));
            }
        }
        Ok(())
    }

    /// Repairs or removes an optional member.
    fn repair_member(&mut self, field: &Field) {
        let Some(value) = self.values.get_mut(field.name) else {
            return;
        };
        let place = Place::root(field.name);
        let before = self.changes.count;
        if !field.shape.fit(value, &place, &mut self.changes) {
            self.changes.add_removal(&place, value, &field.shape);
            self.edits.insert(field.name, Edit::Remove);
        } else if self.changes.count > before {
            self.edits.insert(field.name, Edit::Replace(value.take()));
        }
    }

    fn repair_schemas(&mut self) -> Result<(), Unrepairable> {
        let input = self.values.remove("inputSchema");
        if let Some(repaired) = schema::repair_input(input, &mut self.changes)? {
            self.edits.insert("inputSchema", Edit::Replace(repaired));
        }
        let Some(mut output) = self.values.remove("outputSchema") else {
            return Ok(());
        };
        let before = self.changes.count;
        if let Err(why) = schema::repair_output(&mut output, &mut self.changes) {
            self.changes.add(format!("removed `outputSchema` ({why})"));
            self.edits.insert("outputSchema", Edit::Remove);
        } else if self.changes.count > before {
            self.edits.insert("outputSchema", Edit::Replace(output));
        }
        Ok(())
    }

    /// Names a resource or template after its URI if it has no name.
    fn add_name(&mut self, kind: ItemKind) {
        if self.values.get("name").is_some_and(Value::is_string) {
            return;
        }
        let key = kind.key_field();
        if let Some(uri) = self.values.get(key) {
            self.edits.insert("name", Edit::Replace(uri.clone()));
            self.changes.add(format!("set `name` to `{key}`"));
        }
    }

    /// Writes the definition. Members without an edit stay as they were sent.
    fn finish(mut self, sent: &'a RawValue) -> Repair<'a> {
        let unchanged = Repair {
            definition: Cow::Borrowed(sent),
            changes: Vec::new(),
        };
        if self.edits.is_empty() {
            return unchanged;
        }
        let mut members = Vec::with_capacity(self.sent.len() + 1);
        for (name, raw) in &self.sent {
            match self.edits.remove(name.as_str()) {
                None => members.push(write_member(name, raw.get())),
                Some(Edit::Remove) => {}
                Some(Edit::Replace(value)) => members.push(write_member(name, &value.to_string())),
            }
        }
        for (name, edit) in self.edits {
            if let Edit::Replace(value) = edit {
                members.push(write_member(name, &value.to_string()));
            }
        }
        match RawValue::from_string(format!("{{{}}}", members.join(","))) {
            Ok(repaired) => Repair {
                definition: Cow::Owned(repaired),
                changes: self.changes.into_lines(),
            },
            // Cannot happen: all members are JSON.
            Err(_) => unchanged,
        }
    }
}

impl Changes {
    fn add(&mut self, change: String) {
        self.count += 1;
        if self.described.len() < MAX_DESCRIBED_CHANGES {
            self.described.push(change);
        }
    }

    fn add_removal(&mut self, place: &Place<'_>, value: &Value, shape: &shape::Shape) {
        let why = match value {
            Value::Null => "null".to_owned(),
            _ => format!("not {}", shape.describe()),
        };
        self.add(format!("removed `{place}` ({why})"));
    }

    fn into_lines(mut self) -> Vec<String> {
        match self.count - self.described.len() {
            0 => {}
            more => {
                let more = plural::count(more as u64, "more change", "more changes");
                self.described.push(more);
            }
        }
        self.described
    }
}

/// Collects the members of an object in their order, with duplicates.
struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

fn write_member(name: &str, json: &str) -> String {
    format!("{}:{json}", Value::from(name))
}

#[cfg(test)]
mod tests;

//! Reading objects field by field, so that what is not understood is an error that names it.

use serde_json::{Map, Number, Value};

use crate::prompt::Ignored;

/// A field that is wrong, or that cannot be said in another dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct BadField {
    /// Its place, such as `messages[2].content[0].type`.
    pub field: String,
    pub problem: String,
}

/// The members of an object that were not read yet.
pub(crate) struct Fields<'a> {
    at: String,
    members: Map<String, Value>,
    ignored: &'a Ignored,
}

impl BadField {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// A field that only its own dialect can say.
    pub(crate) fn untranslatable(field: impl Into<String>) -> Self {
        Self::new(
            field,
            "cannot be said to this provider, which is talked to in another dialect; leave it out, or name it in the provider's `ignore_fields`",
        )
    }
}

/// A tool of its own provider's, which others do not have.
pub(crate) fn foreign_tool(place: String, kind: &str) -> BadField {
    let problem = format!(
        "is `{kind}`, a tool that only its own provider has; leave it out, or name `{kind}` in the provider's `ignore_fields`"
    );
    BadField::new(place, problem)
}

impl<'a> Fields<'a> {
    /// The members of the object at a place; the place of the whole is empty.
    pub(crate) fn of(value: Value, at: &str, ignored: &'a Ignored) -> Result<Self, BadField> {
        match value {
            Value::Object(members) => Ok(Self {
                at: at.to_owned(),
                members,
                ignored,
            }),
            _ => Err(BadField::new(at, "must be an object")),
        }
    }

    pub(crate) fn ignored(&self) -> &'a Ignored {
        self.ignored
    }

    /// The place of a member.
    pub(crate) fn place(&self, name: &str) -> String {
        match self.at.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.at),
        }
    }

    /// Takes a member; `null` is as good as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.members
            .shift_remove(name)
            .filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, BadField> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "must be a string")),
        }
    }

    pub(crate) fn need_text(&mut self, name: &str) -> Result<String, BadField> {
        let text = self.text(name)?;
        text.ok_or_else(|| self.wrong(name, "is missing"))
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<Number>, BadField> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number)),
            Some(_) => Err(self.wrong(name, "must be a number")),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, BadField> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(name, "must be true or false")),
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, BadField> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(self.wrong(name, "must be an array")),
        }
    }

    /// The members of an object that is a member.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Self>, BadField> {
        let place = self.place(name);
        self.take(name)
            .map(|value| Self::of(value, &place, self.ignored))
            .transpose()
    }

    /// Takes a member that may stand there only with one of these values, which change nothing.
    pub(crate) fn only(&mut self, name: &str, harmless: &[Value]) -> Result<(), BadField> {
        match self.take(name) {
            Some(value) if !harmless.contains(&value) && !self.ignored.has(name) => {
                Err(BadField::untranslatable(self.place(name)))
            }
            _ => Ok(()),
        }
    }

    /// Takes members that are hints, without which the answer is the same.
    pub(crate) fn hints(&mut self, names: &[&str]) {
        for name in names {
            self.members.shift_remove(*name);
        }
    }

    pub(crate) fn wrong(&self, name: &str, problem: &str) -> BadField {
        BadField::new(self.place(name), problem)
    }

    /// Everything was read; what was not is an error.
    pub(crate) fn end(self) -> Result<(), BadField> {
        let left = self.members.iter();
        let mut left = left.filter(|(name, value)| !value.is_null() && !self.ignored.has(name));
        match left.next() {
            None => Ok(()),
            Some((name, _)) => Err(BadField::untranslatable(self.place(name))),
        }
    }
}

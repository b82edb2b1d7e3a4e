//! Reads JSON objects field by field, so that a field left unread becomes an error that names it.

use serde_json::{Map, Number, Value};

use crate::prompt::IgnoredFields;

/// Error for a field that is invalid or has no equivalent in the target dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct FieldError {
    /// Path of the field, such as `messages[2].content[0].type`.
    pub field: String,
    pub problem: String,
}

/// The members of an object that have not been read yet.
pub(crate) struct FieldReader<'a> {
    path: String,
    members: Map<String, Value>,
    ignored: &'a IgnoredFields,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// Creates the error for a field that only its own dialect supports.
    pub(crate) fn untranslatable(field: impl Into<String>) -> Self {
        Self::new(
            field,
            "has no equivalent in this provider's dialect; omit it, or add it to the provider's `ignore_fields`",
        )
    }
}

/// Creates the error for a provider-hosted tool, which other providers do not have.
pub(crate) fn provider_tool_error(path: String, kind: &str) -> FieldError {
    let problem = format!(
        "is `{kind}`, a tool hosted by another provider; omit it, or add `{kind}` to the provider's `ignore_fields`"
    );
    FieldError::new(path, problem)
}

impl<'a> FieldReader<'a> {
    /// Creates a reader for the object at `path`; the root has an empty path.
    pub(crate) fn new(
        value: Value,
        path: &str,
        ignored: &'a IgnoredFields,
    ) -> Result<Self, FieldError> {
        match value {
            Value::Object(members) => Ok(Self {
                path: path.to_owned(),
                members,
                ignored,
            }),
            _ => Err(FieldError::new(path, "must be an object")),
        }
    }

    pub(crate) fn ignored_fields(&self) -> &'a IgnoredFields {
        self.ignored
    }

    /// Returns the path of a member.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Takes a member; `null` counts as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.members
            .shift_remove(name)
            .filter(|value| !value.is_null())
    }

    pub(crate) fn take_string(&mut self, name: &str) -> Result<Option<String>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error_at(name, "must be a string")),
        }
    }

    pub(crate) fn require_string(&mut self, name: &str) -> Result<String, FieldError> {
        let text = self.take_string(name)?;
        text.ok_or_else(|| self.error_at(name, "is missing"))
    }

    pub(crate) fn take_number(&mut self, name: &str) -> Result<Option<Number>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number)),
            Some(_) => Err(self.error_at(name, "must be a number")),
        }
    }

    pub(crate) fn take_bool(&mut self, name: &str) -> Result<Option<bool>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.error_at(name, "must be a boolean")),
        }
    }

    pub(crate) fn take_array(&mut self, name: &str) -> Result<Option<Vec<Value>>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(self.error_at(name, "must be an array")),
        }
    }

    /// Takes a member that is an object and is passed on as it is; an empty one counts as absent.
    pub(crate) fn take_raw_object(&mut self, name: &str) -> Result<Option<Value>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(members)) if members.is_empty() => Ok(None),
            Some(object @ Value::Object(_)) => Ok(Some(object)),
            Some(_) => Err(self.error_at(name, "must be an object")),
        }
    }

    /// Takes a member that is an object.
    pub(crate) fn take_object(&mut self, name: &str) -> Result<Option<Self>, FieldError> {
        let path = self.path_of(name);
        self.take(name)
            .map(|value| Self::new(value, &path, self.ignored))
            .transpose()
    }

    /// Takes a member that may only have one of the `harmless` values, which change nothing.
    pub(crate) fn allow_only(&mut self, name: &str, harmless: &[Value]) -> Result<(), FieldError> {
        match self.take(name) {
            Some(value) if !harmless.contains(&value) && !self.ignored.contains(name) => {
                Err(FieldError::untranslatable(self.path_of(name)))
            }
            _ => Ok(()),
        }
    }

    /// Discards members that do not affect the response.
    pub(crate) fn discard(&mut self, names: &[&str]) {
        for name in names {
            self.members.shift_remove(*name);
        }
    }

    pub(crate) fn error_at(&self, name: &str, problem: &str) -> FieldError {
        FieldError::new(self.path_of(name), problem)
    }

    /// Finishes reading; any member left unread is an error.
    pub(crate) fn finish(self) -> Result<(), FieldError> {
        let unread = self.members.iter();
        let mut unread =
            unread.filter(|(name, value)| !value.is_null() && !self.ignored.contains(name));
        match unread.next() {
            None => Ok(()),
            Some((name, _)) => Err(FieldError::untranslatable(self.path_of(name))),
        }
    }
}

//! Actions of the administrator in the trail.

use serde_json::Value;

use super::{AuditKind, AuditRecord};

/// Something that the administrator did, for the trail.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdminAction {
    /// Who did it.
    pub actor: String,
    /// What was done, such as `key.delete`.
    pub action: String,
    /// Name of what was changed.
    pub target: String,
    /// What it was before the change, without secrets.
    pub before: Option<Value>,
    /// What it was after the change, without secrets.
    pub after: Option<Value>,
}

impl AdminAction {
    /// Describes an action.
    pub fn new(actor: &str, action: &str, target: &str) -> Self {
        Self {
            actor: actor.to_owned(),
            action: action.to_owned(),
            target: target.to_owned(),
            before: None,
            after: None,
        }
    }

    /// Adds what the target was before and after, without secrets.
    #[must_use]
    pub fn with_change(mut self, before: Option<Value>, after: Option<Value>) -> Self {
        (self.before, self.after) = (before, after);
        self
    }

    pub(crate) fn into_record(self) -> AuditRecord {
        let mut detail = serde_json::Map::new();
        detail.insert("target".to_owned(), self.target.into());
        for (name, value) in [("before", self.before), ("after", self.after)] {
            detail.extend(value.map(|value| (name.to_owned(), value)));
        }
        AuditRecord {
            caller: Some(self.actor),
            origin: "api".to_owned(),
            detail: Some(detail.into()),
            ..AuditRecord::event(AuditKind::Admin, &self.action, "ok")
        }
    }
}

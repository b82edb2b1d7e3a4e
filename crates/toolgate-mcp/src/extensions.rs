//! Extensions of the protocol, as clients and servers declare them in their capabilities.
//!
//! The gateway passes on what it need not understand: an extension that only adds metadata, resources or
//! members of messages works through it. This is the one place that decides which extensions do.

use toolgate_core::json::{Members, may_contain};

use crate::jsonrpc::Object;
use crate::task;

/// The member of capabilities that declares extensions.
const MEMBER: &str = "extensions";

/// Extensions with methods of their own, which the gateway declares itself where it supports them.
const WITHHELD: [&str; 1] = [task::EXTENSION];

/// Maximum size of the extensions of a client or server; larger ones are not passed on.
const MAX_BYTES: usize = 8 * 1024;

/// Extensions with their settings, in the order in which they were declared.
#[derive(Clone, Debug, Default)]
pub struct Extensions(Object);

impl Extensions {
    /// Reads the extensions that capabilities declare, except those that are not passed on.
    pub fn from_capabilities(capabilities: &str) -> Self {
        if !may_contain(capabilities, MEMBER) {
            return Self::default();
        }
        let declared = Members::parse(capabilities).and_then(|members| members.get(MEMBER));
        let declared = declared.filter(|declared| declared.get().len() <= MAX_BYTES);
        let declared = declared.and_then(|declared| Members::parse(declared.get()));
        let passed_on = declared.into_iter().flatten();
        let passed_on = passed_on.filter(|(name, _)| !WITHHELD.contains(&&**name));
        Self(
            passed_on.fold(Object::new(), |extensions, (name, settings)| {
                extensions.raw(&name, settings.get())
            }),
        )
    }

    /// Adds an extension without settings.
    #[must_use]
    pub fn with(self, name: &str) -> Self {
        Self(self.0.raw(name, "{}"))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the extensions of another server. Those that both declare keep the settings of this one.
    #[must_use]
    pub fn join(self, other: &Self) -> Self {
        let (own, other) = (self.0.to_string(), other.0.to_string());
        let own = Members::parse(&own).unwrap_or_default();
        let other = Members::parse(&other).unwrap_or_default();
        let added = other.iter().filter(|(name, _)| own.get(name).is_none());
        Self(added.fold(self.0, |joined, (name, settings)| {
            joined.raw(name, settings.get())
        }))
    }

    /// Returns capabilities that declare these extensions instead of their own.
    pub fn replace_in(&self, capabilities: &str) -> String {
        let members = Members::parse(capabilities).unwrap_or_default();
        let others = members.iter().filter(|(name, _)| *name != MEMBER);
        let others = others.fold(Object::new(), |object, (name, value)| {
            object.raw(name, value.get())
        });
        if self.is_empty() {
            others.to_string()
        } else {
            others.raw(MEMBER, &self.0.to_string()).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_read_joined_and_declared_except_those_withheld() {
        let read = Extensions::from_capabilities;
        let both =
            r#"{"roots":{}, "extensions":{"a/ui":{"x": 1.0},"io.modelcontextprotocol/tasks":{}}}"#;
        assert_eq!(
            read(both).replace_in(both),
            r#"{"roots":{},"extensions":{"a/ui":{"x": 1.0}}}"#
        );
        let tasks = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        assert_eq!(read(tasks).replace_in(tasks), "{}");
        let other = read(r#"{"extensions":{"a/ui":{"x":2},"b":{}}}"#);
        let joined = read(both).join(&other).replace_in(r#"{"tools":{}}"#);
        assert_eq!(
            joined,
            r#"{"tools":{},"extensions":{"a/ui":{"x": 1.0},"b":{}}}"#
        );
        for nothing in [
            "{}",
            "[]",
            r#"{"extensions":null}"#,
            r#"{"extensions":[1]}"#,
        ] {
            assert!(read(nothing).is_empty(), "{nothing}");
        }
    }
}

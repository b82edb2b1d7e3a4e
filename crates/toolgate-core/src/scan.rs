//! What a tool is asked to do, searched for what it should not: a scan of a call's arguments.
//!
//! It reads strings and the names they stand under, and knows neither the tool nor its schema, so
//! it finds hints, not proofs: what follows from a finding is the policy's to say. Nothing is
//! resolved or opened; a public name that points at a private address passes.

mod address;
mod key;
mod path;
mod shell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::shape;
use key::Hints;

/// More findings of one kind than this tell nobody more.
const MOST_OF_A_KIND: usize = 16;

/// A kind of danger.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Danger {
    /// A path that climbs out of its folder.
    PathTraversal,
    /// A command that chains, redirects or substitutes others.
    Shell,
    /// A URL or host inside the network of the gateway.
    PrivateAddress,
    /// A key, token or password.
    Secret,
}

impl Danger {
    pub const ALL: [Self; 4] = [
        Self::PathTraversal,
        Self::Shell,
        Self::PrivateAddress,
        Self::Secret,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::PathTraversal => "path_traversal",
            Self::Shell => "shell",
            Self::PrivateAddress => "private_address",
            Self::Secret => "secret",
        }
    }
}

/// One danger in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    pub danger: Danger,
    /// Where: a JSON pointer such as `/options/path`.
    pub place: String,
    /// What, in words for people and models; never quotes a secret.
    pub what: String,
}

/// The dangers of these kinds in the arguments of a call, in their order, up to a bound for each
/// kind: no number of one hides another.
pub fn scan(arguments: &Value, kinds: &[Danger]) -> Vec<Found> {
    let mut walk = Walk {
        place: String::new(),
        found: Vec::new(),
        left: Danger::ALL.map(|danger| match kinds.contains(&danger) {
            true => MOST_OF_A_KIND,
            false => 0,
        }),
    };
    walk.value(arguments, Hints::default());
    walk.found
}

struct Walk {
    place: String,
    found: Vec<Found>,
    /// How many of each kind may still be found, in the order of [`Danger::ALL`].
    left: [usize; 4],
}

impl Walk {
    fn value(&mut self, value: &Value, hints: Hints) {
        match value {
            Value::String(text) => self.text(text, hints),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if self.is_full() {
                        break;
                    }
                    self.at(&index.to_string(), |walk| walk.value(item, hints));
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    if self.is_full() {
                        break;
                    }
                    self.at(name, |walk| {
                        walk.secret(name);
                        walk.value(member, Hints::of(name));
                    });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn at(&mut self, step: &str, visit: impl FnOnce(&mut Self)) {
        let parent = self.place.len();
        self.place.push('/');
        match step.contains(['~', '/']) {
            true => self
                .place
                .push_str(&step.replace('~', "~0").replace('/', "~1")),
            false => self.place.push_str(step),
        }
        visit(self);
        self.place.truncate(parent);
    }

    fn text(&mut self, text: &str, hints: Hints) {
        if self.looks_for(Danger::PathTraversal) {
            let path = match hints.is_path(text) {
                true => path::in_path(text),
                false => path::in_text(text),
            };
            if let Some(what) = path {
                self.add(Danger::PathTraversal, what);
            }
        }
        if hints.command
            && self.looks_for(Danger::Shell)
            && let Some(what) = shell::operator(text)
        {
            self.add(Danger::Shell, &what);
        }
        if self.looks_for(Danger::PrivateAddress) {
            let address = match hints.is_host(text) {
                true => address::in_host(text),
                false => address::in_url(text),
            };
            if let Some(what) = address {
                self.add(Danger::PrivateAddress, &what);
            }
        }
        self.secret(text);
    }

    fn secret(&mut self, text: &str) {
        if self.looks_for(Danger::Secret)
            && let Some(kind) = shape::find(text)
        {
            self.add(Danger::Secret, &format!("what looks like {kind}"));
        }
    }

    fn add(&mut self, danger: Danger, what: &str) {
        self.left[danger as usize] -= 1;
        // Names of members and hosts come from the caller too, and may be the secret.
        self.found.push(Found {
            danger,
            place: shape::redact(&self.place).into_owned(),
            what: shape::redact(what).into_owned(),
        });
    }

    fn looks_for(&self, danger: Danger) -> bool {
        self.left[danger as usize] > 0
    }

    fn is_full(&self) -> bool {
        self.left == [0; 4]
    }
}

#[cfg(test)]
mod tests;

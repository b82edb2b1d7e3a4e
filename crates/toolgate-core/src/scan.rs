//! Scans the arguments of a call for dangerous values, and definitions for suspicious text.
//!
//! The scan of arguments looks at strings and their argument names and knows neither the tool nor its schema, so
//! a finding is a hint, not proof; the policy decides what follows from it. Nothing is resolved or
//! opened: a public host name that points to a private address is not detected.

mod address;
mod definition;
mod name_hints;
mod path;
mod shell;

pub use address::describe_address;
pub use definition::{DefinitionFinding, DefinitionScanner, Suspicion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::secret::patterns;
use name_hints::NameHints;

/// Maximum number of findings reported per kind.
const MAX_FINDINGS_PER_KIND: usize = 16;

/// Kind of danger.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Danger {
    /// A path that escapes its directory.
    PathTraversal,
    /// A command that chains, redirects or substitutes other commands.
    Shell,
    /// A URL or host inside the gateway's network.
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

/// A danger found in the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScanFinding {
    pub danger: Danger,
    /// JSON pointer to the value, such as `/options/path`.
    pub place: String,
    /// Description for people and models; never quotes a secret.
    pub what: String,
}

/// Finds dangers of these kinds in the arguments of a call, in order. The number of findings is
/// limited per kind, so that many of one kind do not hide another.
pub fn scan(arguments: &Value, kinds: &[Danger]) -> Vec<ScanFinding> {
    let mut scanner = ArgumentScanner {
        place: String::new(),
        found: Vec::new(),
        remaining: Danger::ALL.map(|danger| {
            if kinds.contains(&danger) {
                MAX_FINDINGS_PER_KIND
            } else {
                0
            }
        }),
    };
    scanner.visit_value(arguments, NameHints::default());
    scanner.found
}

struct ArgumentScanner {
    place: String,
    found: Vec<ScanFinding>,
    /// Remaining findings per kind, in the order of [`Danger::ALL`].
    remaining: [usize; 4],
}

impl ArgumentScanner {
    fn visit_value(&mut self, value: &Value, hints: NameHints) {
        match value {
            Value::String(text) => self.visit_text(text, hints),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if self.is_full() {
                        break;
                    }
                    self.with_step(&index.to_string(), |scanner| {
                        scanner.visit_value(item, hints)
                    });
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    if self.is_full() {
                        break;
                    }
                    self.with_step(name, |scanner| {
                        scanner.check_secret(name);
                        scanner.visit_value(member, NameHints::from_name(name));
                    });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn with_step(&mut self, step: &str, visit: impl FnOnce(&mut Self)) {
        let parent = self.place.len();
        self.place.push('/');
        if step.contains(['~', '/']) {
            self.place
                .push_str(&step.replace('~', "~0").replace('/', "~1"));
        } else {
            self.place.push_str(step);
        }
        visit(self);
        self.place.truncate(parent);
    }

    fn visit_text(&mut self, text: &str, hints: NameHints) {
        if self.is_looking_for(Danger::PathTraversal) {
            let path = if hints.is_path(text) {
                path::check_path(text)
            } else {
                path::check_text(text)
            };
            if let Some(what) = path {
                self.add_finding(Danger::PathTraversal, what);
            }
        }
        if hints.command
            && self.is_looking_for(Danger::Shell)
            && let Some(what) = shell::find_operator(text)
        {
            self.add_finding(Danger::Shell, &what);
        }
        if self.is_looking_for(Danger::PrivateAddress) {
            let address = if hints.is_host(text) {
                address::check_host(text)
            } else {
                address::check_url(text)
            };
            if let Some(what) = address {
                self.add_finding(Danger::PrivateAddress, &what);
            }
        }
        self.check_secret(text);
    }

    fn check_secret(&mut self, text: &str) {
        if self.is_looking_for(Danger::Secret)
            && let Some(kind) = patterns::find_kind(text)
        {
            self.add_finding(Danger::Secret, &format!("something that looks like {kind}"));
        }
    }

    fn add_finding(&mut self, danger: Danger, what: &str) {
        self.remaining[danger as usize] -= 1;
        // Member and host names also come from the caller and may contain the secret.
        self.found.push(ScanFinding {
            danger,
            place: patterns::redact(&self.place).into_owned(),
            what: patterns::redact(what).into_owned(),
        });
    }

    fn is_looking_for(&self, danger: Danger) -> bool {
        self.remaining[danger as usize] > 0
    }

    fn is_full(&self) -> bool {
        self.remaining == [0; 4]
    }
}

#[cfg(test)]
mod tests;

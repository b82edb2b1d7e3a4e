//! Identifies the tool that an approval covers.

use std::fmt;

/// Fingerprint of a tool: of the program or URL that its server's name refers to, and of the tool's
/// definition. An approval does not cover a tool with another fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolFingerprint {
    /// Hash of the server's connection.
    pub server: String,
    /// Hash of the tool's definition, or `resource` or `prompt` with a hash of that; empty in approvals of versions that did not store it.
    pub definition: String,
}

impl ToolFingerprint {
    /// Returns whether this is the fingerprint of a resource or prompt, not of a tool.
    pub(crate) fn is_item(&self) -> bool {
        self.definition.contains(' ')
    }

    /// Parses the form in the store.
    pub(super) fn parse(text: &str) -> Self {
        let (server, definition) = text.split_once(':').unwrap_or((text, ""));
        Self {
            server: server.to_owned(),
            definition: definition.to_owned(),
        }
    }
}

/// Writes the form in the store, `SERVER:DEFINITION`.
impl fmt::Display for ToolFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server, self.definition)
    }
}

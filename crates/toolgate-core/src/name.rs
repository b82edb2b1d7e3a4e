//! Names that cross a boundary: servers, tools, and the aliases that models see.
//!
//! Raw names are used on the wire, aliases towards models. This module only defines how names
//! are spelled; [`crate::catalog`] keeps aliases unique.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a tool name that every model provider accepts.
pub const MAX_ALIAS_LEN: usize = 64;

const MAX_SERVER_NAME_LEN: usize = 64;
const RESERVED_NAME: &str = "toolgate";

/// Configured name of an upstream server: `[A-Za-z0-9_-]{1,64}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ServerName(Arc<str>);

/// Name of a tool, exactly as its server reports it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ToolName(Arc<str>);

/// Identifies a tool by the raw names of its server and itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ToolId {
    pub server: ServerName,
    pub tool: ToolName,
}

/// Style in which server and tool names are joined into an alias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NameStyle {
    /// `filesystem_read_file`
    #[default]
    Underscore,
    /// `filesystem-read_file`
    Hyphen,
    /// `mcp__filesystem__read_file`
    Mcp,
}

/// Error returned when a text is not a valid server name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("server name must not be empty")]
    Empty,
    #[error(
        "server name `{0}` is longer than {MAX_SERVER_NAME_LEN} characters; choose a shorter name, it prefixes every tool"
    )]
    TooLong(String),
    #[error("server name `{0}` may contain only letters, digits, `_` and `-`; try `{1}`")]
    Characters(String, String),
    #[error(
        "server name `{RESERVED_NAME}` is reserved for the gateway's built-in tools; choose another name"
    )]
    Reserved,
}

impl ServerName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.chars().count() > MAX_SERVER_NAME_LEN {
            return Err(NameError::TooLong(text.to_owned()));
        }
        if let Cow::Owned(fixed) = sanitize(text) {
            return Err(NameError::Characters(text.to_owned(), fixed));
        }
        if fold(text) == RESERVED_NAME {
            return Err(NameError::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// Derives a valid name from any text. Unusable characters become `_`, and a number is appended
    /// until `is_free` accepts the name.
    pub fn derive(text: &str, is_free: impl Fn(&Self) -> bool) -> Self {
        let text = sanitize(text);
        let base = if text.is_empty() { "server" } else { &*text };
        let mut number = 1_u64;
        loop {
            let suffix = match number {
                1 => String::new(),
                number => format!("_{number}"),
            };
            // A sanitized text is ASCII, so it can be cut anywhere.
            let length = base.len().min(MAX_SERVER_NAME_LEN - suffix.len());
            if let Ok(name) = Self::parse(&format!("{}{suffix}", &base[..length]))
                && is_free(&name)
            {
                return name;
            }
            number += 1;
        }
    }

    /// Server name of the gateway's built-in tools. No configured server can have it.
    pub fn builtin() -> Self {
        Self(RESERVED_NAME.into())
    }

    /// Form in which two names are compared: lower case, with `-` replaced by `_`.
    pub fn to_folded(&self) -> String {
        fold(&self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ToolName {
    pub fn new(raw: &str) -> Self {
        Self(raw.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NameStyle {
    pub const ALL: [Self; 3] = [Self::Underscore, Self::Hyphen, Self::Mcp];

    /// Text before the tool name in an alias of this style.
    pub fn prefix(self, server: &ServerName) -> String {
        match self {
            Self::Underscore => format!("{server}_"),
            Self::Hyphen => format!("{server}-"),
            Self::Mcp => format!("mcp__{server}__"),
        }
    }
}

/// Replaces every character that model providers reject in tool names with `_`.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.chars().all(valid) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(
            text.chars()
                .map(|c| if valid(c) { c } else { '_' })
                .collect(),
        )
    }
}

fn fold(text: &str) -> String {
    text.to_ascii_lowercase().replace('-', "_")
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.server, self.tool)
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_are_validated() {
        for good in ["a", "web-search", "My_Server9", &"x".repeat(64)] {
            assert!(ServerName::parse(good).is_ok(), "{good}");
        }
        assert_eq!(ServerName::parse(""), Err(NameError::Empty));
        assert_eq!(ServerName::parse("Toolgate"), Err(NameError::Reserved));
        assert!(matches!(
            ServerName::parse(&"x".repeat(65)),
            Err(NameError::TooLong(_))
        ));
        assert_eq!(
            ServerName::parse("web search/é"),
            Err(NameError::Characters(
                "web search/é".into(),
                "web_search__".into()
            ))
        );
    }

    #[test]
    fn names_fold_case_and_separators() {
        let fold = |text| ServerName::parse(text).unwrap().to_folded();
        assert_eq!(fold("Web-Search"), fold("web_search"));
        assert_ne!(fold("web"), fold("webs"));
    }
}

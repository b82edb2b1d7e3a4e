//! Names that cross a boundary: servers, tools, and how both are joined into what a model sees.
//!
//! Raw names go on the wire, aliases go to models. How aliases are kept unique is in
//! [`crate::catalog`]; here is only the spelling.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest name that every model provider accepts for a tool.
pub const MAX_ALIAS: usize = 64;

const MAX_SERVER_NAME: usize = 64;
const RESERVED: &str = "toolgate";

/// The configured name of an upstream server: `[A-Za-z0-9_-]{1,64}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ServerName(Arc<str>);

/// The name of a tool exactly as its server gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ToolName(Arc<str>);

/// A tool of a server, by raw names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ToolId {
    pub server: ServerName,
    pub tool: ToolName,
}

/// How server and tool are joined into an alias.
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

/// Why a text is no server name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a server name must not be empty")]
    Empty,
    #[error(
        "server name `{0}` is longer than {MAX_SERVER_NAME} characters; choose a shorter one, it prefixes every tool"
    )]
    TooLong(String),
    #[error("server name `{0}` may contain only letters, digits, `_` and `-`; try `{1}`")]
    Characters(String, String),
    #[error("server name `{RESERVED}` is reserved for the gateway's own tools; choose another")]
    Reserved,
}

impl ServerName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.chars().count() > MAX_SERVER_NAME {
            return Err(NameError::TooLong(text.to_owned()));
        }
        if let Cow::Owned(fixed) = sanitize(text) {
            return Err(NameError::Characters(text.to_owned(), fixed));
        }
        if fold(text) == RESERVED {
            return Err(NameError::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// The name under which the gateway's own tools go, which no server can have.
    pub fn own() -> Self {
        Self(RESERVED.into())
    }

    /// The form under which two names count as the same.
    pub fn folded(&self) -> String {
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

    /// What stands before the tool in an alias of this style.
    pub fn prefix(self, server: &ServerName) -> String {
        match self {
            Self::Underscore => format!("{server}_"),
            Self::Hyphen => format!("{server}-"),
            Self::Mcp => format!("mcp__{server}__"),
        }
    }
}

/// Replaces every character that a model provider would refuse in a tool name.
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
    fn server_names() {
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
        let fold = |text| ServerName::parse(text).unwrap().folded();
        assert_eq!(fold("Web-Search"), fold("web_search"));
        assert_ne!(fold("web"), fold("webs"));
    }
}

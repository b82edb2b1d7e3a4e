//! Settings files of MCP clients: where they are, what connects a client to the gateway, and how an entry is
//! written into a file without changing anything else in it.

mod client;
mod diff;
mod file;
mod json;
mod toml;
mod yaml;

use std::borrow::Cow;
use std::path::PathBuf;

pub(crate) use client::{Client, Connection, ConnectionKey, Platform};
pub(crate) use diff::format_diff;
pub(crate) use file::SettingsFile;
use serde_json::{Map, Value};

/// Name of the gateway's entry.
const ENTRY_NAME: &str = "toolgate";

/// Members that say how a client reaches a server. Those that the new entry does not have are removed from an
/// existing one; all others are kept.
const TRANSPORT_MEMBERS: [&str; 13] = [
    "args",
    "bearer_token_env_var",
    "cmd",
    "command",
    "headers",
    "http_headers",
    "env_http_headers",
    "httpUrl",
    "serverUrl",
    "transport",
    "type",
    "uri",
    "url",
];

/// Format of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// JSON, possibly with comments and trailing commas.
    Json,
    Toml,
    Yaml,
}

/// The entry that connects a client, and where it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) file: PathBuf,
    format: Format,
    /// Names of the objects that contain the entry, from the outermost.
    section: &'static [&'static str],
    members: Map<String, Value>,
}

/// Why a file cannot be edited.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    #[error("it cannot be parsed: {0}")]
    Malformed(String),
    #[error("{0}")]
    Unsupported(String),
}

impl Entry {
    /// Returns the content of the settings file with the entry.
    pub(crate) fn apply(&self, content: &str) -> Result<String, EditError> {
        // Editors on Windows write a byte order mark and end lines with `\r\n`.
        let (mark, text) = match content.strip_prefix('\u{feff}') {
            Some(text) => ("\u{feff}", text),
            None => ("", content),
        };
        let line_ends = text.matches('\n').count();
        let is_windows = line_ends > 0 && text.matches("\r\n").count() == line_ends;
        let text = if is_windows {
            Cow::Owned(text.replace("\r\n", "\n"))
        } else {
            Cow::Borrowed(text)
        };
        let edited = match self.format {
            Format::Json => json::edit(&text, self.section, &self.members),
            Format::Toml => toml::edit(&text, self.section, &self.members),
            Format::Yaml => yaml::edit(&text, self.section, &self.members),
        }?;
        Ok(if is_windows {
            format!("{mark}{}", edited.replace('\n', "\r\n"))
        } else {
            format!("{mark}{edited}")
        })
    }

    /// Returns a file with nothing but the entry.
    pub(crate) fn snippet(&self) -> Result<String, EditError> {
        self.apply("")
    }
}

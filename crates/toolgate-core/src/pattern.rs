//! Patterns over tools, as users write them in rules and filters.
//!
//! A pattern names one server and a glob over its tools, in any name style. The server part is
//! resolved against the configured names, and `*` never crosses the border between server and
//! tool: `github_*` says nothing about a server `github_evil`. Wildcards over servers are written
//! `*.tool`, or in a rule's `server`.

use crate::name::{NameStyle, ServerName, ToolId, sanitize};

/// A text in which `*` stands for any characters and `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

/// A glob over server names and one over tool names; both must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPattern {
    pub server: Glob,
    pub tool: Glob,
}

/// A text that names tools, read against the configured servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The text itself, which may be a tool's alias.
    alias: Option<String>,
    patterns: Vec<ToolPattern>,
}

/// What a text means that could mean more than one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// For what opens a door: one meaning, the longest server name for a glob, or an error.
    Narrow,
    /// For what closes one: every meaning.
    Wide,
}

/// Why a text selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error(
        "`{tool}` names no configured server, so it never matches; write `SERVER.TOOL`, `SERVER.*` or `*.TOOL`"
    )]
    NoServer { tool: String },
    #[error(
        "`{tool}` fits tools of {servers}; write the server's name followed by a dot, as in `SERVER.TOOL`"
    )]
    Ambiguous { tool: String, servers: String },
}

impl Glob {
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn any() -> Self {
        Self("*".to_owned())
    }

    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut p, mut t) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    retry = Some((p, t));
                    p += 1;
                }
                Some(b'?') => {
                    p += 1;
                    t += width(text[t]);
                }
                Some(&c) if c == text[t] => {
                    p += 1;
                    t += 1;
                }
                _ => match retry {
                    Some((star, from)) => {
                        let next = from + width(text[from]);
                        retry = Some((star, next));
                        p = star + 1;
                        t = next;
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|&c| c == b'*')
    }
}

/// How many bytes the character has that begins with this one.
fn width(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

impl ToolPattern {
    /// Every reading of `text` that fits the configured servers, the longest server name first.
    ///
    /// More than one reading is possible where one server's name begins with another's. None
    /// means that the text names no configured server.
    pub fn readings<'a>(
        text: &str,
        servers: impl IntoIterator<Item = &'a ServerName>,
    ) -> Vec<Self> {
        if text == "*" {
            return vec![Self {
                server: Glob::any(),
                tool: Glob::any(),
            }];
        }
        if let Some(tool) = text.strip_prefix("*.") {
            return vec![Self {
                server: Glob::any(),
                tool: Glob::new(tool),
            }];
        }
        let mut found: Vec<(usize, Self)> = servers
            .into_iter()
            .flat_map(|server| {
                spelled(text, server).map(|tool| {
                    let pattern = Self {
                        server: Glob::new(server.as_str()),
                        tool: Glob::new(tool),
                    };
                    (server.as_str().len(), pattern)
                })
            })
            .collect();
        found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
        found.into_iter().map(|(_, pattern)| pattern).collect()
    }

    pub fn matches(&self, id: &ToolId) -> bool {
        self.server.matches(id.server.as_str())
            && (self.tool.matches(id.tool.as_str())
                || self.tool.matches(&sanitize(id.tool.as_str())))
    }
}

impl Selector {
    pub fn read(
        text: &str,
        servers: &[ServerName],
        reading: Reading,
    ) -> Result<Self, SelectorError> {
        let mut patterns = ToolPattern::readings(text, servers);
        if patterns.is_empty() {
            return Err(SelectorError::NoServer {
                tool: text.to_owned(),
            });
        }
        if reading == Reading::Narrow {
            patterns = narrow(text, patterns)?;
        }
        Ok(Self {
            alias: Some(text.to_owned()),
            patterns,
        })
    }

    /// What a text selects, whatever is to be said of it; none if that is not clear. A text that
    /// names no server may still be an alias, of which the server's name was cut away.
    pub fn meant(text: &str, servers: &[ServerName], reading: Reading) -> Option<Self> {
        match Self::read(text, servers, reading) {
            Ok(selector) => Some(selector),
            Err(SelectorError::NoServer { .. }) => Some(Self::alias(text)),
            Err(SelectorError::Ambiguous { .. }) => None,
        }
    }

    /// Tools of all servers that a glob fits, by raw names.
    pub fn of_servers(server: &str, tool: &str) -> Self {
        Self {
            alias: None,
            patterns: vec![ToolPattern {
                server: Glob::new(server),
                tool: Glob::new(tool),
            }],
        }
    }

    /// The one tool that has this alias, if any.
    pub fn alias(text: &str) -> Self {
        Self {
            alias: Some(text.to_owned()),
            patterns: Vec::new(),
        }
    }

    pub fn matches(&self, id: &ToolId, alias: &str) -> bool {
        self.alias.as_deref() == Some(alias) || self.patterns.iter().any(|p| p.matches(id))
    }

    /// Whether it may select tools of this server; an alias alone may be of any.
    pub fn names(&self, server: &ServerName) -> bool {
        let mut patterns = self.patterns.iter();
        self.patterns.is_empty() || patterns.any(|pattern| pattern.server.matches(server.as_str()))
    }
}

/// The one meaning of a text that opens a door: the server before a dot, else the longest name
/// where the tool is a glob, else the only server that fits.
fn narrow(text: &str, patterns: Vec<ToolPattern>) -> Result<Vec<ToolPattern>, SelectorError> {
    let dotted = |pattern: &&ToolPattern| {
        let rest = text.strip_prefix(pattern.server.0.as_str());
        rest.is_some_and(|rest| rest.strip_prefix('.') == Some(pattern.tool.0.as_str()))
    };
    if let Some(dotted) = patterns.iter().find(dotted) {
        return Ok(vec![dotted.clone()]);
    }
    let Some(longest) = patterns.iter().map(|p| p.server.0.len()).max() else {
        return Ok(patterns);
    };
    let is_glob = text.contains(['*', '?']);
    let meant: Vec<ToolPattern> = patterns
        .into_iter()
        .filter(|pattern| !is_glob || pattern.server.0.len() == longest)
        .collect();
    let mut servers: Vec<&str> = meant.iter().map(|p| p.server.0.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    match servers.as_slice() {
        [_] => Ok(meant),
        several => {
            let several: Vec<String> = several.iter().map(|name| format!("`{name}`")).collect();
            Err(SelectorError::Ambiguous {
                tool: text.to_owned(),
                servers: several.join(" and "),
            })
        }
    }
}

/// The tool part of `text` for each spelling in which it names a tool of `server`.
pub fn spelled<'t>(text: &'t str, server: &ServerName) -> impl Iterator<Item = &'t str> {
    let dotted = format!("{server}.");
    NameStyle::ALL
        .into_iter()
        .map(|style| style.prefix(server))
        .chain([dotted])
        .filter_map(|prefix| text.strip_prefix(prefix.as_str()))
        .filter(|tool| !tool.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ToolName;

    fn names(list: &[&str]) -> Vec<ServerName> {
        list.iter()
            .map(|name| ServerName::parse(name).unwrap())
            .collect()
    }

    fn matches(pattern: &str, servers: &[&str], server: &str, tool: &str) -> bool {
        let id = ToolId {
            server: ServerName::parse(server).unwrap(),
            tool: ToolName::new(tool),
        };
        ToolPattern::readings(pattern, &names(servers))
            .iter()
            .any(|reading| reading.matches(&id))
    }

    #[test]
    fn globs() {
        for (glob, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("read_*", "read_file", true),
            ("read_*", "write_file", false),
            ("*_file", "read_file_file", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("r??d", "read", true),
            ("r??d", "rad", false),
        ] {
            assert_eq!(Glob::new(glob).matches(text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn every_name_style_is_understood() {
        for pattern in [
            "fs_read*",
            "fs-read*",
            "mcp__fs__read*",
            "fs.read*",
            "*.read*",
            "*",
        ] {
            assert!(matches(pattern, &["fs"], "fs", "read_file"), "{pattern}");
        }
        assert!(!matches("Bash", &["fs"], "fs", "Bash"));
        assert!(!matches("fs", &["fs"], "fs", "fs"));
    }

    #[test]
    fn stars_never_cross_from_server_to_tool() {
        let servers = ["github", "github_evil"];
        assert!(!matches("github_*", &servers, "github_evil", "x"));
        assert!(matches("github_*", &servers, "github", "evil_x"));
        assert!(!matches("git*_x", &servers, "github", "x"));
    }

    #[test]
    fn a_text_may_have_two_readings_longest_first() {
        let readings = ToolPattern::readings("a_b_c", &names(&["a", "a_b"]));
        let servers: Vec<_> = readings.iter().map(|r| r.server.clone()).collect();
        assert_eq!(servers, [Glob::new("a_b"), Glob::new("a")]);
    }

    #[test]
    fn a_rule_may_use_the_sanitised_name() {
        assert!(matches("fs_a_b", &["fs"], "fs", "a.b"));
    }
}

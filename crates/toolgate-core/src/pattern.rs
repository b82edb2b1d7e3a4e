//! Tool patterns as users write them in rules, grants and filters.
//!
//! A pattern names one server and a glob over its tools, in any name style. The server part is
//! resolved against the configured names, and `*` never crosses the boundary between server and
//! tool: `github_*` does not match tools of a server `github_evil`. Wildcards over servers are
//! written `*.tool`, or in a rule's `server`.
//!
//! A text that grants access names exactly one server. Otherwise removing the server that it names
//! could turn it into a grant of another server's tools.

use crate::catalog::HashedAlias;
use crate::name::{NameStyle, ServerName, ToolId, sanitize};

/// Glob in which `*` matches any characters and `?` exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

/// Glob over server names and glob over tool names; both must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPattern {
    pub server: Glob,
    pub tool: Glob,
}

/// Text that names tools, resolved against the configured servers. The default selects nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Set if the text may be an alias that ends in a hash of the tool's id.
    alias: Option<HashedAlias>,
    patterns: Vec<ToolPattern>,
}

/// Determines how an ambiguous text is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorMode {
    /// For texts that grant access: they name exactly one server, or are an error. The name before
    /// a dot is always the server.
    Narrow,
    /// For texts that restrict access: every interpretation.
    Wide,
}

/// Error returned when a text does not select tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error(
        "`{tool}` does not name a configured server, so it never matches; write `SERVER.TOOL`, `SERVER.*` or `*.TOOL`"
    )]
    NoServer { tool: String },
    #[error(
        "`{tool}` matches tools of {servers}; write the server name followed by a dot, as in `SERVER.TOOL`"
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

    /// Returns whether the glob matches every text.
    fn matches_all(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|c| c == b'*')
    }

    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut p, mut t) = (0, 0);
        // Position of the last `*`, and where its match ends so far. Backtracking to the last one
        // suffices, so matching takes quadratic time at worst.
        let mut retry: Option<(usize, usize)> = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    retry = Some((p, t));
                    p += 1;
                }
                Some(b'?') => {
                    p += 1;
                    t += utf8_len(text[t]);
                }
                Some(&c) if c == text[t] => {
                    p += 1;
                    t += 1;
                }
                _ => match retry {
                    Some((star, from)) => {
                        let next = from + utf8_len(text[from]);
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

/// Length in bytes of the UTF-8 character that starts with this byte.
fn utf8_len(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

impl ToolPattern {
    /// Returns every interpretation of `text` that matches a configured server, longest server name
    /// first.
    ///
    /// There can be several when one server's name is a prefix of another's. The result is empty if
    /// the text does not name a configured server.
    pub fn parse_all<'a>(
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
                strip_server_prefixes(text, server).map(|tool| {
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
            // Users copy names from aliases, which are sanitized.
            && (self.tool.matches(id.tool.as_str())
                || self.tool.matches(&sanitize(id.tool.as_str())))
    }
}

impl Selector {
    pub fn parse(
        text: &str,
        servers: &[ServerName],
        mode: SelectorMode,
    ) -> Result<Self, SelectorError> {
        let patterns = match (mode, split_at_dot(text)) {
            (SelectorMode::Narrow, Some((server, tool))) => {
                let mut servers = servers.iter();
                let known = servers.any(|known| known.as_str() == server);
                known
                    .then(|| ToolPattern {
                        server: Glob::new(server),
                        tool: Glob::new(tool),
                    })
                    .into_iter()
                    .collect()
            }
            _ => ToolPattern::parse_all(text, servers),
        };
        let alias = HashedAlias::parse(text);
        let is_shortened = |alias: &HashedAlias| servers.iter().any(|s| alias.is_cut_within(s));
        if patterns.is_empty() && !alias.as_ref().is_some_and(is_shortened) {
            return Err(SelectorError::NoServer {
                tool: text.to_owned(),
            });
        }
        if mode == SelectorMode::Narrow {
            check_unambiguous(text, &patterns)?;
        }
        Ok(Self { alias, patterns })
    }

    /// Like [`Self::parse`], but a text that names no server selects nothing, and neither does an
    /// ambiguous one.
    pub fn parse_or_none(text: &str, servers: &[ServerName], mode: SelectorMode) -> Self {
        Self::parse(text, servers, mode).unwrap_or(Self {
            alias: None,
            patterns: Vec::new(),
        })
    }

    /// Returns one selector per server that the text may name, longest server name first.
    pub fn parse_each(text: &str, servers: &[ServerName]) -> Vec<Self> {
        let Ok(all) = Self::parse(text, servers, SelectorMode::Wide) else {
            return Vec::new();
        };
        if let Ok(narrow) = Self::parse(text, servers, SelectorMode::Narrow) {
            return vec![narrow];
        }
        let mut by_server: Vec<Self> = Vec::new();
        for pattern in all.patterns {
            let same = |other: &&mut Self| other.patterns[0].server == pattern.server;
            match by_server.iter_mut().find(same) {
                Some(selector) => selector.patterns.push(pattern),
                None => by_server.push(Self {
                    alias: all.alias.clone(),
                    patterns: vec![pattern],
                }),
            }
        }
        by_server
    }

    /// Selects by globs over raw server and tool names.
    pub fn from_globs(server: &str, tool: &str) -> Self {
        Self {
            alias: None,
            patterns: vec![ToolPattern {
                server: Glob::new(server),
                tool: Glob::new(tool),
            }],
        }
    }

    pub fn matches(&self, id: &ToolId) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(id))
            || self.alias.as_ref().is_some_and(|alias| alias.is_of(id))
    }

    /// Returns whether this selects every tool that `server` could have, and so the whole server.
    pub fn covers_server(&self, server: &ServerName) -> bool {
        let mut patterns = self.patterns.iter();
        patterns
            .any(|pattern| pattern.tool.matches_all() && pattern.server.matches(server.as_str()))
    }

    /// Returns whether this names tools without wildcards.
    pub fn is_exact(&self) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.all(|pattern| !pattern.tool.0.contains(['*', '?']))
    }

    /// Returns whether this names `server` itself, or a pattern that matches its name. A shortened
    /// alias names a tool, but not its server.
    pub fn names_server(&self, server: &ServerName) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|pattern| pattern.server.matches(server.as_str()))
    }

    /// Returns whether this may select tools of `server`.
    pub fn may_match_server(&self, server: &ServerName) -> bool {
        let alias = self.alias.as_ref();
        self.names_server(server) || alias.is_some_and(|alias| alias.is_cut_within(server))
    }
}

/// Splits a text at its first dot if a server may have the name before it. Such a text has no other
/// reading where it grants access: server names contain no dots, and neither do aliases.
fn split_at_dot(text: &str) -> Option<(&str, &str)> {
    let (server, tool) = text.split_once('.')?;
    (ServerName::parse(server).is_ok() && !tool.is_empty()).then_some((server, tool))
}

/// Fails if the patterns, which interpret `text`, name more than one server.
fn check_unambiguous(text: &str, patterns: &[ToolPattern]) -> Result<(), SelectorError> {
    let mut servers: Vec<&str> = patterns.iter().map(|p| p.server.0.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    if servers.len() <= 1 {
        return Ok(());
    }
    let names: Vec<String> = servers.iter().map(|name| format!("`{name}`")).collect();
    Err(SelectorError::Ambiguous {
        tool: text.to_owned(),
        servers: names.join(" and "),
    })
}

/// Yields the tool part of `text` for each name style in which it names a tool of `server`.
pub fn strip_server_prefixes<'t>(
    text: &'t str,
    server: &ServerName,
) -> impl Iterator<Item = &'t str> {
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
        ToolPattern::parse_all(pattern, &names(servers))
            .iter()
            .any(|parsed| parsed.matches(&id))
    }

    #[test]
    fn globs_match_any_or_one_character() {
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
    fn patterns_match_in_every_name_style() {
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
    fn star_never_crosses_from_server_to_tool() {
        let servers = ["github", "github_evil"];
        assert!(!matches("github_*", &servers, "github_evil", "x"));
        assert!(matches("github_*", &servers, "github", "evil_x"));
        assert!(!matches("git*_x", &servers, "github", "x"));
    }

    #[test]
    fn ambiguous_text_parses_longest_server_first() {
        let patterns = ToolPattern::parse_all("a_b_c", &names(&["a", "a_b"]));
        let servers: Vec<_> = patterns.iter().map(|r| r.server.clone()).collect();
        assert_eq!(servers, [Glob::new("a_b"), Glob::new("a")]);
    }

    #[test]
    fn patterns_match_the_sanitized_tool_name() {
        assert!(matches("fs_a_b", &["fs"], "fs", "a.b"));
    }
}

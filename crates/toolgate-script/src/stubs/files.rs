//! Files that exist only to be read: one for each server, or one for each tool.
//!
//! Whatever the level, both a server's file and a tool's file can be read; the level says which of
//! them are listed. What is too long comes in pages.

use std::fmt::Write as _;

use super::text::line;
use super::{Bindings, Server, Tool, Unknown, bare, folded};

/// What has a file of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    #[default]
    Server,
    Tool,
}

/// Bytes of a list with the names of tools, of a page, and of the names of what a page leaves out.
const LIST_BYTES: usize = 6000;
const PAGE_BYTES: usize = 12_000;
const NAMES_BYTES: usize = 2000;
const LONGEST_PATTERN: usize = 200;

const EMPTY: &str = "there are no servers to script";

/// A line of a file, written when it is shown.
enum Line<'a> {
    Text(&'a str),
    Header(&'a Server),
    Tool(&'a Tool),
}

/// Which lines are asked for, counted from one.
#[derive(Clone, Copy)]
struct Range {
    start: Option<usize>,
    end: Option<usize>,
}

impl Bindings {
    /// What `listToolFiles` says.
    pub fn list(&self, level: Level) -> String {
        let all = Range {
            start: None,
            end: None,
        };
        match self.is_empty() {
            true => EMPTY.to_owned(),
            false => page(&text_lines(&self.tree(level)), "servers", all),
        }
    }

    /// What `readToolFile` says: the lines from `start` to `end` of a file, of the list itself
    /// (`servers`), or of all signatures that fit a pattern (`servers/*/*video*`). Lines are counted
    /// from one; a range is moved to where there are some.
    pub fn read(
        &self,
        level: Level,
        file: &str,
        start: Option<usize>,
        end: Option<usize>,
    ) -> Result<String, Unknown> {
        let range = Range { start, end };
        let name = bare(file);
        if name.is_empty() || name.eq_ignore_ascii_case("servers") {
            return Ok(page(&text_lines(&self.tree(level)), "servers", range));
        }
        let (lines, file) = match self.meant(name) {
            Some(server) => (server.lines(), server.identifier.to_string()),
            None if name.contains('*') => (self.matching(name), line(name, LONGEST_PATTERN)),
            None => (self.tool_file(name), String::new()),
        };
        match lines.is_empty() {
            true => Err(self.unknown_file(name)),
            false => Ok(page(&lines, &file, range)),
        }
    }

    fn tool_file(&self, name: &str) -> Vec<Line<'_>> {
        let parts = name.split_once('/').or_else(|| name.split_once('.'));
        let found = parts.and_then(|(server, tool)| {
            let server = self.meant(server)?;
            Some((server, server.meant(tool)?))
        });
        found.map_or_else(Vec::new, |(server, tool)| {
            vec![Line::Header(server), Line::Tool(tool)]
        })
    }

    /// All tools whose `server/tool`, or name alone, fits a pattern in which `*` is anything.
    fn matching(&self, pattern: &str) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        if pattern.len() > LONGEST_PATTERN {
            return lines;
        }
        let pattern = folded(pattern);
        let parts: Vec<&str> = pattern.split('*').collect();
        for server in &self.servers {
            let own = folded(&server.identifier);
            let header = lines.len();
            for tool in &server.tools {
                let name = folded(&tool.identifier);
                if fits(&parts, &name) || fits(&parts, &format!("{own}/{name}")) {
                    lines.push(Line::Tool(tool));
                }
            }
            if lines.len() > header {
                lines.insert(header, Line::Header(server));
            }
        }
        lines
    }

    fn tree(&self, level: Level) -> String {
        let whole = match level {
            Level::Server => None,
            Level::Tool => self.tree_of_tools(),
        };
        whole.unwrap_or_else(|| self.tree_of_servers(level))
    }

    /// All files of tools, unless they are too many.
    fn tree_of_tools(&self) -> Option<String> {
        let mut tree = "servers/\n".to_owned();
        for server in &self.servers {
            let _ = writeln!(tree, "  {}/", server.identifier);
            for tool in &server.tools {
                let _ = writeln!(tree, "    {}.pyi", tool.identifier);
                if tree.len() > LIST_BYTES {
                    return None;
                }
            }
        }
        Some(tree)
    }

    /// All servers, each with as many names of tools as there is room for.
    fn tree_of_servers(&self, level: Level) -> String {
        let most = self
            .servers
            .iter()
            .map(|server| server.tools.len())
            .max()
            .unwrap_or(0);
        let mut tree = self.tree_with(level, 0);
        // Names grow with their number, so the last that fits is the most that fits.
        for names in 1..=most.min(64) {
            let larger = self.tree_with(level, names);
            if larger.len() > LIST_BYTES {
                break;
            }
            tree = larger;
        }
        tree
    }

    fn tree_with(&self, level: Level, names: usize) -> String {
        let mut tree = "servers/\n".to_owned();
        for server in &self.servers {
            let ending = match level {
                Level::Server => ".pyi",
                Level::Tool => "/",
            };
            let _ = write!(tree, "  {}{ending}", server.identifier);
            let count = server.tools.len();
            match names {
                0 => {
                    let _ = write!(tree, "  # {count}");
                }
                _ if names >= count => {
                    let _ = write!(tree, "  # {}", server.some_names(count));
                }
                _ => {
                    let _ = write!(tree, "  # {count}: {}, …", server.some_names(names));
                }
            }
            tree.push('\n');
        }
        tree
    }
}

impl Server {
    /// The whole file of the server, however long it is.
    pub fn file(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            line.write(&mut text);
        }
        text
    }

    /// A line of introduction, and one for each tool.
    fn lines(&self) -> Vec<Line<'_>> {
        let tools = self.tools.iter().map(|tool| Line::Tool(tool));
        [Line::Header(self)].into_iter().chain(tools).collect()
    }

    /// Names from all over the list, since those that begin alike say less.
    fn some_names(&self, count: usize) -> String {
        let all = self.tools.len();
        let names = (0..count.min(all)).map(|n| self.tools[n * all / count].identifier.as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Whether a name has all parts of a pattern, one after another, with anything between them.
fn fits(parts: &[&str], name: &str) -> bool {
    let [first, middle @ .., last] = parts else {
        return parts == [name];
    };
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl Line<'_> {
    fn write(&self, text: &mut String) {
        match self {
            Self::Text(line) => text.push_str(line),
            Self::Tool(tool) => text.push_str(tool.signature()),
            Self::Header(server) => {
                let name = &server.identifier;
                let _ = write!(
                    text,
                    "# {name}.tool(name=value); more: getToolDocs(\"{name}\", \"tool\")"
                );
            }
        }
        text.push('\n');
    }
}

impl Range {
    /// The places from and to which lines are meant, within `count`.
    fn within(self, count: usize) -> (usize, usize) {
        let first = self.start.unwrap_or(1).clamp(1, count.max(1)) - 1;
        let last = self.end.unwrap_or(count).max(first + 1).min(count);
        (first, last)
    }
}

fn text_lines(text: &str) -> Vec<Line<'_>> {
    text.lines().map(Line::Text).collect()
}

/// As many of the lines as fit on a page, and what to do about the others.
fn page(lines: &[Line<'_>], file: &str, range: Range) -> String {
    let (first, last) = range.within(lines.len());
    let mut page = String::new();
    let mut stop = first;
    while stop < last && page.len() < PAGE_BYTES {
        lines[stop].write(&mut page);
        stop += 1;
    }
    if stop < last {
        let _ = writeln!(
            page,
            "# lines {}-{stop} of {}; go on: readToolFile(\"{file}\", startLine={}){}",
            first + 1,
            lines.len(),
            stop + 1,
            names(&lines[stop..last]),
        );
    } else if first > 0 || last < lines.len() {
        let _ = writeln!(page, "# lines {}-{last} of {}", first + 1, lines.len());
    }
    page
}

/// The names of the tools that these lines define, as far as there is room.
fn names(lines: &[Line<'_>]) -> String {
    let mut text = String::new();
    for line in lines {
        let Line::Tool(tool) = line else { continue };
        if text.len() > NAMES_BYTES {
            text.push_str(", …");
            break;
        }
        text.push_str(if text.is_empty() { ": " } else { ", " });
        text.push_str(&tool.identifier);
    }
    text
}

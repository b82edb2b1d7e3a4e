//! Virtual stub files: one per server, or one per tool.
//!
//! Both kinds of file can always be read; the level only selects which are listed. Long output is split
//! into pages.

use std::fmt::Write as _;

use super::text::single_line;
use super::{Bindings, ServerBinding, ToolBinding, UnknownName, fold_name, strip_file_parts};

/// Granularity of the listed stub files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileLevel {
    #[default]
    Server,
    Tool,
}

// Limits on a list with tool names, on a page, and on the names of the tools that a page omits.
const MAX_LIST_BYTES: usize = 6000;
const MAX_PAGE_BYTES: usize = 12_000;
const MAX_NAMES_BYTES: usize = 2000;
const MAX_PATTERN_BYTES: usize = 200;

const NO_SERVERS: &str = "no servers are available to scripts";

/// A line of a file, formatted only when it is shown.
enum FileLine<'a> {
    Text(&'a str),
    Header(&'a ServerBinding),
    Tool(&'a ToolBinding),
}

/// A range of requested lines, counted from one.
#[derive(Clone, Copy)]
struct LineRange {
    start: Option<usize>,
    end: Option<usize>,
}

impl Bindings {
    /// Returns the output of `listToolFiles`.
    pub fn list(&self, level: FileLevel) -> String {
        let all = LineRange {
            start: None,
            end: None,
        };
        if self.is_empty() {
            return NO_SERVERS.to_owned();
        }
        format_page(&text_lines(&self.format_tree(level)), "servers", all)
    }

    /// Returns the output of `readToolFile`: the lines from `start` to `end` of a file, of the list itself
    /// (`servers`), or of all signatures that match a pattern (`servers/*/*video*`).
    ///
    /// Lines are counted from one. A range outside the file is clamped to existing lines.
    pub fn read(
        &self,
        level: FileLevel,
        file: &str,
        start: Option<usize>,
        end: Option<usize>,
    ) -> Result<String, UnknownName> {
        let range = LineRange { start, end };
        let name = strip_file_parts(file);
        if name.is_empty() || name.eq_ignore_ascii_case("servers") {
            return Ok(format_page(
                &text_lines(&self.format_tree(level)),
                "servers",
                range,
            ));
        }
        let (lines, file) = match self.resolve_server(name) {
            Some(server) => (server.lines(), server.identifier.to_string()),
            None if name.contains('*') => (
                self.find_matching(name),
                single_line(name, MAX_PATTERN_BYTES),
            ),
            None => (self.tool_file(name), String::new()),
        };
        if lines.is_empty() {
            return Err(self.unknown_file(name));
        }
        Ok(format_page(&lines, &file, range))
    }

    fn tool_file(&self, name: &str) -> Vec<FileLine<'_>> {
        let parts = name.split_once('/').or_else(|| name.split_once('.'));
        let found = parts.and_then(|(server, tool)| {
            let server = self.resolve_server(server)?;
            Some((server, server.resolve_tool(tool)?))
        });
        found.map_or_else(Vec::new, |(server, tool)| {
            vec![FileLine::Header(server), FileLine::Tool(tool)]
        })
    }

    /// Returns the tools whose `server/tool` or name matches a pattern, in which `*` matches anything.
    fn find_matching(&self, pattern: &str) -> Vec<FileLine<'_>> {
        let mut lines = Vec::new();
        if pattern.len() > MAX_PATTERN_BYTES {
            return lines;
        }
        let pattern = fold_name(pattern);
        let parts: Vec<&str> = pattern.split('*').collect();
        for server in &self.servers {
            let server_name = fold_name(&server.identifier);
            let header = lines.len();
            for tool in &server.tools {
                let name = fold_name(&tool.identifier);
                if matches_pattern(&parts, &name)
                    || matches_pattern(&parts, &format!("{server_name}/{name}"))
                {
                    lines.push(FileLine::Tool(tool));
                }
            }
            if lines.len() > header {
                lines.insert(header, FileLine::Header(server));
            }
        }
        lines
    }

    fn format_tree(&self, level: FileLevel) -> String {
        let whole = match level {
            FileLevel::Server => None,
            FileLevel::Tool => self.tool_tree(),
        };
        whole.unwrap_or_else(|| self.server_tree(level))
    }

    /// Lists the files of all tools, or returns `None` if there are too many.
    fn tool_tree(&self) -> Option<String> {
        let mut tree = "servers/\n".to_owned();
        for server in &self.servers {
            let _ = writeln!(tree, "  {}/", server.identifier);
            for tool in &server.tools {
                let _ = writeln!(tree, "    {}.pyi", tool.identifier);
                if tree.len() > MAX_LIST_BYTES {
                    return None;
                }
            }
        }
        Some(tree)
    }

    /// Lists all servers, each with as many tool names as fit.
    fn server_tree(&self, level: FileLevel) -> String {
        let max_tools = self
            .servers
            .iter()
            .map(|server| server.tools.len())
            .max()
            .unwrap_or(0);
        let mut tree = self.server_tree_with(level, 0);
        // The length grows with the number of names, so the last tree that fits is the largest.
        for names in 1..=max_tools.min(64) {
            let larger = self.server_tree_with(level, names);
            if larger.len() > MAX_LIST_BYTES {
                break;
            }
            tree = larger;
        }
        tree
    }

    fn server_tree_with(&self, level: FileLevel, names: usize) -> String {
        let mut tree = "servers/\n".to_owned();
        for server in &self.servers {
            let ending = match level {
                FileLevel::Server => ".pyi",
                FileLevel::Tool => "/",
            };
            let _ = write!(tree, "  {}{ending}", server.identifier);
            let count = server.tools.len();
            match names {
                0 => {
                    let _ = write!(tree, "  # {count}");
                }
                _ if names >= count => {
                    let _ = write!(tree, "  # {}", server.sample_names(count));
                }
                _ => {
                    let _ = write!(tree, "  # {count}: {}, …", server.sample_names(names));
                }
            }
            tree.push('\n');
        }
        tree
    }
}

impl ServerBinding {
    /// Returns the complete stub file of the server.
    pub fn file(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            line.write(&mut text);
        }
        text
    }

    /// Returns a header line and one line per tool.
    fn lines(&self) -> Vec<FileLine<'_>> {
        let tools = self.tools.iter().map(|tool| FileLine::Tool(tool));
        [FileLine::Header(self)].into_iter().chain(tools).collect()
    }

    /// Samples names evenly from the sorted list, since neighbors tend to share a prefix.
    fn sample_names(&self, count: usize) -> String {
        let all = self.tools.len();
        let names = (0..count.min(all)).map(|n| self.tools[n * all / count].identifier.as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether a name consists of the parts of a pattern, in order, with anything between them.
fn matches_pattern(parts: &[&str], name: &str) -> bool {
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

impl FileLine<'_> {
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

impl LineRange {
    /// Clamps the range to `count` lines and returns it as indexes.
    fn clamp(self, count: usize) -> (usize, usize) {
        let first = self.start.unwrap_or(1).clamp(1, count.max(1)) - 1;
        let last = self.end.unwrap_or(count).max(first + 1).min(count);
        (first, last)
    }
}

fn text_lines(text: &str) -> Vec<FileLine<'_>> {
    text.lines().map(FileLine::Text).collect()
}

/// Formats as many lines as fit on a page, and a note on how to read the rest.
fn format_page(lines: &[FileLine<'_>], file: &str, range: LineRange) -> String {
    let (first, last) = range.clamp(lines.len());
    let mut page = String::new();
    let mut next = first;
    while next < last && page.len() < MAX_PAGE_BYTES {
        lines[next].write(&mut page);
        next += 1;
    }
    if next < last {
        let _ = writeln!(
            page,
            "# lines {}-{next} of {}; continue with readToolFile(\"{file}\", startLine={}){}",
            first + 1,
            lines.len(),
            next + 1,
            list_tool_names(&lines[next..last]),
        );
    } else if first > 0 || last < lines.len() {
        let _ = writeln!(page, "# lines {}-{last} of {}", first + 1, lines.len());
    }
    page
}

/// Lists the names of the tools in these lines, as many as fit.
fn list_tool_names(lines: &[FileLine<'_>]) -> String {
    let mut text = String::new();
    for line in lines {
        let FileLine::Tool(tool) = line else { continue };
        if text.len() > MAX_NAMES_BYTES {
            text.push_str(", …");
            break;
        }
        text.push_str(if text.is_empty() { ": " } else { ", " });
        text.push_str(&tool.identifier);
    }
    text
}

//! Files that exist only to be read: one for each server, or one for each tool.
//!
//! Whatever the level, both a server's file and a tool's file can be read; the level says which of
//! them are listed. What is too long comes in pages.

use std::fmt::Write as _;

use super::{Bindings, Server, Unknown, bare, folded};

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

impl Bindings {
    /// What `listToolFiles` says.
    pub fn list(&self, level: Level) -> String {
        if self.is_empty() {
            return EMPTY.to_owned();
        }
        page(&self.tree(level), "servers", None, None)
    }

    /// What `readToolFile` says: a file, the list itself (`servers`), or some of their lines.
    pub fn read(
        &self,
        level: Level,
        file: &str,
        start: Option<usize>,
        end: Option<usize>,
    ) -> Result<String, Unknown> {
        let name = bare(file);
        if name.is_empty() || name.eq_ignore_ascii_case("servers") {
            return Ok(page(&self.tree(level), "servers", start, end));
        }
        if name.contains('*') && name.len() <= LONGEST_PATTERN {
            return self
                .matching(name)
                .map(|text| page(&text, file, start, end))
                .ok_or_else(|| self.unknown_file(file));
        }
        if let Ok(server) = self.find_server(name) {
            return Ok(page(&server.file(), &server.identifier, start, end));
        }
        let found = name
            .split_once('/')
            .or_else(|| name.split_once('.'))
            .and_then(|(server, tool)| self.find_tool(server, tool).ok());
        match found {
            Some((server, tool)) => {
                let text = format!("{}{}\n", server.header(&tool.identifier), tool.signature());
                Ok(lines(&text, start, end))
            }
            None => Err(self.unknown_file(file)),
        }
    }

    /// The signatures of all tools whose `server/tool` fits a pattern, in which `*` is anything.
    fn matching(&self, pattern: &str) -> Option<String> {
        let pattern = folded(pattern);
        let parts: Vec<&str> = pattern.split('*').collect();
        let mut text = String::new();
        for server in &self.servers {
            let own = folded(&server.identifier);
            let fitting = server.tools.iter().filter(|tool| {
                let tool = folded(&tool.identifier);
                fits(&parts, &format!("{own}/{tool}")) || fits(&parts, &tool)
            });
            let mut signatures = fitting.map(|tool| tool.signature()).peekable();
            if signatures.peek().is_some() {
                text.push_str(&server.header("tool"));
            }
            for signature in signatures {
                text.push_str(signature);
                text.push('\n');
            }
        }
        (!text.is_empty()).then_some(text)
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
    /// The file of the server: a line of introduction, and one for each tool.
    pub fn file(&self) -> String {
        let mut text = self.header("tool");
        for tool in &self.tools {
            text.push_str(tool.signature());
            text.push('\n');
        }
        text
    }

    fn header(&self, tool: &str) -> String {
        let server = &self.identifier;
        format!("# {server}.{tool}(name=value); more: getToolDocs(\"{server}\", \"{tool}\")\n")
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

/// The lines from `start` to `end`, counted from one; what is out of range is moved into it.
pub fn lines(text: &str, start: Option<usize>, end: Option<usize>) -> String {
    let all: Vec<&str> = text.lines().collect();
    let (first, last) = range(all.len(), start, end);
    join(&all[first..last])
}

fn range(count: usize, start: Option<usize>, end: Option<usize>) -> (usize, usize) {
    let first = start.unwrap_or(1).clamp(1, count.max(1)) - 1;
    let last = end
        .unwrap_or(count)
        .clamp(first.saturating_add(1), count.max(first + 1));
    (first, last.min(count))
}

fn join(lines: &[&str]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

/// As many of the lines as fit on a page, and what to do about the others.
fn page(text: &str, file: &str, start: Option<usize>, end: Option<usize>) -> String {
    let all: Vec<&str> = text.lines().collect();
    let (first, last) = range(all.len(), start, end);
    let mut size = 0;
    let fitting = all[first..last]
        .iter()
        .take_while(|line| {
            size += line.len() + 1;
            size <= PAGE_BYTES
        })
        .count()
        .max(1);
    let stop = (first + fitting).min(last);
    let mut page = join(&all[first..stop]);
    if stop < last {
        let _ = writeln!(
            page,
            "# lines {}-{stop} of {}; go on: readToolFile(\"{file}\", startLine={}){}",
            first + 1,
            all.len(),
            stop + 1,
            names(&all[stop..]),
        );
    } else if first > 0 || last < all.len() {
        let _ = writeln!(page, "# lines {}-{last} of {}", first + 1, all.len());
    }
    page
}

/// The names of tools that these lines define.
fn names(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let Some((name, _)) = line
            .strip_prefix("def ")
            .and_then(|def| def.split_once('('))
        else {
            continue;
        };
        if text.len() > NAMES_BYTES {
            text.push_str(", …");
            break;
        }
        text.push_str(if text.is_empty() { ": " } else { ", " });
        text.push_str(name);
    }
    text
}

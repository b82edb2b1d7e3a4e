//! The code as a model sent it, and the script in it.

use starlark::codemap::FileSpan;

/// A script whose lines are the lines of the code.
#[derive(Debug)]
pub(super) struct Source {
    text: String,
    /// Characters taken off the start of each line.
    indent: usize,
}

impl Source {
    /// Takes off what models put around code: a byte order mark, a fence, a common indentation.
    pub(super) fn new(code: &str) -> Self {
        let code = code.strip_prefix('\u{feff}').unwrap_or(code);
        let code = code.replace("\r\n", "\n");
        let mut lines: Vec<&str> = code.split('\n').collect();
        unfence(&mut lines);
        let indent = common_indent(&lines);
        let lines: Vec<&str> = lines
            .into_iter()
            .map(|line| line.get(indent..).unwrap_or_default())
            .collect();
        Self {
            text: lines.join("\n"),
            indent,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        "script"
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A line, counted from one.
    pub(super) fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.split('\n').nth(index)
    }

    /// The line of a byte, counted from one.
    pub(super) fn line_at(&self, at: usize) -> Option<u32> {
        let before = self.text.get(..at)?;
        u32::try_from(before.matches('\n').count() + 1).ok()
    }

    /// Line and column where a span starts, as the model sent it, counted from one.
    pub(super) fn place(&self, span: &FileSpan) -> (u32, u32) {
        let begin = span.resolve_span().begin;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (count(begin.line + 1), count(begin.column + 1 + self.indent))
    }
}

/// Empties the lines of a fence around the code, and what stands outside of it.
fn unfence(lines: &mut [&str]) {
    let is_fence = |line: &&str| line.trim_start().starts_with("```");
    let first = lines.iter().position(|line| !line.trim().is_empty());
    let Some(open) = first.filter(|at| is_fence(&lines[*at])) else {
        return;
    };
    let close = lines[open + 1..]
        .iter()
        .position(|line| line.trim() == "```")
        .map_or(lines.len(), |at| open + 1 + at);
    for (at, line) in lines.iter_mut().enumerate() {
        if at <= open || at >= close {
            *line = "";
        }
    }
}

/// How many spaces or tabs all lines start with; none if they do not start alike.
fn common_indent(lines: &[&str]) -> usize {
    let mut common: Option<&str> = None;
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        common = Some(match common {
            None => indent,
            Some(so_far) if indent.starts_with(so_far) => so_far,
            Some(so_far) if so_far.starts_with(indent) => indent,
            Some(_) => "",
        });
    }
    common.map_or(0, str::len)
}

//! Source text of a script, extracted from the code as a model sent it.

use starlark::codemap::FileSpan;

/// Source text whose line numbers match those of the code as sent.
#[derive(Debug)]
pub(super) struct ScriptSource {
    text: String,
    /// Number of characters removed from the start of each line.
    indent: usize,
}

impl ScriptSource {
    /// Removes a byte order mark, a Markdown fence and common indentation around the code.
    pub(super) fn new(code: &str) -> Self {
        let code = code.strip_prefix('\u{feff}').unwrap_or(code);
        let code = code.replace("\r\n", "\n");
        let mut lines: Vec<&str> = code.split('\n').collect();
        blank_fence(&mut lines);
        let indent = common_indent(&lines);
        let lines: Vec<&str> = lines
            .into_iter()
            // Blank lines may be shorter than the common indentation.
            .map(|line| line.get(indent..).unwrap_or(""))
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

    /// Returns a line by its number, counted from one.
    pub(super) fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.split('\n').nth(index)
    }

    /// Returns the line number of a byte offset, counted from one.
    pub(super) fn line_at(&self, offset: usize) -> Option<u32> {
        let before = self.text.get(..offset)?;
        u32::try_from(before.matches('\n').count() + 1).ok()
    }

    /// Returns the line and column where a span starts in the code as sent, counted from one.
    pub(super) fn location(&self, span: &FileSpan) -> (u32, u32) {
        let begin = span.resolve_span().begin;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (count(begin.line + 1), count(begin.column + 1 + self.indent))
    }
}

/// Blanks the lines of a Markdown fence around the code and all lines outside it.
fn blank_fence(lines: &mut [&str]) {
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

/// Returns the length of the indentation that all non-blank lines share.
fn common_indent(lines: &[&str]) -> usize {
    let mut common: Option<&str> = None;
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        common = Some(match common {
            None => indent,
            Some(prefix) if indent.starts_with(prefix) => prefix,
            Some(prefix) if prefix.starts_with(indent) => indent,
            Some(_) => "",
        });
    }
    common.map_or(0, str::len)
}

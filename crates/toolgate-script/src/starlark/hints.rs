//! Hints on how to fix the line that failed.
//!
//! Models write Python. Where Starlark lacks a construct, the hint shows the line rewritten in a form
//! that works; rewritten lines are only shown if they parse. Hints never change what runs.

use starlark::syntax::AstModule;

use self::line::TokenizedLine;
use super::dialect;
use super::source::ScriptSource;
use crate::lexer::{self, TokenKind};
use crate::protocol::{FailureKind, ScriptFailure};

mod line;
mod modules;
mod names;
mod operators;
mod rewrite;
mod runtime;
mod statements;

/// Maximum number of other lines that get a hint if a script does not parse.
const MAX_FURTHER_HINTS: usize = 6;

/// Adds hints to a failure.
pub(super) fn add_hints(failure: &mut ScriptFailure, source: &ScriptSource) {
    let Some(number) = failure.line else { return };
    let Some(text) = source.line(number) else {
        return;
    };
    let hints = match &failure.kind {
        FailureKind::Syntax => syntax_hints(failure, source, number, text),
        FailureKind::UndefinedName(name) => names::hint(name).into_iter().collect(),
        FailureKind::Runtime => runtime::hint(&failure.message, text).into_iter().collect(),
        _ => Vec::new(),
    };
    // Our hint is more specific than the evaluator's suggestion.
    if !hints.is_empty()
        && let Some(at) = failure.message.find(", did you mean")
    {
        failure.message.truncate(at);
    }
    failure.hints.extend(hints);
}

/// Finds code that Starlark accepts but evaluates differently from Python. Returns its line and an error
/// message.
pub(super) fn find_unsupported(source: &ScriptSource) -> Option<(u32, &'static str)> {
    let text = source.text();
    let line = TokenizedLine::new(text);
    let is_popitem = |at: &usize| line.matches(*at, "popitem") && line.previous(*at) == ".";
    let (at, message) = match operators::find_conversion(&line) {
        Some(at) => (at, "f-strings do not support `!r` or `!s`"),
        None => {
            let at = (1..line.len()).find(is_popitem)?;
            (line.start(at), "`popitem` is not supported")
        }
    };
    let number = u32::try_from(text[..at].matches('\n').count() + 1).ok()?;
    Some((number, message))
}

fn syntax_hints(
    failure: &ScriptFailure,
    source: &ScriptSource,
    number: u32,
    text: &str,
) -> Vec<String> {
    let starts = StatementStarts::new(source);
    let mut hints = Vec::new();
    match hint_for_line(source, &starts, number, text) {
        Some(hint) => hints.push(hint),
        None => hints.extend(statements::general_hint(&failure.message, text)),
    }
    // A model that sees all problems at once can fix them in one turn.
    let mut further = 0;
    for other in 1..=starts.count() {
        let Some(text) = source.line(other).filter(|_| other != number) else {
            continue;
        };
        if further == MAX_FURTHER_HINTS {
            break;
        }
        if let Some(hint) = hint_for_line(source, &starts, other, text) {
            further += 1;
            let hint = format!("line {other}: {hint}");
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
    }
    hints
}

/// Returns a hint for one line of a script that does not parse.
fn hint_for_line(
    source: &ScriptSource,
    starts: &StatementStarts,
    number: u32,
    text: &str,
) -> Option<String> {
    let line = TokenizedLine::new(text);
    let is_statement = starts.is_statement(number);
    if is_statement {
        if let Some(hint) = statements::hint(&line, source, number) {
            return Some(hint);
        }
        if is_parseable(text) && operators::find_conversion(&line).is_none() {
            return None;
        }
    }
    let rewritten = rewrite::rewrite_line(text, is_statement)?
        .trim()
        .replace('\n', "` and then `");
    Some(format!("write `{rewritten}`"))
}

/// Records which lines start a statement rather than continue one.
struct StatementStarts(Vec<bool>);

impl StatementStarts {
    fn new(source: &ScriptSource) -> Self {
        let text = source.text();
        let mut is_start = vec![true; text.split('\n').count()];
        let line_of: Vec<usize> = text
            .bytes()
            .scan(0, |line, byte| {
                let here = *line;
                *line += usize::from(byte == b'\n');
                Some(here)
            })
            .collect();
        let mut level = 0usize;
        for token in lexer::tokenize(text) {
            let first = line_of.get(token.start).copied().unwrap_or(0);
            let last = line_of
                .get(token.end.saturating_sub(1))
                .copied()
                .unwrap_or(first);
            match (token.kind, &text[token.start..token.end]) {
                (TokenKind::Operator, "(" | "[" | "{") => level += 1,
                (TokenKind::Operator, ")" | "]" | "}") => level = level.saturating_sub(1),
                (TokenKind::Newline, _) => {
                    if let Some(next) = is_start.get_mut(first + 1) {
                        *next = level == 0;
                    }
                }
                (TokenKind::String, _) => {
                    for line in is_start.iter_mut().take(last + 1).skip(first + 1) {
                        *line = false;
                    }
                }
                _ => {}
            }
        }
        Self(is_start)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    fn is_statement(&self, number: u32) -> bool {
        let at = usize::try_from(number).unwrap_or(0).wrapping_sub(1);
        self.0.get(at).copied().unwrap_or(false)
    }
}

/// Returns whether a line parses in a context where a line of its kind is allowed.
fn is_parseable(line: &str) -> bool {
    let line = line.trim();
    let first = line.split(|c: char| !c.is_alphanumeric()).next();
    let before = match first {
        Some("elif" | "else") => "        if 1:\n            pass\n",
        _ => "",
    };
    let tokens = TokenizedLine::new(line);
    let after = match tokens.last() {
        Some(":") => "\n            pass",
        _ => "",
    };
    let code = format!("def f():\n    for _ in []:\n{before}        {line}{after}\n");
    AstModule::parse("line", code, &dialect()).is_ok()
}

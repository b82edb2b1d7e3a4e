//! What to write instead, for the very line that failed.
//!
//! Models write Python. Where Starlark lacks a spelling, the line is shown in the spelling that works;
//! a line is only shown if it parses. Nothing here changes what runs.

use starlark::syntax::AstModule;

use self::line::Line;
use super::dialect;
use super::lex::{self, Shape};
use super::source::Source;
use crate::protocol::{Failure, FailureKind};

mod line;
mod modules;
mod names;
mod operators;
mod rewrite;
mod running;
mod statements;

/// How many further lines of a script that cannot be parsed get a hint of their own.
const FURTHER: usize = 6;

/// Adds to a failure what to write instead.
pub(super) fn add(failure: &mut Failure, source: &Source) {
    let Some(number) = failure.line else { return };
    let Some(text) = source.line(number) else {
        return;
    };
    let hints = match &failure.kind {
        FailureKind::Syntax => syntax(failure, source, number, text),
        FailureKind::UndefinedName(name) => names::hint(name, text).into_iter().collect(),
        FailureKind::Runtime => running::hint(&failure.message, text).into_iter().collect(),
        _ => Vec::new(),
    };
    // Ours says more than the guess of the language.
    if let (false, Some(at)) = (hints.is_empty(), failure.message.find(", did you mean")) {
        failure.message.truncate(at);
    }
    failure.hints.extend(hints);
}

/// What the language would take, but answer otherwise than Python: where it stands, and what it is.
pub(super) fn refused(source: &Source) -> Option<(u32, &'static str)> {
    let text = source.text();
    let line = Line::new(text);
    let popped = |at: &usize| line.says(*at, "popitem") && line.before(*at) == ".";
    let (at, what) = match operators::conversion(&line) {
        Some(at) => (at, "a formatted text has no `!r` or `!s`"),
        None => {
            let at = (1..line.len()).find(popped)?;
            (line.start(at), "there is no `popitem`")
        }
    };
    let number = u32::try_from(text[..at].matches('\n').count() + 1).ok()?;
    Some((number, what))
}

fn syntax(failure: &Failure, source: &Source, number: u32, text: &str) -> Vec<String> {
    let starts = Starts::new(source);
    let mut hints = Vec::new();
    match on_line(source, &starts, number, text) {
        Some(hint) => hints.push(hint),
        None => hints.extend(statements::general(&failure.message, text)),
    }
    // A model that learns of all lines at once needs one turn to mend them.
    let mut further = 0;
    for other in 1..=starts.count() {
        let Some(text) = source.line(other).filter(|_| other != number) else {
            continue;
        };
        if further == FURTHER {
            break;
        }
        if let Some(hint) = on_line(source, &starts, other, text) {
            further += 1;
            let hint = format!("line {other}: {hint}");
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
    }
    hints
}

/// What to write instead of one line that cannot be parsed.
fn on_line(source: &Source, starts: &Starts, number: u32, text: &str) -> Option<String> {
    let line = Line::new(text);
    if starts.is_statement(number) {
        if let Some(hint) = statements::hint(&line, source, number) {
            return Some(hint);
        }
        if parses(text) && operators::conversion(&line).is_none() {
            return None;
        }
    }
    let whole = starts.is_statement(number);
    let better = rewrite::rewritten(text, whole)?;
    let better = better.trim().replace('\n', "` and then `");
    Some(format!("write `{better}`"))
}

/// Which lines start a statement, and which go on with one.
struct Starts(Vec<bool>);

impl Starts {
    fn new(source: &Source) -> Self {
        let text = source.text();
        let mut inside = vec![true; text.split('\n').count()];
        let line_of: Vec<usize> = text
            .bytes()
            .scan(0, |line, byte| {
                let here = *line;
                *line += usize::from(byte == b'\n');
                Some(here)
            })
            .collect();
        let mut level = 0usize;
        for word in lex::words(text) {
            let first = line_of.get(word.start).copied().unwrap_or(0);
            let last = line_of
                .get(word.end.saturating_sub(1))
                .copied()
                .unwrap_or(first);
            match (word.shape, &text[word.start..word.end]) {
                (Shape::Sign, "(" | "[" | "{") => level += 1,
                (Shape::Sign, ")" | "]" | "}") => level = level.saturating_sub(1),
                (Shape::Line, _) => {
                    if let Some(next) = inside.get_mut(first + 1) {
                        *next = level == 0;
                    }
                }
                (Shape::Text, _) => {
                    for line in inside.iter_mut().take(last + 1).skip(first + 1) {
                        *line = false;
                    }
                }
                _ => {}
            }
        }
        Self(inside)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    fn is_statement(&self, number: u32) -> bool {
        let at = usize::try_from(number).unwrap_or(0).wrapping_sub(1);
        self.0.get(at).copied().unwrap_or(false)
    }
}

/// Whether a line can be parsed where a line of its kind may stand.
fn parses(line: &str) -> bool {
    let line = line.trim();
    let first = line.split(|c: char| !c.is_alphanumeric()).next();
    let before = match first {
        Some("elif" | "else") => "        if 1:\n            pass\n",
        _ => "",
    };
    let words = Line::new(line);
    let after = match words.last() {
        Some(":") => "\n            pass",
        _ => "",
    };
    let code = format!("def f():\n    for _ in []:\n{before}        {line}{after}\n");
    AstModule::parse("line", code, &dialect()).is_ok()
}

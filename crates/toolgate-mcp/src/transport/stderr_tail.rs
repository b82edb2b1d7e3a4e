//! The end of a child's standard error, bounded in size and safe to display, with hints of the gateway.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::failure_line::find_failure_line;

const MAX_TAIL_BYTES: usize = 8 * 1024;
/// Maximum length of a line that is explained.
const MAX_EXPLAINED_BYTES: usize = 2048;
/// Maximum number of hints about one process.
const MAX_HINTS: usize = 16;
/// Start of a line that the gateway adds.
const HINT_PREFIX: &str = "toolgate: ";

/// A bounded ring buffer of stderr bytes; clones share it.
#[derive(Clone, Debug, Default)]
pub struct StderrTail(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    truncated: bool,
    explanation: Option<Explanation>,
}

/// Returns what there is to say about a line.
type Explain = dyn Fn(&str) -> Option<String> + Send;

/// Explains lines to the operator.
struct Explanation {
    explain: Box<Explain>,
    /// The start of the line that is being written.
    line: Vec<u8>,
    /// Lines that were added; each is added once.
    given: Vec<String>,
}

impl StderrTail {
    /// Adds a line after each one that `explain` has something to say about. Replaces what an earlier
    /// process of the server was explained with.
    pub(crate) fn explain_with(&self, explain: impl Fn(&str) -> Option<String> + Send + 'static) {
        self.0.lock().explanation = Some(Explanation {
            explain: Box::new(explain),
            line: Vec::new(),
            given: Vec::new(),
        });
    }

    /// Explains a text that the server did not write to its standard error.
    pub(crate) fn explain(&self, text: &str) {
        let mut ring = self.0.lock();
        for line in text.lines() {
            let explanation = ring.explanation.as_mut();
            if let Some(hint) = explanation.and_then(|explanation| explanation.hint(line)) {
                // The server may be in the middle of a line.
                if ring.bytes.back().is_some_and(|byte| *byte != b'\n') {
                    ring.push(b"\n");
                }
                ring.push(hint.as_bytes());
            }
        }
    }

    pub(super) fn push(&self, chunk: &[u8]) {
        let mut ring = self.0.lock();
        if ring.explanation.is_none() {
            ring.push(chunk);
            return;
        }
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            ring.push(part);
            let explanation = ring.explanation.as_mut();
            if let Some(hint) = explanation.and_then(|explanation| explanation.add(part)) {
                ring.push(hint.as_bytes());
            }
        }
    }

    /// Returns whole lines without control characters or terminal escapes.
    pub fn text(&self) -> String {
        let ring = self.0.lock();
        let bytes: Vec<u8> = ring.bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        // The ring starts in the middle of a line once it has overflowed.
        let text = match (ring.truncated, text.split_once('\n')) {
            (true, Some((_, whole))) => whole,
            _ => &text,
        };
        strip_control_sequences(text).trim_end().to_owned()
    }

    /// Returns the line that says why the process failed: mostly the last one that is not blank, with the
    /// hint about it, if there is one.
    pub fn failure_line(&self) -> Option<String> {
        let text = self.text();
        if let Some(line) = find_failure_line(&text) {
            return Some(line.to_owned());
        }
        let lines = text.lines().rev().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty());
        let last = lines.next()?;
        let ring = self.0.lock();
        let is_hint = |explanation: &Explanation| {
            let mut given = explanation.given.iter();
            given.any(|hint| hint.trim_end() == last)
        };
        if ring.explanation.as_ref().is_some_and(is_hint)
            && let Some(explained) = lines.next()
        {
            let hint = last.trim_start_matches(HINT_PREFIX);
            return Some(format!("{explained} ({hint})"));
        }
        Some(last.to_owned())
    }
}

impl Ring {
    fn push(&mut self, chunk: &[u8]) {
        let chunk = &chunk[chunk.len().saturating_sub(MAX_TAIL_BYTES)..];
        let excess = (self.bytes.len() + chunk.len()).saturating_sub(MAX_TAIL_BYTES);
        if excess > 0 {
            self.bytes.drain(..excess);
            self.truncated = true;
        }
        self.bytes.extend(chunk);
    }
}

impl Explanation {
    /// Adds a part of a line. Returns the line to add after it if it ends there.
    fn add(&mut self, part: &[u8]) -> Option<String> {
        let rest = MAX_EXPLAINED_BYTES.saturating_sub(self.line.len());
        self.line.extend(&part[..part.len().min(rest)]);
        if !part.ends_with(b"\n") {
            return None;
        }
        let line = std::mem::take(&mut self.line);
        self.hint(&strip_control_sequences(&String::from_utf8_lossy(&line)))
    }

    /// Returns the line to add after another one, unless it was added before.
    fn hint(&mut self, line: &str) -> Option<String> {
        if self.given.len() == MAX_HINTS {
            return None;
        }
        let hint = format!("{HINT_PREFIX}{}\n", (self.explain)(line.trim_end())?);
        if self.given.contains(&hint) {
            return None;
        }
        self.given.push(hint.clone());
        Some(hint)
    }
}

impl fmt::Debug for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Explanation")
    }
}

/// Removes control characters and terminal escape sequences.
fn strip_control_sequences(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                if chars.next_if_eq(&'[').is_some() {
                    while chars
                        .next_if(|c| !('\u{40}'..='\u{7e}').contains(c))
                        .is_some()
                    {}
                    chars.next();
                }
            }
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_and_free_of_escapes() {
        let tail = StderrTail::default();
        tail.push(b"first\n");
        tail.push(&vec![b'x'; 3 * MAX_TAIL_BYTES]);
        tail.push("\nwarn: \u{1b}[31mred\u{1b}[0m\u{7}\r\n\n".as_bytes());
        assert_eq!(tail.text(), "warn: red");
        assert_eq!(tail.failure_line().as_deref(), Some("warn: red"));
    }

    #[test]
    fn lines_are_explained_once_where_they_end() {
        let tail = StderrTail::default();
        tail.explain_with(|line| {
            let what = line.strip_prefix("denied ")?;
            Some(format!("add {what}"))
        });
        tail.push(b"one\nden");
        tail.push(b"ied \x1b[31mA\x1b[0m\r\ndenied A\ndenied B");
        let start = "one\ndenied A\ntoolgate: add A\ndenied A\ndenied B";
        assert_eq!(tail.text(), start);
        tail.explain("denied C\nother");
        assert_eq!(tail.text(), format!("{start}\ntoolgate: add C"));
        assert_eq!(tail.failure_line().as_deref(), Some("denied B (add C)"));
        // A line that only looks like a hint is the server's own.
        tail.push(b"\ntoolgate: add X\n");
        assert_eq!(tail.failure_line().as_deref(), Some("toolgate: add X"));
        let tail = StderrTail::default();
        tail.explain_with(|line| Some(line.to_owned()));
        for index in 0..100 {
            tail.push(format!("{index}\n").as_bytes());
        }
        assert_eq!(tail.text().matches(HINT_PREFIX).count(), MAX_HINTS);
        tail.push(&vec![b'x'; 2 * MAX_EXPLAINED_BYTES]);
        let ring = tail.0.lock();
        let explanation = ring.explanation.as_ref().unwrap();
        assert_eq!(explanation.line.len(), MAX_EXPLAINED_BYTES);
    }
}

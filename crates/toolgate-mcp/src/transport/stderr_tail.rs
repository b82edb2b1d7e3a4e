//! The end of a child's standard error, bounded in size and safe to display.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

const MAX_TAIL_BYTES: usize = 8 * 1024;

/// A bounded ring buffer of stderr bytes; clones share it.
#[derive(Clone, Debug, Default)]
pub struct StderrTail(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    truncated: bool,
}

impl StderrTail {
    pub(super) fn push(&self, chunk: &[u8]) {
        let mut ring = self.0.lock();
        let chunk = &chunk[chunk.len().saturating_sub(MAX_TAIL_BYTES)..];
        let excess = (ring.bytes.len() + chunk.len()).saturating_sub(MAX_TAIL_BYTES);
        if excess > 0 {
            ring.bytes.drain(..excess);
            ring.truncated = true;
        }
        ring.bytes.extend(chunk);
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

    /// Returns the last line that is not blank.
    pub fn last_line(&self) -> Option<String> {
        let text = self.text();
        text.lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .map(|line| line.trim().to_owned())
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
        assert_eq!(tail.last_line().as_deref(), Some("warn: red"));
    }
}

//! String literals, including f-strings with their fields.

use super::{Ambiguity, Lexer, Mode, TokenKind};

/// An f-string that is not closed yet.
pub(super) struct OpenString {
    /// Offset of the prefix.
    start: usize,
    pub(super) quote: Quote,
    pub(super) part: Part,
    /// Offset of the opening brace of the current field.
    field_start: usize,
    /// Open brackets inside the current field.
    pub(super) open_brackets: usize,
}

/// Current position within an f-string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Text,
    /// Code inside the braces of a field.
    Code,
    /// The format specification of a field. Dialects disagree on whether it is code; here it is.
    Format,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Quote {
    mark: u8,
    pub(super) is_triple: bool,
    is_raw: bool,
}

impl Lexer<'_> {
    /// Reads a string whose prefix starts at `start` and whose quotes start here.
    pub(super) fn string(&mut self, start: usize) {
        let Some(mark) = self.peek(0) else { return };
        let prefix = &self.bytes[start..self.at];
        let has = |letter: u8| prefix.iter().any(|byte| byte.eq_ignore_ascii_case(&letter));
        let is_formatted = has(b'f');
        let is_triple = self.peek(1) == Some(mark) && self.peek(2) == Some(mark);
        let quote = Quote {
            mark,
            is_triple,
            is_raw: has(b'r'),
        };
        // Older dialects end the outer f-string at its quote, whatever is open inside it.
        let may_close =
            |string: &OpenString| string.quote.mark == mark || string.part == Part::Format;
        if self.ambiguity.is_none() && self.open_strings.iter().any(may_close) {
            self.ambiguous(Ambiguity::StringBoundary);
        }
        self.at += quote.length();
        if !is_formatted {
            self.plain_string(start, quote);
            return;
        }
        if self.mode == Mode::Expressions {
            self.push(TokenKind::StringDelimiter, start);
        }
        self.open_strings.push(OpenString {
            start,
            quote,
            part: Part::Text,
            field_start: self.at,
            open_brackets: 0,
        });
    }

    fn plain_string(&mut self, start: usize, quote: Quote) {
        let is_closed = loop {
            let Some(byte) = self.peek(0) else {
                break false;
            };
            match byte {
                b'\\' => {
                    let is_unclear = match self.peek(1) {
                        Some(b'\r') => true,
                        Some(b'"' | b'\'') => quote.is_raw || quote.is_triple,
                        _ => false,
                    };
                    if is_unclear {
                        self.ambiguous(Ambiguity::StringBoundary);
                    }
                    self.at += 2;
                }
                _ if self.is_closed_by(quote) => {
                    self.at += quote.length();
                    break true;
                }
                b'\n' if !quote.is_triple => break false,
                b'\n' if !self.open_strings.is_empty() => {
                    self.ambiguous(Ambiguity::StringBoundary);
                    self.at += 1;
                }
                b'\r' if self.peek(1) != Some(b'\n') => {
                    self.ambiguous(Ambiguity::StringBoundary);
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        };
        // An escape at the end of the text skips past it.
        self.at = self.at.min(self.bytes.len());
        if !is_closed {
            self.ambiguous(Ambiguity::StringBoundary);
        }
        self.push(TokenKind::String, start);
    }

    fn is_closed_by(&self, quote: Quote) -> bool {
        let is_mark = |ahead| self.peek(ahead) == Some(quote.mark);
        is_mark(0) && (!quote.is_triple || is_mark(1) && is_mark(2))
    }

    pub(super) fn f_string_text(&mut self, byte: u8) {
        let Some(string) = self.open_strings.last_mut() else {
            return;
        };
        let quote = string.quote;
        match byte {
            b'{' if self.bytes.get(self.at + 1) == Some(&b'{') => self.at += 2,
            b'{' => {
                string.part = Part::Code;
                string.open_brackets = 0;
                string.field_start = self.at;
                self.at += 1;
                self.push(TokenKind::Operator, self.at - 1);
            }
            b'}' if self.peek(1) == Some(b'}') => self.at += 2,
            b'}' => {
                self.ambiguous(Ambiguity::StringBoundary);
                self.at += 1;
            }
            b'\\' => self.f_string_escape(quote),
            _ if self.is_closed_by(quote) => {
                self.at += quote.length();
                self.close_string();
            }
            b'\n' if !quote.is_triple => {
                self.ambiguous(Ambiguity::StringBoundary);
                self.close_string();
            }
            _ => {
                if byte == b'\r' && self.peek(1) != Some(b'\n') {
                    self.ambiguous(Ambiguity::StringBoundary);
                }
                self.at += 1;
            }
        }
    }

    fn f_string_escape(&mut self, quote: Quote) {
        let next = self.peek(1);
        let is_clear = !quote.is_raw
            && match next {
                Some(b'"' | b'\'') => !quote.is_triple,
                Some(b'n' | b't' | b'r' | b'\\') => true,
                _ => false,
            };
        if !is_clear {
            self.ambiguous(Ambiguity::StringBoundary);
        }
        // A backslash does not escape a brace.
        let length = if next == Some(b'{') { 1 } else { 2 };
        self.at = (self.at + length).min(self.bytes.len());
    }

    /// Closes the innermost f-string here, and its field if that is still open.
    pub(super) fn close_string(&mut self) {
        if self
            .open_strings
            .last()
            .is_some_and(|string| string.part != Part::Text)
        {
            self.record_field();
        }
        let Some(string) = self.open_strings.pop() else {
            return;
        };
        match self.mode {
            Mode::Statements => self.push(TokenKind::String, string.start),
            Mode::Expressions => {
                let length = string.quote.length();
                self.push(TokenKind::StringDelimiter, self.at - length);
            }
        }
    }

    pub(super) fn close_field(&mut self, byte: u8) {
        self.at += 1;
        if byte != b'}' {
            self.ambiguous(Ambiguity::StringBoundary);
        }
        self.record_field();
        if let Some(string) = self.open_strings.last_mut() {
            string.part = Part::Text;
        }
    }

    fn record_field(&mut self) {
        if let [string] = &self.open_strings[..] {
            self.fields.push((string.field_start, self.at));
        }
    }
}

impl Quote {
    fn length(self) -> usize {
        if self.is_triple { 3 } else { 1 }
    }
}

pub(super) fn is_string_prefix(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 8] = [b"r", b"f", b"b", b"u", b"fr", b"rf", b"br", b"rb"];
    is_any_ignoring_case(name, &PREFIXES)
}

pub(super) fn is_template_prefix(name: &[u8]) -> bool {
    is_any_ignoring_case(name, &[b"t", b"tr", b"rt"])
}

fn is_any_ignoring_case(name: &[u8], candidates: &[&[u8]]) -> bool {
    candidates
        .iter()
        .any(|candidate| name.eq_ignore_ascii_case(candidate))
}

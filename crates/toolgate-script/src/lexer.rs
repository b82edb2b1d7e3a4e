//! Lexer for scripts, shared by the preview, the nesting check and the hints.
//!
//! This is not the parser's lexer: it accepts any text, never fails, takes one pass and does not recurse.
//! The same pass detects text that Python dialects may split differently. [`tokenize`] ignores such
//! ambiguities; [`tokenize_unambiguous`] reports them, so that a caller can fall back to a safe reading.

mod strings;

use strings::{OpenString, Part, is_string_prefix, is_template_prefix};

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name,
    Number,
    /// A string literal with its prefix and quotes.
    String,
    /// The opening or closing quotes of an f-string whose fields are tokens of their own.
    StringDelimiter,
    /// An operator or a bracket.
    Operator,
    /// A line break, which ends a statement unless a bracket is open.
    Newline,
}

/// A token and its byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Directly inside the braces of an f-string, outside any other bracket, where `=` assigns nothing.
    pub(crate) in_field: bool,
}

impl Token {
    pub(crate) fn text<'a>(&self, code: &'a str) -> &'a str {
        &code[self.start..self.end]
    }
}

/// Reason why the tokens of a text depend on the dialect that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ambiguity {
    /// It is unclear what is a string and what is code.
    StringBoundary,
    /// A name has letters that another dialect may normalize to ASCII.
    NonAsciiName,
}

/// Splits text into tokens, including line breaks. An f-string is a single token.
pub(crate) fn tokenize(text: &str) -> Vec<Token> {
    let mut lexer = Lexer::new(text, Mode::Statements);
    lexer.run();
    lexer.tokens
}

/// Splits text into tokens, including those in the fields of f-strings but no line breaks, unless it is
/// ambiguous.
pub(crate) fn tokenize_unambiguous(text: &str) -> Result<Vec<Token>, Ambiguity> {
    let mut lexer = Lexer::new(text, Mode::Expressions);
    lexer.run();
    match lexer.ambiguity {
        None => Ok(lexer.tokens),
        // The first ambiguity may hide names later in the text.
        Some(_) if text.chars().any(normalizes_to_ascii) => Err(Ambiguity::NonAsciiName),
        Some(ambiguity) => Err(ambiguity),
    }
}

/// Returns the byte ranges of the fields of an f-string, including their braces.
pub(crate) fn find_fields(literal: &str) -> Vec<(usize, usize)> {
    let is_f_string = literal
        .find(['"', '\''])
        .is_some_and(|open| literal[..open].contains(['f', 'F']));
    if !is_f_string {
        return Vec::new();
    }
    let mut lexer = Lexer::new(literal, Mode::Statements);
    lexer.run();
    lexer.fields
}

/// Kind of tokens to produce.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Tokens of statements: line breaks are tokens, and an f-string is a single token.
    Statements,
    /// Tokens of expressions: no line breaks, but the tokens inside the fields of f-strings. Stops at the
    /// first ambiguity.
    Expressions,
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    mode: Mode,
    tokens: Vec<Token>,
    /// Open f-strings, innermost last.
    open_strings: Vec<OpenString>,
    /// Ranges of the fields of outermost f-strings.
    fields: Vec<(usize, usize)>,
    /// The first ambiguity.
    ambiguity: Option<Ambiguity>,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str, mode: Mode) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
            mode,
            tokens: Vec::new(),
            open_strings: Vec::new(),
            fields: Vec::new(),
            ambiguity: None,
        }
    }

    fn run(&mut self) {
        while let Some(byte) = self.peek(0) {
            if self.ambiguity.is_some() && self.mode == Mode::Expressions {
                return;
            }
            match self.open_strings.last().map(|string| string.part) {
                Some(Part::Text) => self.f_string_text(byte),
                Some(Part::Code | Part::Format) | None => self.code(byte),
            }
        }
        self.at = self.bytes.len();
        while !self.open_strings.is_empty() {
            self.ambiguous(Ambiguity::StringBoundary);
            self.close_string();
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn ambiguous(&mut self, ambiguity: Ambiguity) {
        self.ambiguity.get_or_insert(ambiguity);
    }

    fn push(&mut self, kind: TokenKind, start: usize) {
        let string = self.open_strings.last();
        if string.is_some() && self.mode == Mode::Statements {
            return;
        }
        let in_field =
            string.is_some_and(|string| string.open_brackets == 0 || string.part == Part::Format);
        self.tokens.push(Token {
            kind,
            start,
            end: self.at,
            in_field,
        });
    }

    fn code(&mut self, byte: u8) {
        let start = self.at;
        match byte {
            b' ' | b'\t' => self.at += 1,
            b'\n' => self.newline(),
            b'\r' => {
                if self.peek(1) != Some(b'\n') {
                    self.ambiguous(Ambiguity::StringBoundary);
                }
                self.at += 1;
            }
            b'\\' if self.peek(1) == Some(b'\n') => self.at += 2,
            b'\\' if self.peek(1) == Some(b'\r') && self.peek(2) == Some(b'\n') => self.at += 3,
            b'#' if self.open_strings.is_empty() => self.comment(),
            b'"' | b'\'' => self.string(start),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.name_or_string(),
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number(),
            _ => self.operator(byte),
        }
    }

    fn newline(&mut self) {
        let start = self.at;
        match self.open_strings.last() {
            // Only newer dialects allow line breaks in the fields of a single-line f-string.
            Some(string) if !string.quote.is_triple => {
                self.ambiguous(Ambiguity::StringBoundary);
                self.close_string();
            }
            Some(_) => self.at += 1,
            None => {
                self.at += 1;
                if self.mode == Mode::Statements {
                    self.push(TokenKind::Newline, start);
                }
            }
        }
    }

    fn comment(&mut self) {
        while let Some(byte) = self.peek(0).filter(|byte| *byte != b'\n') {
            let may_end_line = match byte {
                b'\r' => self.peek(1) != Some(b'\n'),
                0x0b | 0x0c => true,
                _ => false,
            };
            if may_end_line {
                self.ambiguous(Ambiguity::StringBoundary);
            }
            self.at += 1;
        }
    }

    fn name_or_string(&mut self) {
        let start = self.at;
        let mut is_ascii = true;
        while let Some(byte) = self.peek(0) {
            if !(byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80) {
                break;
            }
            is_ascii &= byte < 0x80;
            self.at += 1;
        }
        if !is_ascii {
            self.ambiguous(Ambiguity::NonAsciiName);
        }
        let name = &self.bytes[start..self.at];
        let is_quote = matches!(self.peek(0), Some(b'"' | b'\''));
        if is_quote && is_string_prefix(name) {
            self.string(start);
            return;
        }
        // Only newer dialects have template strings.
        if is_quote && is_template_prefix(name) {
            self.ambiguous(Ambiguity::StringBoundary);
        }
        self.push(TokenKind::Name, start);
    }

    /// Reads a number with all letters and points that follow, none of which is a name.
    fn number(&mut self) {
        let start = self.at;
        let is_hexadecimal = self.bytes[start..].starts_with(b"0x");
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            let is_exponent_sign = matches!(byte, b'+' | b'-')
                && matches!(self.bytes[self.at - 1], b'e' | b'E')
                && !is_hexadecimal
                && self.peek(1).is_some_and(|next| next.is_ascii_digit());
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || is_exponent_sign) {
                break;
            }
            self.at += 1;
        }
        self.push(TokenKind::Number, start);
    }

    fn operator(&mut self, byte: u8) {
        let start = self.at;
        // A backtick is a fence around the code, which the engine removes along with its line.
        if matches!(byte, b'\\' | b'#' | b'`' | 0x7f | ..=0x20) {
            self.ambiguous(Ambiguity::StringBoundary);
        }
        if let Some(string) = self.open_strings.last_mut() {
            match byte {
                b'(' | b'[' | b'{' => string.open_brackets += 1,
                b')' | b']' | b'}' if string.open_brackets > 0 => string.open_brackets -= 1,
                b')' | b']' | b'}' => {
                    self.close_field(byte);
                    return;
                }
                b':' if string.open_brackets == 0 => string.part = Part::Format,
                _ => {}
            }
        }
        let length = operator_length(&self.bytes[start..]);
        if length == 1 && byte == b'.' && self.peek(1) == Some(b'.') {
            self.ambiguous(Ambiguity::StringBoundary);
        }
        self.at += length;
        self.push(TokenKind::Operator, start);
    }
}

/// Returns the length of the operator at the start of `bytes`.
fn operator_length(bytes: &[u8]) -> usize {
    match bytes {
        [b'*', b'*', b'=', ..]
        | [b'/', b'/', b'=', ..]
        | [b'>', b'>', b'=', ..]
        | [b'<', b'<', b'=', ..]
        | [b'.', b'.', b'.', ..] => 3,
        [first, b'=', ..] if b"=!<>:+-*/%&|^@".contains(first) => 2,
        [b'-', b'>', ..]
        | [b'*', b'*', ..]
        | [b'/', b'/', ..]
        | [b'<', b'<', ..]
        | [b'>', b'>', ..]
        | [b'&', b'&', ..] => 2,
        _ => 1,
    }
}

/// Returns whether Python normalizes a character to ASCII letters, digits or `_`. All such characters
/// are in these blocks.
fn normalizes_to_ascii(c: char) -> bool {
    matches!(u32::from(c),
        0xaa | 0xba | 0x17f | 0x1d2c..=0x1d6a | 0x2070..=0x209c | 0x2100..=0x214f | 0x2160..=0x217f
        | 0x2c7c | 0xfb00..=0xfb06 | 0xfe33..=0xfe34 | 0xfe4d..=0xfe4f | 0xff00..=0xff5f | 0x1d400..=0x1d7ff
        | 0x1f100..=0x1f1ff | 0x1fbf0..=0x1fbf9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> Vec<&str> {
        let tokens = tokenize(code);
        tokens.iter().map(|token| token.text(code)).collect()
    }

    #[test]
    fn statements_have_line_breaks_and_whole_f_strings() {
        assert_eq!(
            texts("x **= .5 # c\nf(f\"{d[\"a\"]:>{w}} {{\", r'\\'')"),
            [
                "x",
                "**=",
                ".5",
                "\n",
                "f",
                "(",
                "f\"{d[\"a\"]:>{w}} {{\"",
                ",",
                "r'\\''",
                ")"
            ]
        );
        assert_eq!(
            texts("x = 'open\ny = 1e-5"),
            ["x", "=", "'open", "\n", "y", "=", "1e-5"]
        );
        assert_eq!(texts("f'{x\ny"), ["f'{x", "\n", "y"]);
    }

    #[test]
    fn expressions_have_the_tokens_of_fields() {
        let code = "f'{a(b=1)} {c=}'\n.d";
        let tokens = tokenize_unambiguous(code).unwrap();
        let names: Vec<(&str, bool)> = tokens
            .iter()
            .filter(|token| token.kind == TokenKind::Name)
            .map(|token| (token.text(code), token.in_field))
            .collect();
        assert_eq!(
            names,
            [("a", true), ("b", false), ("c", true), ("d", false)]
        );
    }

    #[test]
    fn ambiguous_text_is_reported() {
        for code in [
            "f\"{d[\"a\"]}\"",
            "t'{x}'",
            "f'{\nx}'",
            "r'\\''",
            "a..b",
            "f'{x",
            "\r",
        ] {
            assert_eq!(
                tokenize_unambiguous(code),
                Err(Ambiguity::StringBoundary),
                "{code:?}"
            );
        }
        assert_eq!(tokenize_unambiguous("x = é"), Err(Ambiguity::NonAsciiName));
    }

    #[test]
    fn fields_include_their_braces() {
        let literal = "f\"{{ {a['}']} \\{b} {c:{w}}\"";
        let fields = find_fields(literal);
        let fields: Vec<&str> = fields
            .iter()
            .map(|(start, end)| &literal[*start..*end])
            .collect();
        assert_eq!(fields, ["{a['}']}", "{b}", "{c:{w}}"]);
        assert!(find_fields("'{a}'").is_empty());
    }
}

//! The words of a script, as far as looking at its shape needs them.
//!
//! This is not the parser: it takes any text, never fails, and needs no stack for brackets.

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Name,
    Number,
    /// A literal text, with its prefix and quotes.
    String,
    /// An operator or a bracket.
    Operator,
    /// The end of a line that ends a statement, if no bracket is open.
    Newline,
}

/// A word and where it stands, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Signs of more than one character, longest first.
const LONG_OPERATORS: [&str; 24] = [
    "**=", "//=", ">>=", "<<=", "...", "==", "!=", "<=", ">=", ":=", "->", "**", "//", "<<", ">>",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "&&",
];

/// How deep formatted texts may be nested in each other.
const MAX_NESTED_STRINGS: usize = 8;

pub(super) fn tokenize(text: &str) -> Vec<Token> {
    let mut words = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let (shape, end) = match bytes[at] {
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => {
                at += 2;
                continue;
            }
            b'#' => {
                at = text[at..].find('\n').map_or(bytes.len(), |n| at + n);
                continue;
            }
            b'\n' => (TokenKind::Newline, at + 1),
            b'"' | b'\'' => (TokenKind::String, string_end(text, at, false, 0)),
            b'0'..=b'9' => (TokenKind::Number, number_end(bytes, at)),
            byte if byte == b'_' || byte.is_ascii_alphabetic() || byte >= 0x80 => {
                name_or_string(text, at)
            }
            _ => (TokenKind::Operator, operator_end(text, at)),
        };
        words.push(Token {
            kind: shape,
            start,
            end,
        });
        at = end;
    }
    words
}

fn name_or_string(text: &str, at: usize) -> (TokenKind, usize) {
    let bytes = text.as_bytes();
    let is_name = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric() || *byte >= 0x80;
    let length = bytes[at..].iter().take_while(|byte| is_name(byte)).count();
    let end = at + length;
    let prefix = text[at..end].to_ascii_lowercase();
    let quoted = matches!(bytes.get(end), Some(b'"' | b'\''));
    if quoted
        && matches!(
            prefix.as_str(),
            "f" | "r" | "b" | "u" | "rb" | "br" | "fr" | "rf"
        )
    {
        return (
            TokenKind::String,
            string_end(text, end, prefix.contains('f'), 0),
        );
    }
    (TokenKind::Name, end)
}

fn number_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at;
    while let Some(byte) = bytes.get(end) {
        let exponent_sign = matches!(byte, b'+' | b'-')
            && matches!(bytes[end - 1], b'e' | b'E')
            && !bytes[at..].starts_with(b"0x");
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || exponent_sign) {
            break;
        }
        end += 1;
    }
    end
}

fn operator_end(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let long = LONG_OPERATORS.iter().find(|sign| rest.starts_with(**sign));
    let first = rest.chars().next().map_or(1, char::len_utf8);
    at + long.map_or(first, |sign| sign.len())
}

/// Where the text ends whose opening quote stands here; the end of the line if it is never closed.
fn string_end(text: &str, open: usize, formatted: bool, depth: usize) -> usize {
    let bytes = text.as_bytes();
    let quote = bytes[open];
    let triple = bytes[open..].starts_with(&[quote; 3]);
    let mut at = open + if triple { 3 } else { 1 };
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'\n' if !triple => return at,
            byte if byte == quote => {
                if !triple {
                    return at + 1;
                }
                if bytes[at..].starts_with(&[quote; 3]) {
                    return at + 3;
                }
                at += 1;
            }
            b'{' if formatted && bytes.get(at + 1) == Some(&b'{') => at += 2,
            // Too deep to be told apart: what is left counts as one text, which the scan refuses.
            b'{' if formatted && depth >= MAX_NESTED_STRINGS => return bytes.len(),
            b'{' if formatted => at = field_end(text, at, depth, triple),
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Where the field of a formatted text ends that starts at this brace.
pub(super) fn field_end(text: &str, open: usize, depth: usize, lines: bool) -> usize {
    let bytes = text.as_bytes();
    let mut level = 0usize;
    let mut at = open;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'(' | b'[' => level += 1,
            b'}' | b')' | b']' => {
                level = level.saturating_sub(1);
                if level == 0 {
                    return at + 1;
                }
            }
            b'\n' if !lines => return at,
            b'"' | b'\'' => {
                let formatted = at > 0 && bytes[at - 1].eq_ignore_ascii_case(&b'f');
                at = string_end(text, at, formatted, depth + 1);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

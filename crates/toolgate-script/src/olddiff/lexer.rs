//! Code as a row of tokens: names, plain strings, and marks.
//!
//! Expressions within f-strings are tokens like others. Whatever could be read in more than one
//! way is [`Lexed::Unclear`].

/// Code, taken apart.
pub(super) enum Lexed<'a> {
    Tokens(Vec<Token<'a>>),
    /// What is a string and what is not depends on who reads it.
    Unclear,
    /// There are letters in the code that another reader may take for plain ones.
    Foreign,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    /// Stands in an f-string's braces and in no other brackets there, where `=` sets nothing.
    pub(super) in_field: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Name(&'a str),
    /// A string whose value is its text.
    Text(&'a str),
    /// A string of another kind, or a number.
    Value,
    /// An operator that is one character, or the first of a longer one, which is marked by `~`.
    Mark(char),
    End,
}

/// The braces of an f-string that code stands in.
struct Field {
    quote: Quote,
    place: Place,
    /// Open brackets within the braces.
    open: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Text of the f-string.
    Outside,
    /// Code in its braces.
    Code,
    /// What follows a colon there: text to some, code to others, and read as code here.
    Format,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Quote {
    mark: u8,
    triple: bool,
    raw: bool,
}

struct Lexer<'a> {
    code: &'a str,
    place: usize,
    tokens: Vec<Token<'a>>,
    /// F-strings that are open, the innermost last.
    fields: Vec<Field>,
}

/// Why the code cannot be taken apart.
enum Stop {
    Unclear,
    Foreign,
}

pub(super) fn lex(code: &str) -> Lexed<'_> {
    let mut lexer = Lexer {
        code,
        place: 0,
        tokens: Vec::new(),
        fields: Vec::new(),
    };
    match lexer.run() {
        Ok(()) => Lexed::Tokens(lexer.tokens),
        // Letters may come after the place where it stopped.
        Err(_) if !code.is_ascii() && has_foreign_names(code) => Lexed::Foreign,
        Err(Stop::Foreign) => Lexed::Foreign,
        Err(Stop::Unclear) => Lexed::Unclear,
    }
}

/// Whether a word mixes plain letters with others that might be read as plain.
fn has_foreign_names(code: &str) -> bool {
    code.chars().any(|c| !c.is_ascii() && looks_plain(c))
}

/// Letters that Python takes for the ASCII letters, digits or `_` that they are forms of: all are
/// in these blocks.
fn looks_plain(c: char) -> bool {
    matches!(u32::from(c),
        0xaa | 0xba | 0x17f | 0x1d2c..=0x1d6a | 0x2070..=0x209c | 0x2100..=0x214f | 0x2160..=0x217f
        | 0x2c7c | 0xfb00..=0xfb06 | 0xfe33..=0xfe34 | 0xfe4d..=0xfe4f | 0xff00..=0xff5f | 0x1d400..=0x1d7ff
        | 0x1f100..=0x1f1ff | 0x1fbf0..=0x1fbf9)
}

impl<'a> Lexer<'a> {
    fn run(&mut self) -> Result<(), Stop> {
        while let Some(byte) = self.peek(0) {
            match self.fields.last().map(|field| field.place) {
                Some(Place::Outside) => self.field_text(byte)?,
                Some(Place::Code | Place::Format) | None => self.code(byte)?,
            }
        }
        match self.fields.is_empty() {
            true => Ok(()),
            false => Err(Stop::Unclear),
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.code.as_bytes().get(self.place + ahead).copied()
    }

    fn push(&mut self, kind: Kind<'a>) {
        let is_bare = |field: &Field| field.open == 0 || field.place == Place::Format;
        let in_field = self.fields.last().is_some_and(is_bare);
        self.tokens.push(Token { kind, in_field });
    }

    fn code(&mut self, byte: u8) -> Result<(), Stop> {
        match byte {
            b' ' | b'\t' | b'\n' => self.place += 1,
            b'\r' if self.peek(1) == Some(b'\n') => self.place += 2,
            b'\\' if self.peek(1) == Some(b'\n') => self.place += 2,
            b'\\' if self.peek(1) == Some(b'\r') && self.peek(2) == Some(b'\n') => self.place += 3,
            b'#' if self.fields.is_empty() => self.comment()?,
            b'"' | b'\'' => self.string("")?,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let word = self.word();
                match self.peek(0) {
                    Some(b'"' | b'\'') if is_prefix(word) => self.string(word)?,
                    Some(128..) => return Err(Stop::Foreign),
                    _ => self.push(Kind::Name(word)),
                }
            }
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number(),
            b'!'..=b'~' => self.mark(byte)?,
            128.. => return Err(Stop::Foreign),
            _ => return Err(Stop::Unclear),
        }
        Ok(())
    }

    fn word(&mut self) -> &'a str {
        let start = self.place;
        while self
            .peek(0)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            self.place += 1;
        }
        &self.code[start..self.place]
    }

    /// A number with all letters and points that follow: none of them is a name.
    fn number(&mut self) {
        self.place += 1;
        while self
            .peek(0)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
        {
            self.place += 1;
        }
        self.push(Kind::Value);
    }

    fn comment(&mut self) -> Result<(), Stop> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => break,
                b'\r' if self.peek(1) != Some(b'\n') => return Err(Stop::Unclear),
                0x0b | 0x0c => return Err(Stop::Unclear),
                _ => self.place += 1,
            }
        }
        Ok(())
    }

    fn mark(&mut self, byte: u8) -> Result<(), Stop> {
        if let Some(field) = self.fields.last_mut() {
            match byte {
                b'(' | b'[' | b'{' => field.open += 1,
                b'}' if field.open == 0 => {
                    field.place = Place::Outside;
                    self.place += 1;
                    return Ok(());
                }
                b')' | b']' | b'}' => match field.open.checked_sub(1) {
                    Some(open) => field.open = open,
                    None => return Err(Stop::Unclear),
                },
                b':' if field.open == 0 => field.place = Place::Format,
                _ => {}
            }
        }
        let (kind, length) = match (byte, self.peek(1), self.peek(2)) {
            // A backtick is a fence around the code, which the engine takes off with all its line.
            (b'\\' | b'#' | b'`', ..) => return Err(Stop::Unclear),
            (b'.', Some(b'.'), Some(b'.')) => (Kind::Value, 3),
            (b'.', Some(b'.'), _) => return Err(Stop::Unclear),
            (first, Some(b'='), _) if b"=!<>+-*/%&|^:@".contains(&first) => (Kind::Mark('~'), 2),
            (first, ..) => (Kind::Mark(char::from(first)), 1),
        };
        self.push(kind);
        self.place += length;
        Ok(())
    }

    fn string(&mut self, prefix: &str) -> Result<(), Stop> {
        let has = |letter: char| prefix.chars().any(|c| c.eq_ignore_ascii_case(&letter));
        let mark = self.peek(0).unwrap_or_default();
        // An f-string that ends where the one around it would is read in more than one way.
        let is_unclear = |field: &Field| field.quote.mark == mark || field.place == Place::Format;
        if self.fields.iter().any(is_unclear) {
            return Err(Stop::Unclear);
        }
        let triple = self.peek(1) == Some(mark) && self.peek(2) == Some(mark);
        let quote = Quote {
            mark,
            triple,
            raw: has('r'),
        };
        self.place += if triple { 3 } else { 1 };
        if has('f') || has('t') {
            self.push(Kind::Value);
            self.fields.push(Field {
                quote,
                open: 0,
                place: Place::Outside,
            });
            return Ok(());
        }
        self.plain_string(quote, prefix)
    }

    fn plain_string(&mut self, quote: Quote, prefix: &str) -> Result<(), Stop> {
        let start = self.place;
        let mut is_plain = matches!(prefix, "" | "r");
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => {
                    is_plain = false;
                    let next = self.peek(1).unwrap_or_default();
                    let is_quote = matches!(next, b'"' | b'\'');
                    if next == b'\r' || is_quote && (quote.raw || quote.triple) {
                        return Err(Stop::Unclear);
                    }
                    self.place += 2;
                }
                _ if self.closes(quote) => {
                    let text = self.code.get(start..self.place).unwrap_or_default();
                    self.place += if quote.triple { 3 } else { 1 };
                    let kind = match is_plain {
                        true => Kind::Text(text),
                        false => Kind::Value,
                    };
                    self.push(kind);
                    return Ok(());
                }
                b'\n' if !quote.triple => return Err(Stop::Unclear),
                b'\n' if !self.fields.is_empty() => return Err(Stop::Unclear),
                b'\r' if self.peek(1) != Some(b'\n') => return Err(Stop::Unclear),
                _ => self.place += 1,
            }
        }
        Err(Stop::Unclear)
    }

    fn closes(&self, quote: Quote) -> bool {
        let is_mark = |ahead| self.peek(ahead) == Some(quote.mark);
        is_mark(0) && (!quote.triple || is_mark(1) && is_mark(2))
    }

    fn field_text(&mut self, byte: u8) -> Result<(), Stop> {
        let Some(field) = self.fields.last_mut() else {
            return Err(Stop::Unclear);
        };
        let quote = field.quote;
        match byte {
            b'{' if self.code.as_bytes().get(self.place + 1) == Some(&b'{') => self.place += 2,
            b'{' => {
                field.place = Place::Code;
                field.open = 0;
                self.place += 1;
                self.push(Kind::Mark('{'));
            }
            b'}' if self.peek(1) == Some(b'}') => self.place += 2,
            b'\\' if !quote.raw => match self.peek(1) {
                Some(b'"' | b'\'') if quote.triple => return Err(Stop::Unclear),
                Some(b'n' | b't' | b'r' | b'\\' | b'"' | b'\'') => self.place += 2,
                _ => return Err(Stop::Unclear),
            },
            b'\\' | b'}' => return Err(Stop::Unclear),
            _ if self.closes(quote) => {
                self.place += if quote.triple { 3 } else { 1 };
                self.fields.pop();
                self.push(Kind::Value);
            }
            b'\n' if !quote.triple => return Err(Stop::Unclear),
            b'\r' if self.peek(1) != Some(b'\n') => return Err(Stop::Unclear),
            _ => self.place += 1,
        }
        Ok(())
    }
}

fn is_prefix(word: &str) -> bool {
    let plain = word.to_ascii_lowercase();
    matches!(
        plain.as_str(),
        "r" | "f" | "b" | "u" | "t" | "fr" | "rf" | "br" | "rb" | "tr" | "rt"
    )
}

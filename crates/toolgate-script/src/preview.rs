//! Finds the tools a script mentions without running it.
//!
//! A script can only reach a tool through the name of its server, so every occurrence of a server name
//! counts. Followed by an attribute it mentions one tool; any other use may lead to any tool and
//! mentions the whole server. The result may include too much but never too little. It is only a
//! preview: each call is authorized when it is made.
//!
//! The code is untrusted: analysis takes one pass, does not recurse and cannot fail. Where dialects
//! may disagree on what is a string and what is code, all text is treated as code.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{self, Ambiguity, Token, TokenKind};

/// Servers and tools that a script mentions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Tool identifiers by server identifier. They need not exist.
    pub tools: BTreeMap<String, BTreeSet<String>>,
    /// Servers that are used opaquely, so that any of their tools may be called.
    pub servers: BTreeSet<String>,
}

impl Mentions {
    /// Returns whether the script mentions no server.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty()
    }

    /// Returns whether the script may call this tool.
    pub fn may_call(&self, server: &str, tool: &str) -> bool {
        let is_named = |tools: &BTreeSet<String>| tools.contains(tool);
        self.servers.contains(server) || self.tools.get(server).is_some_and(is_named)
    }

    /// Returns whether the script mentions this server.
    pub fn has_server(&self, server: &str) -> bool {
        self.servers.contains(server) || self.tools.contains_key(server)
    }
}

/// Finds the mentions of `servers`, given as identifiers, in a script.
pub fn find_mentions(code: &str, servers: &[&str]) -> Mentions {
    let servers: BTreeSet<&str> = servers.iter().copied().collect();
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    match lexer::tokenize_unambiguous(code) {
        Ok(tokens) => find_in_tokens(code, &tokens, &servers),
        Err(Ambiguity::StringBoundary) => find_in_text(code, &servers),
        Err(Ambiguity::NonAsciiName) => Mentions {
            tools: BTreeMap::new(),
            servers: servers.into_iter().map(str::to_owned).collect(),
        },
    }
}

/// A token with the parts of its text that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lexeme<'a> {
    Name(&'a str),
    /// A string literal whose value is its text.
    PlainString(&'a str),
    Operator(&'a str),
    Other,
}

impl<'a> Lexeme<'a> {
    fn new(code: &'a str, token: &Token) -> Self {
        let text = token.text(code);
        match token.kind {
            TokenKind::Name => Self::Name(text),
            TokenKind::Operator => Self::Operator(text),
            TokenKind::String => plain_string(text).map_or(Self::Other, Self::PlainString),
            TokenKind::Number | TokenKind::StringDelimiter | TokenKind::Newline => Self::Other,
        }
    }
}

/// Returns the value of a string literal, if it has no escapes.
fn plain_string(literal: &str) -> Option<&str> {
    let quoted = literal.strip_prefix('r').unwrap_or(literal);
    let quote = ["\"\"\"", "'''", "\"", "'"]
        .into_iter()
        .find(|quote| quoted.starts_with(quote))?;
    let value = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    (!value.contains('\\')).then_some(value)
}

fn find_in_tokens(code: &str, tokens: &[Token], servers: &BTreeSet<&str>) -> Mentions {
    let mut mentions = Mentions::default();
    let at = |index: usize| {
        let token = tokens.get(index);
        token.map_or(Lexeme::Other, |token| Lexeme::new(code, token))
    };
    let before = |index: usize, back: usize| index.checked_sub(back).map_or(Lexeme::Other, at);
    let getattr_is_builtin = is_getattr_builtin(code, tokens);
    for (index, token) in tokens.iter().enumerate() {
        let name = token.text(code);
        if token.kind != TokenKind::Name
            || !servers.contains(name)
            || before(index, 1) == Lexeme::Operator(".")
        {
            continue;
        }
        let is_assignment_target = at(index + 1) == Lexeme::Operator("=") && !token.in_field;
        if is_assignment_target {
            continue;
        }
        let tool = match (at(index + 1), at(index + 2), at(index + 3)) {
            (Lexeme::Operator("."), Lexeme::Name(tool), _) => Some(tool),
            (Lexeme::Operator(","), Lexeme::PlainString(tool), Lexeme::Operator("," | ")"))
                if getattr_is_builtin
                    && before(index, 1) == Lexeme::Operator("(")
                    && matches!(before(index, 2), Lexeme::Name("getattr" | "hasattr"))
                    && before(index, 3) != Lexeme::Operator(".") =>
            {
                Some(tool)
            }
            _ => None,
        };
        mentions.add(name, tool);
    }
    mentions
}

impl Mentions {
    fn add(&mut self, server: &str, tool: Option<&str>) {
        match tool {
            Some(tool) => {
                let tools = self.tools.entry(server.to_owned()).or_default();
                tools.insert(tool.to_owned());
            }
            None => {
                self.servers.insert(server.to_owned());
            }
        }
    }
}

/// Returns whether `getattr` and `hasattr` are certain to be the builtins, that is, never rebound.
fn is_getattr_builtin(code: &str, tokens: &[Token]) -> bool {
    let text = |index: Option<usize>| {
        let token = index.and_then(|index| tokens.get(index));
        token.map_or("", |token| token.text(code))
    };
    tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| {
            token.kind == TokenKind::Name && matches!(token.text(code), "getattr" | "hasattr")
        })
        .all(|(index, _)| {
            let previous = text(index.checked_sub(1));
            let is_called = text(index.checked_add(1)) == "(";
            previous == "." || is_called && !matches!(previous, "def" | "class")
        })
}

/// Treats every word as a name, including those in strings and comments.
fn find_in_text(code: &str, servers: &BTreeSet<&str>) -> Mentions {
    let mut mentions = Mentions::default();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // Returns an empty word at or past the end of the code.
    let word_at = |start: usize| {
        let rest = code.as_bytes().get(start..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| is_word(byte)).count();
        code.get(start..start + length).unwrap_or_default()
    };
    let mut index = 0;
    while index < code.len() {
        let word = word_at(index);
        let end = index + word.len();
        if servers.contains(word) {
            let attribute = match code.as_bytes().get(end) {
                Some(b'.') => word_at(end + 1),
                _ => "",
            };
            let is_name = attribute.starts_with(|c: char| !c.is_ascii_digit());
            mentions.add(word, is_name.then_some(attribute));
        }
        index = end.max(index + 1);
    }
    mentions
}

#[cfg(test)]
mod tests;

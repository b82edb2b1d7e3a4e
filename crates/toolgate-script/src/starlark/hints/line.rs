//! A line of a script, split into tokens.

use crate::lexer::{self, Token, TokenKind};

/// Keywords that cannot end a value.
const KEYWORDS: [&str; 16] = [
    "in", "not", "and", "or", "is", "if", "else", "elif", "for", "while", "return", "lambda",
    "yield", "await", "assert", "raise",
];

/// A line and its tokens, with navigation by token index.
pub(super) struct TokenizedLine<'a> {
    pub(super) text: &'a str,
    tokens: Vec<Token>,
    /// Number of open brackets before each token.
    levels: Vec<usize>,
}

impl<'a> TokenizedLine<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let tokens = lexer::tokenize(text);
        let mut level = 0usize;
        let mut levels = Vec::with_capacity(tokens.len());
        for token in &tokens {
            let operator = &text[token.start..token.end];
            if token.kind == TokenKind::Operator && matches!(operator, ")" | "]" | "}") {
                level = level.saturating_sub(1);
            }
            levels.push(level);
            if token.kind == TokenKind::Operator && matches!(operator, "(" | "[" | "{") {
                level += 1;
            }
        }
        Self {
            text,
            tokens,
            levels,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the text of a token, or an empty string past the end.
    pub(super) fn token(&self, at: usize) -> &'a str {
        self.tokens
            .get(at)
            .map_or("", |token| &self.text[token.start..token.end])
    }

    /// Returns the text of the token before another one, or an empty string before the first.
    pub(super) fn previous(&self, at: usize) -> &'a str {
        at.checked_sub(1).map_or("", |at| self.token(at))
    }

    pub(super) fn last(&self) -> Option<&'a str> {
        self.len().checked_sub(1).map(|at| self.token(at))
    }

    pub(super) fn level(&self, at: usize) -> usize {
        self.levels.get(at).copied().unwrap_or(0)
    }

    pub(super) fn is_kind(&self, at: usize, kind: TokenKind) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == kind)
    }

    /// Returns whether a token other than a string literal has this text.
    pub(super) fn matches(&self, at: usize, text: &str) -> bool {
        self.token(at) == text && !self.is_kind(at, TokenKind::String)
    }

    pub(super) fn find(&self, text: &str) -> Option<usize> {
        (0..self.len()).find(|at| self.matches(*at, text))
    }

    pub(super) fn start(&self, at: usize) -> usize {
        self.tokens
            .get(at)
            .map_or(self.text.len(), |token| token.start)
    }

    pub(super) fn end(&self, at: usize) -> usize {
        self.tokens
            .get(at)
            .map_or(self.text.len(), |token| token.end)
    }

    /// Returns the text of the tokens from `from` up to but not including `to`.
    pub(super) fn span(&self, from: usize, to: usize) -> &'a str {
        if from >= to || from >= self.len() {
            return "";
        }
        &self.text[self.start(from)..self.end(to.min(self.len()) - 1)]
    }

    /// Returns the text after a token, without a comment.
    pub(super) fn after(&self, at: usize) -> &'a str {
        self.span(at + 1, self.len())
    }

    /// Returns the whitespace before the first token.
    pub(super) fn indent(&self) -> &'a str {
        &self.text[..self.start(0).min(self.text.len())]
    }

    /// Returns the bracket that closes the one at `open`.
    pub(super) fn closing_bracket(&self, open: usize) -> Option<usize> {
        if !self.is_kind(open, TokenKind::Operator) || !matches!(self.token(open), "(" | "[" | "{")
        {
            return None;
        }
        let level = self.level(open);
        (open + 1..self.len()).find(|at| {
            self.level(*at) == level
                && matches!(self.token(*at), ")" | "]" | "}")
                && self.is_kind(*at, TokenKind::Operator)
        })
    }

    /// Returns the innermost bracket that is open at a token.
    pub(super) fn enclosing_bracket(&self, at: usize) -> Option<usize> {
        let level = self.level(at).checked_sub(1)?;
        (0..at).rev().find(|open| {
            self.level(*open) == level
                && matches!(self.token(*open), "(" | "[" | "{")
                && self.is_kind(*open, TokenKind::Operator)
        })
    }

    /// Returns whether a value can end with this token.
    pub(super) fn ends_value(&self, at: usize) -> bool {
        match self.tokens.get(at).map(|token| token.kind) {
            Some(TokenKind::Name) => !KEYWORDS.contains(&self.token(at)),
            Some(TokenKind::Number | TokenKind::String) => true,
            Some(TokenKind::Operator) => matches!(self.token(at), ")" | "]" | "}"),
            _ => false,
        }
    }

    /// Returns the start of the value that ends with this token: names, calls and indexes.
    pub(super) fn value_start(&self, end: usize) -> usize {
        let mut at = end;
        loop {
            if self.is_kind(at, TokenKind::Operator) && matches!(self.token(at), ")" | "]" | "}") {
                let open = (0..at).rev().find(|open| {
                    self.closing_bracket(*open) == Some(at)
                        && self.is_kind(*open, TokenKind::Operator)
                });
                at = open.unwrap_or(at);
                let is_suffix = at > 0
                    && self.token(at) != "{"
                    && self.ends_value(at - 1)
                    && self.end(at - 1) == self.start(at);
                if !is_suffix {
                    return at;
                }
                at -= 1;
            } else if at >= 2 && self.matches(at - 1, ".") {
                at -= 2;
            } else {
                return at;
            }
        }
    }

    /// Returns the end (exclusive) of the value that starts with this token or a sign before it.
    pub(super) fn value_end(&self, start: usize) -> usize {
        let mut at = start;
        while matches!(self.token(at), "-" | "+" | "~") {
            at += 1;
        }
        at = match self.token(at) {
            "(" | "[" | "{" if self.is_kind(at, TokenKind::Operator) => {
                self.closing_bracket(at).unwrap_or(at) + 1
            }
            _ => at + 1,
        };
        loop {
            match self.token(at) {
                "." => at += 2,
                "(" | "[" if self.is_kind(at, TokenKind::Operator) => {
                    match self.closing_bracket(at) {
                        Some(close) => at = close + 1,
                        None => return self.len(),
                    }
                }
                _ => return at,
            }
        }
    }

    /// Returns the comma-separated items inside a pair of brackets, as token ranges.
    pub(super) fn bracket_items(&self, open: usize, close: usize) -> Vec<(usize, usize)> {
        self.split(open + 1, close, ",")
    }

    /// Splits a token range at each `separator` on its own bracket level.
    pub(super) fn split(&self, from: usize, to: usize, separator: &str) -> Vec<(usize, usize)> {
        let level = self.level(from);
        let mut parts = Vec::new();
        let mut start = from;
        for at in from..to {
            if self.level(at) == level && self.matches(at, separator) {
                parts.push((start, at));
                start = at + 1;
            }
        }
        if start < to {
            parts.push((start, to));
        }
        parts
    }

    /// Returns the line with the tokens from `from` up to but not including `to` replaced.
    pub(super) fn replace(&self, from: usize, to: usize, with: &str) -> String {
        let end = match to.checked_sub(1) {
            Some(last) if to > from => self.end(last),
            _ => self.start(from),
        };
        format!(
            "{}{with}{}",
            &self.text[..self.start(from)],
            &self.text[end..]
        )
    }
}

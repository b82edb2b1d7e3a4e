//! One line of a script, by its words.

use super::super::lex::{self, Shape, Word};

/// Words that are never the end of a value.
const KEYWORDS: [&str; 16] = [
    "in", "not", "and", "or", "is", "if", "else", "elif", "for", "while", "return", "lambda",
    "yield", "await", "assert", "raise",
];

pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    words: Vec<Word>,
    /// How many brackets are open before each word.
    levels: Vec<usize>,
}

impl<'a> Line<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let words = lex::words(text);
        let mut level = 0usize;
        let mut levels = Vec::with_capacity(words.len());
        for word in &words {
            let sign = &text[word.start..word.end];
            if word.shape == Shape::Sign && matches!(sign, ")" | "]" | "}") {
                level = level.saturating_sub(1);
            }
            levels.push(level);
            if word.shape == Shape::Sign && matches!(sign, "(" | "[" | "{") {
                level += 1;
            }
        }
        Self {
            text,
            words,
            levels,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// A word; empty behind the end.
    pub(super) fn word(&self, at: usize) -> &'a str {
        self.words
            .get(at)
            .map_or("", |word| &self.text[word.start..word.end])
    }

    /// The word before another one; empty before the first.
    pub(super) fn before(&self, at: usize) -> &'a str {
        at.checked_sub(1).map_or("", |at| self.word(at))
    }

    pub(super) fn last(&self) -> Option<&'a str> {
        self.len().checked_sub(1).map(|at| self.word(at))
    }

    pub(super) fn level(&self, at: usize) -> usize {
        self.levels.get(at).copied().unwrap_or(0)
    }

    pub(super) fn is(&self, at: usize, shape: Shape) -> bool {
        self.words.get(at).is_some_and(|word| word.shape == shape)
    }

    /// A word that is a sign or a keyword of this spelling.
    pub(super) fn says(&self, at: usize, spelling: &str) -> bool {
        self.word(at) == spelling && !self.is(at, Shape::Text)
    }

    pub(super) fn find(&self, spelling: &str) -> Option<usize> {
        (0..self.len()).find(|at| self.says(*at, spelling))
    }

    pub(super) fn start(&self, at: usize) -> usize {
        self.words
            .get(at)
            .map_or(self.text.len(), |word| word.start)
    }

    pub(super) fn end(&self, at: usize) -> usize {
        self.words.get(at).map_or(self.text.len(), |word| word.end)
    }

    /// The text of words, from one to before another.
    pub(super) fn span(&self, from: usize, to: usize) -> &'a str {
        if from >= to || from >= self.len() {
            return "";
        }
        &self.text[self.start(from)..self.end(to.min(self.len()) - 1)]
    }

    /// The text behind a word, without a comment.
    pub(super) fn behind(&self, at: usize) -> &'a str {
        self.span(at + 1, self.len())
    }

    /// What stands before the first word.
    pub(super) fn indent(&self) -> &'a str {
        &self.text[..self.start(0).min(self.text.len())]
    }

    /// The bracket that closes the one here.
    pub(super) fn close(&self, open: usize) -> Option<usize> {
        if !self.is(open, Shape::Sign) || !matches!(self.word(open), "(" | "[" | "{") {
            return None;
        }
        let level = self.level(open);
        (open + 1..self.len()).find(|at| {
            self.level(*at) == level
                && matches!(self.word(*at), ")" | "]" | "}")
                && self.is(*at, Shape::Sign)
        })
    }

    /// The innermost bracket that is open at a word.
    pub(super) fn opened(&self, at: usize) -> Option<usize> {
        let level = self.level(at).checked_sub(1)?;
        (0..at).rev().find(|open| {
            self.level(*open) == level
                && matches!(self.word(*open), "(" | "[" | "{")
                && self.is(*open, Shape::Sign)
        })
    }

    /// Whether a value can end with this word.
    pub(super) fn ends_value(&self, at: usize) -> bool {
        match self.words.get(at).map(|word| word.shape) {
            Some(Shape::Name) => !KEYWORDS.contains(&self.word(at)),
            Some(Shape::Number | Shape::Text) => true,
            Some(Shape::Sign) => matches!(self.word(at), ")" | "]" | "}"),
            _ => false,
        }
    }

    /// Where the value starts that ends with this word: names, calls, indexes.
    pub(super) fn value_start(&self, end: usize) -> usize {
        let mut at = end;
        loop {
            if self.is(at, Shape::Sign) && matches!(self.word(at), ")" | "]" | "}") {
                let open = (0..at)
                    .rev()
                    .find(|open| self.close(*open) == Some(at) && self.is(*open, Shape::Sign));
                at = open.unwrap_or(at);
                let is_suffix = at > 0
                    && self.word(at) != "{"
                    && self.ends_value(at - 1)
                    && self.end(at - 1) == self.start(at);
                if !is_suffix {
                    return at;
                }
                at -= 1;
            } else if at >= 2 && self.says(at - 1, ".") {
                at -= 2;
            } else {
                return at;
            }
        }
    }

    /// Behind the value that starts with this word, a sign in front of it included.
    pub(super) fn value_end(&self, start: usize) -> usize {
        let mut at = start;
        while matches!(self.word(at), "-" | "+" | "~") {
            at += 1;
        }
        at = match self.word(at) {
            "(" | "[" | "{" if self.is(at, Shape::Sign) => self.close(at).unwrap_or(at) + 1,
            _ => at + 1,
        };
        loop {
            match self.word(at) {
                "." => at += 2,
                "(" | "[" if self.is(at, Shape::Sign) => match self.close(at) {
                    Some(close) => at = close + 1,
                    None => return self.len(),
                },
                _ => return at,
            }
        }
    }

    /// The parts between commas of what a bracket encloses, as ranges of words.
    pub(super) fn items(&self, open: usize, close: usize) -> Vec<(usize, usize)> {
        self.parts(open + 1, close, ",")
    }

    /// The parts of a range of words between signs at its own level.
    pub(super) fn parts(&self, from: usize, to: usize, sign: &str) -> Vec<(usize, usize)> {
        let level = self.level(from);
        let mut parts = Vec::new();
        let mut start = from;
        for at in from..to {
            if self.level(at) == level && self.says(at, sign) {
                parts.push((start, at));
                start = at + 1;
            }
        }
        if start < to {
            parts.push((start, to));
        }
        parts
    }

    /// The line with other text in place of words, from one to before another.
    pub(super) fn replaced(&self, from: usize, to: usize, with: &str) -> String {
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

//! Finds the keys in a JSON text without parsing the values.
//!
//! Callers have already parsed the text as JSON, so nothing here checks its syntax.

use std::collections::HashSet;

use serde_json::Value;

/// Keys that `serde_json` uses internally: it reads an object that begins with one as a number or
/// as the JSON inside a string, so we would check something other than what the server receives.
const RESERVED_KEYS: [&str; 2] = [
    "$serde_json::private::Number",
    "$serde_json::private::RawValue",
];

enum Token<'a> {
    Open,
    Close,
    /// A key with its quotes and escapes.
    Key(&'a str),
}

struct Tokens<'a> {
    text: &'a str,
    position: usize,
    /// Most recent string; it is a key if a colon follows.
    string: &'a str,
}

/// Counts the keys in a JSON text at any depth. Fails with the first reserved key.
pub(super) fn count_in_text(text: &str) -> Result<usize, &'static str> {
    let mut count = 0;
    for token in Tokens::new(text) {
        if let Token::Key(key) = token {
            count += 1;
            if let Some(reserved) = find_reserved(key) {
                return Err(reserved);
            }
        }
    }
    Ok(count)
}

/// Counts the keys in a parsed value at any depth.
pub(super) fn count_in_value(value: &Value) -> usize {
    match value {
        Value::Object(object) => object.len() + object.values().map(count_in_value).sum::<usize>(),
        Value::Array(items) => items.iter().map(count_in_value).sum(),
        _ => 0,
    }
}

/// Returns the first key that occurs twice in the same object.
pub(super) fn find_duplicate(text: &str) -> Option<String> {
    let mut objects: Vec<HashSet<String>> = Vec::new();
    for token in Tokens::new(text) {
        match token {
            Token::Open => objects.push(HashSet::new()),
            Token::Close => {
                objects.pop();
            }
            Token::Key(key) => {
                let key = unescape(key);
                let seen = objects.last_mut()?;
                if seen.contains(&key) {
                    return Some(key);
                }
                seen.insert(key);
            }
        }
    }
    None
}

fn find_reserved(key: &str) -> Option<&'static str> {
    // Reserved keys start with `$`, which may be written as an escape.
    let first = key.as_bytes().get(1)?;
    if *first != b'$' && *first != b'\\' {
        return None;
    }
    let key = unescape(key);
    RESERVED_KEYS.into_iter().find(|reserved| *reserved == key)
}

fn unescape(key: &str) -> String {
    // An invalid escape, such as half a surrogate pair, also fails in the caller's own parse.
    serde_json::from_str(key).unwrap_or_default()
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            position: 0,
            string: "",
        }
    }

    /// Advances past the string whose opening quote is at `start`.
    fn skip_string(&mut self, start: usize) {
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        while let Some(byte) = bytes.get(end) {
            end += 1;
            match byte {
                b'"' => break,
                b'\\' => end += 1,
                _ => {}
            }
        }
        self.string = self.text.get(start..end).unwrap_or_default();
        self.position = end;
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let position = self.position;
            let byte = *self.text.as_bytes().get(position)?;
            self.position += 1;
            match byte {
                b'"' => self.skip_string(position),
                b'{' => return Some(Token::Open),
                b'}' => return Some(Token::Close),
                b':' => return Some(Token::Key(self.string)),
                _ => {}
            }
        }
    }
}

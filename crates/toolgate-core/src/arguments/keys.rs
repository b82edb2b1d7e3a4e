//! The keys in a JSON text, found without reading the values.
//!
//! The text has been read as JSON before, so nothing here checks its syntax.

use std::collections::HashSet;

use serde_json::Value;

/// Keys that `serde_json` takes for its own: an object that begins with one is read as a number
/// or as the JSON in a string, so what we check would not be what a server gets.
const RESERVED: [&str; 2] = [
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
    /// The last string: a key, if a colon follows.
    string: &'a str,
}

/// How many keys stand in a text, at any depth; an error is a reserved key.
pub(super) fn count(text: &str) -> Result<usize, &'static str> {
    let mut count = 0;
    for token in Tokens::new(text) {
        if let Token::Key(key) = token {
            count += 1;
            if let Some(reserved) = reserved(key) {
                return Err(reserved);
            }
        }
    }
    Ok(count)
}

/// How many keys a value holds, at any depth.
pub(super) fn held(value: &Value) -> usize {
    match value {
        Value::Object(object) => object.len() + object.values().map(held).sum::<usize>(),
        Value::Array(items) => items.iter().map(held).sum(),
        _ => 0,
    }
}

/// The first key that stands twice in one object.
pub(super) fn twice(text: &str) -> Option<String> {
    let mut objects: Vec<HashSet<String>> = Vec::new();
    for token in Tokens::new(text) {
        match token {
            Token::Open => objects.push(HashSet::new()),
            Token::Close => {
                objects.pop();
            }
            Token::Key(key) => {
                let key = unescaped(key);
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

fn reserved(key: &str) -> Option<&'static str> {
    let first = key.as_bytes().get(1)?;
    if *first != b'$' && *first != b'\\' {
        return None;
    }
    let key = unescaped(key);
    RESERVED.into_iter().find(|reserved| *reserved == key)
}

fn unescaped(key: &str) -> String {
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

    /// Steps over the string whose opening quote stands at `start`.
    fn step_over_string(&mut self, start: usize) {
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
                b'"' => self.step_over_string(position),
                b'{' => return Some(Token::Open),
                b'}' => return Some(Token::Close),
                b':' => return Some(Token::Key(self.string)),
                _ => {}
            }
        }
    }
}

//! Exact conversion between JSON and script values: integers of any size, floats and order preserved.
//!
//! Hand-written in both directions because the number types of the libraries panic or round, and
//! because writing must stop early: a few shared lists can expand to more than any memory.

use num_bigint::BigInt;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

use super::repr;

/// Maximum nesting depth of values.
pub(super) const MAX_DEPTH: usize = 100;

/// Reason why a text cannot be read as JSON.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("expected {expected} at character {at}")]
    Expected { expected: &'static str, at: usize },
    #[error("the number `{0}` is too large for a float")]
    Number(String),
    #[error("nested more than {MAX_DEPTH} levels deep")]
    Depth,
}

/// Reason why a value cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("a `{0}` is not data")]
    Kind(String),
    #[error("a `{0}` cannot be a JSON key")]
    Key(String),
    #[error("`{0}` is not a JSON number")]
    Float(String),
    #[error("nested more than {MAX_DEPTH} levels deep, or contains itself")]
    Depth,
    #[error("larger than {0} bytes")]
    Large(usize),
}

/// Layout of written JSON.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) indent: Option<String>,
    pub(super) sort_keys: bool,
    pub(super) ascii: bool,
    pub(super) item_separator: &'a str,
    pub(super) key_separator: &'a str,
    /// Write sets and ranges as lists. Python's `json.dumps` rejects them.
    pub(super) sets_as_lists: bool,
}

impl Layout<'static> {
    /// Returns the layout for values that leave the worker: no whitespace.
    pub(super) fn compact() -> Self {
        Self {
            indent: None,
            sort_keys: false,
            ascii: false,
            item_separator: ",",
            key_separator: ":",
            sets_as_lists: true,
        }
    }
}

/// Writes a value as JSON of at most `max_bytes` bytes.
pub(super) fn write<'v>(
    value: Value<'v>,
    layout: &Layout<'_>,
    max_bytes: usize,
    heap: Heap<'v>,
) -> Result<String, WriteError> {
    let mut writer = Writer {
        out: String::new(),
        layout,
        max_bytes,
        heap,
    };
    writer.value(value, 0)?;
    Ok(writer.out)
}

/// Reads a JSON text.
pub(super) fn read<'v>(text: &str, heap: Heap<'v>) -> Result<Value<'v>, ReadError> {
    let mut reader = Reader { text, at: 0, heap };
    let value = reader.value(0)?;
    reader.skip_whitespace();
    if reader.at < text.len() {
        return Err(reader.expected_error("the end"));
    }
    Ok(value)
}

struct Writer<'a, 'v> {
    out: String,
    layout: &'a Layout<'a>,
    max_bytes: usize,
    heap: Heap<'v>,
}

impl<'v> Writer<'_, 'v> {
    fn push(&mut self, text: &str) -> Result<(), WriteError> {
        if self.out.len() + text.len() > self.max_bytes {
            return Err(WriteError::Large(self.max_bytes));
        }
        self.out.push_str(text);
        Ok(())
    }

    fn value(&mut self, value: Value<'v>, depth: usize) -> Result<(), WriteError> {
        if depth > MAX_DEPTH {
            return Err(WriteError::Depth);
        }
        if value.is_none() {
            self.push("null")
        } else if let Some(boolean) = value.unpack_bool() {
            self.push(if boolean { "true" } else { "false" })
        } else if let Some(text) = value.unpack_str() {
            self.string(text)
        } else if let Some(number) = number_text(value)? {
            self.push(&number)
        } else if let Some(list) = ListRef::from_value(value) {
            self.items(list.iter(), list.len(), depth)
        } else if let Some(tuple) = TupleRef::from_value(value) {
            self.items(tuple.iter(), tuple.len(), depth)
        } else if let Some(dict) = DictRef::from_value(value) {
            self.dict(&dict, depth)
        } else if self.layout.sets_as_lists && matches!(value.get_type(), "set" | "range") {
            let items = value.iterate(self.heap).map_err(|_| not_data(value))?;
            let length = usize::from(value.to_bool());
            self.items(items, length, depth)
        } else {
            Err(not_data(value))
        }
    }

    fn items(
        &mut self,
        items: impl Iterator<Item = Value<'v>>,
        length: usize,
        depth: usize,
    ) -> Result<(), WriteError> {
        self.push("[")?;
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.push(self.layout.item_separator)?;
            }
            self.newline(depth + 1)?;
            self.value(item, depth + 1)?;
        }
        if length > 0 {
            self.newline(depth)?;
        }
        self.push("]")
    }

    fn dict(&mut self, dict: &DictRef<'v>, depth: usize) -> Result<(), WriteError> {
        let mut entries = Vec::with_capacity(dict.len());
        for (key, value) in dict.iter() {
            entries.push((key_text(key)?, value));
        }
        if self.layout.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.push("{")?;
        for (at, (key, value)) in entries.iter().enumerate() {
            if at > 0 {
                self.push(self.layout.item_separator)?;
            }
            self.newline(depth + 1)?;
            self.string(key)?;
            self.push(self.layout.key_separator)?;
            self.value(*value, depth + 1)?;
        }
        if !entries.is_empty() {
            self.newline(depth)?;
        }
        self.push("}")
    }

    fn newline(&mut self, depth: usize) -> Result<(), WriteError> {
        let Some(indent) = &self.layout.indent else {
            return Ok(());
        };
        let line = format!("\n{}", indent.repeat(depth));
        self.push(&line)
    }

    fn string(&mut self, text: &str) -> Result<(), WriteError> {
        // Escaping never shortens a string.
        if self.out.len() + text.len() > self.max_bytes {
            return Err(WriteError::Large(self.max_bytes));
        }
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                control if control < ' ' => escape(&mut self.out, control),
                non_ascii if self.layout.ascii && non_ascii >= '\u{7f}' => {
                    escape(&mut self.out, non_ascii)
                }
                plain => self.out.push(plain),
            }
        }
        self.push("\"")
    }
}

fn not_data(value: Value<'_>) -> WriteError {
    WriteError::Kind(repr::type_name(value).to_owned())
}

fn escape(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

fn number_text(value: Value<'_>) -> Result<Option<String>, WriteError> {
    if let Some(small) = value.unpack_i32() {
        return Ok(Some(small.to_string()));
    }
    if let Some(float) = repr::as_float(value) {
        let text = repr::float_repr(float);
        return if float.is_finite() {
            Ok(Some(text))
        } else {
            Err(WriteError::Float(text))
        };
    }
    Ok(repr::as_integer(value).map(|big| big.to_string()))
}

/// Converts a key like Python's `json.dumps`.
fn key_text(key: Value<'_>) -> Result<String, WriteError> {
    if let Some(text) = key.unpack_str() {
        return Ok(text.to_owned());
    }
    if key.is_none() {
        return Ok("null".to_owned());
    }
    if let Some(boolean) = key.unpack_bool() {
        return Ok(boolean.to_string());
    }
    number_text(key)?.ok_or_else(|| WriteError::Key(repr::type_name(key).to_owned()))
}

struct Reader<'a, 'v> {
    text: &'a str,
    at: usize,
    heap: Heap<'v>,
}

impl<'v> Reader<'_, 'v> {
    fn expected_error(&self, expected: &'static str) -> ReadError {
        let at = self
            .text
            .get(..self.at)
            .map_or(0, |head| head.chars().count());
        ReadError::Expected {
            expected,
            at: at + 1,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn consume(&mut self, byte: u8) -> bool {
        self.skip_whitespace();
        let matches = self.peek() == Some(byte);
        self.at += usize::from(matches);
        matches
    }

    fn value(&mut self, depth: usize) -> Result<Value<'v>, ReadError> {
        if depth > MAX_DEPTH {
            return Err(ReadError::Depth);
        }
        self.skip_whitespace();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                Ok(self.heap.alloc(text))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.keyword(),
        }
    }

    fn keyword(&mut self) -> Result<Value<'v>, ReadError> {
        let words = [
            ("null", Value::new_none()),
            ("true", Value::new_bool(true)),
            ("false", Value::new_bool(false)),
        ];
        for (word, value) in words {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected_error("a value"))
    }

    fn object(&mut self, depth: usize) -> Result<Value<'v>, ReadError> {
        self.at += 1;
        let mut entries = Vec::new();
        if self.consume(b'}') {
            return Ok(self.heap.alloc(AllocDict::EMPTY));
        }
        loop {
            self.skip_whitespace();
            if self.peek() != Some(b'"') {
                return Err(self.expected_error("a name in quotes"));
            }
            let name = self.string()?;
            if !self.consume(b':') {
                return Err(self.expected_error("`:`"));
            }
            entries.push((name, self.value(depth + 1)?));
            if self.consume(b'}') {
                return Ok(self.heap.alloc(AllocDict(entries)));
            }
            if !self.consume(b',') {
                return Err(self.expected_error("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value<'v>, ReadError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.consume(b']') {
            return Ok(self.heap.alloc(AllocList::EMPTY));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.consume(b']') {
                return Ok(self.heap.alloc(AllocList(items)));
            }
            if !self.consume(b',') {
                return Err(self.expected_error("`,` or `]`"));
            }
        }
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self) -> Result<Value<'v>, ReadError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let whole = self.at;
        if !self.digits()
            || (self.text[whole..self.at].len() > 1 && self.text[whole..].starts_with('0'))
        {
            return Err(self.expected_error("a number"));
        }
        let mut float = false;
        if self.peek() == Some(b'.') {
            float = true;
            self.at += 1;
            if !self.digits() {
                return Err(self.expected_error("a digit"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            float = true;
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if !self.digits() {
                return Err(self.expected_error("a digit"));
            }
        }
        let text = &self.text[start..self.at];
        if !float {
            if let Ok(small) = text.parse::<i64>() {
                return Ok(self.heap.alloc(small));
            }
            if let Ok(big) = text.parse::<BigInt>() {
                return Ok(self.heap.alloc(big));
            }
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(self.heap.alloc(number)),
            _ => Err(ReadError::Number(text.to_owned())),
        }
    }

    fn string(&mut self) -> Result<String, ReadError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(|c: char| c == '"' || c == '\\' || c < ' ')
                .ok_or_else(|| self.expected_error("a closing quote"))?;
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.read_escape()?);
                }
                _ => return Err(self.expected_error("no raw control character in a string")),
            }
        }
    }

    fn read_escape(&mut self) -> Result<char, ReadError> {
        let byte = self.peek();
        self.at += 1;
        Ok(match byte {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'u') => self.unicode()?,
            _ => {
                self.at -= 1;
                return Err(self.expected_error("an escape"));
            }
        })
    }

    fn unicode(&mut self) -> Result<char, ReadError> {
        let first = self.hex()?;
        if (0xD800..0xDC00).contains(&first) && self.text[self.at..].starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.hex()?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        // An unpaired surrogate is not a character, and Starlark strings are UTF-8.
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Result<u32, ReadError> {
        let code = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.expected_error("four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

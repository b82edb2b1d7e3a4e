//! JSON to values and back, exactly: integers of any size, floats as given, order kept.
//!
//! Own code on both ways, because the numbers of the libraries panic or round, and because writing must
//! end early: a few shared lists can unfold to more than any memory.

use num_bigint::BigInt;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

use super::spell;

/// How deep values may be nested on their way in or out.
pub(super) const DEEPEST: usize = 100;

/// Why a text is not JSON that a script can have.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("expected {expected} at character {at}")]
    Expected { expected: &'static str, at: usize },
    #[error("the number `{0}` is too large for a float")]
    Number(String),
    #[error("nested more than {DEEPEST} deep")]
    Depth,
}

/// Why a value is not JSON.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("a `{0}` is not data")]
    Kind(String),
    #[error("a `{0}` cannot be a key in JSON")]
    Key(String),
    #[error("`{0}` is no number in JSON")]
    Float(String),
    #[error("nested more than {DEEPEST} deep, or it contains itself")]
    Depth,
    #[error("larger than {0} bytes")]
    Large(usize),
}

/// How JSON is laid out.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) indent: Option<String>,
    pub(super) sort_keys: bool,
    pub(super) ascii: bool,
    pub(super) item: &'a str,
    pub(super) key: &'a str,
    /// Sets become lists; Python's `json.dumps` refuses them.
    pub(super) sets: bool,
}

impl Layout<'static> {
    /// What crosses the border: nothing that is not needed.
    pub(super) fn compact() -> Self {
        Self {
            indent: None,
            sort_keys: false,
            ascii: false,
            item: ",",
            key: ":",
            sets: true,
        }
    }
}

/// A value as JSON of at most `most` bytes.
pub(super) fn write<'v>(
    value: Value<'v>,
    layout: &Layout<'_>,
    most: usize,
    heap: Heap<'v>,
) -> Result<String, WriteError> {
    let mut writer = Writer {
        out: String::new(),
        layout,
        most,
        heap,
    };
    writer.value(value, 0)?;
    Ok(writer.out)
}

/// The value that a JSON text says.
pub(super) fn read<'v>(text: &str, heap: Heap<'v>) -> Result<Value<'v>, ReadError> {
    let mut reader = Reader { text, at: 0, heap };
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.expected("the end"));
    }
    Ok(value)
}

struct Writer<'a, 'v> {
    out: String,
    layout: &'a Layout<'a>,
    most: usize,
    heap: Heap<'v>,
}

impl<'v> Writer<'_, 'v> {
    fn put(&mut self, text: &str) -> Result<(), WriteError> {
        if self.out.len() + text.len() > self.most {
            return Err(WriteError::Large(self.most));
        }
        self.out.push_str(text);
        Ok(())
    }

    fn value(&mut self, value: Value<'v>, depth: usize) -> Result<(), WriteError> {
        if depth > DEEPEST {
            return Err(WriteError::Depth);
        }
        if value.is_none() {
            self.put("null")
        } else if let Some(truth) = value.unpack_bool() {
            self.put(if truth { "true" } else { "false" })
        } else if let Some(text) = value.unpack_str() {
            self.string(text)
        } else if let Some(number) = number(value)? {
            self.put(&number)
        } else if let Some(list) = ListRef::from_value(value) {
            self.items(list.iter(), list.len(), depth)
        } else if let Some(tuple) = TupleRef::from_value(value) {
            self.items(tuple.iter(), tuple.len(), depth)
        } else if let Some(dict) = DictRef::from_value(value) {
            self.dict(&dict, depth)
        } else if self.layout.sets && matches!(value.get_type(), "set" | "range") {
            let items = value.iterate(self.heap).map_err(|_| unfit(value))?;
            let length = usize::from(value.to_bool());
            self.items(items, length, depth)
        } else {
            Err(unfit(value))
        }
    }

    fn items(
        &mut self,
        items: impl Iterator<Item = Value<'v>>,
        length: usize,
        depth: usize,
    ) -> Result<(), WriteError> {
        self.put("[")?;
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.put(self.layout.item)?;
            }
            self.line(depth + 1)?;
            self.value(item, depth + 1)?;
        }
        if length > 0 {
            self.line(depth)?;
        }
        self.put("]")
    }

    fn dict(&mut self, dict: &DictRef<'v>, depth: usize) -> Result<(), WriteError> {
        let mut entries = Vec::with_capacity(dict.len());
        for (key, value) in dict.iter() {
            entries.push((key_text(key)?, value));
        }
        if self.layout.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.put("{")?;
        for (at, (key, value)) in entries.iter().enumerate() {
            if at > 0 {
                self.put(self.layout.item)?;
            }
            self.line(depth + 1)?;
            self.string(key)?;
            self.put(self.layout.key)?;
            self.value(*value, depth + 1)?;
        }
        if !entries.is_empty() {
            self.line(depth)?;
        }
        self.put("}")
    }

    fn line(&mut self, depth: usize) -> Result<(), WriteError> {
        let Some(indent) = &self.layout.indent else {
            return Ok(());
        };
        let line = format!("\n{}", indent.repeat(depth));
        self.put(&line)
    }

    fn string(&mut self, text: &str) -> Result<(), WriteError> {
        // Nothing below makes a string shorter.
        if self.out.len() + text.len() > self.most {
            return Err(WriteError::Large(self.most));
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
                wide if self.layout.ascii && wide >= '\u{7f}' => escape(&mut self.out, wide),
                plain => self.out.push(plain),
            }
        }
        self.put("\"")
    }
}

fn unfit(value: Value<'_>) -> WriteError {
    WriteError::Kind(spell::kind(value).to_owned())
}

fn escape(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

fn number(value: Value<'_>) -> Result<Option<String>, WriteError> {
    if let Some(small) = value.unpack_i32() {
        return Ok(Some(small.to_string()));
    }
    if let Some(float) = spell::float(value) {
        let text = spell::float_text(float);
        return if float.is_finite() {
            Ok(Some(text))
        } else {
            Err(WriteError::Float(text))
        };
    }
    Ok(spell::big(value).map(|big| big.to_string()))
}

/// As Python's `json.dumps` spells keys.
fn key_text(key: Value<'_>) -> Result<String, WriteError> {
    if let Some(text) = key.unpack_str() {
        return Ok(text.to_owned());
    }
    if key.is_none() {
        return Ok("null".to_owned());
    }
    if let Some(truth) = key.unpack_bool() {
        return Ok(truth.to_string());
    }
    number(key)?.ok_or_else(|| WriteError::Key(spell::kind(key).to_owned()))
}

struct Reader<'a, 'v> {
    text: &'a str,
    at: usize,
    heap: Heap<'v>,
}

impl<'v> Reader<'_, 'v> {
    fn expected(&self, expected: &'static str) -> ReadError {
        let at = self
            .text
            .get(..self.at)
            .map_or(0, |head| head.chars().count());
        ReadError::Expected {
            expected,
            at: at + 1,
        }
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.next(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let taken = self.next() == Some(byte);
        self.at += usize::from(taken);
        taken
    }

    fn value(&mut self, depth: usize) -> Result<Value<'v>, ReadError> {
        if depth > DEEPEST {
            return Err(ReadError::Depth);
        }
        self.space();
        match self.next() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                Ok(self.heap.alloc(text))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Value<'v>, ReadError> {
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
        Err(self.expected("a value"))
    }

    fn object(&mut self, depth: usize) -> Result<Value<'v>, ReadError> {
        self.at += 1;
        let mut entries = Vec::new();
        if self.take(b'}') {
            return Ok(self.heap.alloc(AllocDict::EMPTY));
        }
        loop {
            self.space();
            if self.next() != Some(b'"') {
                return Err(self.expected("a name in quotes"));
            }
            let name = self.string()?;
            if !self.take(b':') {
                return Err(self.expected("`:`"));
            }
            entries.push((name, self.value(depth + 1)?));
            if self.take(b'}') {
                return Ok(self.heap.alloc(AllocDict(entries)));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value<'v>, ReadError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(self.heap.alloc(AllocList::EMPTY));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(self.heap.alloc(AllocList(items)));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while matches!(self.next(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self) -> Result<Value<'v>, ReadError> {
        let start = self.at;
        self.at += usize::from(self.next() == Some(b'-'));
        let whole = self.at;
        if !self.digits()
            || (self.text[whole..self.at].len() > 1 && self.text[whole..].starts_with('0'))
        {
            return Err(self.expected("a number"));
        }
        let mut float = false;
        if self.next() == Some(b'.') {
            float = true;
            self.at += 1;
            if !self.digits() {
                return Err(self.expected("a digit"));
            }
        }
        if matches!(self.next(), Some(b'e' | b'E')) {
            float = true;
            self.at += 1;
            self.at += usize::from(matches!(self.next(), Some(b'+' | b'-')));
            if !self.digits() {
                return Err(self.expected("a digit"));
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
                .ok_or_else(|| self.expected("a closing quote"))?;
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.next() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escaped()?);
                }
                _ => return Err(self.expected("no bare control character in a string")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, ReadError> {
        let byte = self.next();
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
                return Err(self.expected("an escape"));
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
        // Half a pair is no character; strings here hold nothing else.
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Result<u32, ReadError> {
        let code = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.expected("four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

//! Values as Python spells them: `str`, `repr` and the names of kinds.

use num_bigint::BigInt;
use starlark::values::bytes::StarlarkBytes;
use starlark::values::dict::DictRef;
use starlark::values::float::StarlarkFloat;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, UnpackValue, Value, ValueLike};

/// The longest text that spelling a value may make.
const LONGEST: usize = 8 * 1024 * 1024;

/// How deep it looks into a value.
const DEEPEST: usize = 100;

/// A value is too large or too deep to be spelled.
#[derive(Debug, thiserror::Error)]
#[error("the value is too large or too deep to be a text")]
pub(super) struct Unspeakable;

/// As Python's `str`.
pub(super) fn str<'v>(value: Value<'v>, heap: Heap<'v>) -> Result<String, Unspeakable> {
    match value.unpack_str() {
        Some(text) => Ok(text.to_owned()),
        None => repr(value, heap),
    }
}

/// As Python's `repr`.
pub(super) fn repr<'v>(value: Value<'v>, heap: Heap<'v>) -> Result<String, Unspeakable> {
    let mut speller = Speller {
        out: String::new(),
        within: Vec::new(),
        heap,
    };
    speller.value(value)?;
    Ok(speller.out)
}

/// The name of a value's type in Python.
pub(super) fn kind(value: Value<'_>) -> &'static str {
    match value.get_type() {
        "string" => "str",
        "native_function" | "native_method" => "builtin_function_or_method",
        other => other,
    }
}

pub(super) fn float(value: Value<'_>) -> Option<f64> {
    value.downcast_ref::<StarlarkFloat>().map(|float| float.0)
}

/// Any integer that is not a truth.
pub(super) fn big(value: Value<'_>) -> Option<BigInt> {
    BigInt::unpack_value(value).ok().flatten()
}

/// As Python's `repr` of a float: the shortest digits that mean the same number.
pub(super) fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{float}");
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

struct Speller<'v> {
    out: String,
    /// What encloses the value at hand, so that a value in itself is seen.
    within: Vec<Value<'v>>,
    heap: Heap<'v>,
}

impl<'v> Speller<'v> {
    fn value(&mut self, value: Value<'v>) -> Result<(), Unspeakable> {
        if self.out.len() > LONGEST || self.within.len() > DEEPEST {
            return Err(Unspeakable);
        }
        if let Some(text) = value.unpack_str() {
            quote(text, &mut self.out);
        } else if let Some(number) = float(value) {
            self.out.push_str(&float_text(number));
        } else if let Some(bytes) = value.downcast_ref::<StarlarkBytes>() {
            quote_bytes(bytes.as_bytes(), &mut self.out);
        } else if self.within.iter().any(|outer| outer.ptr_eq(value)) {
            self.out.push_str(match value.get_type() {
                "dict" => "{...}",
                _ => "[...]",
            });
        } else {
            self.within.push(value);
            self.compound(value)?;
            self.within.pop();
        }
        Ok(())
    }

    fn compound(&mut self, value: Value<'v>) -> Result<(), Unspeakable> {
        if let Some(list) = ListRef::from_value(value) {
            self.items("[", list.iter(), "]")
        } else if let Some(tuple) = TupleRef::from_value(value) {
            let close = if tuple.len() == 1 { ",)" } else { ")" };
            self.items("(", tuple.iter(), close)
        } else if let Some(dict) = DictRef::from_value(value) {
            self.out.push('{');
            for (at, (key, value)) in dict.iter().enumerate() {
                if at > 0 {
                    self.out.push_str(", ");
                }
                self.value(key)?;
                self.out.push_str(": ");
                self.value(value)?;
            }
            self.out.push('}');
            Ok(())
        } else if value.get_type() == "set" && value.to_bool() {
            let items = value.iterate(self.heap).map_err(|_| Unspeakable)?;
            self.items("{", items, "}")
        } else if value.get_type() == "set" {
            self.out.push_str("set()");
            Ok(())
        } else if let Some(big) = big(value) {
            self.out.push_str(&big.to_string());
            Ok(())
        } else {
            self.out.push_str(&value.to_str());
            Ok(())
        }
    }

    fn items(
        &mut self,
        open: &str,
        items: impl Iterator<Item = Value<'v>>,
        close: &str,
    ) -> Result<(), Unspeakable> {
        self.out.push_str(open);
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.out.push_str(", ");
            }
            self.value(item)?;
        }
        self.out.push_str(close);
        Ok(())
    }
}

/// A text in Python's quotes: single ones, unless that would need escapes and double ones would not.
pub(super) fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(mark);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            quote if quote == mark => {
                out.push('\\');
                out.push(quote);
            }
            control if control < ' ' || ('\u{7f}'..'\u{a1}').contains(&control) => {
                out.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            plain => out.push(plain),
        }
    }
    out.push(mark);
}

fn quote_bytes(bytes: &[u8], out: &mut String) {
    let mark = if bytes.contains(&b'\'') && !bytes.contains(&b'"') {
        b'"'
    } else {
        b'\''
    };
    out.push('b');
    out.push(char::from(mark));
    for byte in bytes {
        match *byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            escaped if escaped == b'\\' || escaped == mark => {
                out.push('\\');
                out.push(char::from(escaped));
            }
            plain @ b' '..=b'~' => out.push(char::from(plain)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push(char::from(mark));
}

//! Python's text representation of values: `str`, `repr` and type names.

use num_bigint::BigInt;
use starlark::values::bytes::StarlarkBytes;
use starlark::values::dict::DictRef;
use starlark::values::float::StarlarkFloat;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, UnpackValue, Value, ValueLike};

/// Maximum length of a representation.
const MAX_REPR_BYTES: usize = 8 * 1024 * 1024;

/// Maximum nesting depth of a value.
const MAX_REPR_DEPTH: usize = 100;

/// A value is too large or too deeply nested to be represented.
#[derive(Debug, thiserror::Error)]
#[error("the value is too large or too deeply nested to convert to a string")]
pub(super) struct ReprError;

/// Converts a value like Python's `str`.
pub(super) fn str<'v>(value: Value<'v>, heap: Heap<'v>) -> Result<String, ReprError> {
    match value.unpack_str() {
        Some(text) => Ok(text.to_owned()),
        None => repr(value, heap),
    }
}

/// Converts a value like Python's `repr`.
pub(super) fn repr<'v>(value: Value<'v>, heap: Heap<'v>) -> Result<String, ReprError> {
    let mut writer = ReprWriter {
        out: String::new(),
        enclosing: Vec::new(),
        heap,
    };
    writer.value(value)?;
    Ok(writer.out)
}

/// Returns the name of a value's type in Python.
pub(super) fn type_name(value: Value<'_>) -> &'static str {
    match value.get_type() {
        "string" => "str",
        "native_function" | "native_method" => "builtin_function_or_method",
        other => other,
    }
}

pub(super) fn as_float(value: Value<'_>) -> Option<f64> {
    value.downcast_ref::<StarlarkFloat>().map(|float| float.0)
}

/// Returns an integer of any size; bools are not integers here.
pub(super) fn as_integer(value: Value<'_>) -> Option<BigInt> {
    BigInt::unpack_value(value).ok().flatten()
}

/// Formats a float like Python's `repr`: the shortest digits that round-trip.
pub(super) fn float_repr(float: f64) -> String {
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

struct ReprWriter<'v> {
    out: String,
    /// Values that enclose the current one, to detect cycles.
    enclosing: Vec<Value<'v>>,
    heap: Heap<'v>,
}

impl<'v> ReprWriter<'v> {
    fn value(&mut self, value: Value<'v>) -> Result<(), ReprError> {
        if self.out.len() > MAX_REPR_BYTES || self.enclosing.len() > MAX_REPR_DEPTH {
            return Err(ReprError);
        }
        if let Some(text) = value.unpack_str() {
            push_quoted(text, &mut self.out);
        } else if let Some(number) = as_float(value) {
            self.out.push_str(&float_repr(number));
        } else if let Some(bytes) = value.downcast_ref::<StarlarkBytes>() {
            push_quoted_bytes(bytes.as_bytes(), &mut self.out);
        } else if self.enclosing.iter().any(|outer| outer.ptr_eq(value)) {
            self.out.push_str(match value.get_type() {
                "dict" => "{...}",
                _ => "[...]",
            });
        } else {
            self.enclosing.push(value);
            self.compound(value)?;
            self.enclosing.pop();
        }
        Ok(())
    }

    fn compound(&mut self, value: Value<'v>) -> Result<(), ReprError> {
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
            let items = value.iterate(self.heap).map_err(|_| ReprError)?;
            self.items("{", items, "}")
        } else if value.get_type() == "set" {
            self.out.push_str("set()");
            Ok(())
        } else if let Some(big) = as_integer(value) {
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
    ) -> Result<(), ReprError> {
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

/// Appends a string in Python's quotes: single ones, unless only double ones avoid an escape.
pub(super) fn push_quoted(text: &str, out: &mut String) {
    let quote_char = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote_char);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            quote if quote == quote_char => {
                out.push('\\');
                out.push(quote);
            }
            control if control < ' ' || ('\u{7f}'..'\u{a1}').contains(&control) => {
                out.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            plain => out.push(plain),
        }
    }
    out.push(quote_char);
}

fn push_quoted_bytes(bytes: &[u8], out: &mut String) {
    let quote_char = if bytes.contains(&b'\'') && !bytes.contains(&b'"') {
        b'"'
    } else {
        b'\''
    };
    out.push('b');
    out.push(char::from(quote_char));
    for byte in bytes {
        match *byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            escaped if escaped == b'\\' || escaped == quote_char => {
                out.push('\\');
                out.push(char::from(escaped));
            }
            plain @ b' '..=b'~' => out.push(char::from(plain)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push(char::from(quote_char));
}

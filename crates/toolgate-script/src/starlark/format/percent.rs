//! `text % values`.

use starlark::values::dict::DictRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

use super::spec::{FormatSpec, MAX_FIELD_WIDTH, read_digits, width_error};
use crate::starlark::error::ScriptError;
use crate::starlark::numbers::Number;
use crate::starlark::repr;

/// Formats values like Python's `text % values`.
pub(in crate::starlark) fn format_percent<'v>(
    text: &str,
    values: Value<'v>,
    heap: Heap<'v>,
) -> Result<String, ScriptError> {
    let positional = match TupleRef::from_value(values) {
        Some(tuple) => tuple.content().to_vec(),
        None => vec![values],
    };
    let mut formatter = PercentFormatter {
        values,
        positional: positional.into_iter(),
        keyed: false,
        heap,
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = formatter.format_field(&rest[at + 1..], &mut out)?;
    }
    out.push_str(rest);
    let has_unused = formatter.positional.next().is_some();
    if has_unused && !formatter.keyed && DictRef::from_value(values).is_none() {
        return Err(ScriptError::misuse("there are more values than `%` fields"));
    }
    Ok(out)
}

struct PercentFormatter<'v> {
    values: Value<'v>,
    positional: std::vec::IntoIter<Value<'v>>,
    keyed: bool,
    heap: Heap<'v>,
}

impl<'v> PercentFormatter<'v> {
    /// Formats the field that follows a `%` and returns the rest of the text.
    fn format_field<'t>(
        &mut self,
        text: &'t str,
        out: &mut String,
    ) -> Result<&'t str, ScriptError> {
        let bad = || {
            ScriptError::misuse("a `%` is not followed by a format; write `%%` for a literal `%`")
        };
        let mut rest = text;
        let mut keyed = None;
        if let Some(open) = rest.strip_prefix('(') {
            let (key, after) = open.split_once(')').ok_or_else(bad)?;
            keyed = Some(self.lookup(key)?);
            rest = after;
        }
        let mut spec = FormatSpec::default();
        let mut left = false;
        while let Some(flag) = rest.chars().next().filter(|c| "-+ #0".contains(*c)) {
            match flag {
                '-' => left = true,
                '0' => spec.zero = true,
                '#' => spec.alternate = true,
                sign => spec.sign = Some(if spec.sign == Some('+') { '+' } else { sign }),
            }
            rest = &rest[1..];
        }
        spec.width = self.read_size(&mut rest)?.unwrap_or(0);
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            spec.precision = Some(self.read_size(&mut rest)?.unwrap_or(0));
        }
        rest = rest.trim_start_matches(['l', 'h', 'L']);
        let kind = rest.chars().next().ok_or_else(bad)?;
        let rest = &rest[kind.len_utf8()..];
        if kind == '%' {
            out.push('%');
            return Ok(rest);
        }
        if left {
            spec.zero = false;
            spec.align = Some('<');
        }
        let value = match keyed {
            Some(value) => value,
            None => self.next()?,
        };
        out.push_str(&self.format_value(spec, kind, value)?);
        Ok(rest)
    }

    fn format_value(
        &self,
        mut spec: FormatSpec,
        kind: char,
        value: Value<'v>,
    ) -> Result<String, ScriptError> {
        let to_misuse = |error: repr::ReprError| ScriptError::misuse(error.to_string());
        match kind {
            's' | 'r' | 'a' => {
                let text = if kind == 's' {
                    repr::str(value, self.heap).map_err(to_misuse)?
                } else {
                    repr::repr(value, self.heap).map_err(to_misuse)?
                };
                spec.align.get_or_insert('>');
                spec.zero = false;
                spec.sign = None;
                spec.alternate = false;
                spec.format_text(&text)
            }
            'd' | 'i' | 'u' => {
                let number = require_number(kind, value)?.truncate()?;
                spec.kind = Some('d');
                // For integers, the precision is the minimum number of digits.
                let min_digits = spec.precision.take().unwrap_or(0);
                if min_digits > 0 {
                    let digits = number.to_string();
                    let (minus, digits) = match digits.strip_prefix('-') {
                        Some(digits) => ("-", digits),
                        None => ("", digits.as_str()),
                    };
                    spec.align.get_or_insert('>');
                    return Ok(spec.pad(&format!("{minus}{digits:0>min_digits$}"), ""));
                }
                spec.format_number(&Number::Int(number))
            }
            'x' | 'X' | 'o' => {
                spec.kind = Some(kind);
                spec.precision = None;
                spec.format_number(&Number::Int(require_number(kind, value)?.to_integer()?))
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                spec.kind = Some(kind);
                spec.format_number(&require_number(kind, value)?)
            }
            'c' if let Some(text) = value.unpack_str() => {
                spec.align.get_or_insert('>');
                spec.format_text(text)
            }
            'c' => {
                spec.kind = Some('c');
                spec.align.get_or_insert('>');
                spec.format_number(&require_number(kind, value)?)
            }
            _ => Err(ScriptError::misuse(format!("`%{kind}` is not supported"))),
        }
    }

    fn read_size(&mut self, rest: &mut &str) -> Result<Option<usize>, ScriptError> {
        if let Some(after) = rest.strip_prefix('*') {
            *rest = after;
            let size = self
                .next()?
                .unpack_i32()
                .and_then(|n| usize::try_from(n).ok());
            let size = size.filter(|size| *size <= MAX_FIELD_WIDTH);
            return size.map(Some).ok_or_else(width_error);
        }
        read_digits(rest)
    }

    fn next(&mut self) -> Result<Value<'v>, ScriptError> {
        let value = self.positional.next();
        value.ok_or_else(|| ScriptError::misuse("there are fewer values than `%` fields"))
    }

    fn lookup(&mut self, key: &str) -> Result<Value<'v>, ScriptError> {
        self.keyed = true;
        let dict = DictRef::from_value(self.values)
            .ok_or_else(|| ScriptError::misuse(format!("`%({key})` needs a dict after the `%`")))?;
        dict.get_str(key)
            .ok_or_else(|| ScriptError::misuse(format!("the dict has no key `{key}`")))
    }
}

fn require_number(kind: char, value: Value<'_>) -> Result<Number, ScriptError> {
    Number::from_value(value).ok_or_else(|| {
        ScriptError::misuse(format!(
            "`%{kind}` needs a number, not a `{}`",
            repr::type_name(value)
        ))
    })
}

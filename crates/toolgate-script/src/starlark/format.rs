//! Python's formatting of numbers and strings: `format(x, ".2f")` and `"%5d" % n`.

use num_bigint::BigInt;
use starlark::values::dict::DictRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

use super::error::ScriptError;
use super::numbers::Number;
use super::repr;

/// Maximum width and precision of a field.
const MAX_FIELD_WIDTH: usize = 10_000;

/// A parsed format specification.
#[derive(Clone, Debug, Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    group: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// Formats a value like Python's `format(value, spec)`.
pub(super) fn format<'v>(
    value: Value<'v>,
    spec: &str,
    heap: Heap<'v>,
) -> Result<String, ScriptError> {
    if spec.is_empty() {
        return repr::str(value, heap).map_err(|error| ScriptError::misuse(error.to_string()));
    }
    let spec = Spec::parse(spec)?;
    if let Some(text) = value.unpack_str() {
        return spec.format_text(text);
    }
    match Number::from_value(value) {
        Some(number) => spec.format_number(&number),
        None => Err(ScriptError::misuse(format!(
            "a `{}` does not support a format specification",
            repr::type_name(value)
        ))),
    }
}

/// Formats values like Python's `text % values`.
pub(super) fn format_percent<'v>(
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
        let mut spec = Spec::default();
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
        mut spec: Spec,
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

fn width_error() -> ScriptError {
    ScriptError::misuse(format!(
        "a field can have at most {MAX_FIELD_WIDTH} characters"
    ))
}

/// Reads a number from the start of `rest`.
fn read_digits(rest: &mut &str) -> Result<Option<usize>, ScriptError> {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    if end == 0 {
        return Ok(None);
    }
    let size = rest[..end]
        .parse()
        .ok()
        .filter(|size| *size <= MAX_FIELD_WIDTH);
    *rest = &rest[end..];
    size.map(Some).ok_or_else(width_error)
}

impl Spec {
    fn parse(text: &str) -> Result<Self, ScriptError> {
        let bad = || ScriptError::misuse(format!("`{text}` is not a valid format specification"));
        let mut spec = Self::default();
        let mut rest = text;
        let is_align = |c: &char| "<>=^".contains(*c);
        let mut head = rest.chars();
        let (first, second) = (head.next(), head.next());
        if let (Some(fill), Some(align)) = (first, second.filter(is_align)) {
            spec.fill = Some(fill);
            spec.align = Some(align);
            rest = head.as_str();
        } else if let Some(align) = first.filter(is_align) {
            spec.align = Some(align);
            rest = &rest[1..];
        }
        if let Some(sign) = rest.chars().next().filter(|c| "+- ".contains(*c)) {
            spec.sign = Some(sign);
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('#') {
            spec.alternate = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('0') {
            spec.zero = true;
            rest = after;
        }
        spec.width = read_digits(&mut rest)?.unwrap_or(0);
        if let Some(group) = rest.chars().next().filter(|c| ",_".contains(*c)) {
            spec.group = Some(group);
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            spec.precision = Some(read_digits(&mut rest)?.ok_or_else(bad)?);
        }
        let mut tail = rest.chars();
        spec.kind = tail.next();
        let known = spec
            .kind
            .is_none_or(|kind| "sbcdoxXneEfFgG%".contains(kind));
        if tail.next().is_some() || !known {
            return Err(bad());
        }
        Ok(spec)
    }

    fn format_text(&self, text: &str) -> Result<String, ScriptError> {
        let fits = matches!(self.kind, None | Some('s'))
            && self.sign.is_none()
            && self.group.is_none()
            && self.align != Some('=')
            && !self.alternate;
        if !fits {
            return Err(ScriptError::misuse(
                "the format specification is for numbers, not for a `str`",
            ));
        }
        let cut: String = match self.precision {
            Some(max_chars) => text.chars().take(max_chars).collect(),
            None => text.to_owned(),
        };
        let mut spec = self.clone();
        spec.align.get_or_insert('<');
        if spec.zero {
            spec.fill.get_or_insert('0');
            spec.zero = false;
        }
        Ok(spec.pad(&cut, ""))
    }

    fn format_number(&self, number: &Number) -> Result<String, ScriptError> {
        match (self.kind, number) {
            (Some('s'), _) => Err(ScriptError::misuse("`s` is for strings, not for a number")),
            (None | Some('d' | 'n' | 'b' | 'o' | 'x' | 'X' | 'c'), Number::Int(int)) => {
                self.format_integer(int)
            }
            (Some(kind @ ('d' | 'b' | 'o' | 'x' | 'X' | 'c')), Number::Float(_)) => Err(
                ScriptError::misuse(format!("`{kind}` is for integers, not for a `float`")),
            ),
            _ => self.format_float(number.to_float()?),
        }
    }

    fn format_integer(&self, int: &BigInt) -> Result<String, ScriptError> {
        if self.precision.is_some() {
            return Err(ScriptError::misuse(
                "a precision is not allowed for an integer",
            ));
        }
        let negative = int.sign() == num_bigint::Sign::Minus;
        let (radix, prefix) = match self.kind {
            Some('b') => (2, "0b"),
            Some('o') => (8, "0o"),
            Some('x') => (16, "0x"),
            Some('X') => (16, "0X"),
            _ => (10, ""),
        };
        if self.kind == Some('c') {
            let code = u32::try_from(int).ok().and_then(char::from_u32);
            let code = code
                .ok_or_else(|| ScriptError::misuse("the number is not a valid character code"))?;
            let mut spec = self.clone();
            spec.align.get_or_insert('<');
            return Ok(spec.pad(&code.to_string(), ""));
        }
        let mut digits = int.magnitude().to_str_radix(radix);
        if self.kind == Some('X') {
            digits.make_ascii_uppercase();
        }
        let mut sign = self.sign_text(negative).to_owned();
        if self.alternate {
            sign.push_str(prefix);
        }
        let group_size = if radix == 10 { 3 } else { 4 };
        Ok(self.format_digits(&sign, &digits, "", group_size))
    }

    fn format_float(&self, float: f64) -> Result<String, ScriptError> {
        let sign = self.sign_text(float.is_sign_negative() && !float.is_nan());
        let magnitude = float.abs();
        let upper = matches!(self.kind, Some('E' | 'F' | 'G'));
        if !magnitude.is_finite() {
            let word = if magnitude.is_nan() { "nan" } else { "inf" };
            let word = if upper {
                word.to_uppercase()
            } else {
                word.to_owned()
            };
            let mut spec = self.clone();
            spec.group = None;
            return Ok(spec.format_digits(sign, &word, "", 3));
        }
        let precision = self.precision.unwrap_or(6);
        let text = match self.kind {
            None if self.precision.is_none() => repr::float_repr(magnitude),
            None => format_general(magnitude, precision, false, true),
            Some('f' | 'F') => format!("{magnitude:.precision$}"),
            Some('%') => format!("{:.precision$}%", magnitude * 100.0),
            Some('e' | 'E') => python_exponent(&format!("{magnitude:.precision$e}")),
            _ => format_general(magnitude, precision, self.alternate, false),
        };
        let text = if upper { text.to_uppercase() } else { text };
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, tail) = text.split_at(end);
        Ok(self.format_digits(sign, digits, tail, 3))
    }

    fn sign_text(&self, negative: bool) -> &'static str {
        match self.sign {
            _ if negative => "-",
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        }
    }

    /// Formats a sign, grouped digits and a suffix, padded to the width.
    fn format_digits(&self, sign: &str, digits: &str, tail: &str, group_size: usize) -> String {
        let mut spec = self.clone();
        let zeros = spec.zero && spec.align.is_none() && spec.fill.is_none();
        let zeros = zeros || (spec.align == Some('=') && spec.fill == Some('0'));
        if spec.zero {
            spec.fill.get_or_insert('0');
            spec.align.get_or_insert('=');
        }
        spec.align.get_or_insert('>');
        let Some(mark) = self.group else {
            return spec.pad(&format!("{digits}{tail}"), sign);
        };
        let mut digits = digits.to_owned();
        let mut text = insert_separators(&digits, mark, group_size);
        if zeros {
            let room = spec.width.saturating_sub(sign.chars().count() + tail.len());
            while text.len() < room {
                digits.insert(0, '0');
                text = insert_separators(&digits, mark, group_size);
            }
        }
        spec.pad(&format!("{text}{tail}"), sign)
    }

    /// Pads to the width. With the alignment `=`, padding goes between sign and text.
    fn pad(&self, text: &str, sign: &str) -> String {
        let length = text.chars().count() + sign.chars().count();
        let missing = self.width.saturating_sub(length);
        let zero = if self.zero && self.align.is_none() {
            '0'
        } else {
            ' '
        };
        let fill = |count: usize| self.fill.unwrap_or(zero).to_string().repeat(count);
        match self.align {
            Some('<') => format!("{sign}{text}{}", fill(missing)),
            Some('^') => {
                let before = missing / 2;
                format!("{}{sign}{text}{}", fill(before), fill(missing - before))
            }
            Some('=') => format!("{sign}{}{text}", fill(missing)),
            _ => format!("{}{sign}{text}", fill(missing)),
        }
    }
}

fn insert_separators(digits: &str, mark: char, group_size: usize) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(group_size) {
            out.push(mark);
        }
        out.push(digit);
    }
    out
}

/// Converts Rust's `1.5e3` into Python's `1.5e+03`.
fn python_exponent(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, size) = match exponent.strip_prefix('-') {
        Some(size) => ('-', size),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{size:0>2}")
}

/// Formats like Python's `g`. `with_point` selects the variant for floats without a format type, which
/// keeps at least one digit after the point.
fn format_general(size: f64, precision: usize, keep_zeros: bool, with_point: bool) -> String {
    let precision = precision.max(1);
    let rounded = format!("{size:.*e}", precision - 1);
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let max_exponent = i64::try_from(precision).unwrap_or(i64::MAX) - i64::from(with_point);
    let trim = |text: String| {
        if keep_zeros || !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if exponent < -4 || exponent >= max_exponent {
        return python_exponent(&format!("{}e{exponent}", trim(digits.to_owned())));
    }
    let decimals =
        usize::try_from(max_exponent + i64::from(with_point) - 1 - exponent).unwrap_or(0);
    let fixed = trim(format!("{size:.decimals$}"));
    if with_point && !fixed.contains('.') {
        return fixed + ".0";
    }
    fixed
}

//! A format specification such as `>8,.2f`, and formatting by it.

use num_bigint::BigInt;

use crate::starlark::error::ScriptError;
use crate::starlark::numbers::Number;
use crate::starlark::repr;

/// Maximum width and precision of a field.
pub(super) const MAX_FIELD_WIDTH: usize = 10_000;

/// A parsed format specification.
#[derive(Clone, Debug, Default)]
pub(super) struct FormatSpec {
    fill: Option<char>,
    pub(super) align: Option<char>,
    pub(super) sign: Option<char>,
    pub(super) alternate: bool,
    pub(super) zero: bool,
    pub(super) width: usize,
    group: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

pub(super) fn width_error() -> ScriptError {
    ScriptError::misuse(format!(
        "a field can have at most {MAX_FIELD_WIDTH} characters"
    ))
}

/// Reads a number from the start of `rest`.
pub(super) fn read_digits(rest: &mut &str) -> Result<Option<usize>, ScriptError> {
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

impl FormatSpec {
    pub(super) fn parse(text: &str) -> Result<Self, ScriptError> {
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

    pub(super) fn format_text(&self, text: &str) -> Result<String, ScriptError> {
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

    pub(super) fn format_number(&self, number: &Number) -> Result<String, ScriptError> {
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
    pub(super) fn pad(&self, text: &str, sign: &str) -> String {
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

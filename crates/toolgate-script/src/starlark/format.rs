//! Python's formatting of numbers and texts: `format(x, ".2f")` and `"%5d" % n`.

use num_bigint::BigInt;
use starlark::values::dict::DictRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

use super::numbers::Number;
use super::spell;
use super::trouble::Trouble;

/// The widest field and the most digits.
const WIDEST: usize = 10_000;

/// Python's format specification.
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

/// As Python's `format(value, spec)`.
pub(super) fn format<'v>(value: Value<'v>, spec: &str, heap: Heap<'v>) -> Result<String, Trouble> {
    if spec.is_empty() {
        return spell::str(value, heap).map_err(|error| Trouble::misuse(error.to_string()));
    }
    let spec = Spec::parse(spec)?;
    if let Some(text) = value.unpack_str() {
        return spec.text(text);
    }
    match Number::of(value) {
        Some(number) => spec.number(&number),
        None => Err(Trouble::misuse(format!(
            "a `{}` takes no format specification",
            spell::kind(value)
        ))),
    }
}

/// As Python's `text % values`.
pub(super) fn percent<'v>(
    text: &str,
    values: Value<'v>,
    heap: Heap<'v>,
) -> Result<String, Trouble> {
    let positional = match TupleRef::from_value(values) {
        Some(tuple) => tuple.content().to_vec(),
        None => vec![values],
    };
    let mut filler = Filler {
        values,
        positional: positional.into_iter(),
        keyed: false,
        heap,
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = filler.field(&rest[at + 1..], &mut out)?;
    }
    out.push_str(rest);
    let left = filler.positional.next().is_some();
    if left && !filler.keyed && DictRef::from_value(values).is_none() {
        return Err(Trouble::misuse("there are more values than `%` fields"));
    }
    Ok(out)
}

struct Filler<'v> {
    values: Value<'v>,
    positional: std::vec::IntoIter<Value<'v>>,
    keyed: bool,
    heap: Heap<'v>,
}

impl<'v> Filler<'v> {
    /// Fills the field that starts behind a `%`, and gives the text behind it.
    fn field<'t>(&mut self, text: &'t str, out: &mut String) -> Result<&'t str, Trouble> {
        let bad = || Trouble::misuse("a `%` in the text starts no field; write `%%` for the sign");
        let mut rest = text;
        let mut keyed = None;
        if let Some(open) = rest.strip_prefix('(') {
            let (key, behind) = open.split_once(')').ok_or_else(bad)?;
            keyed = Some(self.keyed(key)?);
            rest = behind;
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
        spec.width = self.size(&mut rest)?.unwrap_or(0);
        if let Some(behind) = rest.strip_prefix('.') {
            rest = behind;
            spec.precision = Some(self.size(&mut rest)?.unwrap_or(0));
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
        out.push_str(&self.one(spec, kind, value)?);
        Ok(rest)
    }

    fn one(&self, mut spec: Spec, kind: char, value: Value<'v>) -> Result<String, Trouble> {
        let spoken = |error: spell::Unspeakable| Trouble::misuse(error.to_string());
        match kind {
            's' | 'r' | 'a' => {
                let text = if kind == 's' {
                    spell::str(value, self.heap).map_err(spoken)?
                } else {
                    spell::repr(value, self.heap).map_err(spoken)?
                };
                spec.align.get_or_insert('>');
                spec.zero = false;
                spec.sign = None;
                spec.alternate = false;
                spec.text(&text)
            }
            'd' | 'i' | 'u' => {
                let number = numeric(kind, value)?.truncated()?;
                spec.kind = Some('d');
                // Digits that a precision asks for are zeros in front.
                let least = spec.precision.take().unwrap_or(0);
                if least > 0 {
                    let digits = number.to_string();
                    let (minus, digits) = match digits.strip_prefix('-') {
                        Some(digits) => ("-", digits),
                        None => ("", digits.as_str()),
                    };
                    spec.align.get_or_insert('>');
                    return Ok(spec.pad(&format!("{minus}{digits:0>least$}"), ""));
                }
                spec.number(&Number::Int(number))
            }
            'x' | 'X' | 'o' => {
                spec.kind = Some(kind);
                spec.precision = None;
                spec.number(&Number::Int(numeric(kind, value)?.integer()?))
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                spec.kind = Some(kind);
                spec.number(&numeric(kind, value)?)
            }
            'c' if value.unpack_str().is_some() => {
                spec.align.get_or_insert('>');
                spec.text(value.unpack_str().unwrap_or_default())
            }
            'c' => {
                spec.kind = Some('c');
                spec.align.get_or_insert('>');
                spec.number(&numeric(kind, value)?)
            }
            _ => Err(Trouble::misuse(format!("there is no `%{kind}`"))),
        }
    }

    fn size(&mut self, rest: &mut &str) -> Result<Option<usize>, Trouble> {
        if let Some(behind) = rest.strip_prefix('*') {
            *rest = behind;
            let size = self
                .next()?
                .unpack_i32()
                .and_then(|n| usize::try_from(n).ok());
            let size = size.filter(|size| *size <= WIDEST);
            return size.map(Some).ok_or_else(too_wide);
        }
        take_size(rest)
    }

    fn next(&mut self) -> Result<Value<'v>, Trouble> {
        let value = self.positional.next();
        value.ok_or_else(|| Trouble::misuse("there are fewer values than `%` fields"))
    }

    fn keyed(&mut self, key: &str) -> Result<Value<'v>, Trouble> {
        self.keyed = true;
        let dict = DictRef::from_value(self.values)
            .ok_or_else(|| Trouble::misuse(format!("`%({key})` needs a dict behind the `%`")))?;
        dict.get_str(key)
            .ok_or_else(|| Trouble::misuse(format!("the dict has no key `{key}`")))
    }
}

fn numeric(kind: char, value: Value<'_>) -> Result<Number, Trouble> {
    Number::of(value).ok_or_else(|| {
        Trouble::misuse(format!(
            "`%{kind}` needs a number, not a `{}`",
            spell::kind(value)
        ))
    })
}

fn too_wide() -> Trouble {
    Trouble::misuse(format!("a field has at most {WIDEST} characters"))
}

/// Digits at the start of a text.
fn take_size(rest: &mut &str) -> Result<Option<usize>, Trouble> {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    if end == 0 {
        return Ok(None);
    }
    let size = rest[..end].parse().ok().filter(|size| *size <= WIDEST);
    *rest = &rest[end..];
    size.map(Some).ok_or_else(too_wide)
}

impl Spec {
    fn parse(text: &str) -> Result<Self, Trouble> {
        let bad = || Trouble::misuse(format!("`{text}` is no format specification"));
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
        if let Some(behind) = rest.strip_prefix('#') {
            spec.alternate = true;
            rest = behind;
        }
        if let Some(behind) = rest.strip_prefix('0') {
            spec.zero = true;
            rest = behind;
        }
        spec.width = take_size(&mut rest)?.unwrap_or(0);
        if let Some(group) = rest.chars().next().filter(|c| ",_".contains(*c)) {
            spec.group = Some(group);
            rest = &rest[1..];
        }
        if let Some(behind) = rest.strip_prefix('.') {
            rest = behind;
            spec.precision = Some(take_size(&mut rest)?.ok_or_else(bad)?);
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

    fn text(&self, text: &str) -> Result<String, Trouble> {
        let fits = matches!(self.kind, None | Some('s'))
            && self.sign.is_none()
            && self.group.is_none()
            && self.align != Some('=')
            && !self.alternate;
        if !fits {
            return Err(Trouble::misuse(
                "the specification is for numbers, not for a `str`",
            ));
        }
        let cut: String = match self.precision {
            Some(most) => text.chars().take(most).collect(),
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

    fn number(&self, number: &Number) -> Result<String, Trouble> {
        match (self.kind, number) {
            (Some('s'), _) => Err(Trouble::misuse("`s` is for texts, not for a number")),
            (None | Some('d' | 'n' | 'b' | 'o' | 'x' | 'X' | 'c'), Number::Int(int)) => {
                self.integer(int)
            }
            (Some(kind @ ('d' | 'b' | 'o' | 'x' | 'X' | 'c')), Number::Float(_)) => Err(
                Trouble::misuse(format!("`{kind}` is for integers, not for a `float`")),
            ),
            _ => self.float(number.float()?),
        }
    }

    fn integer(&self, int: &BigInt) -> Result<String, Trouble> {
        if self.precision.is_some() {
            return Err(Trouble::misuse("an integer has no precision"));
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
            let code = code.ok_or_else(|| Trouble::misuse("there is no such character"))?;
            let mut spec = self.clone();
            spec.align.get_or_insert('<');
            return Ok(spec.pad(&code.to_string(), ""));
        }
        let mut digits = int.magnitude().to_str_radix(radix);
        if self.kind == Some('X') {
            digits.make_ascii_uppercase();
        }
        let mut sign = self.sign_of(negative).to_owned();
        if self.alternate {
            sign.push_str(prefix);
        }
        let every = if radix == 10 { 3 } else { 4 };
        Ok(self.grouped(&sign, &digits, "", every))
    }

    fn float(&self, float: f64) -> Result<String, Trouble> {
        let sign = self.sign_of(float.is_sign_negative() && !float.is_nan());
        let size = float.abs();
        let upper = matches!(self.kind, Some('E' | 'F' | 'G'));
        if !size.is_finite() {
            let word = if size.is_nan() { "nan" } else { "inf" };
            let word = if upper {
                word.to_uppercase()
            } else {
                word.to_owned()
            };
            let mut spec = self.clone();
            spec.group = None;
            return Ok(spec.grouped(sign, &word, "", 3));
        }
        let precision = self.precision.unwrap_or(6);
        let text = match self.kind {
            None if self.precision.is_none() => spell::float_text(size),
            None => general(size, precision, false, true),
            Some('f' | 'F') => format!("{size:.precision$}"),
            Some('%') => format!("{:.precision$}%", size * 100.0),
            Some('e' | 'E') => scientific(&format!("{size:.precision$e}")),
            _ => general(size, precision, self.alternate, false),
        };
        let text = if upper { text.to_uppercase() } else { text };
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, tail) = text.split_at(end);
        Ok(self.grouped(sign, digits, tail, 3))
    }

    fn sign_of(&self, negative: bool) -> &'static str {
        match self.sign {
            _ if negative => "-",
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        }
    }

    /// Sign, digits in groups, and what follows them, padded to the width.
    fn grouped(&self, sign: &str, digits: &str, tail: &str, every: usize) -> String {
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
        let mut text = group(&digits, mark, every);
        if zeros {
            let room = spec.width.saturating_sub(sign.chars().count() + tail.len());
            while text.len() < room {
                digits.insert(0, '0');
                text = group(&digits, mark, every);
            }
        }
        spec.pad(&format!("{text}{tail}"), sign)
    }

    /// Fills up to the width; a sign stays in front of what `=` fills.
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

fn group(digits: &str, mark: char, every: usize) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(every) {
            out.push(mark);
        }
        out.push(digit);
    }
    out
}

/// Rust's `1.5e3` as Python's `1.5e+03`.
fn scientific(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, size) = match exponent.strip_prefix('-') {
        Some(size) => ('-', size),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{size:0>2}")
}

/// Python's `g`, and its relative for floats without a kind, which keeps a digit behind the point.
fn general(size: f64, precision: usize, keep_zeros: bool, with_point: bool) -> String {
    let precision = precision.max(1);
    let rounded = format!("{size:.*e}", precision - 1);
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let most = i64::try_from(precision).unwrap_or(i64::MAX) - i64::from(with_point);
    let trim = |text: String| {
        if keep_zeros || !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if exponent < -4 || exponent >= most {
        return scientific(&format!("{}e{exponent}", trim(digits.to_owned())));
    }
    let decimals = usize::try_from(most + i64::from(with_point) - 1 - exponent).unwrap_or(0);
    let fixed = trim(format!("{size:.decimals$}"));
    if with_point && !fixed.contains('.') {
        return fixed + ".0";
    }
    fixed
}

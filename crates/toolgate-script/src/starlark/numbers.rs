//! Numbers as Python counts: `sum`, `round`, `min`, `max`, `divmod`, `pow` and `math`.

use std::cmp::Ordering;

use num_bigint::BigInt;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, Value};

use super::sequences::items;
use super::spell;
use super::trouble::Trouble;

/// The most bits of an integer that `pow` makes.
const WIDEST: u64 = 1 << 20;

/// An integer or a float; truths are integers, as in Python.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Int(BigInt),
    Float(f64),
}

impl Number {
    pub(super) fn of(value: Value<'_>) -> Option<Self> {
        if let Some(truth) = value.unpack_bool() {
            return Some(Self::Int(BigInt::from(i32::from(truth))));
        }
        if let Some(float) = spell::float(value) {
            return Some(Self::Float(float));
        }
        spell::big(value).map(Self::Int)
    }

    fn need(value: Value<'_>) -> Result<Self, Trouble> {
        Self::of(value).ok_or_else(|| {
            Trouble::misuse(format!("expected a number, got a `{}`", spell::kind(value)))
        })
    }

    pub(super) fn float(&self) -> Result<f64, Trouble> {
        match self {
            Self::Float(float) => Ok(*float),
            // A decimal text is rounded once, and correctly.
            Self::Int(int) => match int.to_string().parse::<f64>() {
                Ok(float) if float.is_finite() => Ok(float),
                _ => Err(Trouble::misuse("the integer is too large for a float")),
            },
        }
    }

    pub(super) fn integer(&self) -> Result<BigInt, Trouble> {
        match self {
            Self::Int(int) => Ok(int.clone()),
            Self::Float(_) => Err(Trouble::misuse("expected an integer, got a `float`")),
        }
    }

    /// Without what is behind the point.
    pub(super) fn truncated(&self) -> Result<BigInt, Trouble> {
        match self {
            Self::Int(int) => Ok(int.clone()),
            Self::Float(float) => whole(float.trunc()),
        }
    }
}

/// The integer that a float without a fraction is.
fn whole(float: f64) -> Result<BigInt, Trouble> {
    if !float.is_finite() {
        let text = spell::float_text(float);
        return Err(Trouble::misuse(format!("`{text}` is no integer")));
    }
    let bits = float.to_bits();
    let exponent = i64::try_from((bits >> 52) & 0x7ff).unwrap_or(0) - 1075;
    let mantissa = BigInt::from((bits & ((1 << 52) - 1)) | (1 << 52));
    if float == 0.0 {
        return Ok(BigInt::ZERO);
    }
    let size = if exponent >= 0 {
        mantissa << exponent
    } else {
        mantissa >> -exponent
    };
    Ok(if float < 0.0 { -size } else { size })
}

/// As Python's `round`: half to even, on the exact value.
fn rounded<'v>(number: &Number, digits: Option<i32>, heap: Heap<'v>) -> Result<Value<'v>, Trouble> {
    match (number, digits) {
        (Number::Int(int), None | Some(0..)) => Ok(heap.alloc(int.clone())),
        (Number::Int(int), Some(digits)) => {
            let places = digits.unsigned_abs();
            if u64::from(places) > int.bits() {
                return Ok(heap.alloc(0));
            }
            let unit = BigInt::from(10).pow(places);
            let (mut units, rest) = floor_divided(int, &unit);
            let even = (&units % BigInt::from(2)) == BigInt::ZERO;
            match (rest * BigInt::from(2)).cmp(&unit) {
                Ordering::Greater => units += 1,
                Ordering::Equal if !even => units += 1,
                _ => {}
            }
            Ok(heap.alloc(units * unit))
        }
        (Number::Float(float), None) => Ok(heap.alloc(whole(float.round_ties_even())?)),
        (Number::Float(float), Some(_)) if !float.is_finite() => Ok(heap.alloc(*float)),
        (Number::Float(float), Some(digits)) => {
            let text = match usize::try_from(digits) {
                Ok(places) => format!("{float:.*}", places.min(400)),
                Err(_) => {
                    let unit = 10f64.powi(-digits);
                    format!("{}", (float / unit).round_ties_even() * unit)
                }
            };
            Ok(heap.alloc(text.parse().unwrap_or(*float)))
        }
    }
}

fn floor_divided(a: &BigInt, b: &BigInt) -> (BigInt, BigInt) {
    let (mut quotient, mut rest) = (a / b, a % b);
    if rest != BigInt::ZERO && (rest.sign() != b.sign()) {
        quotient -= 1;
        rest += b;
    }
    (quotient, rest)
}

fn power<'v>(base: &Number, exponent: &Number, heap: Heap<'v>) -> Result<Value<'v>, Trouble> {
    if let (Number::Int(base), Number::Int(exponent)) = (base, exponent)
        && exponent.sign() != num_bigint::Sign::Minus
    {
        let times = u32::try_from(exponent).ok();
        let bits = times.and_then(|times| base.bits().checked_mul(u64::from(times)));
        let small = base.bits() <= 1;
        return match (times, bits) {
            (Some(times), Some(bits)) if small || bits <= WIDEST => Ok(heap.alloc(base.pow(times))),
            _ => Err(Trouble::misuse("the power is too large")),
        };
    }
    let (base, exponent) = (base.float()?, exponent.float()?);
    if base == 0.0 && exponent < 0.0 {
        return Err(Trouble::misuse("zero cannot be raised to a negative power"));
    }
    let power = base.powf(exponent);
    if power.is_nan() && !base.is_nan() && !exponent.is_nan() {
        return Err(Trouble::misuse("the power is no real number"));
    }
    if power.is_infinite() && base.is_finite() && exponent.is_finite() {
        return Err(Trouble::misuse("the power is too large"));
    }
    Ok(heap.alloc(power))
}

/// The first of the extreme values.
fn extreme<'v>(
    wanted: Ordering,
    args: &[Value<'v>],
    key: Option<Value<'v>>,
    default: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let values = match args {
        [only] => items(*only, eval.heap())?,
        [] => return Err(Trouble::misuse("expected at least one argument").into()),
        several => several.to_vec(),
    };
    let key = key.filter(|key| !key.is_none());
    let mut best: Option<(Value<'v>, Value<'v>)> = None;
    for value in values {
        let rank = match key {
            Some(key) => eval.eval_function(key, &[value], &[])?,
            None => value,
        };
        let better = match best {
            Some((_, so_far)) => rank.compare(so_far)? == wanted,
            None => true,
        };
        if better {
            best = Some((value, rank));
        }
    }
    match best.map(|(value, _)| value).or(default) {
        Some(value) => Ok(value),
        None => Err(Trouble::Misuse {
            message: "there is nothing to choose from".to_owned(),
            hint: Some("give `default=` for the empty case".to_owned()),
        }
        .into()),
    }
}

fn radix<'v>(value: Value<'v>, prefix: &str, base: u32) -> Result<String, Trouble> {
    let int = Number::need(value)?.integer()?;
    let minus = if int.sign() == num_bigint::Sign::Minus {
        "-"
    } else {
        ""
    };
    Ok(format!(
        "{minus}{prefix}{}",
        int.magnitude().to_str_radix(base)
    ))
}

#[starlark_module]
pub(super) fn register(builder: &mut GlobalsBuilder) {
    fn sum<'v>(
        #[starlark(require = pos)] values: Value<'v>,
        start: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let number = |value: Value<'v>| match value.unpack_bool() {
            Some(truth) => heap.alloc(i32::from(truth)),
            None => value,
        };
        let mut total = number(start.unwrap_or_else(|| heap.alloc(0)));
        if total.unpack_str().is_some() {
            return Err(Trouble::Misuse {
                message: "`sum` does not add texts".to_owned(),
                hint: Some("write `\"\".join(texts)`".to_owned()),
            }
            .into());
        }
        for value in items(values, heap)? {
            total = total.add(number(value), heap)?;
        }
        Ok(total)
    }

    fn round<'v>(
        #[starlark(require = pos)] number: Value<'v>,
        ndigits: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let digits = match ndigits.filter(|digits| !digits.is_none()) {
            Some(digits) => Some(
                digits
                    .unpack_i32()
                    .ok_or_else(|| Trouble::misuse("the number of digits must be an integer"))?,
            ),
            None => None,
        };
        Ok(rounded(&Number::need(number)?, digits, heap)?)
    }

    fn max<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] key: Option<Value<'v>>,
        #[starlark(require = named)] default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        extreme(Ordering::Greater, &args.items, key, default, eval)
    }

    fn min<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] key: Option<Value<'v>>,
        #[starlark(require = named)] default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        extreme(Ordering::Less, &args.items, key, default, eval)
    }

    fn abs<'v>(
        #[starlark(require = pos)] number: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        Ok(match Number::need(number)? {
            Number::Int(int) => heap.alloc(BigInt::from(int.magnitude().clone())),
            Number::Float(float) => heap.alloc(float.abs()),
        })
    }

    fn divmod<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let parts = [a.floor_div(b, heap)?, a.percent(b, heap)?];
        Ok(heap.alloc(AllocTuple(parts)))
    }

    fn pow<'v>(
        #[starlark(require = pos)] base: Value<'v>,
        #[starlark(require = pos)] exp: Value<'v>,
        r#mod: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let (base, exponent) = (Number::need(base)?, Number::need(exp)?);
        let Some(modulus) = r#mod.filter(|modulus| !modulus.is_none()) else {
            return Ok(power(&base, &exponent, heap)?);
        };
        let modulus = Number::need(modulus)?.integer()?;
        let (base, exponent) = (base.integer()?, exponent.integer()?);
        if modulus == BigInt::ZERO || exponent.sign() == num_bigint::Sign::Minus {
            return Err(Trouble::misuse("a modulus of zero or a negative exponent").into());
        }
        if exponent.bits() > 4096 || modulus.bits() > 8192 {
            return Err(Trouble::misuse("the power is too large").into());
        }
        let (_, base) = floor_divided(&base, &modulus);
        Ok(heap.alloc(base.modpow(&exponent, &modulus)))
    }

    fn hex<'v>(#[starlark(require = pos)] number: Value<'v>) -> starlark::Result<String> {
        Ok(radix(number, "0x", 16)?)
    }

    fn oct<'v>(#[starlark(require = pos)] number: Value<'v>) -> starlark::Result<String> {
        Ok(radix(number, "0o", 8)?)
    }

    fn bin<'v>(#[starlark(require = pos)] number: Value<'v>) -> starlark::Result<String> {
        Ok(radix(number, "0b", 2)?)
    }
}

/// A function over real numbers, which must not leave them.
fn real<'v>(value: Value<'v>, function: impl Fn(f64) -> f64) -> Result<f64, Trouble> {
    let number = Number::need(value)?.float()?;
    let result = function(number);
    if result.is_nan() && !number.is_nan() || result.is_infinite() && number.is_finite() {
        return Err(Trouble::misuse(
            "the number is outside of what the function takes",
        ));
    }
    Ok(result)
}

fn to_whole<'v>(
    value: Value<'v>,
    function: impl Fn(f64) -> f64,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    Ok(match Number::need(value)? {
        Number::Int(int) => heap.alloc(int),
        Number::Float(float) => heap.alloc(whole(function(float))?),
    })
}

#[starlark_module]
pub(super) fn math(builder: &mut GlobalsBuilder) {
    const pi: f64 = std::f64::consts::PI;
    const e: f64 = std::f64::consts::E;
    const tau: f64 = std::f64::consts::TAU;
    const inf: f64 = f64::INFINITY;
    const nan: f64 = f64::NAN;

    fn floor<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        to_whole(x, f64::floor, heap)
    }

    fn ceil<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        to_whole(x, f64::ceil, heap)
    }

    fn trunc<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        to_whole(x, f64::trunc, heap)
    }

    fn sqrt<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(real(x, f64::sqrt)?)
    }

    fn exp<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(real(x, f64::exp)?)
    }

    fn fabs<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(real(x, f64::abs)?)
    }

    fn sin<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(real(x, f64::sin)?)
    }

    fn cos<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(real(x, f64::cos)?)
    }

    fn log<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        #[starlark(require = pos)] base: Option<Value<'v>>,
    ) -> starlark::Result<f64> {
        let top = real(x, f64::ln)?;
        match base {
            Some(base) => Ok(top / real(base, f64::ln)?),
            None => Ok(top),
        }
    }

    fn log2<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(real(x, f64::log2)?)
    }

    fn log10<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(real(x, f64::log10)?)
    }

    fn isnan<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<bool> {
        Ok(Number::need(x)?.float()?.is_nan())
    }

    fn isinf<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<bool> {
        Ok(Number::need(x)?.float()?.is_infinite())
    }

    fn isfinite<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<bool> {
        Ok(Number::need(x)?.float()?.is_finite())
    }

    fn pow<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        #[starlark(require = pos)] y: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let x = Number::Float(Number::need(x)?.float()?);
        Ok(power(&x, &Number::need(y)?, heap)?)
    }
}

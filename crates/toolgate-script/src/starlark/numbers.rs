//! Python's number functions: `sum`, `round`, `min`, `max`, `divmod`, `pow` and the `math` namespace.

use std::cmp::Ordering;

use num_bigint::BigInt;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, Value};

use super::error::ScriptError;
use super::repr;
use super::sequences::collect_items;

/// Maximum size of an integer computed by `pow`.
const MAX_POWER_BITS: u64 = 1 << 20;

/// An integer or a float. Bools are integers, as in Python.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Int(BigInt),
    Float(f64),
}

impl Number {
    pub(super) fn from_value(value: Value<'_>) -> Option<Self> {
        if let Some(boolean) = value.unpack_bool() {
            return Some(Self::Int(BigInt::from(i32::from(boolean))));
        }
        if let Some(float) = repr::as_float(value) {
            return Some(Self::Float(float));
        }
        repr::as_integer(value).map(Self::Int)
    }

    fn require(value: Value<'_>) -> Result<Self, ScriptError> {
        Self::from_value(value).ok_or_else(|| {
            ScriptError::misuse(format!(
                "expected a number, got a `{}`",
                repr::type_name(value)
            ))
        })
    }

    pub(super) fn to_float(&self) -> Result<f64, ScriptError> {
        match self {
            Self::Float(float) => Ok(*float),
            // Parsing decimal text rounds exactly once, and correctly.
            Self::Int(int) => match int.to_string().parse::<f64>() {
                Ok(float) if float.is_finite() => Ok(float),
                _ => Err(ScriptError::misuse("the integer is too large for a float")),
            },
        }
    }

    pub(super) fn to_integer(&self) -> Result<BigInt, ScriptError> {
        match self {
            Self::Int(int) => Ok(int.clone()),
            Self::Float(_) => Err(ScriptError::misuse("expected an integer, got a `float`")),
        }
    }

    /// Discards the fraction.
    pub(super) fn truncate(&self) -> Result<BigInt, ScriptError> {
        match self {
            Self::Int(int) => Ok(int.clone()),
            Self::Float(float) => float_to_integer(float.trunc()),
        }
    }
}

/// Converts a float without a fraction into an integer.
fn float_to_integer(float: f64) -> Result<BigInt, ScriptError> {
    if !float.is_finite() {
        let text = repr::float_repr(float);
        return Err(ScriptError::misuse(format!(
            "cannot convert `{text}` to an integer"
        )));
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

/// Rounds like Python's `round`: half to even, on the exact value.
fn round_number<'v>(
    number: &Number,
    digits: Option<i32>,
    heap: Heap<'v>,
) -> Result<Value<'v>, ScriptError> {
    match (number, digits) {
        (Number::Int(int), None | Some(0..)) => Ok(heap.alloc(int.clone())),
        (Number::Int(int), Some(digits)) => {
            let places = digits.unsigned_abs();
            if u64::from(places) > int.bits() {
                return Ok(heap.alloc(0));
            }
            let unit = BigInt::from(10).pow(places);
            let (mut units, rest) = div_mod_floor(int, &unit);
            let is_even = (&units % BigInt::from(2)) == BigInt::ZERO;
            match (rest * BigInt::from(2)).cmp(&unit) {
                Ordering::Greater => units += 1,
                Ordering::Equal if !is_even => units += 1,
                _ => {}
            }
            Ok(heap.alloc(units * unit))
        }
        (Number::Float(float), None) => Ok(heap.alloc(float_to_integer(float.round_ties_even())?)),
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

fn div_mod_floor(a: &BigInt, b: &BigInt) -> (BigInt, BigInt) {
    let (mut quotient, mut rest) = (a / b, a % b);
    if rest != BigInt::ZERO && (rest.sign() != b.sign()) {
        quotient -= 1;
        rest += b;
    }
    (quotient, rest)
}

fn raise_to_power<'v>(
    base: &Number,
    exponent: &Number,
    heap: Heap<'v>,
) -> Result<Value<'v>, ScriptError> {
    if let (Number::Int(base), Number::Int(exponent)) = (base, exponent)
        && exponent.sign() != num_bigint::Sign::Minus
    {
        let times = u32::try_from(exponent).ok();
        let bits = times.and_then(|times| base.bits().checked_mul(u64::from(times)));
        let is_unit = base.bits() <= 1;
        return match (times, bits) {
            (Some(times), Some(bits)) if is_unit || bits <= MAX_POWER_BITS => {
                Ok(heap.alloc(base.pow(times)))
            }
            _ => Err(ScriptError::misuse("the power is too large")),
        };
    }
    let (base, exponent) = (base.to_float()?, exponent.to_float()?);
    if base == 0.0 && exponent < 0.0 {
        return Err(ScriptError::misuse(
            "zero cannot be raised to a negative power",
        ));
    }
    let power = base.powf(exponent);
    if power.is_nan() && !base.is_nan() && !exponent.is_nan() {
        return Err(ScriptError::misuse("the power is not a real number"));
    }
    if power.is_infinite() && base.is_finite() && exponent.is_finite() {
        return Err(ScriptError::misuse("the power is too large"));
    }
    Ok(heap.alloc(power))
}

/// Returns the first of the largest or smallest values.
fn find_extreme<'v>(
    ordering: Ordering,
    args: &[Value<'v>],
    key: Option<Value<'v>>,
    default: Option<Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let values = match args {
        [only] => collect_items(*only, eval.heap())?,
        [] => return Err(ScriptError::misuse("expected at least one argument").into()),
        several => several.to_vec(),
    };
    let key = key.filter(|key| !key.is_none());
    let mut best: Option<(Value<'v>, Value<'v>)> = None;
    for value in values {
        let rank = match key {
            Some(key) => eval.eval_function(key, &[value], &[])?,
            None => value,
        };
        let is_better = match best {
            Some((_, best_rank)) => rank.compare(best_rank)? == ordering,
            None => true,
        };
        if is_better {
            best = Some((value, rank));
        }
    }
    match best.map(|(value, _)| value).or(default) {
        Some(value) => Ok(value),
        None => Err(ScriptError::Misuse {
            message: "the sequence is empty".to_owned(),
            hint: Some("pass `default=` for an empty sequence".to_owned()),
        }
        .into()),
    }
}

fn format_radix<'v>(value: Value<'v>, prefix: &str, base: u32) -> Result<String, ScriptError> {
    let int = Number::require(value)?.to_integer()?;
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
            Some(boolean) => heap.alloc(i32::from(boolean)),
            None => value,
        };
        let mut total = number(start.unwrap_or_else(|| heap.alloc(0)));
        if total.unpack_str().is_some() {
            return Err(ScriptError::Misuse {
                message: "`sum` cannot add strings".to_owned(),
                hint: Some("write `\"\".join(strings)`".to_owned()),
            }
            .into());
        }
        for value in collect_items(values, heap)? {
            total = total.add(number(value), heap)?;
        }
        Ok(total)
    }

    fn round<'v>(
        #[starlark(require = pos)] number: Value<'v>,
        ndigits: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let digits =
            match ndigits.filter(|digits| !digits.is_none()) {
                Some(digits) => Some(digits.unpack_i32().ok_or_else(|| {
                    ScriptError::misuse("the number of digits must be an integer")
                })?),
                None => None,
            };
        Ok(round_number(&Number::require(number)?, digits, heap)?)
    }

    fn max<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] key: Option<Value<'v>>,
        #[starlark(require = named)] default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        find_extreme(Ordering::Greater, &args.items, key, default, eval)
    }

    fn min<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named)] key: Option<Value<'v>>,
        #[starlark(require = named)] default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        find_extreme(Ordering::Less, &args.items, key, default, eval)
    }

    fn abs<'v>(
        #[starlark(require = pos)] number: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        Ok(match Number::require(number)? {
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
        let (base, exponent) = (Number::require(base)?, Number::require(exp)?);
        let Some(modulus) = r#mod.filter(|modulus| !modulus.is_none()) else {
            return Ok(raise_to_power(&base, &exponent, heap)?);
        };
        let modulus = Number::require(modulus)?.to_integer()?;
        let (base, exponent) = (base.to_integer()?, exponent.to_integer()?);
        if modulus == BigInt::ZERO || exponent.sign() == num_bigint::Sign::Minus {
            return Err(ScriptError::misuse(
                "the modulus must not be zero and the exponent must not be negative",
            )
            .into());
        }
        if exponent.bits() > 4096 || modulus.bits() > 8192 {
            return Err(ScriptError::misuse("the power is too large").into());
        }
        let (_, base) = div_mod_floor(&base, &modulus);
        Ok(heap.alloc(base.modpow(&exponent, &modulus)))
    }

    fn hex<'v>(#[starlark(require = pos)] number: Value<'v>) -> starlark::Result<String> {
        Ok(format_radix(number, "0x", 16)?)
    }

    fn oct<'v>(#[starlark(require = pos)] number: Value<'v>) -> starlark::Result<String> {
        Ok(format_radix(number, "0o", 8)?)
    }

    fn bin<'v>(#[starlark(require = pos)] number: Value<'v>) -> starlark::Result<String> {
        Ok(format_radix(number, "0b", 2)?)
    }
}

/// Applies a function on real numbers and rejects results that are not finite.
fn apply_real<'v>(value: Value<'v>, function: impl Fn(f64) -> f64) -> Result<f64, ScriptError> {
    let number = Number::require(value)?.to_float()?;
    let result = function(number);
    if result.is_nan() && !number.is_nan() || result.is_infinite() && number.is_finite() {
        return Err(ScriptError::misuse(
            "the number is outside the domain of the function",
        ));
    }
    Ok(result)
}

fn apply_rounding<'v>(
    value: Value<'v>,
    function: impl Fn(f64) -> f64,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    Ok(match Number::require(value)? {
        Number::Int(int) => heap.alloc(int),
        Number::Float(float) => heap.alloc(float_to_integer(function(float))?),
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
        apply_rounding(x, f64::floor, heap)
    }

    fn ceil<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        apply_rounding(x, f64::ceil, heap)
    }

    fn trunc<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        apply_rounding(x, f64::trunc, heap)
    }

    fn sqrt<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(apply_real(x, f64::sqrt)?)
    }

    fn exp<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(apply_real(x, f64::exp)?)
    }

    fn fabs<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(apply_real(x, f64::abs)?)
    }

    fn sin<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(apply_real(x, f64::sin)?)
    }

    fn cos<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(apply_real(x, f64::cos)?)
    }

    fn log<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        #[starlark(require = pos)] base: Option<Value<'v>>,
    ) -> starlark::Result<f64> {
        let logarithm = apply_real(x, f64::ln)?;
        match base {
            Some(base) => Ok(logarithm / apply_real(base, f64::ln)?),
            None => Ok(logarithm),
        }
    }

    fn log2<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(apply_real(x, f64::log2)?)
    }

    fn log10<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<f64> {
        Ok(apply_real(x, f64::log10)?)
    }

    fn isnan<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<bool> {
        Ok(Number::require(x)?.to_float()?.is_nan())
    }

    fn isinf<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<bool> {
        Ok(Number::require(x)?.to_float()?.is_infinite())
    }

    fn isfinite<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<bool> {
        Ok(Number::require(x)?.to_float()?.is_finite())
    }

    fn pow<'v>(
        #[starlark(require = pos)] x: Value<'v>,
        #[starlark(require = pos)] y: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let x = Number::Float(Number::require(x)?.to_float()?);
        Ok(raise_to_power(&x, &Number::require(y)?, heap)?)
    }
}

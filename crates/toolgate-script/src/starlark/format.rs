//! Python's formatting of numbers and strings: `format(x, ".2f")` and `"%5d" % n`.

mod percent;
mod spec;

pub(super) use percent::format_percent;
use spec::FormatSpec;
use starlark::values::{Heap, Value};

use super::error::ScriptError;
use super::numbers::Number;
use super::repr;

/// Formats a value like Python's `format(value, spec)`.
pub(super) fn format<'v>(
    value: Value<'v>,
    spec: &str,
    heap: Heap<'v>,
) -> Result<String, ScriptError> {
    if spec.is_empty() {
        return repr::str(value, heap).map_err(|error| ScriptError::misuse(error.to_string()));
    }
    let spec = FormatSpec::parse(spec)?;
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

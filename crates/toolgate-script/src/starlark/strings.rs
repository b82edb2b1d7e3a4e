//! String functions: `repr`, `format`, `%` and the `json` namespace.

use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list_or_tuple::UnpackListOrTuple;
use starlark::values::{Heap, Value};

use super::error::ScriptError;
use super::format;
use super::json::{self, Layout};
use super::repr;

/// Maximum length of the output of `json.dumps`.
const MAX_JSON_BYTES: usize = 8 * 1024 * 1024;

/// Name of the function that replaces the operator `%`. Starlark's supports too few of Python's fields.
pub(super) const PERCENT_FUNCTION: &str = "__mod__";

#[starlark_module]
pub(super) fn register(builder: &mut GlobalsBuilder) {
    fn repr<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<String> {
        let text = repr::repr(value, heap);
        Ok(text.map_err(|error| ScriptError::misuse(error.to_string()))?)
    }

    fn format<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        #[starlark(require = pos, default = "")] spec: &str,
        heap: Heap<'v>,
    ) -> starlark::Result<String> {
        Ok(format::format(value, spec, heap)?)
    }

    fn __mod__<'v>(
        #[starlark(require = pos)] left: Value<'v>,
        #[starlark(require = pos)] right: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        match left.unpack_str() {
            Some(text) => Ok(heap.alloc(format::format_percent(text, right, heap)?)),
            None => left.percent(right, heap),
        }
    }
}

fn parse_json<'v>(text: &str, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
    let value = json::read(text, heap);
    Ok(value.map_err(|error| ScriptError::misuse(format!("not JSON: {error}")))?)
}

fn dump_json<'v>(
    value: Value<'v>,
    layout: &Layout<'_>,
    eval: &Evaluator<'v, '_, '_>,
) -> starlark::Result<String> {
    let text = json::write(value, layout, MAX_JSON_BYTES, eval.heap());
    Ok(text.map_err(|error| ScriptError::misuse(format!("not JSON: {error}")))?)
}

#[starlark_module]
pub(super) fn json_functions(builder: &mut GlobalsBuilder) {
    fn loads<'v>(
        #[starlark(require = pos)] s: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        match s.unpack_str() {
            Some(text) => parse_json(text, heap),
            None => Err(ScriptError::Misuse {
                message: format!(
                    "`json.loads` takes a string, not a `{}`",
                    repr::type_name(s)
                ),
                hint: Some("tool results are already parsed: use them directly".to_owned()),
            }
            .into()),
        }
    }

    fn decode<'v>(
        #[starlark(require = pos)] s: &str,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        parse_json(s, heap)
    }

    fn dumps<'v>(
        #[starlark(require = pos)] obj: Value<'v>,
        #[starlark(require = named)] indent: Option<Value<'v>>,
        #[starlark(require = named, default = false)] sort_keys: bool,
        #[starlark(require = named, default = true)] ensure_ascii: bool,
        #[starlark(require = named)] separators: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<String> {
        let indent = indent.filter(|indent| !indent.is_none());
        let separators = separators.filter(|separators| !separators.is_none());
        let indent = match indent.map(|indent| (indent.unpack_i32(), indent.unpack_str())) {
            None => None,
            Some((Some(width), _)) => {
                Some(" ".repeat(usize::try_from(width.min(100)).unwrap_or(0)))
            }
            Some((None, Some(text))) => Some(text.to_owned()),
            Some((None, None)) => {
                return Err(ScriptError::misuse("`indent` must be a number or a string").into());
            }
        };
        let separators: Option<Vec<String>> = match separators {
            Some(separators) => {
                use starlark::values::UnpackValue;
                let pair = UnpackListOrTuple::<String>::unpack_value(separators)?
                    .filter(|pair| pair.items.len() == 2)
                    .ok_or_else(|| {
                        ScriptError::misuse(
                            "`separators` must be a pair of strings, like `(\",\", \":\")`",
                        )
                    })?;
                Some(pair.items)
            }
            None => None,
        };
        let default_separator = if indent.is_some() { "," } else { ", " };
        let layout = Layout {
            indent,
            sort_keys,
            ascii: ensure_ascii,
            item_separator: separators
                .as_ref()
                .map_or(default_separator, |pair| &pair[0]),
            key_separator: separators.as_ref().map_or(": ", |pair| &pair[1]),
            sets_as_lists: false,
        };
        dump_json(obj, &layout, eval)
    }

    fn encode<'v>(
        #[starlark(require = pos)] obj: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<String> {
        let layout = Layout {
            sets_as_lists: false,
            ..Layout::compact()
        };
        dump_json(obj, &layout, eval)
    }
}

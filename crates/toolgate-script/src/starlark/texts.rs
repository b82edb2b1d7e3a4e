//! Texts: `repr`, `format`, `%` and `json`.

use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list_or_tuple::UnpackListOrTuple;
use starlark::values::{Heap, Value};

use super::format;
use super::json::{self, Layout};
use super::spell;
use super::trouble::Trouble;

/// The longest text that `json.dumps` makes.
const LONGEST_JSON: usize = 8 * 1024 * 1024;

/// What stands for the operator `%`, which knows too few of Python's fields by itself.
pub(super) const PERCENT: &str = "__mod__";

#[starlark_module]
pub(super) fn register(builder: &mut GlobalsBuilder) {
    fn repr<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<String> {
        let text = spell::repr(value, heap);
        Ok(text.map_err(|error| Trouble::misuse(error.to_string()))?)
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
            Some(text) => Ok(heap.alloc(format::percent(text, right, heap)?)),
            None => left.percent(right, heap),
        }
    }
}

fn loaded<'v>(text: &str, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
    let value = json::read(text, heap);
    Ok(value.map_err(|error| Trouble::misuse(format!("not JSON: {error}")))?)
}

fn dumped<'v>(
    value: Value<'v>,
    layout: &Layout<'_>,
    eval: &Evaluator<'v, '_, '_>,
) -> starlark::Result<String> {
    let text = json::write(value, layout, LONGEST_JSON, eval.heap());
    Ok(text.map_err(|error| Trouble::misuse(format!("not JSON: {error}")))?)
}

#[starlark_module]
pub(super) fn json_functions(builder: &mut GlobalsBuilder) {
    fn loads<'v>(
        #[starlark(require = pos)] s: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        match s.unpack_str() {
            Some(text) => loaded(text, heap),
            None => Err(Trouble::Misuse {
                message: format!("`json.loads` takes a text, not a `{}`", spell::kind(s)),
                hint: Some("results of tools are values already: use them as they are".to_owned()),
            }
            .into()),
        }
    }

    fn decode<'v>(
        #[starlark(require = pos)] s: &str,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        loaded(s, heap)
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
            Some((None, None)) => return Err(Trouble::misuse("`indent` is a number").into()),
        };
        let given: Option<Vec<String>> = match separators {
            Some(separators) => {
                use starlark::values::UnpackValue;
                let pair = UnpackListOrTuple::<String>::unpack_value(separators)?;
                let pair = pair.filter(|pair| pair.items.len() == 2);
                let pair = pair.ok_or_else(|| {
                    Trouble::misuse("`separators` is a pair of texts, like `(\",\", \":\")`")
                })?;
                Some(pair.items)
            }
            None => None,
        };
        let usual = if indent.is_some() { "," } else { ", " };
        let layout = Layout {
            indent,
            sort_keys,
            ascii: ensure_ascii,
            item: given.as_ref().map_or(usual, |pair| &pair[0]),
            key: given.as_ref().map_or(": ", |pair| &pair[1]),
            sets: false,
        };
        dumped(obj, &layout, eval)
    }

    fn encode<'v>(
        #[starlark(require = pos)] obj: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<String> {
        let layout = Layout {
            sets: false,
            ..Layout::compact()
        };
        dumped(obj, &layout, eval)
    }
}

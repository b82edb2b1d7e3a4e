//! Functions over iterables. Strings iterate over their characters, as in Python.

use std::cell::Cell;
use std::fmt;

use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_module;
use starlark::starlark_simple_value;
use starlark::values::list::AllocList;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{
    FrozenValue, Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Trace, Value, ValueLike,
    starlark_value,
};

use super::error::{LimitKind, ScriptError};
use super::repr;

/// Maximum number of items a function collects. A few characters suffice for a larger range.
const MAX_ITEMS: i32 = 4_000_000;

/// Rejects values with more items than memory can hold.
fn check_length(value: Value<'_>) -> Result<(), ScriptError> {
    match value.length() {
        Ok(length) if length > MAX_ITEMS => Err(ScriptError::Limit(LimitKind::Memory)),
        _ => Ok(()),
    }
}

/// Collects the items of an iterable.
pub(super) fn collect_items<'v>(
    value: Value<'v>,
    heap: Heap<'v>,
) -> starlark::Result<Vec<Value<'v>>> {
    check_length(value)?;
    match value.unpack_str() {
        Some(text) => Ok(characters(text, heap)),
        None => Ok(value.iterate(heap)?.collect()),
    }
}

fn characters<'v>(text: &str, heap: Heap<'v>) -> Vec<Value<'v>> {
    let mut buffer = [0; 4];
    text.chars()
        .map(|character| heap.alloc(&*character.encode_utf8(&mut buffer)))
        .collect()
}

/// Wrapper that makes a Starlark builtin accept strings as sequences.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct SequenceFunction {
    name: &'static str,
    #[allocative(skip)]
    native: FrozenValue,
}

starlark_simple_value!(SequenceFunction);

impl SequenceFunction {
    pub(super) fn new(name: &'static str, native: FrozenValue) -> Self {
        Self { name, native }
    }

    /// Calls a function with each positional string expanded into its characters.
    pub(super) fn call<'v>(
        native: FrozenValue,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let positional: Vec<Value<'v>> = args.positions(heap)?.collect();
        if let Some(first) = positional.first() {
            check_length(*first)?;
        }
        if positional.iter().all(|value| value.unpack_str().is_none()) {
            return native.to_value().invoke(args, eval);
        }
        let positional: Vec<Value<'v>> = positional
            .into_iter()
            .map(|value| match value.unpack_str() {
                Some(text) => heap.alloc(AllocList(characters(text, heap))),
                None => value,
            })
            .collect();
        let named = args.names_map()?;
        let named: Vec<(&str, Value<'v>)> = named
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        eval.eval_function(native.to_value(), &positional, &named)
    }
}

impl fmt::Display for SequenceFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<built-in function {}>", self.name)
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for SequenceFunction {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Self::call(self.native, args, eval)
    }

    fn name_for_call_stack(&self, _me: Value<'v>) -> String {
        self.name.to_owned()
    }
}

/// Iterator returned by `iter` and consumed by `next`.
#[derive(Debug, Trace, ProvidesStaticType, NoSerialize, Allocative)]
struct IteratorValue<'v> {
    #[allocative(skip)]
    items: Vec<Value<'v>>,
    #[allocative(skip)]
    at: Cell<usize>,
}

impl fmt::Display for IteratorValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<iterator>")
    }
}

#[starlark_value(type = "iterator")]
impl<'v> StarlarkValue<'v> for IteratorValue<'v> {
    type Canonical = Self;

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let rest = self.items[self.at.get()..].to_vec();
        self.at.set(self.items.len());
        Ok(rest)
    }
}

#[starlark_module]
pub(super) fn register(builder: &mut GlobalsBuilder) {
    fn map<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(args)] sequences: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let mut columns = Vec::new();
        for sequence in sequences.items {
            columns.push(collect_items(sequence, heap)?);
        }
        let length = columns.iter().map(Vec::len).min();
        let length = length.ok_or_else(|| {
            ScriptError::misuse("`map` takes a function and at least one sequence")
        })?;
        let mut results = Vec::with_capacity(length);
        for row in 0..length {
            let row: Vec<Value<'v>> = columns.iter().map(|column| column[row]).collect();
            results.push(eval.eval_function(function, &row, &[])?);
        }
        Ok(heap.alloc(AllocList(results)))
    }

    fn filter<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(require = pos)] sequence: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut kept = Vec::new();
        for item in collect_items(sequence, eval.heap())? {
            let keep = if function.is_none() {
                item.to_bool()
            } else {
                eval.eval_function(function, &[item], &[])?.to_bool()
            };
            if keep {
                kept.push(item);
            }
        }
        Ok(eval.heap().alloc(AllocList(kept)))
    }

    fn zip<'v>(
        #[starlark(args)] sequences: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = false)] strict: bool,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let mut columns = Vec::new();
        for sequence in sequences.items {
            columns.push(collect_items(sequence, heap)?);
        }
        let length = columns.iter().map(Vec::len).min().unwrap_or(0);
        if strict && columns.iter().any(|column| column.len() != length) {
            return Err(ScriptError::misuse("`zip` got sequences of different lengths").into());
        }
        let rows = (0..length).map(|row| {
            let row: Vec<Value<'v>> = columns.iter().map(|column| column[row]).collect();
            heap.alloc(AllocTuple(row))
        });
        let rows: Vec<Value<'v>> = rows.collect();
        Ok(heap.alloc(AllocList(rows)))
    }

    fn reduce<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(require = pos)] sequence: Value<'v>,
        #[starlark(require = pos)] initial: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut rest = collect_items(sequence, eval.heap())?.into_iter();
        let first = initial.or_else(|| rest.next());
        let mut total = first.ok_or_else(|| {
            ScriptError::misuse("`reduce` of an empty sequence needs an initial value")
        })?;
        for item in rest {
            total = eval.eval_function(function, &[total, item], &[])?;
        }
        Ok(total)
    }

    fn iter<'v>(
        #[starlark(require = pos)] sequence: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        if sequence.downcast_ref::<IteratorValue<'v>>().is_some() {
            return Ok(sequence);
        }
        Ok(heap.alloc_complex_no_freeze(IteratorValue {
            items: collect_items(sequence, heap)?,
            at: Cell::new(0),
        }))
    }

    fn next<'v>(
        #[starlark(require = pos)] iterator: Value<'v>,
        #[starlark(require = pos)] default: Option<Value<'v>>,
    ) -> starlark::Result<Value<'v>> {
        let Some(cursor) = iterator.downcast_ref::<IteratorValue<'v>>() else {
            return Err(ScriptError::Misuse {
                message: format!(
                    "`next` takes an iterator, not a `{}`",
                    repr::type_name(iterator)
                ),
                hint: Some(
                    "write `next(iter(xs), default)`, or `xs[0] if xs else default`".to_owned(),
                ),
            }
            .into());
        };
        let item = cursor.items.get(cursor.at.get()).copied();
        if item.is_some() {
            cursor.at.set(cursor.at.get() + 1);
        }
        match item.or(default) {
            Some(item) => Ok(item),
            None => Err(ScriptError::misuse("the iterator is exhausted").into()),
        }
    }
}

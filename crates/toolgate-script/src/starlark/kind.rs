//! Types as values: what `type(x)` gives, and what `dict`, `str` and the others are.
//!
//! One value stands for a type by all the names that scripts use: `type(x) == dict`, as in Python,
//! `type(x) == "dict"`, as in Starlark, and `type(x).__name__`.

use std::fmt;
use std::hash::Hash;

use allocative::Allocative;
use starlark::any::ProvidesStaticType;
use starlark::collections::StarlarkHasher;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_module;
use starlark::starlark_simple_value;
use starlark::typing::Ty;
use starlark::values::tuple::TupleRef;
use starlark::values::{
    FrozenValue, Heap, NoSerialize, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
    starlark_value,
};

use super::scan::DIGITS;
use super::sequences::Spreading;
use super::spell;
use super::trouble::Trouble;

/// A type.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct Kind {
    name: &'static str,
    /// What makes a value of it.
    #[allocative(skip)]
    maker: Maker,
}

/// How a type is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Maker {
    None,
    Native(FrozenValue),
    /// A native function that does not take texts for sequences.
    Spreading(FrozenValue),
    /// A native function that does not take texts with blanks around a number.
    Trimming(FrozenValue),
    Str,
    Type,
}

/// A method without its object: `str.lower`.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct Method {
    kind: &'static str,
    name: String,
}

starlark_simple_value!(Kind);
starlark_simple_value!(Method);

impl Kind {
    pub(super) fn new(name: &'static str, maker: Maker) -> Self {
        Self { name, maker }
    }

    fn of(value: Value<'_>) -> Self {
        let name = match spell::kind(value) {
            "builtin_function_or_method" => "function",
            other => other,
        };
        Self::new(name, Maker::None)
    }

    /// Whether another value stands for this type too: by its name, in Python or in Starlark, or as
    /// a function of the language that makes values of it.
    fn is(&self, other: Value<'_>) -> bool {
        match (other.unpack_str(), Self::named(other)) {
            (Some(name), _) => self.name == name || (self.name == "str" && name == "string"),
            (None, Some(name)) => self.name == name,
            (None, None) => false,
        }
    }

    /// The type that a value stands for.
    fn named(value: Value<'_>) -> Option<&'static str> {
        if let Some(kind) = Self::from_value(value) {
            return Some(kind.name);
        }
        let is_native = value.get_type() == "function" && value.unpack_frozen().is_some();
        // These two are the language's own, which knows them by identity in annotations.
        ["dict", "tuple"]
            .into_iter()
            .find(|name| is_native && value.to_str() == *name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class '{}'>", self.name)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<method '{}' of '{}' objects>", self.name, self.kind)
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for Kind {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(self.is(other))
    }

    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        self.name.hash(hasher);
        Ok(())
    }

    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        match self.maker {
            Maker::None => Err(Trouble::misuse(format!("`{}` cannot be called", self.name)).into()),
            Maker::Native(native) => native.to_value().invoke(args, eval),
            Maker::Spreading(native) => Spreading::call(native, args, eval),
            Maker::Trimming(native) => trimmed(native, args, eval),
            Maker::Str => {
                args.no_named_args()?;
                let mut given = args.positions(eval.heap())?;
                let Some(value) = given.next() else {
                    return Ok(eval.heap().alloc(""));
                };
                let text = spell::str(value, eval.heap());
                let text = text.map_err(|error| Trouble::misuse(error.to_string()))?;
                Ok(eval.heap().alloc(text))
            }
            Maker::Type => {
                args.no_named_args()?;
                let value = args.positional1(eval.heap())?;
                Ok(eval.heap().alloc(Self::of(value)))
            }
        }
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        if attribute == "__name__" {
            return Some(heap.alloc(self.name));
        }
        let sample = match self.name {
            "str" => heap.alloc(""),
            "list" => heap.alloc(Vec::<i32>::new()),
            _ => return None,
        };
        sample.has_attr(attribute, heap).then(|| {
            heap.alloc(Method {
                kind: self.name,
                name: attribute.to_owned(),
            })
        })
    }

    // Annotations are hints and never checked.
    fn eval_type(&self) -> Option<Ty> {
        Some(Ty::any())
    }

    // `list[int]` says no more than `list` here.
    fn at(&self, _index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(Self::new(self.name, self.maker)))
    }

    fn name_for_call_stack(&self, _me: Value<'v>) -> String {
        self.name.to_owned()
    }
}

#[starlark_value(type = "method")]
impl<'v> StarlarkValue<'v> for Method {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let given: Vec<Value<'v>> = args.positions(heap)?.collect();
        let Some((object, rest)) = given.split_first() else {
            return Err(Trouble::misuse(format!("`{}` needs an object", self.name)).into());
        };
        if spell::kind(*object) != self.kind {
            let message = format!(
                "`{}.{}` takes a `{}`, not a `{}`",
                self.kind,
                self.name,
                self.kind,
                spell::kind(*object)
            );
            return Err(Trouble::misuse(message).into());
        }
        let named = args.names_map()?;
        let named: Vec<(&str, Value<'v>)> = named
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        let method = object.get_attr_error(&self.name, heap)?;
        eval.eval_function(method, rest, &named)
    }

    fn name_for_call_stack(&self, _me: Value<'v>) -> String {
        self.name.clone()
    }
}

/// Calls a function with a text without the blanks around it.
fn trimmed<'v>(
    native: FrozenValue,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let mut given: Vec<Value<'v>> = args.positions(eval.heap())?.collect();
    let text = given.first().and_then(|first| first.unpack_str());
    if text.is_some_and(|text| text.len() > DIGITS) {
        return Err(Trouble::misuse(format!("a number has at most {DIGITS} digits")).into());
    }
    let Some(text) = text.filter(|text| text.trim() != *text) else {
        return native.to_value().invoke(args, eval);
    };
    given[0] = eval.heap().alloc(text.trim());
    args.no_named_args()?;
    eval.eval_function(native.to_value(), &given, &[])
}

/// Python's `==`, for scripts that look at types; the language compares a constant by itself.
fn same<'v>(left: Value<'v>, right: Value<'v>) -> starlark::Result<bool> {
    if let Some(kind) = Kind::from_value(left) {
        return Ok(kind.is(right));
    }
    if let Some(kind) = Kind::from_value(right) {
        return Ok(kind.is(left));
    }
    left.equals(right)
}

/// Python's `in`, likewise.
fn within<'v>(item: Value<'v>, container: Value<'v>, heap: Heap<'v>) -> starlark::Result<bool> {
    if Kind::from_value(item).is_none() || container.unpack_str().is_some() {
        return container.is_in(item);
    }
    for other in container.iterate(heap)? {
        if same(item, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a value is of a type, or of one of several.
fn is_instance<'v>(value: Value<'v>, kinds: Value<'v>) -> Result<bool, Trouble> {
    if let Some(name) = Kind::named(kinds) {
        let kind = Kind::of(value).name;
        return Ok(kind == name || name == "object" || (name == "int" && kind == "bool"));
    }
    if let Some(several) = TupleRef::from_value(kinds) {
        for kind in several.iter() {
            if is_instance(value, kind)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    Err(Trouble::Misuse {
        message: format!("a `{}` is no type", spell::kind(kinds)),
        hint: Some("write `isinstance(x, dict)` or `isinstance(x, (list, tuple))`".to_owned()),
    })
}

/// Operators by the functions that stand for them where types are looked at.
pub(super) const OPERATORS: [(&str, &str); 4] = [
    ("==", "__eq__"),
    ("!=", "__ne__"),
    ("in", "__in__"),
    ("not in", "__not_in__"),
];

#[starlark_module]
pub(super) fn register(builder: &mut GlobalsBuilder) {
    fn __eq__<'v>(
        #[starlark(require = pos)] left: Value<'v>,
        #[starlark(require = pos)] right: Value<'v>,
    ) -> starlark::Result<bool> {
        same(left, right)
    }

    fn __ne__<'v>(
        #[starlark(require = pos)] left: Value<'v>,
        #[starlark(require = pos)] right: Value<'v>,
    ) -> starlark::Result<bool> {
        same(left, right).map(|same| !same)
    }

    fn __in__<'v>(
        #[starlark(require = pos)] item: Value<'v>,
        #[starlark(require = pos)] container: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<bool> {
        within(item, container, heap)
    }

    fn __not_in__<'v>(
        #[starlark(require = pos)] item: Value<'v>,
        #[starlark(require = pos)] container: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<bool> {
        within(item, container, heap).map(|within| !within)
    }

    fn isinstance<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        #[starlark(require = pos)] kinds: Value<'v>,
    ) -> starlark::Result<bool> {
        Ok(is_instance(value, kinds)?)
    }

    fn callable<'v>(#[starlark(require = pos)] value: Value<'v>) -> starlark::Result<bool> {
        Ok(matches!(
            Kind::of(value).name,
            "function" | "tool" | "type" | "method"
        ))
    }
}

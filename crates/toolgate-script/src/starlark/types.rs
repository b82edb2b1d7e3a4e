//! Types as values: the result of `type(x)`, and `dict`, `str` and the other type names.
//!
//! A type value supports all forms that scripts use: `type(x) == dict`, as in Python,
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

use super::error::ScriptError;
use super::nesting::MAX_NUMBER_DIGITS;
use super::repr;
use super::sequences::SequenceFunction;

/// A type as a value.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(super) struct TypeValue {
    name: &'static str,
    #[allocative(skip)]
    constructor: Constructor,
}

/// Behavior of a type when it is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Constructor {
    None,
    Native(FrozenValue),
    /// Starlark function that needs strings expanded into their characters.
    Sequence(FrozenValue),
    /// Starlark function that needs whitespace around a number trimmed.
    Number(FrozenValue),
    Str,
    Type,
}

/// A method without its object, such as `str.lower`.
#[derive(Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct UnboundMethod {
    kind: &'static str,
    name: String,
}

starlark_simple_value!(TypeValue);
starlark_simple_value!(UnboundMethod);

impl TypeValue {
    pub(super) fn new(name: &'static str, constructor: Constructor) -> Self {
        Self { name, constructor }
    }

    fn of_value(value: Value<'_>) -> Self {
        let name = match repr::type_name(value) {
            "builtin_function_or_method" => "function",
            other => other,
        };
        Self::new(name, Constructor::None)
    }

    /// Returns whether a value denotes this type: by its name in Python or Starlark, as a type value, or
    /// as the builtin that constructs it.
    fn matches(&self, other: Value<'_>) -> bool {
        match (other.unpack_str(), Self::type_name_of(other)) {
            (Some(name), _) => self.name == name || (self.name == "str" && name == "string"),
            (None, Some(name)) => self.name == name,
            (None, None) => false,
        }
    }

    /// Returns the name of the type that a value denotes.
    fn type_name_of(value: Value<'_>) -> Option<&'static str> {
        if let Some(kind) = Self::from_value(value) {
            return Some(kind.name);
        }
        let is_native = value.get_type() == "function" && value.unpack_frozen().is_some();
        // These two are Starlark's own builtins, because annotations recognize them by identity.
        ["dict", "tuple"]
            .into_iter()
            .find(|name| is_native && value.to_str() == *name)
    }
}

impl fmt::Display for TypeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class '{}'>", self.name)
    }
}

impl fmt::Display for UnboundMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<method '{}' of '{}' objects>", self.name, self.kind)
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for TypeValue {
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(self.matches(other))
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
        match self.constructor {
            Constructor::None => {
                Err(ScriptError::misuse(format!("`{}` cannot be called", self.name)).into())
            }
            Constructor::Native(native) => native.to_value().invoke(args, eval),
            Constructor::Sequence(native) => SequenceFunction::call(native, args, eval),
            Constructor::Number(native) => call_with_trimmed_text(native, args, eval),
            Constructor::Str => {
                args.no_named_args()?;
                let mut positional = args.positions(eval.heap())?;
                let Some(value) = positional.next() else {
                    return Ok(eval.heap().alloc(""));
                };
                let text = repr::str(value, eval.heap());
                let text = text.map_err(|error| ScriptError::misuse(error.to_string()))?;
                Ok(eval.heap().alloc(text))
            }
            Constructor::Type => {
                args.no_named_args()?;
                let value = args.positional1(eval.heap())?;
                Ok(eval.heap().alloc(Self::of_value(value)))
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
            heap.alloc(UnboundMethod {
                kind: self.name,
                name: attribute.to_owned(),
            })
        })
    }

    // Annotations are never checked.
    fn eval_type(&self) -> Option<Ty> {
        Some(Ty::any())
    }

    // Type arguments are ignored: `list[int]` is `list`.
    fn at(&self, _index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(Self::new(self.name, self.constructor)))
    }

    fn name_for_call_stack(&self, _me: Value<'v>) -> String {
        self.name.to_owned()
    }
}

#[starlark_value(type = "method")]
impl<'v> StarlarkValue<'v> for UnboundMethod {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let positional: Vec<Value<'v>> = args.positions(heap)?.collect();
        let Some((object, rest)) = positional.split_first() else {
            return Err(ScriptError::misuse(format!(
                "`{}` needs an object to be called on",
                self.name
            ))
            .into());
        };
        if repr::type_name(*object) != self.kind {
            let message = format!(
                "`{}.{}` takes a `{}`, not a `{}`",
                self.kind,
                self.name,
                self.kind,
                repr::type_name(*object)
            );
            return Err(ScriptError::misuse(message).into());
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

/// Calls a function with whitespace around a string argument removed.
fn call_with_trimmed_text<'v>(
    native: FrozenValue,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let mut positional: Vec<Value<'v>> = args.positions(eval.heap())?.collect();
    let text = positional.first().and_then(|first| first.unpack_str());
    if text.is_some_and(|text| text.len() > MAX_NUMBER_DIGITS) {
        return Err(ScriptError::misuse(format!(
            "a number can have at most {MAX_NUMBER_DIGITS} digits"
        ))
        .into());
    }
    let Some(text) = text.filter(|text| text.trim() != *text) else {
        return native.to_value().invoke(args, eval);
    };
    positional[0] = eval.heap().alloc(text.trim());
    args.no_named_args()?;
    eval.eval_function(native.to_value(), &positional, &[])
}

/// Compares like Python's `==`, for scripts that inspect types.
///
/// Starlark's own operator compares with constants without calling [`StarlarkValue::equals`].
fn python_equals<'v>(left: Value<'v>, right: Value<'v>) -> starlark::Result<bool> {
    if let Some(kind) = TypeValue::from_value(left) {
        return Ok(kind.matches(right));
    }
    if let Some(kind) = TypeValue::from_value(right) {
        return Ok(kind.matches(left));
    }
    left.equals(right)
}

/// Tests membership like Python's `in`, for scripts that inspect types.
fn python_contains<'v>(
    item: Value<'v>,
    container: Value<'v>,
    heap: Heap<'v>,
) -> starlark::Result<bool> {
    if TypeValue::from_value(item).is_none() || container.unpack_str().is_some() {
        return container.is_in(item);
    }
    for other in container.iterate(heap)? {
        if python_equals(item, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a value is of a type, or of one of several types.
fn is_instance<'v>(value: Value<'v>, types: Value<'v>) -> Result<bool, ScriptError> {
    if let Some(name) = TypeValue::type_name_of(types) {
        let kind = TypeValue::of_value(value).name;
        return Ok(kind == name || name == "object" || (name == "int" && kind == "bool"));
    }
    if let Some(types_tuple) = TupleRef::from_value(types) {
        for kind in types_tuple.iter() {
            if is_instance(value, kind)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    Err(ScriptError::Misuse {
        message: format!("a `{}` is not a type", repr::type_name(types)),
        hint: Some("write `isinstance(x, dict)` or `isinstance(x, (list, tuple))`".to_owned()),
    })
}

/// Operators and the functions that replace them in scripts that inspect types.
pub(super) const TYPE_OPERATORS: [(&str, &str); 4] = [
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
        python_equals(left, right)
    }

    fn __ne__<'v>(
        #[starlark(require = pos)] left: Value<'v>,
        #[starlark(require = pos)] right: Value<'v>,
    ) -> starlark::Result<bool> {
        python_equals(left, right).map(|same| !same)
    }

    fn __in__<'v>(
        #[starlark(require = pos)] item: Value<'v>,
        #[starlark(require = pos)] container: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<bool> {
        python_contains(item, container, heap)
    }

    fn __not_in__<'v>(
        #[starlark(require = pos)] item: Value<'v>,
        #[starlark(require = pos)] container: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<bool> {
        python_contains(item, container, heap).map(|within| !within)
    }

    fn isinstance<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        #[starlark(require = pos)] types: Value<'v>,
    ) -> starlark::Result<bool> {
        Ok(is_instance(value, types)?)
    }

    fn callable<'v>(#[starlark(require = pos)] value: Value<'v>) -> starlark::Result<bool> {
        Ok(matches!(
            TypeValue::of_value(value).name,
            "function" | "tool" | "type" | "method"
        ))
    }
}

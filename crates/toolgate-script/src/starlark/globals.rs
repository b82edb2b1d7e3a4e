//! Global names available to every script.

use std::sync::OnceLock;

use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::values::FrozenValue;

use super::sequences::SequenceFunction;
use super::types::{Constructor, TypeValue};
use super::{calls, numbers, sequences, strings, types};

/// Starlark builtins that already behave as in Python.
const UNCHANGED_FUNCTIONS: [&str; 12] = [
    "True", "False", "None", "len", "range", "dir", "getattr", "hasattr", "chr", "ord", "dict",
    "tuple",
];

/// Starlark builtins that iterate over their arguments, extended to iterate over strings.
const SEQUENCE_FUNCTIONS: [&str; 5] = ["sorted", "enumerate", "reversed", "any", "all"];

/// Types that only occur in annotations.
const ANNOTATION_TYPES: [&str; 10] = [
    "Any", "Optional", "Union", "List", "Set", "Iterable", "Iterator", "Sequence", "Literal",
    "object",
];

/// Returns the globals, which are built once and shared by all scripts.
pub(super) fn globals() -> &'static Globals {
    static GLOBALS: OnceLock<Globals> = OnceLock::new();
    GLOBALS.get_or_init(|| {
        GlobalsBuilder::new()
            .with(|builder| add_builtins(builder, starlark_globals()))
            .with(calls::register)
            .with(types::register)
            .with(numbers::register)
            .with(sequences::register)
            .with(strings::register)
            .with_namespace("json", strings::json_functions)
            .with_namespace("math", numbers::math)
            .build()
    })
}

/// Returns the names of the globals, for suggestions.
pub(super) fn public_names() -> impl Iterator<Item = String> {
    let names = globals().names().map(|name| name.as_str().to_owned());
    names.filter(|name| !name.starts_with('_'))
}

/// Returns the globals of the `starlark` crate.
fn starlark_globals() -> &'static Globals {
    static LANGUAGE: OnceLock<Globals> = OnceLock::new();
    LANGUAGE.get_or_init(|| Globals::extended_by(&[LibraryExtension::SetType]))
}

fn add_builtins(builder: &mut GlobalsBuilder, builtins: &Globals) {
    let native = |name: &str| -> Option<FrozenValue> {
        builtins
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    };
    for name in UNCHANGED_FUNCTIONS {
        if let Some(value) = native(name) {
            builder.set(name, value);
        }
    }
    for name in SEQUENCE_FUNCTIONS {
        if let Some(value) = native(name) {
            builder.set(name, SequenceFunction::new(name, value));
        }
    }
    for name in ["int", "float"] {
        let constructor = native(name).map_or(Constructor::None, Constructor::Number);
        builder.set(name, TypeValue::new(name, constructor));
    }
    for name in ["bool", "bytes"] {
        let constructor = native(name).map_or(Constructor::None, Constructor::Native);
        builder.set(name, TypeValue::new(name, constructor));
    }
    for name in ["list", "set"] {
        let constructor = native(name).map_or(Constructor::None, Constructor::Sequence);
        builder.set(name, TypeValue::new(name, constructor));
    }
    builder.set("str", TypeValue::new("str", Constructor::Str));
    builder.set("type", TypeValue::new("type", Constructor::Type));
    for name in ANNOTATION_TYPES {
        builder.set(name, TypeValue::new(name, Constructor::None));
    }
    // In annotations, only Starlark's own `dict` and `tuple` take two type arguments.
    for (name, native) in [("Dict", native("dict")), ("Tuple", native("tuple"))] {
        if let Some(value) = native {
            builder.set(name, value);
        }
    }
    // Makes `if __name__ == "__main__":` work as in Python.
    builder.set("__name__", "__main__");
}

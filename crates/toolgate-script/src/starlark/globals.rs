//! What every script has by name.

use std::sync::OnceLock;

use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::values::FrozenValue;

use super::kind::{Kind, Maker};
use super::sequences::Spreading;
use super::{calls, kind, numbers, sequences, texts};

/// Functions of the language that are Python's as they are.
const KEPT: [&str; 12] = [
    "True", "False", "None", "len", "range", "dir", "getattr", "hasattr", "chr", "ord", "dict",
    "tuple",
];

/// Functions of the language that go through what they are given.
const SPREAD: [&str; 5] = ["sorted", "enumerate", "reversed", "any", "all"];

/// Types that only say something to a reader of annotations.
const HINTS: [&str; 10] = [
    "Any", "Optional", "Union", "List", "Set", "Iterable", "Iterator", "Sequence", "Literal",
    "object",
];

/// Made once, and shared by all scripts.
pub(super) fn globals() -> &'static Globals {
    static GLOBALS: OnceLock<Globals> = OnceLock::new();
    GLOBALS.get_or_init(|| {
        GlobalsBuilder::new()
            .with(|builder| natives(builder, language()))
            .with(calls::register)
            .with(kind::register)
            .with(numbers::register)
            .with(sequences::register)
            .with(texts::register)
            .with_namespace("json", texts::json_functions)
            .with_namespace("math", numbers::math)
            .build()
    })
}

/// The names that every script has.
pub(super) fn names() -> impl Iterator<Item = String> {
    let names = globals().names().map(|name| name.as_str().to_owned());
    names.filter(|name| !name.starts_with('_'))
}

/// What the language itself has.
fn language() -> &'static Globals {
    static LANGUAGE: OnceLock<Globals> = OnceLock::new();
    LANGUAGE.get_or_init(|| Globals::extended_by(&[LibraryExtension::SetType]))
}

fn natives(builder: &mut GlobalsBuilder, language: &Globals) {
    let native = |name: &str| -> Option<FrozenValue> {
        language
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    };
    for name in KEPT {
        if let Some(value) = native(name) {
            builder.set(name, value);
        }
    }
    for name in SPREAD {
        if let Some(value) = native(name) {
            builder.set(name, Spreading::new(name, value));
        }
    }
    for name in ["int", "float"] {
        let maker = native(name).map_or(Maker::None, Maker::Trimming);
        builder.set(name, Kind::new(name, maker));
    }
    for name in ["bool", "bytes"] {
        let maker = native(name).map_or(Maker::None, Maker::Native);
        builder.set(name, Kind::new(name, maker));
    }
    for name in ["list", "set"] {
        let maker = native(name).map_or(Maker::None, Maker::Spreading);
        builder.set(name, Kind::new(name, maker));
    }
    builder.set("str", Kind::new("str", Maker::Str));
    builder.set("type", Kind::new("type", Maker::Type));
    for name in HINTS {
        builder.set(name, Kind::new(name, Maker::None));
    }
    // In annotations, only the language's own take two types.
    for (name, native) in [("Dict", native("dict")), ("Tuple", native("tuple"))] {
        if let Some(value) = native {
            builder.set(name, value);
        }
    }
    // A script is the program that was started, as Python would say.
    builder.set("__name__", "__main__");
}

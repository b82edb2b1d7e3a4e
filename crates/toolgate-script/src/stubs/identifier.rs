//! Converts untrusted names into identifiers that are valid in Python and Starlark, unique and stable.
//!
//! A name that is a valid identifier is unchanged. If several names map to the same identifier, those
//! that are not identifiers themselves get a suffix from their own hash, so that adding or removing a
//! third name never makes an identifier refer to a different name.

use std::collections::{HashMap, HashSet};

use toolgate_core::hash::sha256_hex;

/// Role of an identifier in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdentifierUse {
    /// A global name.
    Server,
    /// An attribute of a server.
    Tool,
    /// The name of an argument.
    Parameter,
}

const MAX_IDENTIFIER_BYTES: usize = 64;

/// Reserved in Python or in Starlark.
const KEYWORDS: [&str; 37] = [
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "load",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "__debug__",
];

/// Names with another meaning in scripts or in Python; sorted.
const BUILTINS: [&str; 90] = [
    "Any",
    "Dict",
    "Iterable",
    "Iterator",
    "List",
    "Literal",
    "Optional",
    "Sequence",
    "Set",
    "Tuple",
    "Union",
    "abs",
    "all",
    "any",
    "ascii",
    "attempt",
    "bin",
    "bool",
    "breakpoint",
    "bytes",
    "call_stack",
    "callable",
    "chr",
    "debug",
    "dict",
    "dir",
    "divmod",
    "enum",
    "enumerate",
    "eval",
    "exec",
    "fail",
    "field",
    "filter",
    "float",
    "format",
    "frozenset",
    "getattr",
    "globals",
    "hasattr",
    "hash",
    "hex",
    "id",
    "input",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "json",
    "len",
    "list",
    "load",
    "locals",
    "map",
    "math",
    "max",
    "min",
    "next",
    "object",
    "oct",
    "open",
    "ord",
    "parallel",
    "partial",
    "pow",
    "pprint",
    "prepr",
    "print",
    "pstr",
    "range",
    "re",
    "record",
    "reduce",
    "repr",
    "result",
    "reversed",
    "round",
    "set",
    "setattr",
    "slice",
    "sorted",
    "str",
    "struct",
    "sum",
    "super",
    "tuple",
    "type",
    "typing",
    "vars",
    "zip",
];

/// Returns the identifiers of names, in the same order. The names must be distinct.
pub(super) fn assign_identifiers(names: &[&str], usage: IdentifierUse) -> Vec<String> {
    let plain: Vec<String> = names
        .iter()
        .map(|name| to_identifier(name, usage))
        .collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for identifier in &plain {
        *counts.entry(identifier).or_default() += 1;
    }
    let mut taken: HashSet<String> = names
        .iter()
        .zip(&plain)
        .filter(|(name, plain)| *name == plain || counts[plain.as_str()] == 1)
        .map(|(_, plain)| plain.clone())
        .collect();
    names
        .iter()
        .zip(&plain)
        .map(|(name, plain)| {
            if name == plain || counts[plain.as_str()] == 1 {
                plain.clone()
            } else {
                add_hash_suffix(name, plain, &mut taken)
            }
        })
        .collect()
}

fn add_hash_suffix(name: &str, plain: &str, taken: &mut HashSet<String>) -> String {
    let hash = sha256_hex(name);
    let mut length = 4;
    loop {
        let candidate = format!("{plain}_{}", &hash[..length.min(hash.len())]);
        if length > hash.len() || taken.insert(candidate.clone()) {
            return candidate;
        }
        length += 4;
    }
}

/// Returns the identifier that a name has if no other name conflicts.
pub(super) fn to_identifier(name: &str, usage: IdentifierUse) -> String {
    let mut identifier = String::with_capacity(name.len());
    let trimmed =
        name.trim_start_matches(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_');
    for c in trimmed.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => identifier.push(c),
            c => match ascii_letters(c) {
                "" if identifier.ends_with('_') => {}
                "" => identifier.push('_'),
                letters => identifier.push_str(letters),
            },
        }
        if identifier.len() >= MAX_IDENTIFIER_BYTES {
            break;
        }
    }
    if identifier != name {
        identifier.truncate(identifier.trim_end_matches('_').len());
    }
    if identifier.is_empty() {
        let prefix = match usage {
            IdentifierUse::Server => "server",
            IdentifierUse::Tool => "tool",
            IdentifierUse::Parameter => "arg",
        };
        identifier = format!("{prefix}_{}", &sha256_hex(name)[..6]);
    }
    if identifier.starts_with(|c: char| c.is_ascii_digit()) {
        identifier.insert(0, '_');
    }
    if is_reserved(&identifier, usage) {
        identifier.push('_');
    }
    identifier
}

fn is_reserved(identifier: &str, usage: IdentifierUse) -> bool {
    // The engine defines operators under names such as `__eq__`.
    let is_taken = BUILTINS.contains(&identifier)
        || identifier.starts_with("__") && identifier.ends_with("__");
    KEYWORDS.contains(&identifier) || usage == IdentifierUse::Server && is_taken
}

/// Returns the ASCII letters for a letter with a diacritic, or an empty string.
fn ascii_letters(c: char) -> &'static str {
    match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'À'..='Å' | 'Ā' | 'Ă' | 'Ą' => "A",
        'æ' => "ae",
        'Æ' => "Ae",
        'ç' | 'ć' | 'č' => "c",
        'Ç' | 'Ć' | 'Č' => "C",
        'ð' | 'ď' | 'đ' => "d",
        'Ð' | 'Ď' | 'Đ' => "D",
        'è'..='ë' | 'ē' | 'ę' | 'ě' => "e",
        'È'..='Ë' | 'Ē' | 'Ę' | 'Ě' => "E",
        'ğ' => "g",
        'ì'..='ï' | 'ī' | 'ı' => "i",
        'Ì'..='Ï' | 'Ī' | 'İ' => "I",
        'ł' => "l",
        'Ł' => "L",
        'ñ' | 'ń' | 'ň' => "n",
        'Ñ' | 'Ń' | 'Ň' => "N",
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => "o",
        'Ò'..='Ö' | 'Ø' | 'Ō' | 'Ő' => "O",
        'œ' => "oe",
        'ř' => "r",
        'Ř' => "R",
        'ß' => "ss",
        'ś' | 'ş' | 'š' => "s",
        'Ś' | 'Ş' | 'Š' => "S",
        'ť' => "t",
        'Ť' => "T",
        'ù'..='ü' | 'ū' | 'ů' | 'ű' => "u",
        'Ù'..='Ü' | 'Ū' | 'Ů' | 'Ű' => "U",
        'ý' | 'ÿ' => "y",
        'Ý' => "Y",
        'ź' | 'ż' | 'ž' => "z",
        'Ź' | 'Ż' | 'Ž' => "Z",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_become_identifiers() {
        for (name, expected) in [
            ("search", "search"),
            ("getVideo2", "getVideo2"),
            ("web-search", "web_search"),
            ("a.b/c d", "a_b_c_d"),
            ("a--b", "a_b"),
            ("a__b_", "a__b_"),
            ("12306-mcp", "_12306_mcp"),
            ("$filter", "filter"),
            ("@type", "type"),
            ("from", "from_"),
            ("class", "class_"),
            ("load", "load_"),
            ("Größe (m²)", "Grosse_m"),
            ("naïve café", "naive_cafe"),
            ("user[name]", "user_name"),
            ("__init__", "__init__"),
        ] {
            assert_eq!(to_identifier(name, IdentifierUse::Parameter), expected);
        }
        assert_eq!(to_identifier("搜索", IdentifierUse::Tool), "tool_44ce7a");
        assert_eq!(to_identifier("", IdentifierUse::Parameter), "arg_e3b0c4");
    }

    #[test]
    fn servers_do_not_shadow_builtins() {
        for name in [
            "print", "json", "parallel", "attempt", "result", "len", "import", "None",
        ] {
            assert_eq!(
                to_identifier(name, IdentifierUse::Server),
                format!("{name}_")
            );
        }
        assert_eq!(to_identifier("print", IdentifierUse::Tool), "print");
        assert_eq!(to_identifier("list", IdentifierUse::Tool), "list");
        assert!(BUILTINS.is_sorted());
    }

    #[test]
    fn conflicting_names_get_stable_hash_suffixes() {
        let all = assign_identifiers(&["a-b", "a.b", "a_b"], IdentifierUse::Tool);
        assert_eq!(all[2], "a_b");
        let two = assign_identifiers(&["a-b", "a.b"], IdentifierUse::Tool);
        assert_eq!(all[..2], two[..], "a third name must not change the others");
        assert_ne!(two[0], two[1]);
        assert!(two[0].starts_with("a_b_"));
    }

    proptest! {
        #[test]
        fn arbitrary_names_get_distinct_identifiers(names in proptest::collection::hash_set(".{0,20}|[a-c.-]{1,3}", 1..20)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for usage in [IdentifierUse::Server, IdentifierUse::Tool, IdentifierUse::Parameter] {
                let mut identifiers = assign_identifiers(&names, usage);
                for identifier in &identifiers {
                    prop_assert!(identifier.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
                    prop_assert!(identifier.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
                    prop_assert!(!is_reserved(identifier, usage));
                }
                identifiers.sort();
                identifiers.dedup();
                prop_assert_eq!(identifiers.len(), names.len());
            }
        }
    }
}

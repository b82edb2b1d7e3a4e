//! Names of strangers as identifiers: valid in Python and Starlark, unique, and the same each time.
//!
//! A name that is an identifier stays. Of names that would read the same, those that are not
//! identifiers themselves get a suffix from their own hash, so that one and the same identifier
//! never stands for another name because a third one came or went.

use std::collections::{HashMap, HashSet};

use toolgate_core::hash::sha256;

/// What an identifier is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A global name.
    Server,
    /// An attribute of a server.
    Tool,
    /// The name of an argument.
    Parameter,
}

const LONGEST: usize = 64;

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

/// Names that scripts, or models that think of Python, use for something else; sorted.
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

/// Identifiers for names, in their order. The names are distinct.
pub(super) fn assign(names: &[&str], for_what: Use) -> Vec<String> {
    let plain: Vec<String> = names
        .iter()
        .map(|name| identifier(name, for_what))
        .collect();
    let mut sharing: HashMap<&str, usize> = HashMap::new();
    for one in &plain {
        *sharing.entry(one).or_default() += 1;
    }
    let mut taken: HashSet<String> = names
        .iter()
        .zip(&plain)
        .filter(|(name, plain)| *name == plain || sharing[plain.as_str()] == 1)
        .map(|(_, plain)| plain.clone())
        .collect();
    names
        .iter()
        .zip(&plain)
        .map(
            |(name, plain)| match name == plain || sharing[plain.as_str()] == 1 {
                true => plain.clone(),
                false => suffixed(name, plain, &mut taken),
            },
        )
        .collect()
}

fn suffixed(name: &str, plain: &str, taken: &mut HashSet<String>) -> String {
    let hash = sha256(name);
    let mut length = 4;
    loop {
        let candidate = format!("{plain}_{}", &hash[..length.min(hash.len())]);
        if length > hash.len() || taken.insert(candidate.clone()) {
            return candidate;
        }
        length += 4;
    }
}

/// The identifier that a name would have if it were alone.
pub(super) fn identifier(name: &str, for_what: Use) -> String {
    let mut identifier = String::with_capacity(name.len());
    let trimmed =
        name.trim_start_matches(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_');
    for c in trimmed.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => identifier.push(c),
            c => match plain_letters(c) {
                "" if identifier.ends_with('_') => {}
                "" => identifier.push('_'),
                letters => identifier.push_str(letters),
            },
        }
        if identifier.len() >= LONGEST {
            break;
        }
    }
    if identifier != name {
        identifier.truncate(identifier.trim_end_matches('_').len());
    }
    if identifier.is_empty() {
        let what = match for_what {
            Use::Server => "server",
            Use::Tool => "tool",
            Use::Parameter => "arg",
        };
        identifier = format!("{what}_{}", &sha256(name)[..6]);
    }
    if identifier.starts_with(|c: char| c.is_ascii_digit()) {
        identifier.insert(0, '_');
    }
    if is_reserved(&identifier, for_what) {
        identifier.push('_');
    }
    identifier
}

fn is_reserved(identifier: &str, for_what: Use) -> bool {
    // The engine has operators under names such as `__eq__`.
    let is_taken = BUILTINS.contains(&identifier)
        || identifier.starts_with("__") && identifier.ends_with("__");
    KEYWORDS.contains(&identifier) || for_what == Use::Server && is_taken
}

/// The plain letters of a letter with a mark; nothing for all others.
fn plain_letters(c: char) -> &'static str {
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
            assert_eq!(identifier(name, Use::Parameter), expected);
        }
        assert_eq!(identifier("搜索", Use::Tool), "tool_44ce7a");
        assert_eq!(identifier("", Use::Parameter), "arg_e3b0c4");
    }

    #[test]
    fn what_a_script_calls_by_name_is_no_server() {
        for name in [
            "print", "json", "parallel", "attempt", "result", "len", "import", "None",
        ] {
            assert_eq!(identifier(name, Use::Server), format!("{name}_"));
        }
        assert_eq!(identifier("print", Use::Tool), "print");
        assert_eq!(identifier("list", Use::Tool), "list");
        assert!(BUILTINS.is_sorted());
    }

    #[test]
    fn of_names_that_read_alike_only_an_identifier_stays() {
        let all = assign(&["a-b", "a.b", "a_b"], Use::Tool);
        assert_eq!(all[2], "a_b");
        let two = assign(&["a-b", "a.b"], Use::Tool);
        assert_eq!(all[..2], two[..], "a third name changes nothing");
        assert_ne!(two[0], two[1]);
        assert!(two[0].starts_with("a_b_"));
    }

    proptest! {
        #[test]
        fn any_names_get_distinct_identifiers(names in proptest::collection::hash_set(".{0,20}|[a-c.-]{1,3}", 1..20)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for for_what in [Use::Server, Use::Tool, Use::Parameter] {
                let mut identifiers = assign(&names, for_what);
                for one in &identifiers {
                    prop_assert!(one.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
                    prop_assert!(one.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
                    prop_assert!(!is_reserved(one, for_what));
                }
                identifiers.sort();
                identifiers.dedup();
                prop_assert_eq!(identifiers.len(), names.len());
            }
        }
    }
}

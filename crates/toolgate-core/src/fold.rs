//! Loose comparison of argument names, as lenient JSON decoders do it.
//!
//! Go's `encoding/json` ignores case, including the long s (U+017F) and the Kelvin sign (U+212A), and
//! C strings end at a NUL. Two names that compare equal here may be the same name for a server.

use std::borrow::Cow;

/// Returns the form in which names are compared.
pub(crate) fn fold_name(name: &str) -> Cow<'_, str> {
    let name = trim_nul(name);
    let is_folded = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase();
    if name.bytes().all(is_folded) {
        return Cow::Borrowed(name);
    }
    // The upper case of a letter has fewer variants than its lower case. The second pass is for
    // letters such as the capital sharp s, whose lower case has an upper case of several letters.
    let fold = |text: &str| -> String {
        let upper = text.chars().flat_map(char::to_uppercase);
        upper.flat_map(char::to_lowercase).collect()
    };
    Cow::Owned(fold(&fold(name)))
}

/// Returns whether a server may take one name for the other.
pub(crate) fn is_same_name(one: &str, other: &str) -> bool {
    one == other || fold_name(one) == fold_name(other)
}

/// Removes leading NULs, and everything from the next NUL on.
fn trim_nul(name: &str) -> &str {
    let name = name.trim_start_matches('\0');
    name.split('\0').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lenient_decoders_confuse_compare_equal() {
        for (one, other) in [
            ("path", "Path"),
            ("path", "PATH"),
            ("path", "path\0"),
            ("path", "\0\0Path"),
            ("path", "path\0x"),
            ("sink", "\u{17f}in\u{212a}"),
            ("straße", "STRASSE"),
            ("straße", "STRA\u{1e9e}E"),
            ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
            ("\u{2126}", "ω"),
        ] {
            assert!(is_same_name(one, other), "{one:?} {other:?}");
            assert!(is_same_name(other, one), "{other:?} {one:?}");
        }
        for (one, other) in [
            ("path", "paths"),
            ("path", "p\u{e4}th"),
            ("a_b", "ab"),
            ("", "a"),
        ] {
            assert!(!is_same_name(one, other), "{one:?} {other:?}");
        }
    }
}

//! The value that a text stands for, if it stands for one.

use serde_json::Value;

use crate::arguments::parse_unambiguous;

/// Maximum length of a number.
const MAX_NUMBER_BYTES: usize = 40;

/// Returns whether a text may hold a list or an object.
pub(super) fn may_be_container(text: &str) -> bool {
    text.trim_start().starts_with(['[', '{'])
}

/// Parses the canonical text of a number, a boolean or `null`, or any JSON text of a list or an
/// object, since models write those with and without white space.
pub(super) fn parse(text: &str) -> Option<Value> {
    match text {
        "null" => Some(Value::Null),
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        text if may_be_container(text) => parse_unambiguous(text),
        text if is_canonical_number(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// Returns whether a text is a number without an exponent and without superfluous digits.
fn is_canonical_number(text: &str) -> bool {
    if text.len() > MAX_NUMBER_BYTES || text == "-0" {
        return false;
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (digits, None),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = is_digits(whole) && (whole == "0" || !whole.starts_with('0'));
    is_whole && fraction.is_none_or(|fraction| is_digits(fraction) && !fraction.ends_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_texts_stand_for_scalars() {
        for text in [
            "0",
            "5",
            "-5",
            "1.5",
            "-0.5",
            "0.05",
            "18446744073709551617",
            "true",
            "false",
            "null",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", " ", " 5", "5 ", "05", "-05", "+5", "5.", ".5", "5.0", "1.50", "-0", "--5", "1e3",
            "1E3", "0x5", "1_000", "1,000", "٥", "NaN", "Infinity", "True", "TRUE", " true", "yes",
            "None", "\"a\"", "-", ".", "- 5", "5\n", "1.5.5",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse(&"1".repeat(MAX_NUMBER_BYTES + 1)), None);
    }

    #[test]
    fn texts_of_containers_must_be_unambiguous_json() {
        for text in [
            "[1,2]",
            " [ 1, 2 ] ",
            "[]",
            "{\"a\": {\"b\": [null]}}",
            "\n{}\t",
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text), Some(expected));
        }
        for text in [
            "[1,2",
            "[1,]",
            "['a']",
            "[1] [2]",
            "{a: 1}",
            "{\"a\":1,\"a\":2}",
            "[{\"a\":{\"b\":1,\"\\u0062\":2}}]",
            "{\"$serde_json::private::Number\":\"1\"}",
            "[{\"$serde_json::private::RawValue\":\"{}\"}]",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(parse(&deep), None);
    }
}

//! Parsing, duplicate detection and digests of arguments.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Arguments {
    Arguments::parse(text).unwrap()
}

fn parse_error(text: &str) -> ArgumentsError {
    Arguments::parse(text).unwrap_err()
}

#[test]
fn arguments_must_be_one_object_and_keep_their_bytes() {
    let text = r#"{"b": 1e400, "a": -0.0, "n": 18446744073709551617, "x": 0.10}"#;
    assert_eq!(parse(text).raw().get(), text);
    assert_eq!(parse(" ").raw().get(), "{}");
    assert_eq!(parse("null").raw().get(), "{}");
    for (text, kind) in [
        ("[1]", "an array"),
        ("\"{}\"", "a string"),
        ("7", "a number"),
        ("true", "a boolean"),
    ] {
        assert_eq!(parse_error(text), ArgumentsError::NotObject(kind));
    }
    for text in ["{\"a\":", "{} {}", "{\"a\":\"\\ud800\"}", "{'a':1}"] {
        assert!(
            matches!(parse_error(text), ArgumentsError::NotJson(_)),
            "{text}"
        );
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(parse_error(&deep), ArgumentsError::NotJson(_)));
}

#[test]
fn numbers_keep_their_digits() {
    let arguments = parse(r#"{"a": 18446744073709551617, "b": -0.0, "c": 1.10}"#);
    let value = arguments.value();
    assert_eq!(value["a"].to_string(), "18446744073709551617");
    assert_eq!(value["b"].to_string(), "-0.0");
    assert_eq!(value["c"].to_string(), "1.10");
    assert!(parse(r#"{"a": 1e400}"#).value()["a"].is_number());
}

#[test]
fn duplicate_keys_are_rejected_at_any_depth() {
    let table = [
        (r#"{"path":1,"path":2}"#, "path"),
        (r#"{"path":1,"p\u0061th":2}"#, "path"),
        (r#"{"a":[{"b":{"c":1,"c":1}}]}"#, "c"),
        (r#"{"a":{"x":1},"b":{"x":1},"a":{}}"#, "a"),
        (r#"{"":1,"":2}"#, ""),
        ("{\"a\\nb\":1,\"a\\u000ab\":2}", "a\\nb"),
    ];
    for (text, key) in table {
        assert_eq!(
            parse_error(text),
            ArgumentsError::DuplicateKey(key.to_owned()),
            "{text}"
        );
    }
    for text in [
        r#"{"a":{"a":{"a":1}},"b":["a","a"]}"#,
        r#"{"a":":","b":"\":\"","c":"{\"a\":1,\"a\":2}","A":1}"#,
    ] {
        assert_eq!(parse(text).raw().get(), text);
    }
    assert_eq!(
        parse_error(r#"{"path":1,"path":2}"#).to_string(),
        "the key `path` appears twice in one object of the arguments; send each key once"
    );
}

#[test]
fn keys_reserved_by_serde_json_are_rejected() {
    for text in [
        r#"{"a":{"$serde_json::private::Number":"1"}}"#,
        r#"{"$serde_json::private::RawValue":"{\"a\":1}"}"#,
        r#"{"a":{"\u0024serde_json::private::RawValue":"{\"a\":1}"}}"#,
        r#"{"a":{"x":1,"$serde_json::private::Number":"1"}}"#,
    ] {
        assert!(
            matches!(parse_error(text), ArgumentsError::ReservedKey(_)),
            "{text}"
        );
    }
    let text = r#"{"a":"$serde_json::private::Number","$serde":1}"#;
    assert_eq!(parse(text).raw().get(), text);
}

#[test]
fn digest_depends_on_content_not_on_formatting() {
    let digest = |text: &str| parse(text).digest();
    let one = digest(r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#);
    assert_eq!(one.len(), 64);
    assert_eq!(
        digest("{}"),
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    );
    assert_eq!(one, digest(r#"{ "b":{"d":"\u0078","c":[1, 2]}, "a":1}"#));
    for other in [
        r#"{"a":1.0,"b":{"c":[1,2],"d":"x"}}"#,
        r#"{"a":1,"b":{"c":[2,1],"d":"x"}}"#,
        r#"{"a":1,"b":{"c":[1,2]},"d":"x"}"#,
    ] {
        assert_ne!(one, digest(other), "{other}");
    }
}

#[test]
fn large_objects_are_checked_for_duplicates() {
    let entries = |keys: usize| (0..keys).map(|key| format!("\"k{key}\":{key}"));
    let mut entries: Vec<String> = entries(100_000).collect();
    parse(&format!("{{{}}}", entries.join(",")));
    entries.push("\"k50000\":1".to_owned());
    assert_eq!(
        parse_error(&format!("{{{}}}", entries.join(","))),
        ArgumentsError::DuplicateKey("k50000".to_owned())
    );
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            vec(inner, 0..4).prop_map(|items| object(&items)),
        ]
    })
}

/// Builds an object with distinct keys, every second one written with an escape.
fn object(items: &[String]) -> String {
    let entries: Vec<String> = items
        .iter()
        .enumerate()
        .map(|(index, item)| match index % 2 {
            0 => format!("\"k{index}\":{item}"),
            _ => format!("\"\\u006b{index}\" : {item}"),
        })
        .collect();
    format!("{{{}}}", entries.join(","))
}

proptest! {
    #[test]
    fn every_object_round_trips(items in vec(json(), 0..4)) {
        let text = object(&items);
        let arguments = parse(&text);
        prop_assert_eq!(arguments.raw().get(), &text);
        let again: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(arguments.value(), &again);
    }

    #[test]
    fn digest_ignores_order_and_whitespace(items in vec(json(), 2..5)) {
        let entry = |index: usize| format!("\"k{index}\":{}", items[index]);
        let forward: Vec<String> = (0..items.len()).map(entry).collect();
        let backward: Vec<String> = (0..items.len()).rev().map(entry).collect();
        let one = parse(&format!("{{{}}}", forward.join(",")));
        let other = parse(&format!("{{ {} }}", backward.join("\n, ")));
        prop_assert_eq!(one.digest(), other.digest());
        let more = parse(&format!("{{{},\"x\":0}}", forward.join(",")));
        prop_assert_ne!(one.digest(), more.digest());
    }

    #[test]
    fn duplicate_key_is_found_at_any_depth(value in json(), depth in 0..50_usize) {
        let mut text = format!("{{\"path\":{value},\"other\":1,\"p\\u0061th\":{value}}}");
        for level in 0..depth {
            text = match level % 2 {
                0 => format!("{{\"in\":{text}}}"),
                _ => format!("{{\"in\":[1,{text}]}}"),
            };
        }
        prop_assert_eq!(parse_error(&text), ArgumentsError::DuplicateKey("path".to_owned()));
    }
}

fn check_keys(schema: &str, arguments: &str) -> Result<(), ArgumentsError> {
    let schema = serde_json::value::RawValue::from_string(schema.to_owned()).unwrap();
    let schema = Schema::compile(&schema).unwrap();
    Arguments::parse(arguments)
        .unwrap()
        .check_keys(Some(&schema))
}

#[test]
fn keys_that_a_lenient_server_confuses_are_rejected() {
    let path = r##"{"type": "object", "properties": {"path": {}, "options": {"$ref": "#/$defs/o"},
        "list": {"items": {"anyOf": [{"properties": {"disk": {}}}]}}},
        "$defs": {"o": {"properties": {"mode": {}}}}}"##;
    let both = r#"{"properties": {"q": {}, "Q": {}}}"#;
    for (schema, arguments, collides) in [
        (path, r#"{"path": "/srv/x", "Path": "/etc/passwd"}"#, true),
        (path, r#"{"Path": "/etc/passwd"}"#, true),
        (path, r#"{"path\u0000": "/etc/passwd"}"#, true),
        (path, r#"{"other": 1, "Other": 2}"#, true),
        (path, r#"{"path": {"x": 1, "X": 2}}"#, true),
        (
            path,
            r#"{"path": [[{"sink": 1, "\u017fin\u212a": 2}]]}"#,
            true,
        ),
        (path, r#"{"options": {"Mode": 1}}"#, true),
        (path, r#"{"list": [{"di\u017f\u212a": 1}]}"#, true),
        (
            path,
            r#"{"path": "a", "options": {"mode": 1}, "paths": []}"#,
            false,
        ),
        (path, r#"{"path": {"x": 1}, "other": {"X": 1}}"#, false),
        ("{}", r#"{"a": 1, "A": 2}"#, true),
        ("{}", r#"{"A": 1}"#, false),
        // A server that declares both names distinguishes them.
        (both, r#"{"q": 1, "Q": 2}"#, false),
        (both, r#"{"q": 1, "Q\u0000": 2}"#, true),
    ] {
        let checked = check_keys(schema, arguments);
        let is_collision = matches!(checked, Err(ArgumentsError::CollidingKeys { .. }));
        assert_eq!(is_collision, collides, "{arguments}: {checked:?}");
    }
    let endless = r##"{"properties": {"a": {"$ref": "#"}}}"##;
    assert_eq!(check_keys(endless, r#"{"a": {"a": {"a": {}}}}"#), Ok(()));
}

//! Conversion of arguments: examples, random schemas, and bounds.

use proptest::collection::vec;
use proptest::prelude::*;

use super::any::{schema as any_schema, tree};
use super::hostile::on_worker_stack;
use super::*;

/// Returns the converted arguments; `None` if they fit as they are or cannot be converted.
fn coerce(schema: &Value, arguments: &Value) -> Option<CoercedValue> {
    let compiled = compile(schema).unwrap();
    compiled.check_or_coerce(arguments).ok().flatten()
}

fn coerce_member(member: &Value, value: &Value) -> Option<Value> {
    let schema = json!({"type": "object", "properties": {"x": member}});
    let converted = coerce(&schema, &json!({"x": value}))?;
    assert_eq!(converted.paths, ["x"]);
    Some(converted.value.get("x").cloned().unwrap_or_default())
}

#[test]
fn texts_are_converted_where_they_fit() {
    let integer = json!({"type": "integer"});
    let union = json!({"anyOf": [{"type": "integer"}, {"type": "null"}]});
    let numbers = json!({"type": "array", "items": {"type": "integer"}});
    let point =
        json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]});
    for (schema, value, expected) in [
        (&integer, json!("5"), Some(json!(5))),
        (&integer, json!("5.5"), None),
        (&integer, json!("05"), None),
        (&integer, json!("true"), None),
        (&json!({"type": "integer", "minimum": 6}), json!("5"), None),
        (&json!({"type": "number"}), json!("5.5"), Some(json!(5.5))),
        (&json!({"type": "number"}), json!("5.0"), None),
        (
            &json!({"type": "boolean"}),
            json!("true"),
            Some(json!(true)),
        ),
        (&json!({"type": "boolean"}), json!("1"), None),
        (&json!({"enum": [1, 2]}), json!("2"), Some(json!(2))),
        (&json!({"const": false}), json!("false"), Some(json!(false))),
        (
            &json!({"type": ["integer", "boolean"]}),
            json!("5"),
            Some(json!(5)),
        ),
        (
            &json!({"type": ["integer", "boolean"]}),
            json!("true"),
            Some(json!(true)),
        ),
        (&union, json!("5"), Some(json!(5))),
        (&union, json!("null"), Some(Value::Null)),
        (
            &json!({"allOf": [{"type": "integer"}, {"minimum": 3}]}),
            json!("5"),
            Some(json!(5)),
        ),
        (
            &json!({"allOf": [{"type": "integer"}, {"minimum": 6}]}),
            json!("5"),
            None,
        ),
        (&json!({"not": {"type": "string"}}), json!("5"), None),
        (&numbers, json!("[1, 2]"), Some(json!([1, 2]))),
        (&numbers, json!("[1, \"2\"]"), Some(json!([1, 2]))),
        (&numbers, json!("[1, \"a\"]"), None),
        (&numbers, json!("1"), None),
        (&numbers, json!("1,2"), None),
        (&point, json!("{\"x\": 1}"), Some(json!({"x": 1}))),
        (&point, json!("{\"x\": \"1\"}"), Some(json!({"x": 1}))),
        (&point, json!("{}"), None),
        (&point, json!("{\"x\": 1, \"x\": 2}"), None),
        // Never the other way round.
        (&json!({"type": "string"}), json!(5), None),
        (&numbers, json!(1), None),
    ] {
        assert_eq!(coerce_member(schema, &value), expected, "{schema} {value}");
    }
}

#[test]
fn value_that_fits_is_never_changed() {
    for member in [
        json!({"type": "string"}),
        json!({}),
        json!(true),
        json!({"type": ["string", "integer"]}),
        json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"enum": ["5", 5]}),
        json!({"items": {"type": "integer"}}),
    ] {
        let schema = json!({"properties": {"x": member, "n": {"type": "integer"}}});
        let kept = json!({"x": "5"});
        assert_eq!(compile(&schema).unwrap().check_or_coerce(&kept), Ok(None));
        let converted = coerce(&schema, &json!({"x": "5", "n": "5"})).unwrap();
        assert_eq!(converted.value, json!({"x": "5", "n": 5}), "{schema}");
        assert_eq!(converted.paths, ["n"]);
    }
}

#[test]
fn null_drops_only_optional_properties() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "limit": {"type": "integer"},
            "tag": {"type": ["string", "null"]},
            "any": {},
            "options": {
                "type": "object",
                "properties": {"depth": {"type": "integer"}, "mode": {"type": "string"}},
                "required": ["mode"],
            },
            "list": {"type": "array", "items": {"type": "integer"}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    for (arguments, expected) in [
        (
            json!({"name": "a", "limit": null}),
            Some(json!({"name": "a"})),
        ),
        (
            json!({"limit": null, "name": "a", "tag": null, "any": null}),
            Some(json!({"name": "a", "tag": null, "any": null})),
        ),
        (
            json!({"name": "a", "options": {"mode": "m", "depth": null}}),
            Some(json!({"name": "a", "options": {"mode": "m"}})),
        ),
        (json!({"name": null}), None),
        (json!({"name": "a", "options": {"mode": null}}), None),
        (json!({"name": "a", "options": {"depth": null}}), None),
        (json!({"name": "a", "list": [1, null]}), None),
        (json!({"name": "a", "map": {"x": null}}), None),
        (json!({"name": "a", "unknown": null}), None),
        (json!({"name": "a", "limit": "null"}), None),
    ] {
        let converted = coerce(&schema, &arguments).map(|converted| converted.value);
        assert_eq!(converted, expected, "{arguments}");
    }
    // Another part of the schema may require what one part leaves optional.
    let parts = json!({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]});
    assert_eq!(coerce(&parts, &json!({"a": null})), None);
}

#[test]
fn nested_values_are_converted_and_named() {
    let schema = json!({
        "properties": {
            "filter": {"$ref": "#/$defs/filter"},
            "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}},
            "map": {"additionalProperties": {"type": "array", "items": {"$ref": "#/$defs/filter"}}},
        },
        "$defs": {"filter": {
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "sub": {"$ref": "#/$defs/filter"}},
        }},
    });
    let arguments = json!({
        "filter": {"depth": "1", "sub": "{\"depth\": \"2\", \"sub\": {\"depth\": null}}"},
        "pair": ["1", "2", "true"],
        "map": {"k": [{"depth": "3"}], "dotted.key": "[{\"depth\": 4}]"},
    });
    let converted = coerce(&schema, &arguments).unwrap();
    assert_eq!(
        converted.value,
        json!({
            "filter": {"depth": 1, "sub": {"depth": 2, "sub": {}}},
            "pair": [1, "2", true],
            "map": {"k": [{"depth": 3}], "dotted.key": [{"depth": 4}]},
        })
    );
    let paths = [
        "filter.depth",
        "filter.sub",
        "pair[0]",
        "pair[2]",
        "map.k[0].depth",
    ];
    assert_eq!(converted.paths[..5], paths);
    assert_eq!(converted.paths[5..], ["map[\"dotted.key\"]"]);
    let draft7 = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"old": {
            "items": [{"type": "integer"}],
            "additionalItems": {"type": "boolean"},
        }},
    });
    let converted = coerce(&draft7, &json!({"old": ["1", "true"]})).unwrap();
    assert_eq!(converted.value, json!({"old": [1, true]}));
}

#[test]
fn alternatives_must_agree_on_the_conversion() {
    let by_tag = json!({"properties": {"x": {"oneOf": [
        {"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind"]},
        {"properties": {"kind": {"const": "b"}, "n": {"type": "string"}}, "required": ["kind"]},
    ]}}});
    let converted = coerce(&by_tag, &json!({"x": {"kind": "a", "n": "5"}})).unwrap();
    assert_eq!(converted.value, json!({"x": {"kind": "a", "n": 5}}));
    assert_eq!(
        coerce(&by_tag, &json!({"x": {"kind": "b", "n": "5"}})),
        None
    );
    assert_eq!(
        coerce(&by_tag, &json!({"x": {"kind": "c", "n": "5"}})),
        None
    );
    let either = json!({"anyOf": [
        {"properties": {"a": {"type": "integer"}}},
        {"properties": {"b": {"type": "integer"}}},
    ]});
    assert_eq!(
        coerce(&either, &json!({"a": "1", "b": "x"})).unwrap().paths,
        ["a"]
    );
    assert_eq!(coerce(&either, &json!({"a": "1", "b": "2"})), None);
    let same = json!({"anyOf": [
        {"properties": {"a": {"type": "integer"}}},
        {"properties": {"a": {"type": "integer", "minimum": 0}}},
    ]});
    assert_eq!(coerce(&same, &json!({"a": "1"})).unwrap().paths, ["a"]);
}

#[test]
fn error_is_about_the_arguments_as_given() {
    let schema = json!({"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}});
    let schema = compile(&schema).unwrap();
    let arguments = json!({"a": "5", "b": "maybe"});
    let error = schema.check_or_coerce(&arguments).unwrap_err();
    assert_eq!(error, schema.check(&arguments).unwrap_err());
    assert!(
        error.to_string().contains("`a` must be an integer"),
        "{error}"
    );
}

#[test]
fn many_converted_values_are_counted() {
    let schema = json!({"properties": {"l": {"items": {"type": "integer"}}}});
    let items: Vec<String> = (0..1000).map(|item: usize| item.to_string()).collect();
    let converted = coerce(&schema, &json!({"l": items})).unwrap();
    assert_eq!(converted.value["l"][999], json!(999));
    assert_eq!(converted.paths.len(), 21);
    assert_eq!(converted.paths[20], "and 980 more");
}

#[test]
fn nesting_of_converted_arguments_is_bounded() {
    let schema = json!({"properties": {"x": {"type": "array"}}});
    let text = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(coerce(&schema, &json!({"x": text(97)})).is_some());
    assert!(coerce(&schema, &json!({"x": text(98)})).is_none());
    assert!(coerce(&schema, &json!({"x": text(100_000)})).is_none());
    // Each text holds the next one.
    let schema = json!({"properties": {"x": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}});
    on_worker_stack(move || {
        let mut nested = "[]".to_owned();
        for _ in 0..14 {
            nested = format!("[{}]", Value::from(nested));
        }
        assert!(coerce(&schema, &json!({"x": nested})).is_some());
    });
}

#[test]
fn hostile_arguments_take_bounded_work() {
    on_worker_stack(|| {
        // Two alternatives at each level, neither of which fits.
        let again = json!({"$ref": "#/$defs/n"});
        let branch = |kind: &str| json!({"properties": {"x": again, "y": {"type": kind}, "z": {"type": "array"}}, "required": ["x"]});
        let schema = json!({"properties": {"x": again},
            "$defs": {"n": {"anyOf": [branch("integer"), branch("boolean"), branch("null")]}}});
        let mut value = json!({"y": "5"});
        for _ in 0..95 {
            value = json!({"x": value, "y": "5", "z": "[]"});
        }
        assert_eq!(coerce(&schema, &json!({"x": value})), None);
    });
    on_worker_stack(|| {
        let schema = json!({"properties": {"l": {"items": {"type": "integer"}}}});
        let items = vec!["1"; 200_000];
        assert_eq!(coerce(&schema, &json!({"l": items})), None);
        let text = format!("[{}1]", "1,".repeat(4_000_000));
        assert_eq!(coerce(&schema, &json!({"l": [text]})), None);
        let texts = vec![format!("[{}1]", "1,".repeat(10_000)); 200];
        let schema = json!({"properties": {"l": {"items": {"type": "array"}}}});
        assert_eq!(coerce(&schema, &json!({"l": texts})), None);
    });
    on_worker_stack(|| {
        let mut high = json!({"items": {"$ref": "#/$defs/n"}, "type": "array"});
        for _ in 0..10 {
            high = json!({"allOf": [{"anyOf": [high]}]});
        }
        let schema = json!({"properties": {"x": {"$ref": "#/$defs/n"}, "n": {"type": "integer"}},
            "$defs": {"n": high}});
        let text = format!("{{\"x\":{}{},\"n\":\"1\"}}", "[".repeat(95), "]".repeat(95));
        let _ = coerce(&schema, &serde_json::from_str(&text).unwrap());
    });
}

#[test]
fn large_value_beside_a_converted_one_is_kept() {
    let schema = json!({"properties": {"text": {"type": "string"}, "n": {"type": "integer"}}});
    let text = "x".repeat(8 * 1024 * 1024);
    let converted = coerce(&schema, &json!({"text": text, "n": "1"})).unwrap();
    assert_eq!(converted.value["n"], json!(1));
    assert_eq!(converted.value["text"], json!(text));
}

/// Schemas of a value, without rules that concern several values.
fn member_schema() -> impl Strategy<Value = Value> {
    let kinds = vec![
        "string", "number", "integer", "object", "array", "null", "boolean",
    ];
    let kind = proptest::sample::select(kinds);
    let leaf = prop_oneof![
        4 => kind.clone().prop_map(|kind| json!({"type": kind})),
        1 => (kind.clone(), kind).prop_map(|(a, b)| json!({"type": if a == b { json!(a) } else { json!([a, b]) }})),
        1 => Just(json!({"enum": [1, "2", true, null, [1]]})),
        1 => (0..3_i64).prop_map(|limit| json!({"type": "integer", "minimum": limit})),
        1 => Just(json!({})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(
                |(a, b)| json!({"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]})
            ),
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items})),
            (vec(inner.clone(), 1..3), 0..3_usize)
                .prop_map(|(parts, key)| json!({["anyOf", "oneOf", "allOf"][key]: parts})),
            inner.prop_map(|others| json!({"type": "object", "additionalProperties": others})),
        ]
    })
}

/// Values, many of which are JSON texts.
fn member_value() -> impl Strategy<Value = Value> {
    let scalars = ["5", "0", "1.5", "true", "false", "null", "a", "", "05", "2"];
    let leaf = prop_oneof![
        3 => proptest::sample::select(scalars.to_vec()).prop_map(|text| json!(text)),
        1 => (-1..4_i64).prop_map(|number| json!(number)),
        1 => any::<bool>().prop_map(|value| json!(value)),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let key = proptest::sample::select(vec!["a", "b", "c"]);
        let object = vec((key, inner.clone()), 0..4).prop_map(|entries| {
            let entries = entries.into_iter();
            let entries = entries.map(|(key, value)| (key.to_owned(), value));
            Value::Object(entries.collect())
        });
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::Array),
            object,
            inner.prop_map(|value| json!(value.to_string())),
        ]
    })
}

/// Checks what holds for all schemas and arguments. Returns the converted arguments.
fn check_coercion(schema: &Schema, arguments: &Value) -> Result<Option<Value>, TestCaseError> {
    let fits = schema.check(arguments).is_ok();
    match schema.check_or_coerce(arguments) {
        Ok(None) => prop_assert!(fits),
        Err(error) => prop_assert_eq!(Err(error), schema.check(arguments)),
        Ok(Some(CoercedValue { value, paths })) => {
            prop_assert!(!fits && value != *arguments && !paths.is_empty());
            prop_assert_eq!(schema.check(&value), Ok(()));
            prop_assert_eq!(schema.check_or_coerce(&value), Ok(None));
            return Ok(Some(value));
        }
    }
    Ok(None)
}

proptest! {
    #[test]
    fn converted_arguments_fit_any_schema(part in any_schema(), also in any_schema(), arguments in tree(&["a", "b", "c"])) {
        let whole = json!({"allOf": [part], "$defs": {"a": also}});
        if let Ok(schema) = compile(&whole) {
            check_coercion(&schema, &arguments)?;
        }
    }

    #[test]
    fn members_that_fit_are_never_changed(
        members in vec((member_schema(), member_value()), 1..4),
        required in any::<bool>(),
    ) {
        let name = |index: usize| format!("m{index}");
        let properties: serde_json::Map<String, Value> = members
            .iter()
            .enumerate()
            .map(|(index, (schema, _))| (name(index), schema.clone()))
            .collect();
        let arguments: serde_json::Map<String, Value> = members
            .iter()
            .enumerate()
            .map(|(index, (_, value))| (name(index), value.clone()))
            .collect();
        let names: Vec<String> = if required { properties.keys().cloned().collect() } else { Vec::new() };
        let schema = json!({"type": "object", "properties": properties, "required": names});
        let arguments = Value::Object(arguments);
        let Some(converted) = check_coercion(&compile(&schema).unwrap(), &arguments)? else {
            return Ok(());
        };
        for (index, (schema, value)) in members.iter().enumerate() {
            let now = converted.get(name(index));
            if compile(schema).unwrap().check(value).is_ok() {
                prop_assert_eq!(now, Some(value));
            } else {
                prop_assert_ne!(now, Some(value));
                prop_assert!(now.is_some() || (value.is_null() && !required));
            }
        }
    }
}

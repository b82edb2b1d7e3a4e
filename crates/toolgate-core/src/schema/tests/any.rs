//! Random schemas and arguments: never a panic, always a message.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const KEYWORDS: [&str; 40] = [
    "$ref",
    "$id",
    "$schema",
    "$anchor",
    "$defs",
    "type",
    "enum",
    "const",
    "not",
    "if",
    "then",
    "else",
    "allOf",
    "anyOf",
    "oneOf",
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "required",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "items",
    "prefixItems",
    "unevaluatedItems",
    "contains",
    "minContains",
    "minItems",
    "uniqueItems",
    "minimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "a",
    "b",
];

fn scalar() -> impl Strategy<Value = Value> {
    let words = [
        "string",
        "number",
        "integer",
        "object",
        "array",
        "null",
        "#",
        "#/$defs/a",
        "#/properties/b",
        "^a+$",
        "a",
        "b",
        "(",
        "http://json-schema.org/draft-07/schema#",
        "http://[",
    ];
    prop_oneof![
        4 => proptest::sample::select(words.to_vec()).prop_map(|word| json!(word)),
        1 => any::<String>().prop_map(|text| json!(text)),
        1 => any::<bool>().prop_map(|value| json!(value)),
        1 => Just(Value::Null),
        2 => (-3..5_i64).prop_map(|number| json!(number)),
        1 => proptest::sample::select(vec!["1.5", "1e400", "-1e400", "1e-400", "0.0", "18446744073709551617"])
            .prop_map(|number| serde_json::from_str(number).unwrap()),
    ]
}

pub(super) fn tree(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    scalar().prop_recursive(5, 48, 5, move |inner| {
        let key = proptest::sample::select(keys.to_vec());
        prop_oneof![
            1 => vec(inner.clone(), 0..4).prop_map(Value::Array),
            4 => vec((key, inner), 0..5).prop_map(|entries| entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<serde_json::Map<String, Value>>()
                .into()),
        ]
    })
}

/// Mostly well-formed schemas, so that most of them compile.
pub(super) fn schema() -> impl Strategy<Value = Value> {
    let kinds = vec![
        "string", "number", "integer", "object", "array", "null", "boolean",
    ];
    let leaf = prop_oneof![
        proptest::sample::select(kinds).prop_map(|kind| json!({"type": kind})),
        scalar().prop_map(|value| json!({"const": value})),
        vec(scalar(), 1..3).prop_map(|values| json!({"enum": values})),
        (0..3_u64).prop_map(|limit| json!({"minItems": limit, "maxLength": limit, "minimum": limit, "uniqueItems": true})),
        Just(json!({"$ref": "#/$defs/a"})),
        Just(json!({"required": ["a"], "additionalProperties": false})),
        any::<bool>().prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let list = vec(inner.clone(), 1..4);
        let one = proptest::sample::select(vec![
            "not",
            "items",
            "additionalProperties",
            "unevaluatedProperties",
            "contains",
            "propertyNames",
        ]);
        let many = proptest::sample::select(vec!["anyOf", "oneOf", "allOf", "prefixItems"]);
        prop_oneof![
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| json!({"properties": {"a": a, "b": b}})),
            (one, inner.clone()).prop_map(|(key, part)| json!({key: part})),
            (many, list).prop_map(|(key, parts)| json!({key: parts})),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
        ]
    })
}

fn check_message(schema: &Schema, arguments: &Value) -> Result<(), TestCaseError> {
    let plain = jsonschema::options()
        .with_draft(schema.draft)
        .build(&schema.source)
        .unwrap();
    let checked = schema.check(arguments);
    prop_assert_eq!(checked.is_ok(), plain.is_valid(arguments));
    if let Err(violation) = checked {
        let text = violation.to_string();
        prop_assert!(!violation.problems.is_empty() && violation.problems.len() <= 8);
        prop_assert!(text.chars().count() < 5000, "{}", text);
        prop_assert!(!text.contains(char::is_control), "{}", text);
    }
    Ok(())
}

proptest! {
    #[test]
    fn random_json_compiles_or_is_rejected(schema in tree(&KEYWORDS), arguments in tree(&["a", "b", "c"])) {
        if let Ok(schema) = compile(&schema) {
            let _ = schema.check(&arguments).map_err(|violation| violation.to_string());
        }
    }

    #[test]
    fn violations_are_always_explained(part in schema(), also in schema(), arguments in tree(&["a", "b", "c"])) {
        let mut whole = json!({"allOf": [part]});
        whole["$defs"] = json!({"a": also});
        if let Ok(schema) = compile(&whole) {
            check_message(&schema, &arguments)?;
        }
    }
}

//! Validation of arguments against tool schemas.

use serde_json::{Value, json};

use super::*;

mod any;
mod coerce;
mod hostile;
mod messages;

fn compile(schema: &Value) -> Result<Schema, UnusableSchema> {
    compile_text(&schema.to_string())
}

fn compile_text(schema: &str) -> Result<Schema, UnusableSchema> {
    Schema::compile(&RawValue::from_string(schema.to_owned()).unwrap())
}

fn is_valid(schema: &Value, arguments: &str) -> bool {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    compile(schema).unwrap().check(&arguments).is_ok()
}

fn message(schema: &Value, arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let violation = compile(schema).unwrap().check(&arguments);
    violation.unwrap_err().to_string()
}

#[test]
fn schemas_are_send_and_sync() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<Schema>();
}

#[test]
fn numbers_are_compared_exactly() {
    let table = [
        (json!({"type": "integer"}), "1", true),
        (json!({"type": "integer"}), "1.0", true),
        (json!({"type": "integer"}), "1e2", true),
        (json!({"type": "integer"}), "1.5", false),
        (json!({"type": "integer"}), "18446744073709551617", true),
        (json!({"type": "integer"}), "-18446744073709551617", true),
        (json!({"type": "integer"}), "1e400", true),
        (json!({"type": "integer"}), "1e-400", false),
        (json!({"type": "number"}), "1e400", true),
        (json!({"type": "number"}), "-0.0", true),
        (json!({"type": "string"}), "1e400", false),
        (json!({"minimum": 0}), "-0.0", true),
        (json!({"minimum": 1}), "1e400", true),
        (json!({"maximum": 1}), "1e400", false),
        (json!({"minimum": 1}), "-1e400", false),
        (json!({"maximum": 100}), "1e2", true),
        (json!({"maximum": 99}), "1e2", false),
        (json!({"minimum": 5}), "18446744073709551617", true),
        (json!({"maximum": 5}), "18446744073709551617", false),
        (json!({"multipleOf": 2}), "1e2", true),
        (json!({"multipleOf": 2}), "4.0", true),
        (json!({"multipleOf": 2}), "18446744073709551617", false),
        (json!({"multipleOf": 2}), "18446744073709551618", true),
        (json!({"multipleOf": 0.1}), "0.3", true),
        (json!({"const": 1}), "1.0", true),
        (json!({"enum": [1, 2]}), "2.0", true),
    ];
    for (rule, number, expected) in table {
        let schema = json!({"properties": {"n": rule}});
        let arguments = format!("{{\"n\":{number}}}");
        assert_eq!(is_valid(&schema, &arguments), expected, "{rule} {number}");
    }
}

#[test]
fn draft_is_taken_from_the_schema() {
    let list = json!({"properties": {"x": {"items": [{"type": "string"}]}}});
    assert!(matches!(compile(&list), Err(UnusableSchema::Invalid(_))));
    let mut old = list;
    old["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert!(!is_valid(&old, r#"{"x": [1]}"#));
    assert!(is_valid(&old, r#"{"x": ["a", 1]}"#));
    let strange = json!({"$schema": "https://example.com/own", "type": "object"});
    assert!(compile(&strange).is_err());
}

#[test]
fn formats_are_not_asserted() {
    for draft in ["2020-12/schema", "2019-09/schema"] {
        let schema = json!({
            "$schema": format!("https://json-schema.org/draft/{draft}"),
            "properties": {"mail": {"type": "string", "format": "email"}},
        });
        assert!(is_valid(&schema, r#"{"mail": "nobody"}"#));
    }
}

#[test]
fn keywords_without_explanation_are_still_enforced() {
    let table = [
        (json!({"propertyNames": {"maxLength": 2}}), r#"{"abc": 1}"#),
        (
            json!({"patternProperties": {"^x": {"type": "number"}}}),
            r#"{"xa": ""}"#,
        ),
        (
            json!({"properties": {"l": {"contains": {"const": 1}}}}),
            r#"{"l": [2]}"#,
        ),
        (
            json!({"properties": {"l": {"type": "array", "unevaluatedItems": false}}}),
            r#"{"l": [2]}"#,
        ),
    ];
    for (schema, arguments) in table {
        let text = message(&schema, arguments);
        assert!(
            text.starts_with("the arguments do not match the tool's schema: a rule of"),
            "{text}"
        );
    }
}

//! Types of schemas, including cyclic and exponential ones.

use serde_json::json;

use super::*;

fn format_schema(schema: &Value) -> String {
    read_schema(schema, schema).write(240)
}

#[test]
fn schemas_become_types() {
    for (schema, expected) in [
        (json!(true), "Any"),
        (json!(false), "Never"),
        (json!("nonsense"), "Any"),
        (json!({}), "Any"),
        (json!({"type": "string", "format": "date"}), "str"),
        (json!({"type": "number"}), "float"),
        (json!({"type": "array"}), "list"),
        (
            json!({"type": "array", "items": {"type": "integer"}}),
            "list[int]",
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}),
            "tuple[str, float]",
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}, {"type": "number"}]}),
            "tuple[str, float]",
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "number"}}),
            "list[str | float]",
        ),
        (json!({"type": "object"}), "dict"),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            "dict[str, int]",
        ),
        (
            json!({"patternProperties": {"^x": {"type": "boolean"}}}),
            "dict[str, bool]",
        ),
        (
            json!({"properties": {"id": {"type": "string"}, "n": {"type": "integer"}}, "required": ["id"]}),
            r#"{"id": str, "n?": int}"#,
        ),
        (json!({"type": ["string", "null"]}), "str | None"),
        (json!({"type": ["null", "integer"]}), "int | None"),
        (json!({"type": "string", "nullable": true}), "str | None"),
        (
            json!({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]}),
            "list[str] | None",
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "string"}]}),
            "str",
        ),
        (
            json!({"enum": ["a", 1, 2.5, true, null]}),
            r#"Literal["a", 1, 2.5, True, None]"#,
        ),
        (json!({"const": "x\"\n"}), r#"Literal["x\"\n"]"#),
        (
            json!({"oneOf": [{"const": "a"}, {"const": "b"}]}),
            r#"Literal["a", "b"]"#,
        ),
        (json!({"enum": [[1], {"a": 2}]}), "list | dict"),
        (json!({"type": "string", "enum": []}), "Never"),
        (json!({"type": "strange"}), "Any"),
        (
            json!({"anyOf": [{"not": {}}, {"type": "number"}, {"type": "null"}]}),
            "float | None",
        ),
    ] {
        assert_eq!(format_schema(&schema), expected, "{schema}");
    }
}

#[test]
fn combinators_are_merged() {
    let schema = json!({
        "$defs": {"Base": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}},
        "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"name": {"type": "string"}}, "required": ["name"]}],
    });
    assert_eq!(format_schema(&schema), r#"{"id": str, "name": str}"#);
    let schema = json!({
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "required": ["kind"],
        "oneOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"kind": {"const": "b"}}}],
    });
    assert_eq!(
        format_schema(&schema),
        r#"{"kind": str, "a?": int} | {"kind": Literal["b"]}"#
    );
    let schema = json!({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(format_schema(&schema), r#"{"a?": Any}"#);
}

#[test]
fn cyclic_references_terminate() {
    let schema = json!({
        "definitions": {"Node": {"type": "object", "properties": {
            "value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}},
        }}},
        "$ref": "#/definitions/Node",
    });
    assert_eq!(
        format_schema(&schema),
        r#"{"value?": int, "children?": list[dict]}"#
    );
    assert_eq!(format_schema(&json!({"$ref": "#"})), "Any");
    assert_eq!(format_schema(&json!({"$ref": "#/$defs/missing"})), "Any");
    assert_eq!(
        format_schema(&json!({"$ref": "https://example.com/schema"})),
        "Any"
    );
    let mutual = json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"});
    assert_eq!(format_schema(&mutual), "Any");
}

#[test]
fn large_types_are_shortened() {
    let values: Vec<String> = (0..10_000).map(|n| format!("value{n}")).collect();
    assert_eq!(
        format_schema(&json!({"enum": values})),
        r#"Literal["value0", "value1", "value2", "value3", ...]"#
    );
    assert_eq!(
        format_schema(&json!({"enum": ["x".repeat(1000), "y"]})),
        "str"
    );
    let wide: Map<String, Value> = (0..10_000)
        .map(|n| (format!("field{n}"), json!({"type": "string"})))
        .collect();
    let text = format_schema(&json!({"type": "object", "properties": wide}));
    assert!(
        text.starts_with(r#"{"field0?": str, "#) && text.ends_with(r#", "...": Any}"#),
        "{text}"
    );
    assert!(text.len() <= 240);
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "object", "properties": {"inner": deep, "id": {"type": "integer"}}});
    }
    let text = format_schema(&deep);
    assert!(
        text.len() <= 240 && text.contains(r#""inner?": dict"#),
        "{text}"
    );
}

#[test]
fn exponential_schemas_are_bounded() {
    let mut defs = json!({"d0": {"type": "object", "properties": {"x": {"type": "string"}}}});
    for n in 1..60 {
        let before = json!({"$ref": format!("#/$defs/d{}", n - 1)});
        defs[format!("d{n}")] = json!({
            "type": "object",
            "properties": {"a": before, "b": before, "c": before},
            "anyOf": [before, {"properties": {"d": before}}, {"properties": {"e": before}}],
            "allOf": [before, before],
        });
    }
    let text = format_schema(&json!({"$defs": defs, "$ref": "#/$defs/d59"}));
    assert!(text.len() <= 240, "{text}");
}

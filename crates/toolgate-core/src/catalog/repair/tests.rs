//! Repairs as a table, and properties of all repairs.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn repaired(kind: ItemKind, sent: &str) -> (String, String) {
    let sent = raw(sent);
    let done = repair(kind, &sent).unwrap();
    (done.definition.get().to_owned(), done.changes.join("; "))
}

/// Checks what becomes of tools with these members.
fn check_tools(table: &[(&str, &str, &str)]) {
    for (sent, expected, changes) in table {
        let sent = format!(r#"{{"name":"t",{sent}}}"#);
        let expected = format!(r#"{{"name":"t",{expected}}}"#);
        let found = repaired(ItemKind::Tool, &sent);
        assert_eq!(found, (expected, (*changes).to_owned()), "{sent}");
    }
}

#[test]
fn input_schemas_are_made_objects() {
    let any = r#""inputSchema":{"type":"object"}"#;
    let set = "set `inputSchema` to any object";
    let typed = "set `inputSchema.type` to `object`";
    check_tools(&[
        (r#""x":1"#, r#""x":1,"inputSchema":{"type":"object"}"#, set),
        (r#""inputSchema":null"#, any, set),
        (r#""inputSchema":true"#, any, set),
        (r#""inputSchema":{}"#, any, typed),
        (r#""inputSchema":{"type":null}"#, any, typed),
        (r#""inputSchema":{"type":"OBJECT"}"#, any, typed),
        (r#""inputSchema":{"type":["null","object"]}"#, any, typed),
        (
            r#""inputSchema":{"anyOf":[{"required":["a"]}]}"#,
            r#""inputSchema":{"type":"object","anyOf":[{"required":["a"]}]}"#,
            typed,
        ),
        (
            r#""inputSchema":{"type":"object","properties":null,"required":null,"$schema":null}"#,
            any,
            "removed `inputSchema.$schema` (null); removed `inputSchema.required` (null); removed `inputSchema.properties` (null)",
        ),
        (
            r#""inputSchema":{"type":"object","required":[1,"a",null]}"#,
            r#""inputSchema":{"type":"object","required":["a"]}"#,
            "removed `inputSchema.required[0]` (not a string); removed `inputSchema.required[2]` (null)",
        ),
        (
            r#""inputSchema":{"type":"object","properties":[]}"#,
            r#""inputSchema":{"type":"object","properties":{}}"#,
            "replaced `[]` with `{}` at `inputSchema.properties`",
        ),
        (
            r#""inputSchema":{"type":"object","properties":{"a":true,"b":{"maximum":1.0},"c":1e400}}"#,
            r#""inputSchema":{"type":"object","properties":{"a":{},"b":{"maximum":1.0},"c":{}}}"#,
            "replaced `true` with `{}` at `inputSchema.properties.a`; replaced what is not a schema with `{}` at `inputSchema.properties.c`",
        ),
        (
            r#""inputSchema":{"type":"object","properties":{"a":false,"b":{"maximum":1e400}}}"#,
            r#""inputSchema":{"type":"object","properties":{"a":{"not":{}},"b":{}}}"#,
            "replaced `false` with `{\"not\":{}}` at `inputSchema.properties.a`; replaced a number that is out of range with `{}` at `inputSchema.properties.b`",
        ),
    ]);
}

#[test]
fn unusable_output_schemas_are_removed() {
    let deep = r#"{"properties":{"a":{"anyOf":[{"items":{"type":"strin"}}]}}}"#;
    for schema in [
        "null",
        "true",
        "[]",
        r#""object""#,
        r#"{"type":"strin"}"#,
        r#"{"type":"object","minProperties":"1"}"#,
        r##"{"$ref":"#/$defs/missing"}"##,
        r#"{"$ref":"https://example.com/schema.json"}"#,
        r#"{"properties":{"a":{"$id":"other"}}}"#,
        r#"{"properties":{"a":{"id":"draft 4"}}}"#,
        r##"{"$ref":"#/x-defs/a","x-defs":{"a":{"type":"strin"}}}"##,
        r#"{"x-defs":{"a":{"$anchor":"!"}}}"#,
        r#"{"properties":{"a":{"nullable":true}}}"#,
        r#"{"properties":{"a":{"enum":[]}}}"#,
        r#"{"properties":{"a":{"pattern":"\\-"}}}"#,
        r#"{"patternProperties":{"(?i)a":{}}}"#,
        r#"{"$schema":"http://json-schema.org/draft-04/schema#"}"#,
        deep,
    ] {
        let sent =
            format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#);
        let (definition, changes) = repaired(ItemKind::Tool, &sent);
        assert_eq!(
            definition, r#"{"name":"t","inputSchema":{"type":"object"}}"#,
            "{schema}"
        );
        assert!(
            changes.starts_with("removed `outputSchema` ("),
            "{schema}: {changes}"
        );
    }
    let deep = format!(
        r#"{}{{"type":"strin"}}{}"#,
        r#"{"not":"#.repeat(95),
        "}".repeat(95)
    );
    let sent = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{deep}}}"#);
    let (_, changes) = repaired(ItemKind::Tool, &sent);
    assert!(changes.contains("not a valid JSON Schema"), "{changes}");
    let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(300_000));
    let sent = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{long}}}"#);
    let (_, changes) = repaired(ItemKind::Tool, &sent);
    assert_eq!(changes, "removed `outputSchema` (larger than 262144 bytes)");
}

#[test]
fn output_schemas_are_repaired() {
    for (sent, expected) in [
        (
            r#"{"properties":null,"type":null,"title":"x"}"#,
            r#"{"title":"x"}"#,
        ),
        (
            r#"{"type":"object","required":null}"#,
            r#"{"type":"object"}"#,
        ),
        (r#"{"properties":{"a":true}}"#, r#"{"properties":{"a":{}}}"#),
        (
            r#"{"$id":"https://example.com/a","type":"object"}"#,
            r#"{"type":"object"}"#,
        ),
    ] {
        let tool = |schema: &str| {
            format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#)
        };
        assert_eq!(repaired(ItemKind::Tool, &tool(sent)).0, tool(expected));
    }
}

#[test]
fn optional_members_of_another_type_are_removed() {
    let table = [
        (
            r#""title":7,"description":null"#,
            "",
            "removed `title` (not a string); removed `description` (null)",
        ),
        (
            r#""annotations":[]"#,
            "",
            "removed `annotations` (not an object)",
        ),
        (
            r#""annotations":{"readOnlyHint":"yes","openWorldHint":true,"new":null}"#,
            r#","annotations":{"openWorldHint":true,"new":null}"#,
            "removed `annotations.readOnlyHint` (not a boolean)",
        ),
        (
            r#""icons":[{"src":"a","theme":"blue","sizes":"any"},{"mimeType":"x"},null]"#,
            r#","icons":[{"src":"a"}]"#,
            "removed `icons[0].sizes` (not a list of valid items); removed `icons[0].theme` (not one of light, dark); removed `icons[1]` (not an object with `src`); removed `icons[2]` (null)",
        ),
        (
            r#""icons":{}"#,
            "",
            "removed `icons` (not a list of valid items)",
        ),
        (r#""_meta":"x""#, "", "removed `_meta` (not an object)"),
        (
            r#""execution":{"taskSupport":true}"#,
            r#","execution":{}"#,
            "removed `execution.taskSupport` (not one of required, optional, forbidden)",
        ),
    ];
    for (sent, expected, changes) in table {
        let sent = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},{sent}}}"#);
        let expected = format!(r#"{{"name":"t","inputSchema":{{"type":"object"}}{expected}}}"#);
        assert_eq!(
            repaired(ItemKind::Tool, &sent),
            (expected, changes.to_owned())
        );
    }
}

#[test]
fn resources_templates_and_prompts_are_repaired() {
    let table = [
        (
            ItemKind::Resource,
            r#"{"uri":"a://b","mimeType":7,"size":"1","annotations":{"audience":["user","x"],"priority":2,"lastModified":"today"}}"#,
            r#"{"uri":"a://b","annotations":{"audience":["user"]},"name":"a://b"}"#,
        ),
        (
            ItemKind::Resource,
            r#"{"uri":"a://b","name":"n","size":1.5,"annotations":{"audience":["x"],"lastModified":"2024-02-29T01:02:03.5+02:00"}}"#,
            r#"{"uri":"a://b","name":"n","annotations":{"lastModified":"2024-02-29T01:02:03.5+02:00"}}"#,
        ),
        (
            ItemKind::Template,
            r#"{"uriTemplate":"a://{b}","name":7,"annotations":null,"size":"unknown here"}"#,
            r#"{"uriTemplate":"a://{b}","name":"a://{b}","size":"unknown here"}"#,
        ),
        (
            ItemKind::Prompt,
            r#"{"name":"p","arguments":[{"name":"a","required":"yes"},{"description":"no name"},"b"]}"#,
            r#"{"name":"p","arguments":[{"name":"a"}]}"#,
        ),
        (
            ItemKind::Prompt,
            r#"{"arguments":{},"name":"p"}"#,
            r#"{"name":"p"}"#,
        ),
    ];
    for (kind, sent, expected) in table {
        assert_eq!(repaired(kind, sent).0, expected);
    }
}

#[test]
fn what_cannot_be_repaired_is_refused() {
    let table = [
        (ItemKind::Tool, "null", Unrepairable::NotAnObject),
        (ItemKind::Prompt, r#"["name"]"#, Unrepairable::NotAnObject),
        (
            ItemKind::Tool,
            r#"{"name":7}"#,
            Unrepairable::KeyNotText("name"),
        ),
        (
            ItemKind::Tool,
            r#"{"name":""}"#,
            Unrepairable::KeyMissing("name"),
        ),
        (
            ItemKind::Prompt,
            r#"{"name":null}"#,
            Unrepairable::KeyMissing("name"),
        ),
        (
            ItemKind::Resource,
            r#"{"name":"n"}"#,
            Unrepairable::KeyMissing("uri"),
        ),
        (
            ItemKind::Resource,
            r#"{"uri":"notes.txt"}"#,
            Unrepairable::RelativeUri,
        ),
        (
            ItemKind::Template,
            r#"{"uriTemplate":[]}"#,
            Unrepairable::KeyNotText("uriTemplate"),
        ),
        (
            ItemKind::Tool,
            r#"{"name":"t","inputSchema":[]}"#,
            Unrepairable::InputSchemaNotAnObject,
        ),
        (
            ItemKind::Tool,
            r#"{"name":"t","inputSchema":false}"#,
            Unrepairable::InputSchemaNotAnObject,
        ),
        (
            ItemKind::Tool,
            r#"{"name":"t","inputSchema":{"type":"string"}}"#,
            Unrepairable::InputSchemaType,
        ),
        (
            ItemKind::Tool,
            r#"{"name":"t","inputSchema":{"type":["string"]}}"#,
            Unrepairable::InputSchemaType,
        ),
        (
            ItemKind::Tool,
            r#"{"name":"t","title":"a","title":"b"}"#,
            Unrepairable::Duplicate("title"),
        ),
        (
            ItemKind::Prompt,
            r#"{"name":"t","name":"b"}"#,
            Unrepairable::Duplicate("name"),
        ),
    ];
    for (kind, sent, expected) in table {
        assert_eq!(repair(kind, &raw(sent)).unwrap_err(), expected, "{sent}");
    }
    // Half of a character, which many parsers reject.
    let sent = raw(r#"{"name":"t","x":"\ud800"}"#);
    assert!(matches!(
        repair(ItemKind::Prompt, &sent),
        Err(Unrepairable::InvalidJson(_))
    ));
}

#[test]
fn legacy_clients_get_output_schemas_of_objects_only() {
    let table = [
        (r#"{"type":"object"}"#, Some(r#"{"type":"object"}"#)),
        (
            r#"{"properties":{}}"#,
            Some(r#"{"type":"object","properties":{}}"#),
        ),
        (
            r#"{"title":"x","type":["null","object"]}"#,
            Some(r#"{"type":"object","title":"x"}"#),
        ),
        (r#"{"type":"array"}"#, None),
        (r#"{"type":["string","null"]}"#, None),
    ];
    for (modern, legacy) in table {
        let definition = raw(&format!(
            r#"{{"name":"t","outputSchema":{modern},"x":1.0}}"#
        ));
        let expected = match legacy {
            Some(legacy) => format!(r#"{{"name":"t","outputSchema":{legacy},"x":1.0}}"#),
            None => r#"{"name":"t","x":1.0}"#.to_owned(),
        };
        assert_eq!(to_legacy_tool(&definition).get(), expected);
    }
    let without = raw(r#"{"name":"t"}"#);
    assert!(matches!(to_legacy_tool(&without), Cow::Borrowed(_)));
}

#[test]
fn definition_that_uses_everything_stays_byte_for_byte_the_same() {
    let table = [
        (
            ItemKind::Tool,
            r##"{ "x-first": 1.0, "name" : "t", "title": "\u0054", "description": "", "icons": [{"src":"https://x/y","mimeType":"image/png","sizes":["any"],"theme":"dark","new":null}], "inputSchema": {"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":["string","null"],"default":null},"b":{"maximum":18446744073709551617}},"required":["a","b"],"additionalProperties":false}, "outputSchema": {"type":"array","items":{"$ref":"#/$defs/i"},"$defs":{"i":{"type":"string","pattern":"^\\d{2}-[\\w\\-]+\\/(?<n>x)\\k<n>$","enum":["a",null]}}}, "annotations": {"title":"T","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"new":7}, "execution": {"taskSupport":"optional"}, "_meta": {"a":null} }"##,
        ),
        (
            ItemKind::Resource,
            r#"{"uri":"urn:a:b","name":"","title":"T","description":"d","mimeType":"text/plain","size":12,"annotations":{"audience":["user","assistant"],"priority":1,"lastModified":"2026-07-28T12:00:00Z"},"icons":[],"_meta":{},"new":[null]}"#,
        ),
        (
            ItemKind::Template,
            r#"{"uriTemplate":"a://{b}","name":"n","mimeType":"x","annotations":{},"size":"any"}"#,
        ),
        (
            ItemKind::Prompt,
            r#"{"name":"p","arguments":[{"name":"a","title":"A","description":"d","required":false},{"name":"b"}],"_meta":{}}"#,
        ),
    ];
    for (kind, sent) in table {
        let sent = raw(sent);
        let done = repair(kind, &sent).unwrap();
        assert_eq!(done.changes, [""; 0]);
        assert!(matches!(done.definition, Cow::Borrowed(_)));
    }
}

/// Any JSON, often such as definitions contain.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        Just(json!(0.5)),
        proptest::sample::select(vec![
            "",
            "object",
            "string",
            "array",
            "user",
            "light",
            "optional",
            "a://b",
            "#/$defs/a",
            "^a$",
            "\\-",
            "(",
            "2026-07-28T12:00:00Z",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((member_name(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn member_name() -> impl Strategy<Value = String> {
    proptest::sample::select(vec![
        "name",
        "title",
        "description",
        "inputSchema",
        "outputSchema",
        "annotations",
        "readOnlyHint",
        "icons",
        "src",
        "sizes",
        "theme",
        "execution",
        "taskSupport",
        "_meta",
        "uri",
        "uriTemplate",
        "mimeType",
        "size",
        "audience",
        "priority",
        "lastModified",
        "arguments",
        "required",
        "type",
        "properties",
        "$schema",
        "$ref",
        "$defs",
        "enum",
        "pattern",
        "items",
        "anyOf",
        "$id",
        "nullable",
        "a",
    ])
    .prop_map(str::to_owned)
}

fn any_kind() -> impl Strategy<Value = ItemKind> {
    proptest::sample::select(ItemKind::ALL.to_vec())
}

proptest! {
    #[test]
    fn repaired_definition_needs_no_repair(
        kind in any_kind(),
        members in proptest::collection::vec((member_name(), any_value()), 0..8),
    ) {
        let mut definition: Map<String, Value> = members.into_iter().collect();
        definition.insert(kind.key_field().to_owned(), json!("a://b"));
        let sent = raw(&Value::Object(definition).to_string());
        if let Ok(done) = repair(kind, &sent) {
            let is_same = done.definition.get() == sent.get();
            prop_assert_eq!(is_same, done.changes.is_empty());
            let again = repair(kind, &done.definition).unwrap();
            prop_assert_eq!(again.definition.get(), done.definition.get());
            prop_assert!(again.changes.is_empty());
        }
    }

    #[test]
    fn unknown_members_are_never_touched(kind in any_kind(), value in any_value()) {
        let schema = r#""inputSchema":{"type":"object"}"#;
        let key = kind.key_field();
        let sent = format!(r#"{{"x-1": {value},"name":"n","{key}":"a://b",{schema},"x-2":{value}}}"#);
        let sent = sent.replacen(r#""name":"n","name""#, r#""name""#, 1);
        let sent = raw(&sent);
        let done = repair(kind, &sent).unwrap();
        prop_assert_eq!(done.definition.get(), sent.get());
    }
}

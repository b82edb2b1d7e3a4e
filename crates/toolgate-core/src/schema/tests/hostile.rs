//! Malicious schemas and arguments.

use super::*;

/// Runs with the stack size of a worker thread. There is no time limit: a slow case shows up as a
/// slow test run.
pub(super) fn on_worker_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(run);
    thread.unwrap().join().unwrap()
}

#[test]
fn remote_references_are_rejected_and_never_fetched() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    for reference in [
        format!("http://{address}/schema.json"),
        format!("https://{address}/schema.json#/a"),
        "file:///etc/passwd".to_owned(),
        "other.json".to_owned(),
        "//example.com/x".to_owned(),
        "http://json-schema.org/draft-07/schema#".to_owned(),
        "#anchor".to_owned(),
        "#/$defs/nowhere".to_owned(),
    ] {
        for schema in [
            json!({"$ref": reference}),
            json!({"properties": {"a": {"items": {"$ref": reference}}}}),
            json!({"$defs": {"unused": {"$ref": reference}}}),
            json!({"$id": "http://example.com/", "anyOf": [{"$ref": reference}]}),
        ] {
            let error = compile(&schema).unwrap_err();
            assert!(
                matches!(error, UnusableSchema::Reference(_)),
                "{schema}: {error}"
            );
        }
    }
    let base =
        json!({"$id": format!("http://{address}/"), "$ref": "#/$defs/a", "$defs": {"a": {}}});
    let hidden = json!({"$schema": format!("http://{address}/meta"), "type": "object"});
    let _ = compile(&base);
    assert!(compile(&hidden).is_err());
    assert!(listener.accept().is_err());
}

#[test]
fn keywords_that_change_references_are_rejected() {
    for (schema, keyword) in [
        (
            json!({"$defs": {"a": {"$id": "http://example.com/a"}}}),
            "$id",
        ),
        (
            json!({"properties": {"a": {"$dynamicRef": "#a"}}}),
            "$dynamicRef",
        ),
        (
            json!({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}),
            "$schema",
        ),
    ] {
        assert_eq!(
            compile(&schema).unwrap_err(),
            UnusableSchema::Unsupported(keyword)
        );
    }
    let named = json!({"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}});
    assert!(!is_valid(&named, r#"{"$ref": 1}"#));
}

#[test]
fn long_and_invalid_schemas_are_rejected() {
    let long = format!("{{\"description\":\"{}\"}}", "x".repeat(256 * 1024));
    assert!(matches!(
        compile_text(&long),
        Err(UnusableSchema::TooLong(_))
    ));
    let deep = format!(
        "{}{}",
        r#"{"not":"#.repeat(200),
        "true".to_owned() + &"}".repeat(200)
    );
    assert!(matches!(
        compile_text(&deep),
        Err(UnusableSchema::NotJson(_))
    ));
    for schema in [
        json!({"type": "strnig"}),
        json!({"required": "a"}),
        json!({"properties": []}),
    ] {
        assert!(
            matches!(compile(&schema), Err(UnusableSchema::Invalid(_))),
            "{schema}"
        );
    }
}

#[test]
fn cyclic_references_are_rejected() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"anyOf": [{"type": "object"}, {"$ref": "#"}]}),
        json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ] {
        assert!(
            matches!(compile(&schema), Err(UnusableSchema::EndlessReference(_))),
            "{schema}"
        );
    }
}

/// `$defs` in which each of `count` definitions references the next one `times` times.
fn ladder(count: usize, times: usize, keyword: &str) -> Value {
    let mut defs = serde_json::Map::new();
    for index in 0..count {
        let next = json!({"$ref": format!("#/$defs/d{}", index + 1)});
        defs.insert(format!("d{index}"), json!({keyword: vec![next; times]}));
    }
    defs.insert(format!("d{count}"), json!({"type": "number"}));
    json!({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

#[test]
fn multiplying_references_are_rejected() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let error = on_worker_stack(move || compile(&ladder(40, 2, keyword)).unwrap_err());
        assert_eq!(error, UnusableSchema::TooHeavy);
        let light = ladder(5, 3, keyword);
        assert!(message(&light, r#"{"x": "s"}"#).contains("`x`"));
    }
    let error = on_worker_stack(|| compile(&ladder(5000, 1, "allOf")).unwrap_err());
    assert_eq!(error, UnusableSchema::TooHeavy);
}

#[test]
fn schemas_that_multiply_with_depth_are_fast() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let again = json!({"$ref": "#/$defs/n"});
        let schema = json!({
            "properties": {"x": {"$ref": "#/$defs/n"}},
            "$defs": {"n": {
                "type": ["array", "object"],
                "items": {keyword: vec![again.clone(); 8]},
                "properties": {"x": {keyword: vec![again; 8]}},
            }},
        });
        on_worker_stack(move || {
            let schema = compile(&schema).unwrap();
            for (open, close) in [("[", "]"), ("{\"x\":", "}")] {
                let text = format!("{{\"x\":{}1{}}}", open.repeat(120), close.repeat(120));
                let violation = schema.check(&serde_json::from_str(&text).unwrap());
                assert!(violation.unwrap_err().to_string().len() < 5000);
            }
        });
    }
}

#[test]
fn stack_suffices_for_deepest_schema_and_arguments() {
    let mut high = json!({"items": {"$ref": "#/$defs/n"}, "type": "array"});
    for _ in 0..10 {
        high = json!({"allOf": [{"anyOf": [high]}]});
    }
    let schema = json!({"properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": high}});
    on_worker_stack(move || {
        let schema = compile(&schema).unwrap();
        for leaf in ["", "1"] {
            let text = format!("{{\"x\":{}{leaf}{}}}", "[".repeat(125), "]".repeat(125));
            let checked = schema.check(&serde_json::from_str(&text).unwrap());
            assert_eq!(checked.is_ok(), leaf.is_empty());
        }
    });
}

#[test]
fn deeply_nested_schemas_are_fast() {
    for (open, close) in [
        (r#"{"properties":{"x":"#, "}}"),
        (r#"{"items":"#, "}"),
        (r#"{"unevaluatedProperties":"#, "}"),
        (r#"{"unevaluatedProperties":false,"anyOf":[{},"#, "]}"),
    ] {
        let text = format!("{}true{}", open.repeat(50), close.repeat(50));
        on_worker_stack(move || {
            if let Ok(schema) = compile_text(&text) {
                let deep = format!("{}1{}", "{\"x\":".repeat(120), "}".repeat(120));
                let _ = schema.check(&serde_json::from_str(&deep).unwrap());
            }
        });
    }
}

#[test]
fn wide_schemas_are_fast() {
    on_worker_stack(|| {
        let values: Vec<usize> = (0..30_000).collect();
        let items: Vec<usize> = (30_000..60_000).collect();
        let schema = compile(&json!({"properties": {"l": {"items": {"enum": values}}}}));
        let checked = schema.map(|schema| schema.check(&json!({"l": items})).is_ok());
        assert!(!matches!(checked, Ok(true)));
    });
    on_worker_stack(|| {
        let names = (0..6000).map(|index| (format!("name{index}"), json!({"type": "number"})));
        let properties: serde_json::Map<String, Value> = names.collect();
        let required: Vec<String> = properties.keys().cloned().collect();
        let schema =
            json!({"properties": properties, "required": required, "additionalProperties": false});
        let given = (0..10_000).map(|index| (format!("nime{index}"), json!(1)));
        let given: serde_json::Map<String, Value> = given.collect();
        let violation = compile(&schema).unwrap().check(&Value::Object(given));
        assert!(violation.unwrap_err().has_more);
    });
    on_worker_stack(|| {
        let branches: Vec<Value> = (0..2000).map(|index| json!({"const": index})).collect();
        let schema = compile(&json!({"properties": {"x": {"anyOf": branches}}})).unwrap();
        let long = "x".repeat(1024 * 1024);
        assert!(schema.check(&json!({"x": long})).is_err());
    });
}

#[test]
fn patterns_take_linear_time() {
    on_worker_stack(|| {
        let schema = json!({"properties": {"x": {"pattern": "^(a+)+$"}}});
        let schema = compile(&schema).unwrap();
        assert!(
            schema
                .check(&json!({"x": format!("{}b", "a".repeat(100_000))}))
                .is_err()
        );
        assert!(schema.check(&json!({"x": "a".repeat(100_000)})).is_ok());
    });
    for pattern in ["(?=a)b", r"(a)\1", "((a{1000}){1000}){1000}", "("] {
        let schema = json!({"properties": {"x": {"pattern": pattern}}});
        on_worker_stack(move || {
            assert!(matches!(compile(&schema), Err(UnusableSchema::Invalid(_))))
        });
    }
    let names = (0..200).map(|index| (format!("^a{index}"), json!(true)));
    let many: serde_json::Map<String, Value> = names.collect();
    let error = compile(&json!({"patternProperties": many})).unwrap_err();
    assert_eq!(error, UnusableSchema::TooManyPatterns);
}

#[test]
fn huge_numbers_are_fast() {
    on_worker_stack(|| {
        let schema =
            json!({"properties": {"l": {"uniqueItems": true, "items": {"multipleOf": 0.01}}}});
        let schema = compile(&schema).unwrap();
        let numbers: Vec<String> = (400..100_400).map(|power| format!("1e{power}")).collect();
        let text = format!("{{\"l\":[{}]}}", numbers.join(","));
        let violation = schema
            .check(&serde_json::from_str(&text).unwrap())
            .unwrap_err();
        assert!(violation.to_string().contains("out of range"));
        let digits = format!("{{\"l\":[{}]}}", "9".repeat(1_000_000));
        let _ = schema.check(&serde_json::from_str(&digits).unwrap());
        let zeros: Vec<String> = (1..50_000).map(|count| format!("0.{count}e-300")).collect();
        let text = format!("{{\"l\":[{}]}}", zeros.join(","));
        let _ = schema.check(&serde_json::from_str(&text).unwrap());
    });
}

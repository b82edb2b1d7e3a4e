//! Schemas and arguments that are written to do harm.

use super::*;

/// Runs with the stack of a worker thread. What takes too long is seen by whoever runs the tests.
fn on_a_worker<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(run);
    thread.unwrap().join().unwrap()
}

#[test]
fn nothing_is_fetched() {
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
            let unusable = compile(&schema).unwrap_err();
            assert!(
                matches!(unusable, Unusable::Reference(_)),
                "{schema}: {unusable}"
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
fn what_moves_references_is_refused() {
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
            Unusable::Unsupported(keyword)
        );
    }
    let named = json!({"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}});
    assert!(!fits(&named, r#"{"$ref": 1}"#));
}

#[test]
fn long_and_broken_schemas_are_refused() {
    let long = format!("{{\"description\":\"{}\"}}", "x".repeat(256 * 1024));
    assert!(matches!(compile_text(&long), Err(Unusable::TooLong(_))));
    let deep = format!(
        "{}{}",
        r#"{"not":"#.repeat(200),
        "true".to_owned() + &"}".repeat(200)
    );
    assert!(matches!(compile_text(&deep), Err(Unusable::NotJson(_))));
    for schema in [
        json!({"type": "strnig"}),
        json!({"required": "a"}),
        json!({"properties": []}),
    ] {
        assert!(
            matches!(compile(&schema), Err(Unusable::Invalid(_))),
            "{schema}"
        );
    }
}

#[test]
fn references_in_a_circle_are_refused() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"anyOf": [{"type": "object"}, {"$ref": "#"}]}),
        json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ] {
        assert!(
            matches!(compile(&schema), Err(Unusable::Endless(_))),
            "{schema}"
        );
    }
}

/// `$defs` in which each of `count` refers `times` times to the next.
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
fn references_that_multiply_are_refused() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let unusable = on_a_worker(move || compile(&ladder(40, 2, keyword)).unwrap_err());
        assert_eq!(unusable, Unusable::TooHeavy);
        let light = ladder(5, 3, keyword);
        assert!(message(&light, r#"{"x": "s"}"#).contains("`x`"));
    }
    let unusable = on_a_worker(|| compile(&ladder(5000, 1, "allOf")).unwrap_err());
    assert_eq!(unusable, Unusable::TooHeavy);
}

#[test]
fn what_multiplies_with_depth_takes_little_time() {
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
        on_a_worker(move || {
            let schema = compile(&schema).unwrap();
            for (open, close) in [("[", "]"), ("{\"x\":", "}")] {
                let text = format!("{{\"x\":{}1{}}}", open.repeat(120), close.repeat(120));
                let misfit = schema.check(&serde_json::from_str(&text).unwrap());
                assert!(misfit.unwrap_err().to_string().len() < 5000);
            }
        });
    }
}

#[test]
fn the_stack_is_enough_for_the_highest_schema_and_the_deepest_arguments() {
    let mut high = json!({"items": {"$ref": "#/$defs/n"}, "type": "array"});
    for _ in 0..10 {
        high = json!({"allOf": [{"anyOf": [high]}]});
    }
    let schema = json!({"properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": high}});
    on_a_worker(move || {
        let schema = compile(&schema).unwrap();
        for leaf in ["", "1"] {
            let text = format!("{{\"x\":{}{leaf}{}}}", "[".repeat(125), "]".repeat(125));
            let checked = schema.check(&serde_json::from_str(&text).unwrap());
            assert_eq!(checked.is_ok(), leaf.is_empty());
        }
    });
}

#[test]
fn deeply_nested_schemas_take_little_time() {
    for (open, close) in [
        (r#"{"properties":{"x":"#, "}}"),
        (r#"{"items":"#, "}"),
        (r#"{"unevaluatedProperties":"#, "}"),
        (r#"{"unevaluatedProperties":false,"anyOf":[{},"#, "]}"),
    ] {
        let text = format!("{}true{}", open.repeat(50), close.repeat(50));
        on_a_worker(move || {
            if let Ok(schema) = compile_text(&text) {
                let deep = format!("{}1{}", "{\"x\":".repeat(120), "}".repeat(120));
                let _ = schema.check(&serde_json::from_str(&deep).unwrap());
            }
        });
    }
}

#[test]
fn wide_schemas_take_little_time() {
    on_a_worker(|| {
        let values: Vec<usize> = (0..30_000).collect();
        let items: Vec<usize> = (30_000..60_000).collect();
        let schema = compile(&json!({"properties": {"l": {"items": {"enum": values}}}}));
        let checked = schema.map(|schema| schema.check(&json!({"l": items})).is_ok());
        assert!(!matches!(checked, Ok(true)));
    });
    on_a_worker(|| {
        let names = (0..6000).map(|index| (format!("name{index}"), json!({"type": "number"})));
        let properties: serde_json::Map<String, Value> = names.collect();
        let required: Vec<String> = properties.keys().cloned().collect();
        let schema =
            json!({"properties": properties, "required": required, "additionalProperties": false});
        let given = (0..10_000).map(|index| (format!("nime{index}"), json!(1)));
        let given: serde_json::Map<String, Value> = given.collect();
        let misfit = compile(&schema).unwrap().check(&Value::Object(given));
        assert!(misfit.unwrap_err().more);
    });
    on_a_worker(|| {
        let branches: Vec<Value> = (0..2000).map(|index| json!({"const": index})).collect();
        let schema = compile(&json!({"properties": {"x": {"anyOf": branches}}})).unwrap();
        let long = "x".repeat(1024 * 1024);
        assert!(schema.check(&json!({"x": long})).is_err());
    });
}

#[test]
fn patterns_take_linear_time() {
    on_a_worker(|| {
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
        on_a_worker(move || assert!(matches!(compile(&schema), Err(Unusable::Invalid(_)))));
    }
    let names = (0..200).map(|index| (format!("^a{index}"), json!(true)));
    let many: serde_json::Map<String, Value> = names.collect();
    let unusable = compile(&json!({"patternProperties": many})).unwrap_err();
    assert_eq!(unusable, Unusable::TooManyPatterns);
}

#[test]
fn numbers_without_measure_take_little_time() {
    on_a_worker(|| {
        let schema =
            json!({"properties": {"l": {"uniqueItems": true, "items": {"multipleOf": 0.01}}}});
        let schema = compile(&schema).unwrap();
        let numbers: Vec<String> = (400..100_400).map(|power| format!("1e{power}")).collect();
        let text = format!("{{\"l\":[{}]}}", numbers.join(","));
        let misfit = schema
            .check(&serde_json::from_str(&text).unwrap())
            .unwrap_err();
        assert!(misfit.to_string().contains("out of range"));
        let digits = format!("{{\"l\":[{}]}}", "9".repeat(1_000_000));
        let _ = schema.check(&serde_json::from_str(&digits).unwrap());
        let zeros: Vec<String> = (1..50_000).map(|count| format!("0.{count}e-300")).collect();
        let text = format!("{{\"l\":[{}]}}", zeros.join(","));
        let _ = schema.check(&serde_json::from_str(&text).unwrap());
    });
}

//! Fuzzing: the gateway answers every request, and never with an internal error.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::gate::{TestGate, zoo};

const CASES: u32 = 300;
const HEADERS: [&str; 7] = [
    "x-bf-mcp-include-clients",
    "x-bf-mcp-exclude-clients",
    "x-bf-mcp-include-tools",
    "x-bf-mcp-exclude-tools",
    "x-request-id",
    "x-bf-mcp-session-id",
    "authorization",
];

/// Generates text from fragments that parsers stumble over.
fn odd_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "zoo", "_", ".", "-", "mcp__", "__", "*", "?", ",", " ", "echo", "add", "{", "}", "[", "]",
        "\"", "\\", "\\u0000", "\\ud800", "null", "1e400", ":", "a", "ü", "\u{202e}", "..", "/",
        "%2e",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        odd_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((odd_text(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Generates a body: a call with odd arguments, odd JSON, or no JSON at all.
fn body() -> impl Strategy<Value = String> {
    let call = |name: String, arguments: String| {
        json!({"id": "c", "function": {"name": name, "arguments": arguments}}).to_string()
    };
    prop_oneof![
        any_json().prop_map(|json| json.to_string()),
        odd_text(),
        (odd_text(), odd_text()).prop_map(move |(name, arguments)| call(name, arguments)),
        any_json().prop_map(move |json| call("zoo_echo".to_owned(), json.to_string())),
        prop::collection::vec(any_json(), 0..4).prop_map(|calls| Value::from(calls).to_string()),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let value = prop_oneof![
        odd_text().prop_map(String::into_bytes),
        prop::collection::vec(0x80..=0xff_u8, 1..4),
    ];
    let header = (prop::sample::select(HEADERS.to_vec()), value);
    prop::collection::vec(header, 0..4).prop_map(|pairs| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    })
}

#[test]
fn random_requests_are_answered() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let gate = TestGate::start(&zoo("zoo", &[]));
    runtime.block_on(gate.wait_for_state("zoo", "healthy"));
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let format = prop::sample::select(vec!["", "?format=chat", "?format=responses", "?format=x"]);
    let input = (body(), headers(), format);
    TestRunner::new(config)
        .run(&input, |(body, headers, format)| {
            let path = format!("/v1/mcp/tool/execute{format}");
            let (status, text) = runtime.block_on(async {
                let response = gate.post(&path, &body, headers).await;
                (response.status().as_u16(), response.text().await.unwrap())
            });
            prop_assert!([200, 400].contains(&status), "{status}: {text}");
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
            Ok(())
        })
        .unwrap();
    let message = runtime.block_on(gate.call("zoo_add", r#"{"a":1,"b":2}"#));
    assert_eq!(message["content"], "3", "{}", gate.log());
}

//! `POST /v1/mcp/tool/execute`: formats, errors and cancellation.

use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::gate::{TestGate, zoo};

const PATH: &str = "/v1/mcp/tool/execute";

async fn start_gate() -> TestGate {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

async fn execute(gate: &TestGate, path: &str, body: &str) -> (u16, Value) {
    let response = gate.post(path, body, HeaderMap::new()).await;
    let status = response.status().as_u16();
    (
        status,
        serde_json::from_str(&response.text().await.unwrap()).unwrap(),
    )
}

#[tokio::test]
async fn odd_numbers_and_unknown_fields_pass_unchanged() {
    let gate = start_gate().await;
    let odd = r#"{"z": 18446744073709551617, "a":[1e400, 0.1,-0.0],"unknown":{"b":1,"a":2}}"#;
    let message = gate.call("zoo_echo", odd).await;
    assert_eq!(message["content"], odd);
    let body = format!(r#"{{"id":"x","function":{{"name":"zoo_echo","arguments":{odd}}}}}"#);
    let (status, message) = execute(&gate, PATH, &body).await;
    assert_eq!(
        (status, message["content"].as_str()),
        (200, Some(odd)),
        "an object is accepted too"
    );
}

#[tokio::test]
async fn chat_format() {
    let gate = start_gate().await;
    let (status, message) = execute(
        &gate,
        "/v1/mcp/tool/execute?format=chat",
        r#"{"id":"call_1","type":"function","function":{"name":"zoo-add","arguments":"{\"a\":1,\"b\":2}"}}"#,
    )
    .await;
    assert_eq!(status, 200);
    assert_eq!(
        message,
        serde_json::json!({"role": "tool", "content": "3", "tool_call_id": "call_1"})
    );
}

#[tokio::test]
async fn responses_format() {
    let gate = start_gate().await;
    let path = "/v1/mcp/tool/execute?format=responses";
    let (status, item) = execute(
        &gate,
        path,
        r#"{"call_id":"c9","name":"zoo_add","arguments":"{\"a\":1,\"b\":2}"}"#,
    )
    .await;
    assert_eq!(status, 200);
    assert_eq!(
        item,
        serde_json::json!({"type": "function_call_output", "call_id": "c9", "output": "3"})
    );
}

#[tokio::test]
async fn non_text_content_becomes_parts() {
    let gate = start_gate().await;
    let message = gate.call("zoo_kinds", "").await;
    let parts = message["content"].as_array().unwrap();
    assert_eq!(parts[0]["type"], "text");
    assert!(
        parts[1]["image_url"]["url"]
            .as_str()
            .unwrap()
            .starts_with("data:image/png;base64,")
    );
    assert!(parts[2]["text"].as_str().unwrap().contains("\"audio\""));
    assert!(parts[5]["text"].as_str().unwrap().contains("\"x-new\""));
}

#[tokio::test]
async fn tool_failures_are_tool_messages() {
    let gate = TestGate::start(&(zoo("zoo", &[]) + "timeout = \"200ms\"\n"));
    gate.wait_for_state("zoo", "healthy").await;
    for (name, arguments, expected) in [
        ("zoo_fail", "{}", ""),
        ("zoo_rpc_error", "{}", "-32602"),
        ("zoo_nothing", "{}", "unknown tool `zoo_nothing`"),
        ("zoo_add", "{\"a\":", "not valid JSON"),
        ("zoo_add", "[1]", "must be a JSON object"),
        ("zoo_sleep", "{\"ms\":60000}", "did not answer within 0.2 s"),
        ("zoo_die", "{}", "process exited"),
    ] {
        let message = gate.call(name, arguments).await;
        assert_eq!(
            (message["role"].as_str(), message["is_error"].as_bool()),
            (Some("tool"), Some(true)),
            "{name}: {message}"
        );
        assert!(
            message["content"].as_str().unwrap().contains(expected),
            "{name}: {message}"
        );
    }
}

#[tokio::test]
async fn invalid_body_is_a_request_error() {
    let gate = start_gate().await;
    for (path, body, expected) in [
        (PATH, "", "Invalid request payload"),
        (PATH, "{", "Invalid request payload"),
        (PATH, "[]", "Invalid request payload"),
        (PATH, "{}", "Tool function name is required"),
        (
            PATH,
            r#"{"function":{"name":7}}"#,
            "Invalid request payload",
        ),
        (
            "/v1/mcp/tool/execute?format=xml",
            "{}",
            "Invalid format value, must be 'chat' or 'responses'",
        ),
    ] {
        let (status, error) = execute(&gate, path, body).await;
        assert_eq!(status, 400, "{body}: {error}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{body}: {message}");
    }
    let huge = format!(r#"{{"id":"{}"}}"#, "x".repeat(17 * 1024 * 1024));
    let response = gate.post(PATH, &huge, HeaderMap::new()).await;
    assert_eq!(response.status(), 413);
}

#[tokio::test]
async fn disconnecting_cancels_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests");
    let gate = TestGate::start(&zoo("zoo", &["--count", log.to_str().unwrap()]));
    gate.wait_for_state("zoo", "healthy").await;
    let call = gate.call("zoo_sleep", r#"{"ms":60000}"#);
    let abandoned = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
    assert!(abandoned.is_err());
    toolgate_testkit::eventually(
        "the server receives the cancellation",
        crate::gate::WAIT_TIMEOUT,
        async || {
            std::fs::read_to_string(&log)
                .unwrap()
                .contains("cancelled")
                .then_some(())
        },
    )
    .await;
}

//! `POST /v1/mcp/tool/execute`: formats, errors, batches, truncated results and cancellation.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolgate_testkit::{ZooLog, eventually};

use crate::caller::{ALICE, BOB, EXECUTE, text, tool_call};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

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
    let (status, message) = execute(&gate, EXECUTE, &body).await;
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
        json!({"role": "tool", "content": "3", "tool_call_id": "call_1"})
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
        json!({"type": "function_call_output", "call_id": "c9", "output": "3"})
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
        (EXECUTE, "", "Invalid request payload"),
        (EXECUTE, "{", "Invalid request payload"),
        (EXECUTE, "[]", "Invalid request payload"),
        (EXECUTE, "{}", "Tool function name is required"),
        (
            EXECUTE,
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
    let response = gate.post(EXECUTE, &huge, HeaderMap::new()).await;
    assert_eq!(response.status(), 413);
}

#[tokio::test]
async fn batch_runs_in_parallel_and_answers_in_order() {
    let gate = start_gate().await;
    let caller = gate.caller();
    let both = json!([
        tool_call("zoo_sleep", &json!({"ms": 60000})),
        tool_call("zoo_say", &json!({"text": "x"})),
    ]);
    let finished = eventually(
        "the second call ends while the first runs",
        WAIT_TIMEOUT,
        async || {
            let records = gate.all_records().await;
            let ok = records
                .iter()
                .any(|r| r["tool"] == "say" && r["outcome"] == "ok");
            let open = records
                .iter()
                .any(|r| r["tool"] == "sleep" && r["outcome"] == "open");
            (ok && open).then_some(())
        },
    );
    tokio::select! {
        _ = caller.post(EXECUTE, &both) => panic!("the one-minute call has already ended"),
        () = finished => {}
    }
    let calls: Vec<Value> = [30, 0, 20, 0, 10]
        .iter()
        .enumerate()
        .map(|(index, ms)| json!({"id": format!("c{index}"), "function": {"name": "zoo_sleep", "arguments": {"ms": ms}}}))
        .collect();
    let answers = caller.post(EXECUTE, &json!(calls)).await.expect_status(200);
    let ids: Vec<&str> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["c0", "c1", "c2", "c3", "c4"]);
    assert_eq!(text(&answers[0]), "slept 30 ms");
}

#[tokio::test]
async fn failing_call_of_a_batch_does_not_affect_others() {
    let log = ZooLog::create();
    let gate = TestGate::start(&zoo("zoo", &log.flags()));
    gate.wait_for_state("zoo", "healthy").await;
    let calls = json!([
        tool_call("zoo_nothing", &json!({})),
        tool_call("zoo_add", &json!({"a": "x"})),
        tool_call("zoo_say", &json!({"text": "x"})),
    ]);
    let answers = gate.caller().post(EXECUTE, &calls).await.expect_status(200);
    assert_eq!(text(&answers[2]), "x");
    assert!(text(&answers[0]).starts_with("unknown tool"));
    let malformed = json!([tool_call("zoo_say", &json!({"text": "x"})), {"function": {"name": 7}}]);
    gate.caller()
        .post(EXECUTE, &malformed)
        .await
        .expect_status(400);
    assert_eq!(log.calls("say"), 1, "nothing of a malformed batch runs");
}

#[tokio::test]
async fn truncated_result_has_a_handle_and_is_read_in_parts() {
    let keys = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";
    let gate = TestGate::start(&(zoo("zoo", &[]) + "[results]\nmax_bytes = 1024\n" + keys));
    gate.wait_for_state("zoo", "healthy").await;
    let alice = gate.with_key(ALICE);
    let message = alice.call("zoo_big", &json!({"bytes": 1500})).await;
    let handle = message["result_handle"].as_str().unwrap();
    assert!(text(&message).contains(handle), "{message}");
    let path = format!("/v1/mcp/results/{handle}");
    let first = alice.get(&path).await.expect_status(200);
    assert_eq!(
        first,
        json!({"text": "x".repeat(1024), "offset": 0, "next_offset": 1024, "total_bytes": 1500})
    );
    let rest = alice.get(&format!("{path}?offset=1024")).await;
    assert_eq!(
        rest.expect_status(200),
        json!({"text": "x".repeat(476), "offset": 1024, "next_offset": null, "total_bytes": 1500})
    );
    assert_eq!(gate.with_key(BOB).get(&path).await.status, 404);
    assert_eq!(alice.get("/v1/mcp/results/nothing").await.status, 404);
    let small = alice.call("zoo_say", &json!({"text": "x"})).await;
    assert_eq!(small.get("result_handle"), None);
}

#[tokio::test]
async fn disconnecting_cancels_the_call() {
    let log = ZooLog::create();
    let gate = TestGate::start(&zoo("zoo", &log.flags()));
    gate.wait_for_state("zoo", "healthy").await;
    let call = gate.call("zoo_sleep", r#"{"ms":60000}"#);
    let abandoned = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
    assert!(abandoned.is_err());
    eventually(
        "the server receives the cancellation",
        WAIT_TIMEOUT,
        async || (log.count("cancelled") == 1).then_some(()),
    )
    .await;
}

//! Legacy sessions, their per-session server connections, and their lifetimes.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually, is_alive};

use crate::gate::{TestGate, WAIT_TIMEOUT, processes_with, zoo};
use crate::mcp::{LegacySession, META, headers, modern_request_with_meta, names, read_json};
use crate::resource_subscriptions::EventStream;

const ALICE: &str = "alice-has-a-long-key";
const BOB: &str = "bob-has-a-long-key-too";
const KEYS: &str = "[keys.alice]\nkey = \"alice-has-a-long-key\"\ntools = [\"zoo.*\"]\n[keys.bob]\nkey = \"bob-has-a-long-key-too\"\ntools = [\"other.*\"]\n";

pub(crate) fn elicitation_client() -> (&'static str, Value) {
    ("2025-11-25", json!({"elicitation": {}}))
}

/// Configures a zoo with one process per session.
fn per_session_zoo(flags: &[&str]) -> String {
    zoo("zoo", flags) + "per_session = true\n"
}

async fn start_gate(toml: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

impl LegacySession<'_> {
    async fn stream_request(&self, gate: &TestGate, method: &str, params: Value) -> EventStream {
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        EventStream::new(gate.post("/mcp", &body.to_string(), self.headers()).await)
    }

    pub(crate) async fn open_get_stream(&self, gate: &TestGate) -> EventStream {
        let get = gate.client.get(format!("{}/mcp", gate.url));
        EventStream::new(get.headers(self.headers()).send().await.unwrap())
    }

    pub(crate) async fn end(&self, gate: &TestGate) {
        let end = gate
            .client
            .request(Method::DELETE, format!("{}/mcp", gate.url));
        let response = end.headers(self.headers()).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }

    async fn post(&self, gate: &TestGate, message: &Value) -> (u16, Value) {
        let message = message.to_string();
        read_json(gate.post("/mcp", &message, self.headers()).await).await
    }
}

async fn wait_for_process_exit(pid: u32) {
    eventually("the process exits", WAIT_TIMEOUT, async || {
        (!is_alive(pid)).then_some(())
    })
    .await;
}

/// Opens a session with its own server process and returns it with the process id. The file is an argument of
/// the server, by which its processes are found.
async fn open_session_with_process<'g>(
    gate: &'g TestGate,
    file: &Path,
) -> (LegacySession<'g>, u32) {
    let file = file.to_str().unwrap();
    let shared = processes_with(file);
    let session = LegacySession::open_with(gate, "/mcp", None, elicitation_client()).await;
    session
        .result("tools/call", json!({"name": "zoo_empty", "arguments": {}}))
        .await;
    let mut own = processes_with(file);
    own.retain(|pid| !shared.contains(pid));
    let [own] = own[..] else {
        panic!("the session has its own process");
    };
    (session, own)
}

#[tokio::test]
async fn per_session_connection_and_calls_end_with_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let gate = start_gate(&per_session_zoo(&["--pid", file.to_str().unwrap()])).await;
    let (session, own) = open_session_with_process(&gate, &file).await;
    let sleep = json!({"name": "zoo_sleep", "arguments": {"ms": 600_000}});
    let (answer, ()) = tokio::join!(session.request("tools/call", sleep), async {
        gate.wait_for_in_flight_call().await;
        session.end(&gate).await;
    });
    let text = answer.1["result"]["content"][0]["text"].as_str();
    assert!(
        text.is_some_and(|text| text.contains("cancelled")),
        "{answer:?}"
    );
    wait_for_process_exit(own).await;
}

#[tokio::test]
async fn process_usage_includes_the_processes_of_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let gate = start_gate(&per_session_zoo(&["--pid", file.to_str().unwrap()])).await;
    let wait_for_processes = async |count: u64| {
        eventually("the processes are counted", WAIT_TIMEOUT, async || {
            let entry = gate.json("/api/mcp/client/zoo").await;
            (entry["process_usage"]["processes"] == count).then_some(entry)
        })
        .await
    };
    wait_for_processes(1).await;
    let (session, _) = open_session_with_process(&gate, &file).await;
    wait_for_processes(2).await;
    session.end(&gate).await;
    let entry = wait_for_processes(1).await;
    assert_eq!(entry["process_usage"]["restarts"], 0, "{entry}");
}

#[tokio::test]
async fn per_session_connection_ends_with_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let toml = per_session_zoo(&["--pid", file.to_str().unwrap()]);
    let gate = start_gate(&toml).await;
    let (session, first) = open_session_with_process(&gate, &file).await;
    gate.edit(&format!("{toml}enabled = false\n"));
    wait_for_process_exit(first).await;
    gate.edit(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let (_other, second) = open_session_with_process(&gate, &file).await;
    gate.edit(&zoo("other", &[]));
    wait_for_process_exit(second).await;
    let (status, _) = session.request("ping", json!({})).await;
    assert_eq!(status, 200, "the session itself stays open");
}

#[tokio::test]
async fn stdio_server_request_uses_stream_of_its_only_call() {
    let gate = start_gate(&per_session_zoo(&["--fixtures"])).await;
    let session = LegacySession::open_with(&gate, "/mcp", None, elicitation_client()).await;
    let call = json!({"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}});
    let mut stream = session.stream_request(&gate, "tools/call", call).await;
    let question = stream.next("elicitation/create").await;
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    let (status, _) = session.post(&gate, &answer).await;
    assert_eq!(status, 202);
    let text = stream.rest().await;
    assert!(text.contains("action=decline"), "{text}");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_client_answers() {
    let mut gate = start_gate(&per_session_zoo(&["--fixtures"])).await;
    let session = LegacySession::open_with(&gate, "/mcp", None, elicitation_client()).await;
    let call = json!({"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}});
    let mut stream = session.stream_request(&gate, "tools/call", call).await;
    stream.next("elicitation/create").await;
    gate.signal("-TERM");
    let text = stream.rest().await;
    assert!(text.contains("client did not respond"), "{text}");
    assert_eq!(gate.wait_for_exit().await, Some(0));
    let log = gate.log();
    assert!(!log.contains("calls still in flight"), "{log}");
}

#[tokio::test]
async fn timeout_is_extended_only_for_elicitation_clients() {
    let gate = start_gate(&(per_session_zoo(&[]) + "timeout = \"1s\"\n")).await;
    let roots = ("2025-11-25", json!({"roots": {}}));
    let session = LegacySession::open_with(&gate, "/mcp", None, roots).await;
    let sleep = json!({"name": "zoo_sleep", "arguments": {"ms": 600_000}});
    let result = session.result("tools/call", sleep).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("did not answer within 1.0 s"), "{text}");
}

#[tokio::test]
async fn approval_elsewhere_cancels_elicitation() {
    let ask = "[[permissions.rules]]\ntool = \"*.add\"\naction = \"ask\"\napproval_by = [\"admin\", \"client\"]\n";
    let gate = start_gate(&(zoo("zoo", &[]) + ask)).await;
    let session = LegacySession::open_with(&gate, "/mcp", None, elicitation_client()).await;
    let call = json!({"name": "zoo_add", "arguments": {"a": 1, "b": 2}});
    let mut stream = session.stream_request(&gate, "tools/call", call).await;
    let question = stream.next("elicitation/create").await;
    let pending = gate.json("/api/approvals").await;
    let id = pending["approvals"][0]["id"].as_str().unwrap();
    let path = format!("/api/approvals/{id}");
    let decided = gate.post(&path, r#"{"decision": "approve"}"#, headers(&[]));
    assert_eq!(decided.await.status(), 200);
    let withdrawn = stream.next("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    let text = stream.rest().await;
    assert!(text.contains(r#""text":"3""#), "{text}");
}

#[tokio::test]
async fn newest_get_stream_receives_notifications() {
    let gate = start_gate(&zoo("zoo", &[])).await;
    let session = LegacySession::open(&gate, "/mcp", None).await;
    let mut first = session.open_get_stream(&gate).await;
    let mut second = session.open_get_stream(&gate).await;
    assert_eq!(first.rest().await, "", "the older stream ended");
    gate.edit(&zoo("zoo", &["--tools", "1"]));
    second.next("notifications/tools/list_changed").await;
}

#[tokio::test]
async fn session_is_notified_of_virtual_server_changes() {
    let toml = zoo("zoo", &[]) + "[virtual_servers.some]\ntools = [\"zoo.add\"]\n";
    let gate = start_gate(&toml).await;
    let session = LegacySession::open(&gate, "/mcp/v/some", None).await;
    let mut stream = session.open_get_stream(&gate).await;
    gate.edit(&toml.replace("zoo.add", "zoo.echo"));
    stream.next("notifications/tools/list_changed").await;
    let tools = session.result("tools/list", json!({})).await;
    assert_eq!(names(&tools, "tools", "name"), ["zoo_echo"]);
}

#[tokio::test]
async fn endpoints_without_visible_tools_are_not_found() {
    let virtual_server = "[virtual_servers.some]\ntools = [\"zoo.add\"]\n";
    let toml = zoo("zoo", &[]) + &zoo("other", &[]) + virtual_server + KEYS;
    let gate = start_gate(&toml).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    let status = async |path: &str, key: &str| {
        let response = gate.post(path, ping, headers(&[("x-api-key", key)])).await;
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (_, unknown) = status("/mcp/nobody", BOB).await;
    for (path, key, expected) in [
        ("/mcp/zoo", ALICE, 200),
        ("/mcp/v/some", ALICE, 200),
        ("/mcp/zoo", BOB, 404),
        ("/mcp/v/some", BOB, 404),
        ("/mcp/other", BOB, 200),
        ("/mcp", BOB, 200),
    ] {
        let (code, text) = status(path, key).await;
        assert_eq!(code, expected, "{path} {key}: {text}");
        let body_without_request_id =
            |text: &str| text.split("request_id").next().unwrap().to_owned();
        assert!(
            code == 200 || body_without_request_id(&text) == body_without_request_id(&unknown),
            "{text}"
        );
    }
}

#[tokio::test]
async fn removing_a_key_closes_its_streams() {
    let toml = zoo("zoo", &[]) + &zoo("other", &[]);
    let gate = start_gate(&(toml.clone() + KEYS)).await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    let mut stream = session.open_get_stream(&gate).await;
    let bob = KEYS.split_once("[keys.bob]").unwrap().1;
    gate.edit(&format!("{toml}[keys.bob]{bob}"));
    let ended = tokio::time::timeout(WAIT_TIMEOUT, stream.rest()).await;
    assert!(ended.is_ok(), "the stream of a removed key ends");
}

#[tokio::test]
async fn session_limit_is_per_key() {
    let gate = start_gate(&(zoo("zoo", &[]) + &zoo("other", &[]) + KEYS)).await;
    let bob = LegacySession::open(&gate, "/mcp", Some(BOB)).await;
    let first = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    for _ in 0..250 {
        LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    }
    let (status, _) = first.request("ping", json!({})).await;
    assert_eq!(status, 404, "the key's oldest session was evicted");
    let (status, _) = bob.request("ping", json!({})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn batch_messages_are_handled_individually() {
    let gate = start_gate(&per_session_zoo(&["--fixtures"])).await;
    let oldest = ("2025-03-26", json!({"elicitation": {}}));
    let session = LegacySession::open_with(&gate, "/mcp", None, oldest).await;
    let mut stream = session.open_get_stream(&gate).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}}});
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let batch = json!([call, ping, {"jsonrpc": "2.0"}]);
    let (answered, ()) = tokio::join!(session.post(&gate, &batch), async {
        let question = stream.next("elicitation/create").await;
        let answer =
            json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
        let (status, _) = session.post(&gate, &json!([answer])).await;
        assert_eq!(status, 202);
    });
    let (status, answers) = answered;
    assert_eq!(status, 200, "{answers}");
    let text = answers[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("action=decline"), "{text}");
    assert_eq!(answers[1], json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    assert_eq!(answers[2]["error"]["code"], -32600, "{answers}");
    for invalid_batch in [json!([]), Value::from(vec![ping; 101])] {
        let (status, answer) = session.post(&gate, &invalid_batch).await;
        assert_eq!(
            (status, answer["error"]["code"].as_i64()),
            (400, Some(-32600))
        );
    }
    let newer = LegacySession::open(&gate, "/mcp", None).await;
    assert_eq!(newer.post(&gate, &batch).await.0, 400);
}

#[tokio::test]
async fn batched_calls_are_admitted_or_refused_together() {
    let keys = KEYS.replacen("tools =", "rate_limit = \"4/hour\"\ntools =", 1);
    let gate = start_gate(&(zoo("zoo", &[]) + &keys)).await;
    let oldest = ("2025-03-26", json!({}));
    let session = LegacySession::open_with(&gate, "/mcp", Some(ALICE), oldest).await;
    let batch = |calls: usize| {
        let call = |id: usize| {
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "zoo_add", "arguments": {"a": 1, "b": 2}}})
        };
        let mut messages: Vec<Value> = (0..calls).map(call).collect();
        messages.push(json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
        Value::from(messages)
    };
    // Each step: number of calls, and the error that all of them get.
    for (calls, expected) in [
        (5, Some(-32600)),
        (2, None),
        (2, Some(-32005)),
        (1, None),
        (1, Some(-32005)),
    ] {
        let (status, answers) = session.post(&gate, &batch(calls)).await;
        assert_eq!(status, 200, "{answers}");
        let answers = answers.as_array().unwrap();
        assert_eq!(answers.len(), calls + 1);
        let (ping, answers) = answers.split_last().unwrap();
        assert_eq!(ping["result"], json!({}), "other requests are answered");
        for answer in answers {
            assert_eq!(answer["error"]["code"].as_i64(), expected, "{answer}");
            let wait = answer["error"]["data"]["retryAfterMs"].as_u64();
            assert_eq!(wait.is_some(), expected == Some(-32005), "{answer}");
            if expected.is_none() {
                assert_eq!(answer["result"]["content"][0]["text"], "3", "{answer}");
            }
        }
    }
    let outcomes = gate.outcomes(&gate.with_key(BOB)).await;
    // Each refused batch leaves one record; none of its calls ran.
    let expected = ["limited", "ok", "ok", "limited", "ok", "limited"];
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn roots_list_changed_is_forwarded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("count");
    let gate = start_gate(&per_session_zoo(&["--count", file.to_str().unwrap()])).await;
    let roots = ("2025-11-25", json!({"roots": {"listChanged": true}}));
    let session = LegacySession::open_with(&gate, "/mcp", None, roots).await;
    session
        .result("tools/call", json!({"name": "zoo_empty", "arguments": {}}))
        .await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    assert_eq!(session.post(&gate, &changed).await.0, 202);
    eventually(
        "the server receives the notification",
        WAIT_TIMEOUT,
        async || {
            std::fs::read_to_string(&file)
                .unwrap_or_default()
                .contains("roots/list_changed")
                .then_some(())
        },
    )
    .await;
}

#[tokio::test]
async fn log_level_is_validated() {
    let gate = start_gate(&per_session_zoo(&["--silent-on", "logging/setLevel"])).await;
    let session = LegacySession::open_with(&gate, "/mcp", None, elicitation_client()).await;
    session
        .result("tools/call", json!({"name": "zoo_empty", "arguments": {}}))
        .await;
    // The client does not wait for a silent server.
    for (level, code) in [("warning", None), ("loud", Some(-32602))] {
        let (_, answer) = session
            .request("logging/setLevel", json!({"level": level}))
            .await;
        assert_eq!(answer["error"]["code"].as_i64(), code, "{answer}");
    }
}

/// Starts a gateway with a modern server that has the conformance fixtures.
async fn modern_fixtures(extra: &str) -> (TestGate, HttpZoo) {
    let zoo = HttpZoo::start(&["--fixtures", "--era", "modern"]);
    let toml = format!("[mcp_servers.zoo]\nurl = {:?}\n{extra}", zoo.url());
    (start_gate(&toml).await, zoo)
}

#[tokio::test]
async fn modern_client_receives_requested_log_messages() {
    let (gate, _zoo) = modern_fixtures("").await;
    for (level, expected) in [("info", 3), ("error", 0)] {
        let mut meta: Value = serde_json::from_str(META).unwrap();
        meta["io.modelcontextprotocol/logLevel"] = level.into();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "zoo_test_tool_with_logging", "arguments": {}, "_meta": meta}});
        let sent = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "zoo_test_tool_with_logging"),
        ]);
        let response = gate.post("/mcp", &body.to_string(), sent).await;
        let text = response.text().await.unwrap();
        let messages = text.matches("notifications/message").count();
        assert_eq!(messages, expected, "{level}: {text}");
        assert!(text.contains("Three messages were logged"), "{text}");
    }
}

fn elicitation_meta() -> String {
    META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}")
}

#[tokio::test]
async fn approved_call_can_require_further_input() {
    let ask = "[[permissions.rules]]\nserver = \"zoo\"\naction = \"ask\"\napproval_by = [\"admin\", \"client\"]\n";
    let (gate, _zoo) = modern_fixtures(ask).await;
    let call = async |state: &Value, responses: Value| {
        let mut params = json!({"name": "test_input_required_result_multi_round", "arguments": {}});
        if state.is_string() {
            params["requestState"] = state.clone();
            params["inputResponses"] = responses;
        }
        let meta = elicitation_meta();
        let (_, answer) =
            modern_request_with_meta(&gate, "/mcp/zoo", "tools/call", params, &meta).await;
        answer["result"].clone()
    };
    let elicited =
        |key: &str, content: Value| json!({key: {"action": "accept", "content": content}});
    let approval = call(&Value::Null, json!({})).await;
    assert!(
        approval["inputRequests"]["toolgate_approval"].is_object(),
        "{approval}"
    );
    let yes = elicited("toolgate_approval", json!({}));
    let one = call(&approval["requestState"], yes).await;
    assert!(one["inputRequests"]["step1"].is_object(), "{one}");
    let two = call(
        &one["requestState"],
        elicited("step1", json!({"name": "Ada"})),
    )
    .await;
    assert!(two["inputRequests"]["step2"].is_object(), "{two}");
    let colour = elicited("step2", json!({"color": "green"}));
    let done = call(&two["requestState"], colour.clone()).await;
    assert_eq!(done["content"][0]["text"], "Ada likes green.", "{done}");
    let again = call(&two["requestState"], colour).await;
    assert!(
        again["inputRequests"]["toolgate_approval"].is_object(),
        "the state is used once: {again}"
    );
    let approvals = gate.json("/api/approvals?state=done").await;
    assert_eq!(approvals["approvals"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn approval_passes_through_chained_gateways() {
    let ask = "[[permissions.rules]]\ntool = \"*.add\"\naction = \"ask\"\napproval_by = [\"admin\", \"client\"]\n";
    let behind = start_gate(&(zoo("zoo", &[]) + ask)).await;
    let toml = format!("[mcp_servers.zoo]\nurl = \"{}/mcp/zoo\"\n", behind.url);
    let front = start_gate(&toml).await;
    let mut params = json!({"name": "zoo_add", "arguments": {"a": 1, "b": 2}});
    let meta = elicitation_meta();
    let (_, pending) =
        modern_request_with_meta(&front, "/mcp", "tools/call", params.clone(), &meta).await;
    params["requestState"] = pending["result"]["requestState"].clone();
    params["inputResponses"] = json!({"toolgate_approval": {"action": "accept", "content": {}}});
    let (_, ran) = modern_request_with_meta(&front, "/mcp", "tools/call", params, &meta).await;
    assert_eq!(ran["result"]["content"][0]["text"], "3", "{pending} {ran}");
}

#[tokio::test]
async fn resource_tool_reports_required_input_as_error() {
    let (gate, _zoo) = modern_fixtures("").await;
    let params = json!({"name": "ReadMcpResource", "arguments": {"uri": "test://wants-input"}});
    let (_, answer) =
        modern_request_with_meta(&gate, "/mcp", "tools/call", params, &elicitation_meta()).await;
    assert!(answer["error"].is_object(), "{answer}");
}

#[tokio::test]
async fn resource_tool_results_are_redacted() {
    let (gate, _zoo) = modern_fixtures("[results]\nredact_secrets = true\n").await;
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let uri = format!("test://template/{secret}/data");
    let params = json!({"name": "ReadMcpResource", "arguments": {"uri": uri, "server": "zoo"}});
    let (_, answer) = modern_request_with_meta(&gate, "/mcp", "tools/call", params, META).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("templateTest") && !text.contains(&secret),
        "{text}"
    );
}

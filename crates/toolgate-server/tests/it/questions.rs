//! Questions of legacy servers to modern clients, whose requests are held meanwhile.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually, zoo_path};

use crate::connections::reached;
use crate::gate::{TestGate, WAIT_TIMEOUT, processes_with, server, zoo};
use crate::mcp::{LegacySession, META, headers, read_json};
use crate::resource_subscriptions::EventStream;

const ALICE: &str = "alice-has-a-long-key";
const BOB: &str = "bob-has-a-long-key-too";
const KEYS: &str =
    "[keys.alice]\nkey = \"alice-has-a-long-key\"\n[keys.bob]\nkey = \"bob-has-a-long-key-too\"\n";

async fn start_gate(server: &str) -> TestGate {
    let gate = TestGate::start(&format!("{server}{KEYS}"));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

fn legacy_stdio() -> String {
    zoo("zoo", &["--fixtures"])
}

/// Calls a tool as a modern client that declares elicitation.
async fn call(gate: &TestGate, key: &str, tool: &str, params: Value) -> Value {
    call_as(gate, key, &json!({"elicitation": {}}), (tool, params)).await
}

/// Calls a tool as a modern client with these capabilities.
async fn call_as(
    gate: &TestGate,
    key: &str,
    capabilities: &Value,
    (tool, mut params): (&str, Value),
) -> Value {
    let meta = META.replace(
        "Capabilities\":{}",
        &format!("Capabilities\":{capabilities}"),
    );
    params["name"] = tool.into();
    params["_meta"] = serde_json::from_str(&meta).unwrap();
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let sent = headers(&[
        ("x-api-key", key),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ]);
    read_json(gate.post("/mcp/zoo", &body.to_string(), sent).await)
        .await
        .1
}

async fn ask(gate: &TestGate, key: &str, message: &str) -> Value {
    let params = json!({"arguments": {"message": message}});
    call(gate, key, "test_elicitation", params).await["result"].clone()
}

/// Returns the parameters that repeat a call with an answer to its only question.
fn answer(asked: &Value, message: &str, action: &str) -> Value {
    let requests = asked["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 1, "{asked}");
    let (key, request) = requests.iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create", "{asked}");
    json!({"arguments": {"message": message}, "requestState": asked["requestState"],
        "inputResponses": {key: {"action": action}}})
}

#[tokio::test]
async fn modern_client_is_asked_by_legacy_servers_of_both_transports() {
    let http = HttpZoo::start(&["--fixtures"]);
    let over_http = format!("[mcp_servers.zoo]\nurl = {:?}\n", http.url());
    for server in [legacy_stdio(), over_http] {
        let gate = start_gate(&server).await;
        let asked = ask(&gate, ALICE, "Who?").await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let retry = answer(&asked, "Who?", "decline");

        let other = answer(&asked, "Who else?", "accept");
        let other = call(&gate, ALICE, "test_elicitation", other).await;
        assert_eq!(other["error"]["code"], -32602, "other arguments: {other}");
        let other = call(&gate, BOB, "test_elicitation", retry.clone()).await;
        assert_eq!(other["error"]["code"], -32602, "another caller: {other}");

        let done = call(&gate, ALICE, "test_elicitation", retry.clone()).await;
        let text = done["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("action=decline"), "{done}");
        let again = call(&gate, ALICE, "test_elicitation", retry).await;
        assert_eq!(again["error"]["code"], -32602, "a second time: {again}");

        let count = eventually("a record", WAIT_TIMEOUT, async || {
            let records = gate.json("/api/audit?tool=test_elicitation").await;
            let count = records["records"].as_array().unwrap().len();
            (count > 0).then_some(count)
        })
        .await;
        assert_eq!(count, 1, "one call, one record");
    }
}

#[tokio::test]
async fn process_is_shared_if_the_configuration_says_so() {
    let gate = start_gate(&(legacy_stdio() + "per_session = false\n")).await;
    let asked = ask(&gate, ALICE, "Who?").await;
    assert_eq!(asked["resultType"], "complete", "{asked}");
}

#[tokio::test]
async fn legacy_client_is_asked_without_any_setting() {
    let gate = start_gate(&legacy_stdio()).await;
    let client = ("2025-11-25", json!({"elicitation": {}}));
    let session = LegacySession::open_with(&gate, "/mcp", Some(ALICE), client).await;
    let body = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params":
        {"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}}});
    let response = gate
        .post("/mcp", &body.to_string(), session.headers())
        .await;
    let mut stream = EventStream::new(response);
    let question = stream.next("elicitation/create").await;
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    gate.post("/mcp", &reply.to_string(), session.headers())
        .await;
    let text = stream.rest().await;
    assert!(text.contains("action=accept"), "{text}");
}

/// Questions beyond the bound are refused, and the calls that wait end with the gateway.
#[tokio::test]
async fn questions_of_a_caller_are_bounded() {
    let http = HttpZoo::start(&["--fixtures"]);
    let gate = start_gate(&format!("[mcp_servers.zoo]\nurl = {:?}\n", http.url())).await;
    let asked = join_all((0..9).map(|_| ask(&gate, ALICE, "Who?"))).await;
    let held = asked
        .iter()
        .filter(|asked| asked["resultType"] == "input_required");
    assert_eq!(held.count(), 8, "{asked:?}");
    assert_eq!(reached(&gate, "questions").await, 1);
    let of_bob = ask(&gate, BOB, "Who?").await;
    assert_eq!(of_bob["resultType"], "input_required", "{of_bob}");
    eventually("all are in flight", WAIT_TIMEOUT, async || {
        let metrics = gate.get("/metrics").await.text().await.unwrap();
        metrics
            .contains("in_flight{server=\"zoo\"} 9")
            .then_some(())
    })
    .await;
    let mut gate = gate;
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0));
}

/// A key cannot have all processes that are started for clients which can be asked.
#[tokio::test]
async fn processes_for_questions_have_a_share_per_key() {
    let gate = start_gate(&legacy_stdio()).await;
    let params = json!({"arguments": {"message": "Who?"}});
    let mut asked = 0;
    for number in 0..7 {
        let capabilities = json!({"elicitation": {}, "experimental": {"n": {"number": number}}});
        let call = ("test_elicitation", params.clone());
        let answer = call_as(&gate, ALICE, &capabilities, call).await;
        asked += usize::from(answer["result"]["resultType"] == "input_required");
    }
    assert_eq!(asked, 6, "the last call is not asked");
    let of_bob = ask(&gate, BOB, "Who?").await;
    assert_eq!(of_bob["resultType"], "input_required", "{of_bob}");
}

/// A late question of a cancelled call must not reach the next call of the same process.
#[tokio::test]
async fn process_whose_call_was_cancelled_is_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid").display().to_string();
    let gate = start_gate(&zoo("zoo", &["--pid", &pid])).await;
    let processes = || processes_with(&pid).len();
    assert_eq!(processes(), 1, "the shared one");
    {
        let sleeping = call(&gate, ALICE, "sleep", json!({"arguments": {"ms": 600_000}}));
        tokio::pin!(sleeping);
        let started = eventually("a process of its own", WAIT_TIMEOUT, async || {
            (processes() == 2).then_some(())
        });
        tokio::select! {
            answer = &mut sleeping => panic!("{answer}"),
            () = started => {}
        }
    }
    eventually("the process has ended", WAIT_TIMEOUT, async || {
        (processes() == 1).then_some(())
    })
    .await;
    let sum = json!({"arguments": {"a": 1, "b": 2}});
    let sum = call(&gate, ALICE, "add", sum).await;
    assert_eq!(sum["result"]["content"][0]["text"], "3", "{sum}");
    assert_eq!(processes(), 2, "a new one");
}

/// A process keeps its place until it has exited, so that a client whose calls come and go does not start any
/// number of them.
#[tokio::test]
async fn cancelled_calls_do_not_exceed_the_share_of_processes() {
    let mark = format!("lingering-server-of-{}", std::process::id());
    // Goes on for a while when its client has left.
    let zoo = zoo_path().display().to_string();
    let args = ["-c", "\"$@\"; sleep 2", &mark, &zoo, "stdio"];
    let gate = start_gate(&server("zoo", "sh", &args)).await;
    let processes = || processes_with(&mark).len();
    for number in 0..16 {
        let capabilities = json!({"elicitation": {}, "experimental": {"n": {"number": number}}});
        let sleep = json!({"arguments": {"ms": 600_000}});
        let calling = call_as(&gate, ALICE, &capabilities, ("sleep", sleep));
        let given_up = tokio::time::timeout(Duration::from_millis(200), calling).await;
        assert!(given_up.is_err(), "{given_up:?}");
        assert!(processes() <= 1 + 6, "the shared one, and those of a key");
    }
}

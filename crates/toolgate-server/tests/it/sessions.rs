//! Sessions of clients of the old era, their connections of their own, and what ends with them.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually};

use crate::gate::{SOON, TestGate, zoo};
use crate::mcp::{META, Old, headers, json_of, modern_as, names};
use crate::watching::Stream;

const ALICE: &str = "alice-has-a-long-key";
const BOB: &str = "bob-has-a-long-key-too";
const KEYS: &str = "[keys.alice]\nkey = \"alice-has-a-long-key\"\ntools = [\"zoo.*\"]\n[keys.bob]\nkey = \"bob-has-a-long-key-too\"\ntools = [\"other.*\"]\n";

fn can_be_asked() -> (&'static str, Value) {
    ("2025-11-25", json!({"elicitation": {}}))
}

/// A server that is started once more for each session that can be asked.
fn own(flags: &[&str]) -> String {
    zoo("zoo", flags) + "per_session = true\n"
}

async fn gate(toml: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.reaches("zoo", "healthy").await;
    gate
}

impl Old<'_> {
    async fn stream(&self, gate: &TestGate, method: &str, params: Value) -> Stream {
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        Stream::new(gate.post("/mcp", &body.to_string(), self.headers()).await)
    }

    async fn listens(&self, gate: &TestGate) -> Stream {
        let get = gate.client.get(format!("{}/mcp", gate.url));
        Stream::new(get.headers(self.headers()).send().await.unwrap())
    }

    async fn end(&self, gate: &TestGate) {
        let end = gate
            .client
            .request(Method::DELETE, format!("{}/mcp", gate.url));
        let ended = end.headers(self.headers()).send().await.unwrap();
        assert_eq!(ended.status(), 200);
    }

    async fn post(&self, gate: &TestGate, message: &Value) -> (u16, Value) {
        let message = message.to_string();
        json_of(gate.post("/mcp", &message, self.headers()).await).await
    }
}

fn pid(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

async fn is_gone(pid: &str) {
    let process = Path::new("/proc").join(pid.trim());
    eventually("the process has ended", SOON, async || {
        (!process.exists()).then_some(())
    })
    .await;
}

/// A session whose own server works on a call for ever, and the process of that server.
async fn busy<'g>(gate: &'g TestGate, file: &Path) -> (Old<'g>, String) {
    let shared = pid(file);
    let session = Old::saying(gate, "/mcp", None, can_be_asked()).await;
    session
        .result("tools/call", json!({"name": "zoo_empty", "arguments": {}}))
        .await;
    let own = pid(file);
    assert_ne!(own, shared, "it has a process of its own");
    (session, own)
}

#[tokio::test]
async fn a_connection_of_a_session_ends_with_the_session_and_its_calls_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let gate = gate(&own(&["--pid", file.to_str().unwrap()])).await;
    let (session, own) = busy(&gate, &file).await;
    let sleep = json!({"name": "zoo_sleep", "arguments": {"ms": 600_000}});
    let (answer, ()) = tokio::join!(session.ask("tools/call", sleep), async {
        gate.works_on_a_call().await;
        session.end(&gate).await;
    });
    let told = answer.1["result"]["content"][0]["text"].as_str();
    assert!(
        told.is_some_and(|told| told.contains("cancelled")),
        "{answer:?}"
    );
    is_gone(&own).await;
}

#[tokio::test]
async fn a_connection_of_a_session_ends_with_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let toml = own(&["--pid", file.to_str().unwrap()]);
    let gate = gate(&toml).await;
    let (session, first) = busy(&gate, &file).await;
    gate.edit(&format!("{toml}enabled = false\n"));
    is_gone(&first).await;
    gate.edit(&toml);
    gate.reaches("zoo", "healthy").await;
    let (_other, second) = busy(&gate, &file).await;
    gate.edit(&zoo("other", &[]));
    is_gone(&second).await;
    let (status, _) = session.ask("ping", json!({})).await;
    assert_eq!(status, 200, "the session itself lives on");
}

#[tokio::test]
async fn a_server_on_pipes_asks_on_the_stream_of_its_only_call() {
    let gate = gate(&own(&["--fixtures"])).await;
    let session = Old::saying(&gate, "/mcp", None, can_be_asked()).await;
    let call = json!({"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}});
    let mut stream = session.stream(&gate, "tools/call", call).await;
    let question = stream.next("elicitation/create").await;
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    let (status, _) = session.post(&gate, &answer).await;
    assert_eq!(status, 202);
    let text = stream.rest().await;
    assert!(text.contains("action=decline"), "{text}");
}

#[tokio::test]
async fn a_gate_that_stops_waits_for_no_answer() {
    let mut gate = gate(&own(&["--fixtures"])).await;
    let session = Old::saying(&gate, "/mcp", None, can_be_asked()).await;
    let call = json!({"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}});
    let mut stream = session.stream(&gate, "tools/call", call).await;
    stream.next("elicitation/create").await;
    gate.signal("-TERM");
    let text = stream.rest().await;
    assert!(text.contains("the client did not answer"), "{text}");
    assert_eq!(gate.ends().await, Some(0));
    let log = gate.log();
    assert!(!log.contains("calls that are still under way"), "{log}");
}

#[tokio::test]
async fn only_who_can_be_asked_gets_longer_than_the_timeout() {
    let gate = gate(&(own(&[]) + "timeout = \"1s\"\n")).await;
    let roots = ("2025-11-25", json!({"roots": {}}));
    let session = Old::saying(&gate, "/mcp", None, roots).await;
    let sleep = json!({"name": "zoo_sleep", "arguments": {"ms": 600_000}});
    let result = session.result("tools/call", sleep).await;
    let told = result["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("did not answer within 1.0 s"), "{told}");
}

#[tokio::test]
async fn whoever_approves_first_answers_for_the_client_too() {
    let ask = "[[permissions.rules]]\ntool = \"*.add\"\naction = \"ask\"\n";
    let gate = gate(&(zoo("zoo", &[]) + ask)).await;
    let session = Old::saying(&gate, "/mcp", None, can_be_asked()).await;
    let call = json!({"name": "zoo_add", "arguments": {"a": 1, "b": 2}});
    let mut stream = session.stream(&gate, "tools/call", call).await;
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
async fn the_newest_stream_of_a_session_hears_its_news() {
    let gate = gate(&zoo("zoo", &[])).await;
    let session = Old::open(&gate, "/mcp", None).await;
    let mut first = session.listens(&gate).await;
    let mut second = session.listens(&gate).await;
    assert_eq!(first.rest().await, "", "it ended");
    gate.edit(&zoo("zoo", &["--tools", "1"]));
    second.next("notifications/tools/list_changed").await;
}

#[tokio::test]
async fn a_session_hears_that_its_virtual_server_changes() {
    let toml = zoo("zoo", &[]) + "[virtual_servers.some]\ntools = [\"zoo.add\"]\n";
    let gate = gate(&toml).await;
    let session = Old::open(&gate, "/mcp/v/some", None).await;
    let mut told = session.listens(&gate).await;
    gate.edit(&toml.replace("zoo.add", "zoo.echo"));
    told.next("notifications/tools/list_changed").await;
    let tools = session.result("tools/list", json!({})).await;
    assert_eq!(names(&tools, "tools", "name"), ["zoo_echo"]);
}

#[tokio::test]
async fn what_a_key_has_nothing_of_is_not_there() {
    let virtual_server = "[virtual_servers.some]\ntools = [\"zoo.add\"]\n";
    let toml = zoo("zoo", &[]) + &zoo("other", &[]) + virtual_server + KEYS;
    let gate = gate(&toml).await;
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
        let tells = |text: &str| text.split("request_id").next().unwrap().to_owned();
        assert!(code == 200 || tells(&text) == tells(&unknown), "{text}");
    }
}

#[tokio::test]
async fn a_key_that_is_gone_takes_its_streams_with_it() {
    let toml = zoo("zoo", &[]) + &zoo("other", &[]);
    let gate = gate(&(toml.clone() + KEYS)).await;
    let session = Old::open(&gate, "/mcp", Some(ALICE)).await;
    let mut told = session.listens(&gate).await;
    let bob = KEYS.split_once("[keys.bob]").unwrap().1;
    gate.edit(&format!("{toml}[keys.bob]{bob}"));
    let ended = tokio::time::timeout(SOON, told.rest()).await;
    assert!(ended.is_ok(), "nobody listens with a key that is gone");
}

#[tokio::test]
async fn one_key_does_not_take_the_sessions_of_another() {
    let gate = gate(&(zoo("zoo", &[]) + &zoo("other", &[]) + KEYS)).await;
    let bob = Old::open(&gate, "/mcp", Some(BOB)).await;
    let first = Old::open(&gate, "/mcp", Some(ALICE)).await;
    for _ in 0..250 {
        Old::open(&gate, "/mcp", Some(ALICE)).await;
    }
    let (status, _) = first.ask("ping", json!({})).await;
    assert_eq!(status, 404, "its own oldest made room");
    let (status, _) = bob.ask("ping", json!({})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_batch_goes_the_way_of_its_messages() {
    let gate = gate(&own(&["--fixtures"])).await;
    let oldest = ("2025-03-26", json!({"elicitation": {}}));
    let session = Old::saying(&gate, "/mcp", None, oldest).await;
    let mut told = session.listens(&gate).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}}});
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let batch = json!([call, ping, {"jsonrpc": "2.0"}]);
    let (answered, ()) = tokio::join!(session.post(&gate, &batch), async {
        let question = told.next("elicitation/create").await;
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
    for wrong in [json!([]), Value::from(vec![ping; 101])] {
        let (status, answer) = session.post(&gate, &wrong).await;
        assert_eq!(
            (status, answer["error"]["code"].as_i64()),
            (400, Some(-32600))
        );
    }
    let newer = Old::open(&gate, "/mcp", None).await;
    assert_eq!(newer.post(&gate, &batch).await.0, 400);
}

#[tokio::test]
async fn a_server_hears_that_the_roots_of_its_client_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("count");
    let gate = gate(&own(&["--count", file.to_str().unwrap()])).await;
    let roots = ("2025-11-25", json!({"roots": {"listChanged": true}}));
    let session = Old::saying(&gate, "/mcp", None, roots).await;
    session
        .result("tools/call", json!({"name": "zoo_empty", "arguments": {}}))
        .await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    assert_eq!(session.post(&gate, &changed).await.0, 202);
    eventually("the server has heard it", SOON, async || {
        pid(&file).contains("roots/list_changed").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_level_of_log_messages_is_one_of_eight() {
    let gate = gate(&own(&["--silent-on", "logging/setLevel"])).await;
    let session = Old::saying(&gate, "/mcp", None, can_be_asked()).await;
    session
        .result("tools/call", json!({"name": "zoo_empty", "arguments": {}}))
        .await;
    // The client does not wait for a server that does not answer.
    for (level, code) in [("warning", None), ("loud", Some(-32602))] {
        let (_, answer) = session
            .ask("logging/setLevel", json!({"level": level}))
            .await;
        assert_eq!(answer["error"]["code"].as_i64(), code, "{answer}");
    }
}

/// A gate in front of a modern server with the fixtures of the conformance suite.
async fn modern_fixtures(extra: &str) -> (TestGate, HttpZoo) {
    let zoo = HttpZoo::start(&["--fixtures", "--era", "modern"]);
    let toml = format!("[mcp_servers.zoo]\nurl = {:?}\n{extra}", zoo.url());
    (gate(&toml).await, zoo)
}

#[tokio::test]
async fn a_modern_client_hears_the_log_messages_that_it_asks_for() {
    let (gate, _zoo) = modern_fixtures("").await;
    for (level, heard) in [("info", 3), ("error", 0)] {
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
        assert_eq!(messages, heard, "{level}: {text}");
        assert!(text.contains("Three messages were logged"), "{text}");
    }
}

fn asked_meta() -> String {
    META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}")
}

#[tokio::test]
async fn an_approved_call_may_ask_and_go_on() {
    let ask = "[[permissions.rules]]\nserver = \"zoo\"\naction = \"ask\"\n";
    let (gate, _zoo) = modern_fixtures(ask).await;
    let call = async |state: &Value, responses: Value| {
        let mut params = json!({"name": "test_input_required_result_multi_round", "arguments": {}});
        if state.is_string() {
            params["requestState"] = state.clone();
            params["inputResponses"] = responses;
        }
        let meta = asked_meta();
        let (_, answer) = modern_as(&gate, "/mcp/zoo", "tools/call", params, &meta).await;
        answer["result"].clone()
    };
    let elicited =
        |key: &str, content: Value| json!({key: {"action": "accept", "content": content}});
    let ours = call(&Value::Null, json!({})).await;
    assert!(
        ours["inputRequests"]["toolgate_approval"].is_object(),
        "{ours}"
    );
    let yes = elicited("toolgate_approval", json!({}));
    let one = call(&ours["requestState"], yes).await;
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
        "once: {again}"
    );
    let approvals = gate.json("/api/approvals?state=done").await;
    assert_eq!(approvals["approvals"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_gateway_behind_the_gateway_asks_too() {
    let ask = "[[permissions.rules]]\ntool = \"*.add\"\naction = \"ask\"\n";
    let behind = gate(&(zoo("zoo", &[]) + ask)).await;
    let toml = format!("[mcp_servers.zoo]\nurl = \"{}/mcp/zoo\"\n", behind.url);
    let front = gate(&toml).await;
    let mut params = json!({"name": "zoo_add", "arguments": {"a": 1, "b": 2}});
    let meta = asked_meta();
    let (_, asked) = modern_as(&front, "/mcp", "tools/call", params.clone(), &meta).await;
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({"toolgate_approval": {"action": "accept", "content": {}}});
    let (_, ran) = modern_as(&front, "/mcp", "tools/call", params, &meta).await;
    assert_eq!(ran["result"]["content"][0]["text"], "3", "{asked} {ran}");
}

#[tokio::test]
async fn a_resource_that_wants_to_know_something_is_not_empty() {
    let (gate, _zoo) = modern_fixtures("").await;
    let params = json!({"name": "ReadMcpResource", "arguments": {"uri": "test://wants-input"}});
    let (_, answer) = modern_as(&gate, "/mcp", "tools/call", params, &asked_meta()).await;
    assert!(answer["error"].is_object(), "{answer}");
}

#[tokio::test]
async fn what_is_read_as_a_tool_is_tidied() {
    let (gate, _zoo) = modern_fixtures("[results]\nredact_secrets = true\n").await;
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let uri = format!("test://template/{secret}/data");
    let params = json!({"name": "ReadMcpResource", "arguments": {"uri": uri, "server": "zoo"}});
    let (_, answer) = modern_as(&gate, "/mcp", "tools/call", params, META).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("templateTest") && !text.contains(&secret),
        "{text}"
    );
}

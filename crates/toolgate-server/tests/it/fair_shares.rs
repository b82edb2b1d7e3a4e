//! Shares of callers in what all of them use: one cannot starve another.

use std::path::Path;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::caller::{ALICE, BOB, EXECUTE, text, tool_call};
use crate::connections::{KEYS, RawConnection, call, reached, start};
use crate::gate::{TestGate, WAIT_TIMEOUT, processes_with, zoo};
use crate::mcp::{LegacySession, headers, modern_request, read_json};

/// A client whose servers can send it requests.
fn elicitation_client() -> (&'static str, Value) {
    ("2025-11-25", json!({"elicitation": {}}))
}

fn initialize(capabilities: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": capabilities,
        "clientInfo": {"name": "t", "version": "1"}}})
    .to_string()
}

fn key_header(key: &str) -> HeaderMap {
    headers(&[("x-api-key", key)])
}

/// Waits until a server has this many calls in flight.
async fn wait_for_in_flight(gate: &TestGate, server: &str, calls: usize) {
    let line = format!("in_flight{{server=\"{server}\"}} {calls}\n");
    eventually(&line, WAIT_TIMEOUT, async || {
        let metrics = gate.get("/metrics").await.text().await.unwrap();
        metrics.contains(&line).then_some(())
    })
    .await;
}

/// Runs a script and returns its message.
async fn run_script(gate: &TestGate, key: &str, code: &str) -> Value {
    let body = tool_call("executeToolCode", &json!({"code": code}));
    let response = gate.with_key(key).post(EXECUTE, &body).await;
    response.expect_status(200)
}

#[tokio::test]
async fn new_sessions_count_against_the_rate_limit() {
    let carol = "carol-key-0123456789abcdef";
    let gate = start(&format!(
        "[keys.carol]\nkey = \"{carol}\"\nrate_limit = \"2/h\"\n"
    ))
    .await;
    for _ in 0..2 {
        LegacySession::open(&gate, "/mcp", Some(carol)).await;
    }
    let body = initialize(&json!({}));
    let response = gate.post("/mcp", &body, key_header(carol)).await;
    assert!(response.headers().contains_key("retry-after"));
    let (status, answer) = read_json(response).await;
    assert_eq!(status, 429, "{answer}");
    assert_eq!(answer["error"]["code"], -32005, "{answer}");
    assert!(answer["error"]["data"]["retryAfterMs"].is_u64(), "{answer}");
    LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
}

#[tokio::test]
async fn size_of_capabilities_is_bounded() {
    let gate = start("").await;
    let large = initialize(&json!({"experimental": {"x": "y".repeat(10_000)}}));
    let response = gate.post("/mcp", &large, key_header(ALICE)).await;
    let (status, answer) = read_json(response).await;
    assert_eq!(status, 400, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("`capabilities` has 10"), "{message}");
    assert_eq!(reached(&gate, "capabilities").await, 1);
}

#[tokio::test]
async fn new_session_of_a_key_ends_its_oldest() {
    let gate = start("[capacity]\nmax_sessions_per_key = 2\n").await;
    let of_bob = LegacySession::open(&gate, "/mcp", Some(BOB)).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(LegacySession::open(&gate, "/mcp", Some(ALICE)).await);
    }
    let status = async |session: &LegacySession<'_>| session.request("ping", json!({})).await.0;
    assert_eq!(status(&sessions[0]).await, 404);
    assert_eq!(status(&sessions[1]).await, 200);
    assert_eq!(status(&sessions[2]).await, 200);
    assert_eq!(status(&of_bob).await, 200);
    assert_eq!(reached(&gate, "sessions_per_key").await, 1);
}

#[tokio::test]
async fn new_session_ends_one_of_the_caller_with_most() {
    let gate = start("[capacity]\nmax_sessions = 4\n").await;
    let mut of_alice = Vec::new();
    for _ in 0..3 {
        of_alice.push(LegacySession::open(&gate, "/mcp", Some(ALICE)).await);
    }
    let of_bob = LegacySession::open(&gate, "/mcp", Some(BOB)).await;
    LegacySession::open(&gate, "/mcp", Some(BOB)).await;
    let status = async |session: &LegacySession<'_>| session.request("ping", json!({})).await.0;
    assert_eq!(status(&of_alice[0]).await, 404);
    assert_eq!(status(&of_alice[1]).await, 200);
    assert_eq!(status(&of_bob).await, 200);
    assert_eq!(reached(&gate, "sessions").await, 1);
}

/// Configures a server with one process per session, which writes its process id to a file.
fn per_session(pid: &Path) -> String {
    zoo("own", &["--pid", pid.to_str().unwrap()]) + "per_session = true\n"
}

/// Calls a tool of the server with one process per session.
async fn call_own(session: &LegacySession<'_>, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": format!("own_{tool}"), "arguments": arguments});
    session.result("tools/call", params).await
}

#[tokio::test]
async fn processes_of_sessions_have_a_share_per_key() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "[capacity]\nmax_session_connections_per_key = 1\n";
    let gate = start(&format!(
        "{limits}{}",
        per_session(&folder.path().join("pid"))
    ))
    .await;
    gate.wait_for_state("own", "healthy").await;
    let open =
        async |key| LegacySession::open_with(&gate, "/mcp", Some(key), elicitation_client()).await;
    let (first, second, of_bob) = (open(ALICE).await, open(ALICE).await, open(BOB).await);
    // An idle process makes way for that of another session.
    for session in [&first, &second, &first] {
        let answer = call_own(session, "add", json!({"a": 1, "b": 2})).await;
        assert_eq!(answer["content"][0]["text"], "3", "{answer}");
    }
    // A busy one does not.
    let sleep = call_own(&first, "sleep", json!({"ms": 600_000}));
    let refused = async {
        wait_for_in_flight(&gate, "own", 1).await;
        call_own(&second, "add", json!({"a": 1, "b": 2})).await
    };
    let answer = tokio::select! {
        answer = sleep => panic!("{answer}"),
        answer = refused => answer,
    };
    assert_eq!(answer["isError"], true, "{answer}");
    let message = answer["content"][0]["text"].as_str().unwrap();
    assert!(
        message.contains("capacity.max_session_connections_per_key"),
        "{message}"
    );
    let answer = call_own(&of_bob, "add", json!({"a": 1, "b": 2})).await;
    assert_eq!(answer["content"][0]["text"], "3", "{answer}");
    assert_eq!(reached(&gate, "session_connections_per_key").await, 1);
}

#[tokio::test]
async fn process_of_a_session_ends_after_its_client_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let limits = "[capacity]\nsession_disconnect_timeout = \"100ms\"\n";
    let gate = start(&format!("{limits}{}", per_session(&file))).await;
    gate.wait_for_state("own", "healthy").await;
    let session = LegacySession::open_with(&gate, "/mcp", Some(ALICE), elicitation_client()).await;
    let stream = session.open_get_stream(&gate).await;
    call_own(&session, "empty", json!({})).await;
    let processes = || processes_with(file.to_str().unwrap()).len();
    assert_eq!(processes(), 2, "the shared one and that of the session");
    drop(stream);
    eventually("the process exits", WAIT_TIMEOUT, async || {
        (processes() == 1).then_some(())
    })
    .await;
    // The session itself continues, with a new process.
    let answer = call_own(&session, "add", json!({"a": 1, "b": 2})).await;
    assert_eq!(answer["content"][0]["text"], "3", "{answer}");
}

#[tokio::test]
async fn idle_session_ends() {
    let gate = start("[capacity]\nsession_idle_timeout = \"100ms\"\n").await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    eventually("the session ends", WAIT_TIMEOUT, async || {
        let metrics = gate.get("/metrics").await.text().await.unwrap();
        metrics.contains("toolgate_mcp_sessions 0").then_some(())
    })
    .await;
    assert_eq!(session.request("ping", json!({})).await.0, 404);
}

#[tokio::test]
async fn messages_for_a_server_that_does_not_read_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let stalled = zoo("stalled", &["--pid", file.to_str().unwrap()]) + "max_in_flight = 100\n";
    let gate = start(&format!("[capacity]\nmax_queued_mb = 2\n{stalled}")).await;
    gate.wait_for_state("stalled", "healthy").await;
    let processes = processes_with(file.to_str().unwrap());
    assert_eq!(processes.len(), 1, "{processes:?}");
    let signal = |name: &str| {
        let status = std::process::Command::new("kill")
            .args([name, &processes[0].to_string()])
            .status();
        assert!(status.unwrap().success());
    };
    signal("-STOP");
    let large = tool_call("stalled_echo", &json!({"text": "x".repeat(900_000)}));
    let send = || async {
        let response = gate.with_key(ALICE).post(EXECUTE, &large).await;
        response.expect_status(200)
    };
    // Cancels the calls that wait as soon as one is refused.
    let mut calls: FuturesUnordered<_> = (0..8).map(|_| send()).collect();
    let refused = calls.next().await.unwrap();
    drop(calls);
    assert!(
        text(&refused).contains("capacity.max_queued_mb"),
        "{refused}"
    );
    assert!(reached(&gate, "queued_bytes").await >= 1);
    assert!(gate.log().contains("queued_bytes"));
    // The cancelled calls have left the queue, so that there is room for others.
    wait_for_in_flight(&gate, "stalled", 0).await;
    let (first, second, ()) = tokio::join!(send(), send(), async {
        wait_for_in_flight(&gate, "stalled", 2).await;
        signal("-CONT");
    });
    for answer in [first, second] {
        assert!(text(&answer).contains("xxx"), "{answer}");
    }
}

/// One key fills the slots and the queue of a server; another one is served all the same.
#[tokio::test]
async fn calls_of_one_key_leave_a_part_of_a_server_to_others() {
    let shared = zoo("shared", &[]) + "max_in_flight = 4\nmax_queue = 8\n";
    let gate = start(&shared).await;
    gate.wait_for_state("shared", "healthy").await;
    let sleep = tool_call("shared_sleep", &json!({"ms": 600_000}));
    let send = || async {
        let response = gate.with_key(ALICE).post(EXECUTE, &sleep).await;
        response.expect_status(200)
    };
    // Three quarters of each: three calls in flight, and six that wait.
    let mut calls: FuturesUnordered<_> = (0..10).map(|_| send()).collect();
    let refused = calls.next().await.unwrap();
    let message = text(&refused);
    assert!(
        message.contains("3 calls in flight and 6 queued for this key (`max_in_flight_per_key`)"),
        "{message}"
    );
    assert_eq!(reached(&gate, "server_calls_per_key").await, 1);
    let add = tool_call("shared_add", &json!({"a": 1, "b": 2}));
    let others = async {
        for _ in 0..5 {
            let answer = gate.with_key(BOB).post(EXECUTE, &add).await;
            assert_eq!(text(&answer.expect_status(200)), "3");
        }
    };
    tokio::select! {
        answer = calls.next() => panic!("{answer:?}"),
        () = others => {}
    }
}

#[tokio::test]
async fn scripts_of_one_key_do_not_delay_those_of_another() {
    let code_mode = zoo("slow", &[]) + "is_code_mode_client = true\n";
    let gate = start(&format!("[code_mode]\nmax_workers = 2\n{code_mode}")).await;
    gate.wait_for_state("slow", "healthy").await;
    let sleeping = (0..10).map(|_| run_script(&gate, ALICE, "slow.sleep(ms=600000)"));
    let other = async {
        wait_for_in_flight(&gate, "slow", 1).await;
        for _ in 0..3 {
            let answer = run_script(&gate, BOB, "result = slow.add(a=1, b=2)").await;
            assert_eq!(answer["is_error"], Value::Null, "{answer}");
        }
    };
    tokio::select! {
        answers = join_all(sleeping) => panic!("{answers:?}"),
        () = other => {}
    }
}

/// Starts a gateway with an agent in front of a model.
async fn start_agent(model: &ScriptedModel, limits: &str) -> TestGate {
    let provider = format!(
        "[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"k\"\nmax_retries = 0\n",
        model.url()
    );
    let auto = "tools_to_auto_execute = [\"*\"]\n";
    let toml = format!(
        "[capacity]\n{limits}{provider}{}{auto}{KEYS}",
        zoo("zoo", &[])
    );
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

fn chat(stream: bool) -> Value {
    json!({"model": "openai/m", "stream": stream, "messages": [{"role": "user", "content": "hello"}]})
}

#[tokio::test]
async fn runs_have_a_share_per_key() {
    let sleep = ("c1", "zoo_sleep", json!({"ms": 600_000}));
    let model = ScriptedModel::start(vec![Reply::calls([sleep]), Reply::text("done")]);
    let gate = start_agent(&model, "max_runs_per_key = 1\n").await;
    let path = "/v1/chat/completions";
    let alice = gate.with_key(ALICE);
    let bob = gate.with_key(BOB);
    let (body, others) = (chat(false), chat(false));
    let running = alice.post(path, &body);
    let others = async {
        gate.wait_for_in_flight_call().await;
        let refused = gate.with_key(ALICE).post(path, &others).await;
        assert_eq!(refused.status, 429, "{}", refused.body);
        assert!(refused.retry_after.is_some());
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("capacity.max_runs_per_key"), "{message}");
        bob.post(path, &others).await.expect_status(200)
    };
    let answer = tokio::select! {
        answer = running => panic!("{}", answer.body),
        answer = others => answer,
    };
    assert_eq!(answer["choices"][0]["message"]["content"], "done");
    assert_eq!(reached(&gate, "runs_per_key").await, 1);
}

#[tokio::test]
async fn size_of_a_turn_is_bounded() {
    let event = json!({"id": "1", "object": "chat.completion.chunk", "model": "m", "choices":
        [{"index": 0, "delta": {"role": "assistant", "content": "x".repeat(10_000)}}]});
    let events = format!("data: {event}\n\n").repeat(200);
    let model = ScriptedModel::start(vec![Reply::raw("text/event-stream", events)]);
    let gate = start_agent(&model, "max_turn_mb = 1\n").await;
    let body = chat(true).to_string();
    let response = gate
        .post("/v1/chat/completions", &body, key_header(ALICE))
        .await;
    let text = response.text().await.unwrap();
    assert!(text.contains("larger than 1048576 bytes"), "{}", text.len());
    assert!(text.len() < 1_300_000, "{}", text.len());
    assert_eq!(reached(&gate, "turn_size").await, 1);
}

#[tokio::test]
async fn deeply_nested_json_is_not_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools.json");
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let schema = json!({"type": "object"});
    let tools = format!(
        r#"{{"tools":[{{"name":"deep","inputSchema":{schema}}},{{"name":"flat","inputSchema":{schema}}}],
        "results":{{"deep":{{"content":[],"structuredContent":{{"a":{}}}}},"flat":{{"content":[],"structuredContent":{{"a":{}}}}}}}}}"#,
        nested(100_000),
        nested(50)
    );
    std::fs::write(&file, tools).unwrap();
    let hostile = zoo("hostile", &["--tools-from", file.to_str().unwrap()]);
    let gate = start(&hostile).await;
    gate.wait_for_state("hostile", "healthy").await;
    let session = LegacySession::open(&gate, "/mcp/hostile", Some(ALICE)).await;
    let call = async |name: &str| {
        let params = json!({"name": name, "arguments": {}});
        session.request("tools/call", params).await
    };
    let (_, answer) = call("flat").await;
    assert!(
        answer["result"]["structuredContent"].is_object(),
        "{answer}"
    );
    let (_, answer) = call("deep").await;
    assert!(answer.to_string().contains("levels deep"), "{answer}");
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{{"name":"p","arguments":{{"a":{}}}}}}}"#,
        nested(100_000)
    );
    let response = gate.post("/mcp", &message, session.headers()).await;
    let (status, answer) = read_json(response).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("levels deep"), "{answer}");
    assert_eq!(reached(&gate, "json_depth").await, 2);
}

#[tokio::test]
async fn large_bodies_of_a_key_are_bounded() {
    let gate = start("[capacity]\nmax_bodies_mb_per_key = 16\n").await;
    let part = "x".repeat(1024 * 1024);
    let mut held = RawConnection::send_headers(&gate, ALICE, EXECUTE, 16 * 1024 * 1024).await;
    for _ in 0..15 {
        held.send(&part).await;
    }
    let body = tool_call("zoo_echo", &json!({"text": "x".repeat(4 * 1024 * 1024)}));
    eventually("the share is used up", WAIT_TIMEOUT, async || {
        let response = gate.with_key(ALICE).post(EXECUTE, &body).await;
        (response.status == 429).then_some(())
    })
    .await;
    assert_eq!(call(&gate, ALICE).await, 200, "small bodies still pass");
    let answer = gate.with_key(BOB).post(EXECUTE, &body).await;
    assert_eq!(answer.status, 200);
    assert!(reached(&gate, "bodies_per_key").await >= 1);
    drop(held);
    eventually("the share is free again", WAIT_TIMEOUT, async || {
        let response = gate.with_key(ALICE).post(EXECUTE, &body).await;
        (response.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn busy_connections_shed_sessions_and_streams_first() {
    let gate = start("[http]\nmax_connections = 64\nreserved_connections = 8\n").await;
    let session = LegacySession::open(&gate, "/mcp", Some(BOB)).await;
    let mut held = Vec::new();
    for _ in 0..52 {
        held.push(RawConnection::hold(&gate, ALICE, EXECUTE).await);
    }
    let ready = eventually("the load is high", WAIT_TIMEOUT, async || {
        let ready = gate.json("/ready").await;
        (ready["load"] == "high").then_some(ready)
    })
    .await;
    assert_eq!(ready["status"], "ready", "{ready}");
    assert!(ready["load_reason"].is_string(), "{ready}");
    let body = initialize(&json!({}));
    let response = gate.post("/mcp", &body, key_header(BOB)).await;
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let get = gate.client.get(format!("{}/mcp", gate.url));
    let response = get.headers(session.headers()).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(call(&gate, BOB).await, 200, "calls are still served");
    assert_eq!(session.request("ping", json!({})).await.0, 200);
    let metrics = gate.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("toolgate_load_level 1"), "{metrics}");
    drop(held);
    eventually("the load is normal", WAIT_TIMEOUT, async || {
        (gate.json("/ready").await["load"] == "normal").then_some(())
    })
    .await;
    LegacySession::open(&gate, "/mcp", Some(BOB)).await;
}

#[tokio::test]
async fn without_memory_only_probes_and_the_administrator_are_served() {
    let toml = zoo("zoo", &[]) + KEYS;
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(call(&gate, ALICE).await, 200);
    // Less than any process needs.
    gate.edit(&format!("[capacity]\nmax_memory_mb = 1\n{toml}"));
    let ready = eventually("the gateway is overloaded", WAIT_TIMEOUT, async || {
        let response = gate.get("/ready").await;
        let (status, ready) = read_json(response).await;
        (status == 503).then_some(ready)
    })
    .await;
    assert_eq!(ready["status"], "overloaded", "{ready}");
    assert_eq!(ready["load"], "critical", "{ready}");
    assert_eq!(call(&gate, ALICE).await, 503);
    let (status, _) = modern_request(&gate, "/mcp", "tools/list", json!({})).await;
    assert_ne!(status, 200);
    assert_eq!(gate.get("/health").await.status(), 200);
    assert_eq!(gate.get("/api/mcp/clients").await.status(), 200);
    assert!(gate.log().contains("shedding load"));
    gate.edit(&toml);
    eventually("calls are served again", WAIT_TIMEOUT, async || {
        (call(&gate, ALICE).await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn notifications_for_a_client_that_does_not_read_are_bounded() {
    let gate = start("").await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    // More progress than the queue and the buffers of the connection hold.
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "zoo_progress", "arguments": {"steps": 200_000}, "_meta": {"progressToken": "t"}}});
    let mut connection = RawConnection::open(&gate).await;
    let id = session.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let body = body.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-api-key: {ALICE}\r\nmcp-session-id: {id}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.send(&head).await;
    eventually("notifications are dropped", WAIT_TIMEOUT, async || {
        (reached(&gate, "notifications").await > 0).then_some(())
    })
    .await;
    assert_eq!(call(&gate, BOB).await, 200);
}

/// Calls a tool with a large result over a connection that the test does not read.
async fn request_large_result(gate: &TestGate, session: &LegacySession<'_>) -> RawConnection {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "zoo_big", "arguments": {"bytes": 28_000_000}}})
    .to_string();
    let id = session.headers()["mcp-session-id"].clone();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-api-key: {ALICE}\r\nmcp-session-id: {}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        id.to_str().unwrap(),
        body.len()
    );
    let mut connection = RawConnection::open(gate).await;
    connection.send(&head).await;
    connection
}

#[tokio::test]
async fn unread_responses_count_towards_the_share_of_a_key() {
    let gate = start("[capacity]\nmax_bodies_mb_per_key = 16\n").await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    let held = request_large_result(&gate, &session).await;
    eventually("the share is used up", WAIT_TIMEOUT, async || {
        (call(&gate, ALICE).await == 429).then_some(())
    })
    .await;
    assert_eq!(call(&gate, BOB).await, 200);
    drop(held);
    eventually("the share is free again", WAIT_TIMEOUT, async || {
        (call(&gate, ALICE).await == 200).then_some(())
    })
    .await;
}

/// Waits until a large body of Alice is refused, or accepted.
async fn wait_for_large_body(gate: &TestGate, status: u16) {
    let body = tool_call("zoo_echo", &json!({"text": "x".repeat(6 * 1024 * 1024)}));
    eventually("the share has changed", WAIT_TIMEOUT, async || {
        let response = gate.with_key(ALICE).post(EXECUTE, &body).await;
        (response.status == status).then_some(())
    })
    .await;
}

/// The memory of a message counts until its request has ended, not only while its connection is open.
#[tokio::test]
async fn body_of_a_call_counts_after_its_client_has_left() {
    let gate = start("[capacity]\nmax_bodies_mb_per_key = 16\n").await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "zoo_sleep", "arguments": {"ms": 600_000}}});
    let body = format!("{call}{}", " ".repeat(12 * 1024 * 1024));
    let mut sent = session.headers();
    sent.extend(headers(&[(
        "accept",
        "application/json, text/event-stream",
    )]));
    let response = gate.post("/mcp", &body, sent).await;
    assert_eq!(response.status(), 200);
    drop(response);
    wait_for_in_flight(&gate, "zoo", 1).await;
    wait_for_large_body(&gate, 429).await;
    assert_eq!(crate::connections::call(&gate, BOB).await, 200);
    session.end(&gate).await;
    wait_for_large_body(&gate, 200).await;
}

#[tokio::test]
async fn connection_whose_client_does_not_read_is_closed() {
    let gate = start("[http]\nbody_timeout = \"300ms\"\n").await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    let _held = request_large_result(&gate, &session).await;
    eventually("the connection is closed", WAIT_TIMEOUT, async || {
        (reached(&gate, "write_time").await > 0).then_some(())
    })
    .await;
    assert_eq!(call(&gate, ALICE).await, 200);
}

//! Processing of a call: scanner, limits, result cache, and processing of results.

use std::fs;
use std::path::PathBuf;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_testkit::eventually;

use crate::caller::{ALICE, BOB, Caller, EXECUTE, SESSION, text, tool_call};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

async fn start_gate(more: &str) -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + more));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

/// Starts a gateway whose zoo logs the requests it receives.
async fn start_counting_gate(more: &str) -> (TestGate, RequestLog) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests");
    let toml = zoo("zoo", &["--count", path.to_str().unwrap()]) + more;
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let log = RequestLog {
        path,
        _folder: folder,
    };
    (gate, log)
}

struct RequestLog {
    path: PathBuf,
    _folder: TempDir,
}

impl RequestLog {
    fn calls(&self, tool: &str) -> usize {
        let text = fs::read_to_string(&self.path).unwrap();
        let line = format!("tools/call {tool}");
        text.lines().filter(|logged| **logged == line).count()
    }
}

/// For each scanner check, arguments that match and harmless ones that look similar.
fn dangers() -> [(&'static str, Value, Value); 4] {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    [
        (
            "path_traversal",
            json!({"path": "../../etc/passwd"}),
            json!({"path": "a..b/c"}),
        ),
        (
            "shell",
            json!({"command": "ls; rm -rf /"}),
            json!({"text": "ls; rm -rf /"}),
        ),
        (
            "private_address",
            json!({"url": "http://169.254.169.254/latest"}),
            json!({"url": "https://example.com/"}),
        ),
        (
            "secret",
            json!({"text": token}),
            json!({"text": "ghp_short"}),
        ),
    ]
}

fn scanner_config(danger: &str, action: &str) -> String {
    let all = dangers().map(|(name, ..)| {
        let action = if name == danger { action } else { "off" };
        format!("{name} = \"{action}\"\n")
    });
    "[scanner]\n".to_owned() + &all.concat()
}

async fn warnings(gate: &TestGate) -> Vec<usize> {
    let records = gate.records(&gate.caller()).await;
    let count = |record: &Value| record["warnings"].as_array().unwrap().len();
    records.iter().map(count).collect()
}

#[tokio::test]
async fn scanner_warns() {
    for (danger, bad, good) in dangers() {
        let gate = start_gate(&scanner_config(danger, "warn")).await;
        for arguments in [&bad, &good] {
            let message = gate.caller().call("zoo_echo", arguments).await;
            assert_eq!(text(&message), arguments.to_string(), "{danger}");
        }
        assert_eq!(warnings(&gate).await, [1, 0], "{danger}");
    }
}

#[tokio::test]
async fn scanner_asks() {
    for (danger, bad, good) in dangers() {
        let gate = start_gate(&scanner_config(danger, "ask")).await;
        let message = gate.caller().call("zoo_echo", &bad).await;
        let id = message["approval"]["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{danger}: {message}"));
        let shown = gate.json(&format!("/api/approvals/{id}")).await;
        assert_eq!(shown["rule"], format!("scanner.{danger}"));
        let message = gate.caller().call("zoo_echo", &good).await;
        assert_eq!(text(&message), good.to_string(), "{danger}");
    }
}

#[tokio::test]
async fn scanner_denies() {
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    for (danger, bad, good) in dangers() {
        let (gate, log) = start_counting_gate(&scanner_config(danger, "deny")).await;
        let message = gate.caller().call("zoo_echo", &bad).await;
        assert_eq!(
            (&message["is_error"], message.get("approval")),
            (&json!(true), None),
            "{danger}"
        );
        assert!(
            text(&message).contains(&format!("scanner.{danger}")),
            "{message}"
        );
        assert!(!text(&message).contains(&secret), "{message}");
        let nested = json!({"options": {"list": [{"deep": bad}]}});
        let message = gate.caller().call("zoo_echo", &nested).await;
        assert_eq!(message["is_error"], true, "{danger}: {message}");
        assert_eq!(log.calls("echo"), 0, "the call never reached the server");
        gate.caller().call("zoo_echo", &good).await;
        assert_eq!(log.calls("echo"), 1);
        let outcomes = gate.outcomes(&gate.caller()).await;
        assert_eq!(outcomes, ["denied", "denied", "ok"], "{danger}");
    }
}

#[tokio::test]
async fn disabled_scanner_finds_nothing() {
    let gate = start_gate(&scanner_config("none", "off")).await;
    for (danger, bad, _) in dangers() {
        let message = gate.caller().call("zoo_echo", &bad).await;
        assert_eq!(text(&message), bad.to_string(), "{danger}");
    }
    assert_eq!(warnings(&gate).await, [0; 4]);
}

#[tokio::test]
async fn tool_timeout_overrides_server_timeout() {
    let toml = "timeout = \"60s\"\n[mcp_servers.zoo.tools.sleep]\ntimeout = \"150ms\"\n";
    let (gate, log) = start_counting_gate(toml).await;
    let message = gate.caller().call("zoo_sleep", &json!({"ms": 60000})).await;
    assert!(
        text(&message).contains("did not answer within"),
        "{message}"
    );
    eventually(
        "the server receives the cancellation",
        WAIT_TIMEOUT,
        async || {
            let text = fs::read_to_string(&log.path).unwrap();
            text.contains("cancelled").then_some(())
        },
    )
    .await;
    assert_eq!(gate.outcomes(&gate.caller()).await, ["timeout"]);
}

#[tokio::test]
async fn tool_and_server_rate_limits_are_reported_to_the_model() {
    let toml = "rate_limit = \"3/hour\"\n[mcp_servers.zoo.tools.add]\nrate_limit = \"1/hour\"\n";
    let (gate, log) = start_counting_gate(toml).await;
    let caller = gate.caller();
    let add = json!({"a": 1, "b": 2});
    assert_eq!(text(&caller.call("zoo_add", &add).await), "3");
    let message = caller.call("zoo_add", &add).await;
    assert_eq!(message["is_error"], true);
    assert!(text(&message).contains("try again in"), "{message}");
    assert_eq!(log.calls("add"), 1);
    let limited = eventually(
        "the server's rate limit is exhausted",
        WAIT_TIMEOUT,
        async || {
            let message = caller.call("zoo_echo", &json!({})).await;
            (message["is_error"] == true).then_some(message)
        },
    )
    .await;
    assert!(text(&limited).contains("server `zoo`"), "{limited}");
    assert!(log.calls("echo") <= 2);
}

/// Starts this many one-minute calls and returns the answer to the one that is refused.
async fn first_refused(gate: &TestGate, calls: usize) -> Value {
    let caller = gate.caller();
    let sleep = json!({"ms": 60000});
    let all = (0..calls).map(|_| Box::pin(caller.call("zoo_sleep", &sleep)));
    futures_util::future::select_all(all).await.0
}

#[tokio::test]
async fn max_in_flight_limits_tool() {
    let gate = start_gate("[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n").await;
    let message = first_refused(&gate, 6).await;
    assert!(text(&message).contains("in flight"), "{message}");
    assert_eq!(
        text(&gate.caller().call("zoo_echo", &json!({})).await),
        "{}"
    );
}

#[tokio::test]
async fn max_in_flight_limits_server() {
    let gate = start_gate("max_in_flight = 1\nmax_queue = 1\n").await;
    let message = first_refused(&gate, 3).await;
    assert!(text(&message).contains("busy"), "{message}");
}

#[tokio::test]
async fn queued_calls_eventually_run() {
    let (gate, log) =
        start_counting_gate("[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n").await;
    let calls: Vec<Value> = (0..5)
        .map(|_| tool_call("zoo_sleep", &json!({"ms": 1})))
        .collect();
    let answers = gate
        .caller()
        .post(EXECUTE, &json!(calls))
        .await
        .expect_status(200);
    let all = answers.as_array().unwrap();
    assert!(
        all.iter().all(|answer| text(answer) == "slept 1 ms"),
        "{answers}"
    );
    assert_eq!(log.calls("sleep"), 5);
}

#[tokio::test]
async fn server_cache_ttl_applies_to_read_only_tools() {
    let (gate, log) = start_counting_gate("cache_ttl = \"10m\"\n").await;
    let caller = gate.caller();
    for (tool, arguments, calls) in [
        ("echo", json!({"n": 1}), 1),
        ("echo", json!({"n": 1}), 1),
        ("echo", json!({"n": 2}), 2),
        ("say", json!({"text": "x"}), 1),
        ("say", json!({"text": "x"}), 2),
    ] {
        caller.call(&format!("zoo_{tool}"), &arguments).await;
        assert_eq!(log.calls(tool), calls, "{tool} {arguments}");
    }
    let records = gate.records(&caller).await;
    let cached: Vec<bool> = records
        .iter()
        .map(|r| r["cached"].as_bool().unwrap())
        .collect();
    assert_eq!(cached, [false, true, false, false, false]);
    assert_eq!(records[0]["result"], records[1]["result"]);
}

#[tokio::test]
async fn tool_cache_ttl_overrides_server_and_skips_errors() {
    let toml = "[mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n";
    let (gate, log) = start_counting_gate(toml).await;
    let caller = gate.caller();
    for _ in 0..3 {
        caller.call("zoo_say", &json!({"text": "x"})).await;
    }
    assert_eq!(log.calls("say"), 1);
    for _ in 0..2 {
        let message = caller
            .call("zoo_say", &json!({"text": "y", "fails": true}))
            .await;
        assert_eq!(message["is_error"], true);
    }
    assert_eq!(log.calls("say"), 3);
    for _ in 0..2 {
        caller.call("zoo_echo", &json!({})).await;
    }
    assert_eq!(
        log.calls("echo"),
        2,
        "without `cache_ttl` nothing is cached"
    );
}

#[tokio::test]
async fn cached_results_expire_and_still_need_approval() {
    let toml = "[mcp_servers.zoo.tools.echo]\ncache_ttl = \"50ms\"\n\
                [mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n\
                [[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
    let (gate, log) = start_counting_gate(toml).await;
    let caller = gate.caller();
    caller.call("zoo_echo", &json!({})).await;
    eventually("the tool is called again", WAIT_TIMEOUT, async || {
        caller.call("zoo_echo", &json!({})).await;
        (log.calls("echo") == 2).then_some(())
    })
    .await;
    let arguments = json!({"text": "x"});
    let waiting = caller.call("zoo_say", &arguments).await;
    let id = waiting["approval"]["id"].as_str().unwrap();
    let approve = json!({"decision": "approve"});
    caller
        .post(&format!("/api/approvals/{id}"), &approve)
        .await
        .expect_status(200);
    assert_eq!(text(&caller.call("zoo_say", &arguments).await), "x");
    let again = caller.call("zoo_say", &arguments).await;
    assert!(
        again["approval"]["expires_at"].is_string(),
        "a cached result is not a permission: {again}"
    );
}

const TWO_KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";

async fn read_all(caller: &Caller<'_>, handle: &str) -> String {
    let mut whole = String::new();
    let mut offset = 0;
    loop {
        let path = format!("/v1/mcp/results/{handle}?offset={offset}");
        let part = caller.get(&path).await.expect_status(200);
        assert_eq!(part["offset"], offset);
        whole += part["text"].as_str().unwrap();
        match part["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => return whole,
        }
    }
}

#[tokio::test]
async fn large_result_is_truncated_and_stored_for_its_caller() {
    let gate = start_gate(&("[results]\nmax_bytes = 1024\n".to_owned() + TWO_KEYS)).await;
    let (alice, bob) = (gate.with_key(ALICE), gate.with_key(BOB));
    let long: String = "ä–😀x".chars().cycle().take(3000).collect();
    let message = alice.call("zoo_say", &json!({"text": long})).await;
    let handle = message["result_handle"].as_str().unwrap();
    assert!(text(&message).len() < 1400, "{}", text(&message).len());
    assert!(text(&message).starts_with(&long[..1000]) && text(&message).contains(handle));
    assert_eq!(read_all(&alice, handle).await, long);
    assert_eq!(
        bob.get(&format!("/v1/mcp/results/{handle}")).await.status,
        404
    );
    assert_eq!(alice.get("/v1/mcp/results/nothing").await.status, 404);
    let small = alice.call("zoo_say", &json!({"text": "x"})).await;
    assert_eq!(small.get("result_handle"), None);
}

#[tokio::test]
async fn read_result_tool_returns_the_rest() {
    let gate = start_gate(&("[results]\nmax_bytes = 1024\n".to_owned() + TWO_KEYS)).await;
    let (alice, bob) = (gate.with_key(ALICE), gate.with_key(BOB));
    let message = alice.call("zoo_big", &json!({"bytes": 2500})).await;
    let handle = message["result_handle"].as_str().unwrap();
    for name in [
        "toolgate_read_result",
        "toolgate-read_result",
        "mcp__toolgate__read_result",
        "toolgate.read_result",
    ] {
        let rest = alice
            .call(name, &json!({"handle": handle, "offset": 2400}))
            .await;
        assert_eq!(text(&rest), "x".repeat(100), "{name}");
    }
    let more = alice
        .call(
            "toolgate_read_result",
            &json!({"handle": handle, "offset": 1024}),
        )
        .await;
    assert!(text(&more).contains("\"offset\":2048"), "{more}");
    for (caller, arguments) in [
        (&bob, json!({"handle": handle, "offset": 0})),
        (&alice, json!({"handle": "nothing"})),
        (&alice, json!({})),
    ] {
        let message = caller.call("toolgate_read_result", &arguments).await;
        assert_eq!(message["is_error"], true, "{message}");
    }
    let records = gate.records(&alice).await;
    assert_eq!(records.len(), 9);
    assert!(
        records[1..]
            .iter()
            .all(|record| record["tool"] == "read_result")
    );
}

#[tokio::test]
async fn large_error_result_stays_an_error() {
    let gate = start_gate("[results]\nmax_bytes = 1024\n").await;
    let message = gate
        .caller()
        .call("zoo_say", &json!({"text": "x".repeat(5000), "fails": true}))
        .await;
    assert_eq!(message["is_error"], true);
    assert!(message["result_handle"].is_string());
}

#[tokio::test]
async fn stored_result_expires() {
    let gate = start_gate("[results]\nmax_bytes = 1024\nkeep = \"100ms\"\n").await;
    let message = gate.caller().call("zoo_big", &json!({"bytes": 2500})).await;
    let path = format!(
        "/v1/mcp/results/{}",
        message["result_handle"].as_str().unwrap()
    );
    eventually("the result has expired", WAIT_TIMEOUT, async || {
        let answer = gate.caller().get(&path).await;
        (answer.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn control_characters_are_removed_from_results() {
    let gate = start_gate("").await;
    for (raw, expected) in [
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("bell\u{7} null\u{0} del\u{7f}", "bell null del"),
        ("\u{9b}2Jcleared", "cleared"),
        ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{7}", "link"),
        ("tag\u{e0041}\u{e0042}", "tag"),
        ("lines\r\nand\ttabs", "lines\r\nand\ttabs"),
        ("Grüße 😀 — 日本語", "Grüße 😀 — 日本語"),
    ] {
        let message = gate.caller().call("zoo_say", &json!({"text": raw})).await;
        assert_eq!(text(&message), expected, "{raw:?}");
    }
}

#[tokio::test]
async fn secrets_in_results_are_redacted_when_enabled() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let arguments = json!({"text": format!("it is {token}.")});
    let unredacted = start_gate("").await;
    let message = unredacted.caller().call("zoo_say", &arguments).await;
    assert!(text(&message).contains(&token), "{message}");
    let gate = start_gate("[results]\nredact_secrets = true\nmax_bytes = 1024\n").await;
    let message = gate.caller().call("zoo_say", &arguments).await;
    assert!(!text(&message).contains(&token), "{message}");
    assert!(
        text(&message).starts_with("it is [") && text(&message).ends_with('.'),
        "{message}"
    );
    let long = json!({"text": format!("{}{token}", "x".repeat(2000))});
    let message = gate.caller().call("zoo_say", &long).await;
    let handle = message["result_handle"].as_str().unwrap();
    let spaced = json!({"text": format!("{} {token}", "x".repeat(2000))});
    assert!(!read_all(&gate.caller(), handle).await.is_empty());
    let message = gate.caller().call("zoo_say", &spaced).await;
    let handle = message["result_handle"].as_str().unwrap();
    let whole = read_all(&gate.caller(), handle).await;
    assert!(!whole.contains(&token), "the stored result is redacted too");
}

#[tokio::test]
async fn batch_runs_in_parallel_and_answers_in_order() {
    let gate = start_gate("").await;
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
    let (gate, log) = start_counting_gate("").await;
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
async fn schema_violations_give_hints_and_unknown_names_suggestions() {
    let (gate, log) = start_counting_gate("").await;
    let caller = gate.caller();
    for (arguments, hint) in [
        (json!({"a": 1}), "b"),
        (json!({"a": "1", "b": 2}), "integer"),
        (json!({"a": 1, "b": 2, "c": 3}), "c"),
        (json!({"a": 1.5, "b": 2}), "integer"),
    ] {
        let message = caller.call("zoo_add", &arguments).await;
        assert_eq!(message["is_error"], true);
        assert!(text(&message).contains(hint), "{arguments}: {message}");
    }
    assert_eq!(log.calls("add"), 0);
    for (name, near) in [
        ("zoo_ad", "`zoo_add`"),
        ("zoo_ecoh", "`zoo_echo`"),
        ("echo", "`zoo_echo`"),
    ] {
        let message = caller.call(name, &json!({})).await;
        assert!(text(&message).contains(near), "{message}");
    }
    let message = caller.call("completely-different", &json!({})).await;
    assert!(!text(&message).contains("did you mean"), "{message}");
}

#[tokio::test]
async fn events_report_servers_approvals_and_calls() {
    let toml = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
    let gate = start_gate(toml).await;
    let response = gate.get("/api/events").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let caller = gate.caller().with_header(SESSION, "s");
    let waiting = caller.call("zoo_say", &json!({"text": "x"})).await;
    let id = waiting["approval"]["id"].as_str().unwrap();
    let path = format!("/api/approvals/{id}");
    caller
        .post(&path, &json!({"decision": "deny", "reason": "no"}))
        .await
        .expect_status(200);
    caller.call("zoo_die", &json!({})).await;
    let mut stream = response.bytes_stream();
    let mut events = String::new();
    let expected = [
        "event: approval",
        "\"state\":\"pending\"",
        "\"state\":\"denied\"",
        "event: call",
        "\"outcome\":\"ask\"",
        "\"outcome\":\"server\"",
        "event: server",
    ];
    let read = async {
        while !expected.iter().all(|part| events.contains(part)) {
            let chunk = stream.next().await.expect("the stream ended").unwrap();
            events += &String::from_utf8_lossy(&chunk);
        }
    };
    let received = tokio::time::timeout(WAIT_TIMEOUT, read).await.is_ok();
    assert!(received, "{events}");
}

#[tokio::test]
async fn events_contain_no_server_secrets() {
    let secret = "hunter2-hunter2-hunter2";
    let gate = start_gate(&format!("env = {{ TOKEN = \"{secret}\" }}\n")).await;
    let response = gate.get("/api/events").await;
    let mut stream = response.bytes_stream();
    gate.caller()
        .call("zoo_echo", &json!({"mine": secret}))
        .await;
    gate.caller().call("zoo_fail", &json!({})).await;
    let mut events = String::new();
    let read = async {
        while !events.contains("tool_error") {
            let chunk = stream.next().await.expect("the stream ended").unwrap();
            events += &String::from_utf8_lossy(&chunk);
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, read)
        .await
        .expect("timed out waiting for both call events");
    assert!(
        events.contains("\"outcome\":\"ok\"") && !events.contains(secret),
        "{events}"
    );
}

#[tokio::test]
async fn open_event_stream_does_not_delay_shutdown() {
    let mut gate = start_gate("").await;
    let response = gate.get("/api/events").await;
    gate.restart().await;
    drop(response);
}

#[tokio::test]
async fn cached_result_is_redacted_once_enabled() {
    let toml = "[mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n";
    let gate = start_gate(toml).await;
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let arguments = json!({"text": token});
    let message = gate.caller().call("zoo_say", &arguments).await;
    assert_eq!(text(&message), token);
    gate.edit(&(zoo("zoo", &[]) + toml + "[results]\nredact_secrets = true\n"));
    let mut others = 0;
    eventually("secrets are redacted", WAIT_TIMEOUT, async || {
        others += 1;
        let other = json!({"text": format!("{others} {token}")});
        let message = gate.caller().call("zoo_say", &other).await;
        (!text(&message).contains(&token)).then_some(())
    })
    .await;
    let message = gate.caller().call("zoo_say", &arguments).await;
    assert!(!text(&message).contains(&token), "{message}");
}

#[tokio::test]
async fn resource_tools_list_and_read_visible_resources() {
    let toml = zoo("zoo", &[])
        + &zoo("ape", &[])
        + "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\nresources = false\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\ntools = [\"zoo.*\"]\n";
    let gate = TestGate::start(&toml);
    for server in ["zoo", "ape"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let bob = gate.with_key(crate::caller::BOB);
    let listed = bob.call("ListMcpResources", &json!({})).await;
    assert!(text(&listed).contains("\"uri\":\"zoo://text\""), "{listed}");
    assert!(
        !text(&listed).contains("ape"),
        "only visible servers are listed: {listed}"
    );
    let uri = json!({"uri": "zoo://text"});
    let read = bob.call("ReadMcpResource", &uri).await;
    assert!(
        read.get("is_error").is_none() && !text(&read).is_empty(),
        "{read}"
    );
    let template = json!({"uri": "zoo://item/7", "server": "zoo"});
    let item = bob.call("ReadMcpResource", &template).await;
    assert_eq!(text(&item), "item 7");
    for (arguments, expected) in [
        (json!({}), "`uri` is missing"),
        (json!({"uri": "zoo://nothing"}), "no server offers"),
        (
            json!({"uri": "zoo://text", "server": "ape"}),
            "no server offers",
        ),
    ] {
        let answer = bob.call("ReadMcpResource", &arguments).await;
        assert!(text(&answer).contains(expected), "{answer}");
    }
    let alice = gate.with_key(crate::caller::ALICE);
    let hidden = alice.call("ListMcpResources", &json!({})).await;
    assert!(crate::caller::is_unknown_tool(&hidden), "{hidden}");
}

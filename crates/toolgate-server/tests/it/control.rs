//! What happens to a call on its way: the scanner, limits, reuse, and what becomes of results.

use std::fs;
use std::path::PathBuf;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_testkit::eventually;

use crate::caller::{ALICE, BOB, Caller, EXECUTE, SESSION, text, tool_call};
use crate::gate::{SOON, TestGate, zoo};

async fn gate(more: &str) -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + more));
    gate.reaches("zoo", "healthy").await;
    gate
}

/// A gateway whose zoo keeps a ledger of what it was asked.
async fn counted(more: &str) -> (TestGate, Ledger) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let toml = zoo("zoo", &["--count", path.to_str().unwrap()]) + more;
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    let ledger = Ledger {
        path,
        _folder: folder,
    };
    (gate, ledger)
}

struct Ledger {
    path: PathBuf,
    _folder: TempDir,
}

impl Ledger {
    fn calls(&self, tool: &str) -> usize {
        let text = fs::read_to_string(&self.path).unwrap();
        let line = format!("tools/call {tool}");
        text.lines().filter(|seen| **seen == line).count()
    }
}

/// For each danger, arguments that have it and some that only look like it.
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

fn only(danger: &str, action: &str) -> String {
    let all = dangers().map(|(name, ..)| match name == danger {
        true => format!("{name} = \"{action}\"\n"),
        false => format!("{name} = \"off\"\n"),
    });
    "[scanner]\n".to_owned() + &all.concat()
}

async fn warnings(gate: &TestGate) -> Vec<usize> {
    let records = gate.records(&gate.caller()).await;
    let count = |record: &Value| record["warnings"].as_array().unwrap().len();
    records.iter().map(count).collect()
}

#[tokio::test]
async fn dangers_are_warned_of() {
    for (danger, bad, good) in dangers() {
        let gate = gate(&only(danger, "warn")).await;
        for arguments in [&bad, &good] {
            let message = gate.caller().call("zoo_echo", arguments).await;
            assert_eq!(text(&message), arguments.to_string(), "{danger}");
        }
        assert_eq!(warnings(&gate).await, [1, 0], "{danger}");
    }
}

#[tokio::test]
async fn dangers_are_asked_about() {
    for (danger, bad, good) in dangers() {
        let gate = gate(&only(danger, "ask")).await;
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
async fn dangers_are_denied() {
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    for (danger, bad, good) in dangers() {
        let (gate, ledger) = counted(&only(danger, "deny")).await;
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
        assert_eq!(ledger.calls("echo"), 0, "it never reached the server");
        gate.caller().call("zoo_echo", &good).await;
        assert_eq!(ledger.calls("echo"), 1);
        let outcomes = gate.outcomes(&gate.caller()).await;
        assert_eq!(outcomes, ["denied", "denied", "ok"], "{danger}");
    }
}

#[tokio::test]
async fn a_scanner_that_is_off_finds_nothing() {
    let gate = gate(&only("none", "off")).await;
    for (danger, bad, _) in dangers() {
        let message = gate.caller().call("zoo_echo", &bad).await;
        assert_eq!(text(&message), bad.to_string(), "{danger}");
    }
    assert_eq!(warnings(&gate).await, [0; 4]);
}

#[tokio::test]
async fn the_timeout_of_a_tool_beats_that_of_its_server() {
    let toml = "timeout = \"60s\"\n[mcp_servers.zoo.tools.sleep]\ntimeout = \"150ms\"\n";
    let (gate, ledger) = counted(toml).await;
    let message = gate.caller().call("zoo_sleep", &json!({"ms": 60000})).await;
    assert!(
        text(&message).contains("did not answer within"),
        "{message}"
    );
    eventually("the server is told to stop", SOON, async || {
        let text = fs::read_to_string(&ledger.path).unwrap();
        text.contains("cancelled").then_some(())
    })
    .await;
    assert_eq!(gate.outcomes(&gate.caller()).await, ["timeout"]);
}

#[tokio::test]
async fn rates_of_tools_and_servers_are_told_to_the_model() {
    let toml = "rate_limit = \"3/hour\"\n[mcp_servers.zoo.tools.add]\nrate_limit = \"1/hour\"\n";
    let (gate, ledger) = counted(toml).await;
    let caller = gate.caller();
    let add = json!({"a": 1, "b": 2});
    assert_eq!(text(&caller.call("zoo_add", &add).await), "3");
    let message = caller.call("zoo_add", &add).await;
    assert_eq!(message["is_error"], true);
    assert!(text(&message).contains("try again in"), "{message}");
    assert_eq!(ledger.calls("add"), 1);
    let limited = eventually("the server's rate is used up", SOON, async || {
        let message = caller.call("zoo_echo", &json!({})).await;
        (message["is_error"] == true).then_some(message)
    })
    .await;
    assert!(text(&limited).contains("server `zoo`"), "{limited}");
    assert!(ledger.calls("echo") <= 2);
}

/// Starts so many calls of a minute, and gives the answer to the one that finds no room.
async fn refused_of(gate: &TestGate, calls: usize) -> Value {
    let caller = gate.caller();
    let sleep = json!({"ms": 60000});
    let all = (0..calls).map(|_| Box::pin(caller.call("zoo_sleep", &sleep)));
    futures_util::future::select_all(all).await.0
}

#[tokio::test]
async fn calls_under_way_are_bounded_for_a_tool() {
    let gate = gate("[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n").await;
    let message = refused_of(&gate, 6).await;
    assert!(text(&message).contains("under way"), "{message}");
    assert_eq!(
        text(&gate.caller().call("zoo_echo", &json!({})).await),
        "{}"
    );
}

#[tokio::test]
async fn calls_under_way_are_bounded_for_a_server() {
    let gate = gate("max_in_flight = 1\nmax_queue = 1\n").await;
    let message = refused_of(&gate, 3).await;
    assert!(text(&message).contains("busy"), "{message}");
}

#[tokio::test]
async fn what_waits_for_a_place_runs_in_the_end() {
    let (gate, ledger) = counted("[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n").await;
    let calls: Vec<Value> = (0..5)
        .map(|_| tool_call("zoo_sleep", &json!({"ms": 1})))
        .collect();
    let answers = gate.caller().post(EXECUTE, &json!(calls)).await.expect(200);
    let all = answers.as_array().unwrap();
    assert!(
        all.iter().all(|answer| text(answer) == "slept 1 ms"),
        "{answers}"
    );
    assert_eq!(ledger.calls("sleep"), 5);
}

#[tokio::test]
async fn read_only_tools_are_reused() {
    let (gate, ledger) = counted("cache_ttl = \"10m\"\n").await;
    let caller = gate.caller();
    for (tool, arguments, calls) in [
        ("echo", json!({"n": 1}), 1),
        ("echo", json!({"n": 1}), 1),
        ("echo", json!({"n": 2}), 2),
        ("say", json!({"text": "x"}), 1),
        ("say", json!({"text": "x"}), 2),
    ] {
        caller.call(&format!("zoo_{tool}"), &arguments).await;
        assert_eq!(ledger.calls(tool), calls, "{tool} {arguments}");
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
async fn a_tool_of_its_own_time_is_reused_and_failures_are_not() {
    let toml = "[mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n";
    let (gate, ledger) = counted(toml).await;
    let caller = gate.caller();
    for _ in 0..3 {
        caller.call("zoo_say", &json!({"text": "x"})).await;
    }
    assert_eq!(ledger.calls("say"), 1);
    for _ in 0..2 {
        let message = caller
            .call("zoo_say", &json!({"text": "y", "fails": true}))
            .await;
        assert_eq!(message["is_error"], true);
    }
    assert_eq!(ledger.calls("say"), 3);
    for _ in 0..2 {
        caller.call("zoo_echo", &json!({})).await;
    }
    assert_eq!(
        ledger.calls("echo"),
        2,
        "without a time of its own nothing is reused"
    );
}

#[tokio::test]
async fn reuse_ends_with_its_time_and_asks_nobody_less() {
    let toml = "[mcp_servers.zoo.tools.echo]\ncache_ttl = \"50ms\"\n\
                [mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n\
                [[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
    let (gate, ledger) = counted(toml).await;
    let caller = gate.caller();
    caller.call("zoo_echo", &json!({})).await;
    eventually("it is called anew", SOON, async || {
        caller.call("zoo_echo", &json!({})).await;
        (ledger.calls("echo") == 2).then_some(())
    })
    .await;
    let arguments = json!({"text": "x"});
    let asked = caller.call("zoo_say", &arguments).await;
    let id = asked["approval"]["id"].as_str().unwrap();
    let approve = json!({"decision": "approve"});
    caller
        .post(&format!("/api/approvals/{id}"), &approve)
        .await
        .expect(200);
    assert_eq!(text(&caller.call("zoo_say", &arguments).await), "x");
    let again = caller.call("zoo_say", &arguments).await;
    assert!(
        again["approval"]["expires_at"].is_string(),
        "reuse is no permission: {again}"
    );
}

const TWO_KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";

async fn read_all(caller: &Caller<'_>, handle: &str) -> String {
    let mut whole = String::new();
    let mut offset = 0;
    loop {
        let path = format!("/v1/mcp/results/{handle}?offset={offset}");
        let part = caller.get(&path).await.expect(200);
        assert_eq!(part["offset"], offset);
        whole += part["text"].as_str().unwrap();
        match part["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => return whole,
        }
    }
}

#[tokio::test]
async fn a_large_result_is_cut_and_kept_for_its_caller() {
    let gate = gate(&("[results]\nmax_bytes = 1024\n".to_owned() + TWO_KEYS)).await;
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
async fn a_model_reads_on_with_a_tool() {
    let gate = gate(&("[results]\nmax_bytes = 1024\n".to_owned() + TWO_KEYS)).await;
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
async fn a_large_failure_is_still_a_failure() {
    let gate = gate("[results]\nmax_bytes = 1024\n").await;
    let message = gate
        .caller()
        .call("zoo_say", &json!({"text": "x".repeat(5000), "fails": true}))
        .await;
    assert_eq!(message["is_error"], true);
    assert!(message["result_handle"].is_string());
}

#[tokio::test]
async fn a_result_that_is_kept_for_a_while_goes() {
    let gate = gate("[results]\nmax_bytes = 1024\nkeep = \"100ms\"\n").await;
    let message = gate.caller().call("zoo_big", &json!({"bytes": 2500})).await;
    let path = format!(
        "/v1/mcp/results/{}",
        message["result_handle"].as_str().unwrap()
    );
    eventually("it is gone", SOON, async || {
        let answer = gate.caller().get(&path).await;
        (answer.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn control_characters_are_taken_out() {
    let gate = gate("").await;
    for (said, heard) in [
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("bell\u{7} null\u{0} del\u{7f}", "bell null del"),
        ("\u{9b}2Jcleared", "cleared"),
        ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{7}", "link"),
        ("tag\u{e0041}\u{e0042}", "tag"),
        ("lines\r\nand\ttabs", "lines\r\nand\ttabs"),
        ("Grüße 😀 — 日本語", "Grüße 😀 — 日本語"),
    ] {
        let message = gate.caller().call("zoo_say", &json!({"text": said})).await;
        assert_eq!(text(&message), heard, "{said:?}");
    }
}

#[tokio::test]
async fn secrets_in_results_are_redacted_if_wanted() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let arguments = json!({"text": format!("it is {token}.")});
    let kept = gate("").await;
    let message = kept.caller().call("zoo_say", &arguments).await;
    assert!(text(&message).contains(&token), "{message}");
    let gate = gate("[results]\nredact_secrets = true\nmax_bytes = 1024\n").await;
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
    assert!(!whole.contains(&token), "what is kept is redacted too");
}

#[tokio::test]
async fn an_array_runs_in_parallel_and_is_answered_in_order() {
    let gate = gate("").await;
    let caller = gate.caller();
    let both = json!([
        tool_call("zoo_sleep", &json!({"ms": 60000})),
        tool_call("zoo_say", &json!({"text": "x"})),
    ]);
    let finished = eventually("the second ends while the first runs", SOON, async || {
        let records = gate.all_records().await;
        let ok = records
            .iter()
            .any(|r| r["tool"] == "say" && r["outcome"] == "ok");
        let open = records
            .iter()
            .any(|r| r["tool"] == "sleep" && r["outcome"] == "open");
        (ok && open).then_some(())
    });
    tokio::select! {
        _ = caller.post(EXECUTE, &both) => panic!("a call of a minute has ended"),
        () = finished => {}
    }
    let calls: Vec<Value> = [30, 0, 20, 0, 10]
        .iter()
        .enumerate()
        .map(|(at, ms)| json!({"id": format!("c{at}"), "function": {"name": "zoo_sleep", "arguments": {"ms": ms}}}))
        .collect();
    let answers = caller.post(EXECUTE, &json!(calls)).await.expect(200);
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
async fn one_bad_call_of_an_array_harms_no_other() {
    let (gate, ledger) = counted("").await;
    let calls = json!([
        tool_call("zoo_nothing", &json!({})),
        tool_call("zoo_add", &json!({"a": "x"})),
        tool_call("zoo_say", &json!({"text": "x"})),
    ]);
    let answers = gate.caller().post(EXECUTE, &calls).await.expect(200);
    assert_eq!(text(&answers[2]), "x");
    assert!(text(&answers[0]).starts_with("unknown tool"));
    let malformed = json!([tool_call("zoo_say", &json!({"text": "x"})), {"function": {"name": 7}}]);
    gate.caller().post(EXECUTE, &malformed).await.expect(400);
    assert_eq!(ledger.calls("say"), 1, "nothing of a malformed array runs");
}

#[tokio::test]
async fn misfits_come_with_a_hint_and_unknown_names_with_a_suggestion() {
    let (gate, ledger) = counted("").await;
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
    assert_eq!(ledger.calls("add"), 0);
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
async fn events_tell_of_servers_approvals_and_calls() {
    let toml = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
    let gate = gate(toml).await;
    let response = gate.get("/api/events").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let caller = gate.caller().with(SESSION, "s");
    let asked = caller.call("zoo_say", &json!({"text": "x"})).await;
    let id = asked["approval"]["id"].as_str().unwrap();
    let path = format!("/api/approvals/{id}");
    caller
        .post(&path, &json!({"decision": "deny", "reason": "no"}))
        .await
        .expect(200);
    caller.call("zoo_die", &json!({})).await;
    let mut stream = response.bytes_stream();
    let mut seen = String::new();
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
        while !expected.iter().all(|part| seen.contains(part)) {
            let chunk = stream.next().await.expect("the stream goes on").unwrap();
            seen += &String::from_utf8_lossy(&chunk);
        }
    };
    let heard = tokio::time::timeout(SOON, read).await.is_ok();
    assert!(heard, "{seen}");
}

#[tokio::test]
async fn events_have_no_secrets_of_servers() {
    let secret = "hunter2-hunter2-hunter2";
    let gate = gate(&format!("env = {{ TOKEN = \"{secret}\" }}\n")).await;
    let response = gate.get("/api/events").await;
    let mut stream = response.bytes_stream();
    gate.caller()
        .call("zoo_echo", &json!({"mine": secret}))
        .await;
    gate.caller().call("zoo_fail", &json!({})).await;
    let mut seen = String::new();
    let read = async {
        while !seen.contains("tool_error") {
            let chunk = stream.next().await.expect("the stream goes on").unwrap();
            seen += &String::from_utf8_lossy(&chunk);
        }
    };
    tokio::time::timeout(SOON, read)
        .await
        .expect("both calls are told of");
    assert!(
        seen.contains("\"outcome\":\"ok\"") && !seen.contains(secret),
        "{seen}"
    );
}

#[tokio::test]
async fn a_listener_to_events_does_not_hold_the_gateway_up() {
    let mut gate = gate("").await;
    let response = gate.get("/api/events").await;
    gate.restart().await;
    drop(response);
}

#[tokio::test]
async fn a_result_that_is_reused_is_redacted_once_that_is_wanted() {
    let toml = "[mcp_servers.zoo.tools.say]\ncache_ttl = \"10m\"\n";
    let gate = gate(toml).await;
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let arguments = json!({"text": token});
    let message = gate.caller().call("zoo_say", &arguments).await;
    assert_eq!(text(&message), token);
    gate.edit(&(zoo("zoo", &[]) + toml + "[results]\nredact_secrets = true\n"));
    let mut others = 0;
    eventually("secrets are redacted", SOON, async || {
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
async fn models_list_and_read_resources_with_two_tools() {
    let toml = zoo("zoo", &[])
        + &zoo("ape", &[])
        + "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\nresources = false\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\ntools = [\"zoo.*\"]\n";
    let gate = TestGate::start(&toml);
    for server in ["zoo", "ape"] {
        gate.reaches(server, "healthy").await;
    }
    let bob = gate.with_key(crate::caller::BOB);
    let listed = bob.call("ListMcpResources", &json!({})).await;
    assert!(text(&listed).contains("\"uri\":\"zoo://text\""), "{listed}");
    assert!(!text(&listed).contains("ape"), "only his servers: {listed}");
    let uri = json!({"uri": "zoo://text"});
    let read = bob.call("ReadMcpResource", &uri).await;
    assert!(
        read.get("is_error").is_none() && !text(&read).is_empty(),
        "{read}"
    );
    let template = json!({"uri": "zoo://item/7", "server": "zoo"});
    let item = bob.call("ReadMcpResource", &template).await;
    assert_eq!(text(&item), "item 7");
    for (arguments, told) in [
        (json!({}), "`uri` is missing"),
        (json!({"uri": "zoo://nothing"}), "no server offers"),
        (
            json!({"uri": "zoo://text", "server": "ape"}),
            "no server offers",
        ),
    ] {
        let answer = bob.call("ReadMcpResource", &arguments).await;
        assert!(text(&answer).contains(told), "{answer}");
    }
    let alice = gate.with_key(crate::caller::ALICE);
    let hidden = alice.call("ListMcpResources", &json!({})).await;
    assert!(crate::caller::is_unknown(&hidden), "{hidden}");
}

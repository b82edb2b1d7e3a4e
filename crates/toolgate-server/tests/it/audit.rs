//! The audit trail: exactly one record for every attempt, whatever its outcome.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually};

use crate::caller::{ALICE, EXECUTE, tool_call};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

async fn start_gate(more: &str) -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + more));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

/// Builds a call with raw arguments.
fn raw_call(name: &str, arguments: &str) -> Value {
    json!({"id": "c", "function": {"name": name, "arguments": arguments}})
}

const RULES: &str = "timeout = \"5s\"\n[mcp_servers.zoo.tools.sleep]\ntimeout = \"100ms\"\n\
    [mcp_servers.zoo.tools.big]\nrate_limit = \"1/hour\"\n\
    [[permissions.rules]]\ntool = \"zoo_kinds\"\naction = \"deny\"\n\
    [[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n\
    [[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"deny\"\narguments = { path = \"/etc/*\" }\n";

#[tokio::test]
async fn every_kind_of_attempt_has_one_record() {
    let gate = start_gate(RULES).await;
    let caller = gate.caller();
    let attempts = [
        ("zoo_add", r#"{"a":1,"b":2}"#, "ok"),
        ("zoo_fail", "{}", "tool_error"),
        ("zoo_rpc_error", "{}", "server"),
        ("zoo_nothing", "{}", "unknown"),
        ("zoo_kinds", "{}", "unknown"),
        ("zoo_add", r#"{"a":1,"#, "bad_arguments"),
        ("zoo_add", r"[1]", "bad_arguments"),
        ("zoo_add", r#"{"a":1}"#, "bad_arguments"),
        ("zoo_add", r#"{"a":1,"a":1,"b":2}"#, "bad_arguments"),
        ("zoo_echo", r#"{"path":"/etc/passwd"}"#, "denied"),
        ("zoo_say", r#"{"text":"x"}"#, "ask"),
        ("zoo_big", r#"{"bytes":1}"#, "ok"),
        ("zoo_big", r#"{"bytes":1}"#, "limited"),
        ("zoo_sleep", r#"{"ms":60000}"#, "timeout"),
        ("zoo_die", "{}", "server"),
    ];
    for (index, (name, arguments, _)) in attempts.iter().enumerate() {
        let caller = caller
            .clone()
            .with_header("x-request-id", &format!("r{index}"));
        caller
            .post(EXECUTE, &raw_call(name, arguments))
            .await
            .expect_status(200);
    }
    let records = gate.records(&caller).await;
    let found: Vec<(&str, &str)> = records
        .iter()
        .map(|r| {
            (
                r["request_id"].as_str().unwrap(),
                r["outcome"].as_str().unwrap(),
            )
        })
        .collect();
    let ids: Vec<String> = (0..attempts.len())
        .map(|index| format!("r{index}"))
        .collect();
    let expected: Vec<(&str, &str)> = ids
        .iter()
        .map(String::as_str)
        .zip(attempts.map(|a| a.2))
        .collect();
    assert_eq!(found, expected);
    for record in &records {
        assert!(
            record["duration_ms"].is_number(),
            "the record is closed: {record}"
        );
        assert_eq!(record["origin"], "http");
    }
    assert_eq!(
        (&records[0]["server"], &records[0]["tool"]),
        (&json!("zoo"), &json!("add"))
    );
    assert_eq!(records[9]["rule"], "permissions.rules[2]");
    assert!(records[10]["approval"].is_string());
}

#[tokio::test]
async fn hidden_tool_is_recorded_as_unknown() {
    let gate = start_gate(&format!(
        "[keys.alice]\nkey = \"{ALICE}\"\ntools = [\"zoo.echo\"]\n"
    ))
    .await;
    let alice = gate.with_key(ALICE);
    alice.call("zoo_add", &json!({"a": 1})).await;
    let records = gate.records(&alice).await;
    assert_eq!(records.len(), 1);
    assert_eq!(
        (&records[0]["outcome"], &records[0]["caller"]),
        (&json!("unknown"), &json!("alice"))
    );
    assert_eq!(records[0]["name"], "zoo_add");
}

#[tokio::test]
async fn malformed_requests_leave_no_record() {
    let gate = start_gate("").await;
    for body in ["", "{", "[]", "{}", "[5]", "null"] {
        let response = gate.post(EXECUTE, body, HeaderMap::new()).await;
        assert_eq!(response.status(), 400, "{body}");
    }
    assert!(gate.records(&gate.caller()).await.is_empty());
}

#[tokio::test]
async fn every_call_of_a_batch_has_its_own_record() {
    let gate = start_gate("").await;
    let calls: Vec<Value> = (0..20)
        .map(|n| tool_call("zoo_add", &json!({"a": n, "b": 0})))
        .collect();
    gate.caller()
        .post(EXECUTE, &json!(calls))
        .await
        .expect_status(200);
    assert_eq!(gate.outcomes(&gate.caller()).await, vec!["ok"; 20]);
}

#[tokio::test]
async fn disconnected_call_is_recorded_once_as_cancelled() {
    let gate = start_gate("").await;
    let sleep = json!({"ms": 60000});
    {
        let caller = gate.caller();
        let call = caller.execute("zoo_sleep", &sleep);
        tokio::select! {
            _ = call => panic!("the one-minute call has already ended"),
            () = gate.wait_for_in_flight_call() => {}
        }
    }
    let record = eventually("the record is closed", WAIT_TIMEOUT, async || {
        let records = gate.all_records().await;
        assert!(records.len() <= 1, "{records:?}");
        let record = records.into_iter().next()?;
        (record["outcome"] == "cancelled").then_some(record)
    })
    .await;
    assert_eq!(
        (&record["tool"], &record["arguments"]),
        (&json!("sleep"), &sleep)
    );
    assert_eq!(gate.outcomes(&gate.caller()).await, ["cancelled"]);
}

#[tokio::test]
async fn in_flight_call_is_open_and_interrupted_by_crash() {
    let mut gate = start_gate("").await;
    {
        let caller = gate.caller();
        let arguments = json!({"ms": 60000});
        let call = caller.execute("zoo_sleep", &arguments);
        let open = eventually("the call is recorded as open", WAIT_TIMEOUT, async || {
            let records = gate.all_records().await;
            records.first().filter(|r| r["outcome"] == "open").map(drop)
        });
        tokio::select! {
            _ = call => panic!("the one-minute call has already ended"),
            () = open => {}
        }
        gate.signal("-KILL");
    }
    gate.wait_for_exit().await;
    gate.relaunch();
    let records = gate.all_records().await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["outcome"], "interrupted", "{}", records[0]);
}

#[tokio::test]
async fn approved_call_interrupted_by_crash_is_not_rerun() {
    let toml = "[[permissions.rules]]\ntool = \"zoo_sleep\"\naction = \"ask\"\n";
    let mut gate = start_gate(toml).await;
    let arguments = json!({"ms": 60000});
    let waiting = gate.caller().call("zoo_sleep", &arguments).await;
    let path = format!(
        "/api/approvals/{}",
        waiting["approval"]["id"].as_str().unwrap()
    );
    gate.caller()
        .post(&path, &json!({"decision": "approve"}))
        .await
        .expect_status(200);
    {
        let caller = gate.caller();
        tokio::select! {
            _ = caller.execute("zoo_sleep", &arguments) => panic!("the one-minute call has already ended"),
            () = gate.wait_for_in_flight_call() => {}
        }
        gate.signal("-KILL");
    }
    gate.wait_for_exit().await;
    gate.relaunch();
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(gate.json(&path).await["state"], "unknown");
    let again = gate.caller().call("zoo_sleep", &arguments).await;
    assert!(
        again["approval"]["expires_at"].is_string(),
        "it needs a new approval: {again}"
    );
}

#[tokio::test]
async fn sigterm_loses_no_records() {
    let mut gate = start_gate("").await;
    let calls: Vec<Value> = (0..100)
        .map(|n| tool_call("zoo_add", &json!({"a": n, "b": 0})))
        .collect();
    let caller = gate.caller();
    caller.post(EXECUTE, &json!(calls)).await.expect_status(200);
    gate.restart().await;
    let records = gate.all_records().await;
    assert_eq!(records.len(), 100);
    assert!(records.iter().all(|r| r["outcome"] == "ok"));
}

#[tokio::test]
async fn in_flight_call_completes_on_sigterm_and_is_recorded() {
    let mut gate = start_gate("").await;
    let url = format!("{}{EXECUTE}", gate.url);
    let body = tool_call("zoo_sleep", &json!({"ms": 500})).to_string();
    let call = gate.client.post(url).body(body).send();
    let stop = async {
        gate.wait_for_in_flight_call().await;
        gate.signal("-TERM");
    };
    let (answer, ()) = tokio::join!(call, stop);
    let message = answer.unwrap().text().await.unwrap();
    assert!(message.contains("slept 500 ms"), "{message}");
    assert_eq!(gate.wait_for_exit().await, Some(0));
    gate.relaunch();
    let records = gate.all_records().await;
    assert_eq!((records.len(), &records[0]["outcome"]), (1, &json!("ok")));
}

async fn count_records(gate: &TestGate, query: &str) -> usize {
    let page = gate.json(&format!("/api/audit?{query}")).await;
    page["records"].as_array().unwrap().len()
}

#[tokio::test]
async fn records_can_be_filtered() {
    let keys = format!(
        "[keys.alice]\nkey = \"{ALICE}\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n"
    );
    let toml = zoo("zoo", &[]) + &zoo("ape", &[]) + &keys;
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("ape", "healthy").await;
    let alice = gate.with_key(ALICE);
    alice
        .clone()
        .with_header("x-request-id", "one")
        .call("zoo_echo", &json!({}))
        .await;
    alice.call("ape_echo", &json!({})).await;
    alice.call("ape_add", &json!({"a": 1, "b": 1})).await;
    alice.call("zoo_fail", &json!({})).await;
    gate.with_key("bob-key-0123456789abcdef")
        .call("zoo_nothing", &json!({}))
        .await;
    let records = gate.records(&alice).await;
    let middle = records[2]["started_at"].as_str().unwrap();
    let first = records[0]["started_at"].as_str().unwrap();
    for (query, expected) in [
        ("server=zoo".to_owned(), 2),
        ("server=ape&tool=echo".to_owned(), 1),
        ("tool=echo".to_owned(), 2),
        ("caller=bob".to_owned(), 1),
        ("caller=alice&outcome=ok".to_owned(), 3),
        ("outcome=tool_error".to_owned(), 1),
        ("request_id=one".to_owned(), 1),
        ("run_id=none".to_owned(), 0),
        ("since=2000-01-01T00:00:00Z&caller=bob".to_owned(), 1),
        ("until=2000-01-01T00:00:00Z".to_owned(), 0),
        (format!("until={first}"), 0),
        (format!("since={middle}&until={middle}"), 0),
    ] {
        assert_eq!(count_records(&gate, &query).await, expected, "{query}");
    }
    for bad in ["since=yesterday", "format=xml", "limit=0", "limit=many"] {
        let answer = gate.get(&format!("/api/audit?{bad}")).await;
        assert_eq!(answer.status(), 400, "{bad}");
    }
}

#[tokio::test]
async fn records_are_paginated_and_exported() {
    let gate = start_gate("").await;
    let calls: Vec<Value> = (0..25)
        .map(|n| {
            tool_call(
                "zoo_echo",
                &json!({"n": n, "text": "a \"quoted\", text\nand = more"}),
            )
        })
        .collect();
    gate.caller()
        .post(EXECUTE, &json!(calls))
        .await
        .expect_status(200);
    let all = gate.records(&gate.caller()).await;
    let mut found = Vec::new();
    let mut path = "/api/audit?tool=echo&limit=10".to_owned();
    loop {
        let page = gate.json(&path).await;
        let records = page["records"].as_array().unwrap();
        assert!(records.len() <= 10);
        found.extend(records.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/api/audit?tool=echo&limit=10&cursor={cursor}"),
            None => break,
        }
    }
    found.reverse();
    assert_eq!(found, all);

    let lines = gate
        .get("/api/audit?tool=echo&format=jsonl")
        .await
        .text()
        .await
        .unwrap();
    let mut lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    lines.reverse();
    assert_eq!(lines, all);
    let csv = gate.get("/api/audit?tool=echo&format=csv").await;
    assert!(
        csv.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/csv")
    );
    let csv = csv.text().await.unwrap();
    assert!(csv.starts_with("id,started_at,"), "{csv}");
    assert_eq!(
        csv.lines().count(),
        26,
        "no cell contains a line break: {csv}"
    );
    assert!(csv.contains(r#"a \""quoted\"", text\nand = more"#), "{csv}");
}

#[tokio::test]
async fn csv_export_escapes_formulas() {
    let gate = start_gate("").await;
    gate.caller().call("=HYPERLINK(\"x\")", &json!({})).await;
    gate.caller().call("ok\nsecond line", &json!({})).await;
    gate.records(&gate.caller()).await;
    let csv = gate
        .get("/api/audit?format=csv")
        .await
        .text()
        .await
        .unwrap();
    assert!(csv.contains("\"'=HYPERLINK(\"\"x\"\")\""), "{csv}");
    assert!(csv.contains("\"ok\nsecond line\""), "{csv}");
}

const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

async fn record_with_content(content: &str, arguments: &Value) -> Value {
    let gate = start_gate(&format!("[audit]\ncontent = \"{content}\"\n")).await;
    gate.caller().call("zoo_echo", arguments).await;
    gate.records(&gate.caller()).await.remove(0)
}

#[tokio::test]
async fn content_setting_controls_recorded_content() {
    let arguments = json!({"token": TOKEN, "n": 1});
    let full = record_with_content("full", &arguments).await;
    assert_eq!(full["arguments"], arguments);
    assert!(full["result"].to_string().contains(TOKEN), "{full}");
    let redacted = record_with_content("redacted", &arguments).await;
    assert_eq!(redacted["arguments"]["n"], 1, "{redacted}");
    assert!(!redacted.to_string().contains(TOKEN), "{redacted}");
    let off = record_with_content("off", &arguments).await;
    assert_eq!(
        (&off["arguments"], &off["result"]),
        (&Value::Null, &Value::Null),
        "{off}"
    );
    assert_eq!(off["outcome"], "ok");
    assert!(off["bytes_in"].as_i64().unwrap() > 0 && off["bytes_out"].as_i64().unwrap() > 0);
}

#[tokio::test]
async fn disabled_content_is_absent_from_errors() {
    let gate = start_gate("[audit]\ncontent = \"off\"\n").await;
    let caller = gate.caller();
    caller
        .call("zoo_add", &json!({"a": "Mrs Miller's diagnosis", "b": 1}))
        .await;
    caller
        .call("zoo_add", &json!({"a": 1, "b": 1, "Mrs Miller's field": 1}))
        .await;
    caller.call("zoo_rpc_error", &json!({})).await;
    let records = json!(gate.records(&caller).await).to_string();
    assert!(!records.contains("Miller"), "{records}");
}

#[tokio::test]
async fn server_secrets_are_in_no_record() {
    let secret = "hunter2-hunter2-hunter2";
    let toml = zoo("zoo", &[])
        + &format!("env = {{ TOKEN = \"{secret}\" }}\n[audit]\ncontent = \"full\"\n");
    let mut gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let caller = gate.caller();
    let env = caller.call("zoo_env", &json!({})).await;
    assert!(env.to_string().contains("TOKEN"), "{env}");
    caller.call("zoo_echo", &json!({"mine": secret})).await;
    let message = caller.call("zoo_add", &json!({"a": secret})).await;
    assert_eq!(message["is_error"], true);
    let records = gate.records(&caller).await;
    assert_eq!(records.len(), 3);
    assert!(!json!(records).to_string().contains(secret), "{records:?}");
    gate.restart().await;
    for entry in std::fs::read_dir(gate.folder.path().join("data")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let found = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "{}", path.display());
    }
}

#[tokio::test]
async fn call_to_unavailable_server_is_recorded() {
    let zoo = HttpZoo::start(&[]);
    let toml = format!("[mcp_servers.web]\nurl = \"{}\"\n", zoo.url());
    let gate = TestGate::start(&toml);
    gate.wait_for_state("web", "healthy").await;
    drop(zoo);
    let message = gate.caller().call("web_echo", &json!({})).await;
    assert_eq!(message["is_error"], true, "{message}");
    let outcomes = gate.outcomes(&gate.caller()).await;
    assert_eq!(outcomes.len(), 1);
    assert!(
        ["away", "server"].contains(&outcomes[0].as_str()),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn abandoned_queued_call_is_recorded() {
    let gate =
        TestGate::start(&(zoo("zoo", &[]) + "[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n"));
    gate.wait_for_state("zoo", "healthy").await;
    let caller = gate.caller();
    let arguments = json!({"ms": 60000});
    {
        let (first, second) = (
            caller.execute("zoo_sleep", &arguments),
            caller.execute("zoo_sleep", &arguments),
        );
        let both = futures_util::future::join(first, second);
        let abandoned = tokio::time::timeout(Duration::from_millis(500), both).await;
        assert!(abandoned.is_err());
    }
    eventually("both records are closed", WAIT_TIMEOUT, async || {
        let records = gate.all_records().await;
        let closed = records
            .iter()
            .filter(|r| r["outcome"] == "cancelled")
            .count();
        (records.len() == 2 && closed == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn json_escaped_server_secret_is_in_no_record() {
    let toml = zoo("zoo", &[]) + "env = { TOKEN = 'pa\"ss\\word-12345678' }\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let caller = gate.caller();
    let secret = "pa\"ss\\word-12345678";
    caller.call("zoo_echo", &json!({"mine": secret})).await;
    caller.call("zoo_env", &json!({})).await;
    let records = gate.records(&caller).await;
    assert_eq!(records.len(), 2);
    assert_ne!(records[0]["arguments"]["mine"], secret, "{}", records[0]);
    let environment = records[1]["result"].to_string();
    assert!(!environment.contains("word-12345678"), "{environment}");
}

#[tokio::test]
async fn secret_in_escaped_json_is_redacted() {
    let gate = start_gate("").await;
    let escaped = format!(r#"{{"token":"{}"}}"#, TOKEN.replace('_', r"\u005f"));
    let body = raw_call("zoo_echo", &escaped);
    gate.caller().post(EXECUTE, &body).await.expect_status(200);
    let records = gate.records(&gate.caller()).await;
    assert_ne!(records[0]["arguments"]["token"], TOKEN, "{}", records[0]);
}

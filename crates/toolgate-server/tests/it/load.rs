//! The audit trail under load, while servers and the gateway are killed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use reqwest::Client;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

const SERVERS: [&str; 3] = ["one", "two", "three"];
const CALLS: usize = 1500;

/// What a client learned about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The tool's result.
    Result,
    /// A message that the call failed or was refused.
    Error,
    /// None: the gateway was killed.
    None,
}

fn start_gate() -> TestGate {
    let toml: String = SERVERS.iter().map(|name| zoo(name, &[])).collect();
    TestGate::start(&toml)
}

async fn wait_until_healthy(gate: &TestGate) {
    for server in SERVERS {
        gate.wait_for_state(server, "healthy").await;
    }
}

/// Makes one call with its own request id.
async fn call(client: &Client, url: &str, number: usize) -> Answer {
    let server = SERVERS[number % SERVERS.len()];
    let (tool, arguments) = match number % 50 {
        7 => ("die", "{}"),
        8 => ("nothing", "{}"),
        9 => ("add", "{\"a\":1}"),
        10 => ("add", "{"),
        11 => ("sleep", "{\"ms\":40}"),
        _ => ("add", "{\"a\":1,\"b\":2}"),
    };
    let body = json!({"id": "c", "function": {"name": format!("{server}_{tool}"), "arguments": arguments}});
    let request = client
        .post(format!("{url}/v1/mcp/tool/execute"))
        .header("x-request-id", format!("load-{number}"))
        .body(body.to_string());
    let Ok(response) = request.send().await else {
        return Answer::None;
    };
    assert_eq!(response.status(), 200);
    let Ok(body) = response.bytes().await else {
        return Answer::None;
    };
    let message: Value = serde_json::from_slice(&body).unwrap();
    if message["is_error"] == true {
        Answer::Error
    } else {
        Answer::Result
    }
}

/// The records of a gateway.
#[derive(Default)]
struct Records {
    /// Outcomes by request id.
    outcomes: HashMap<String, Vec<String>>,
    /// Number of calls that they stand for: refusals that come fast are counted together.
    calls: usize,
}

async fn read_records(gate: &TestGate) -> Records {
    let mut found = Records::default();
    let text = gate.get("/api/audit?format=jsonl").await;
    for line in text.text().await.unwrap().lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| record[key].as_str().unwrap().to_owned();
        let of_request = found.outcomes.entry(text("request_id")).or_default();
        of_request.push(text("outcome"));
        let calls = record["occurrences"].as_u64().unwrap();
        found.calls += usize::try_from(calls).unwrap();
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_one_record_while_servers_crash() {
    let gate = start_gate();
    wait_until_healthy(&gate).await;
    let (client, url) = (&gate.client, &gate.url);
    let calls = futures_util::stream::iter(0..CALLS).map(|number| call(client, url, number));
    let answers: Vec<Answer> = calls.buffer_unordered(32).collect().await;
    assert!(answers.iter().all(|answer| *answer != Answer::None));
    let found = eventually("all records are written", WAIT_TIMEOUT, async || {
        let found = read_records(&gate).await;
        let closed = |outcomes: &Vec<String>| outcomes.iter().all(|outcome| outcome != "open");
        (found.calls == CALLS && found.outcomes.values().all(closed)).then_some(found.outcomes)
    })
    .await;
    let results = answers.iter().filter(|answer| **answer == Answer::Result);
    let successes = found.values().flatten().filter(|outcome| *outcome == "ok");
    assert_eq!(successes.count(), results.count());
    let duplicates: Vec<_> = found.iter().filter(|(_, all)| all.len() != 1).collect();
    assert!(duplicates.is_empty(), "{duplicates:?}");
    let outcomes_seen: HashSet<&str> = found.values().flatten().map(String::as_str).collect();
    for outcome in ["ok", "unknown", "bad_arguments", "server"] {
        assert!(
            outcomes_seen.contains(outcome),
            "{outcome} among {outcomes_seen:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateway_loses_no_record_of_a_call_that_was_sent() {
    let mut gate = start_gate();
    wait_until_healthy(&gate).await;
    let answered: Arc<Mutex<Vec<usize>>> = Arc::default();
    let next = Arc::new(AtomicUsize::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, url) = (gate.client.clone(), gate.url.clone());
        let (answered, next) = (Arc::clone(&answered), Arc::clone(&next));
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                match call(&client, &url, number).await {
                    Answer::Result => answered.lock().unwrap().push(number),
                    Answer::Error => {}
                    Answer::None => return,
                }
            }
        });
    }
    eventually("calls are answered", WAIT_TIMEOUT, async || {
        (answered.lock().unwrap().len() >= 100).then_some(())
    })
    .await;
    gate.signal("-KILL");
    gate.wait_for_exit().await;
    callers.join_all().await;
    gate.relaunch();
    let found = read_records(&gate).await.outcomes;
    for number in answered.lock().unwrap().iter() {
        let outcomes = found.get(&format!("load-{number}"));
        assert_eq!(outcomes, Some(&vec!["ok".to_owned()]), "call {number}");
    }
    let open = found
        .values()
        .flatten()
        .filter(|outcome| *outcome == "open");
    assert_eq!(
        open.count(),
        0,
        "in-flight calls are recorded as `interrupted`"
    );
}

//! The audit trail under load, while servers and the gateway itself are killed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use reqwest::Client;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{SOON, TestGate, zoo};

const SERVERS: [&str; 3] = ["one", "two", "three"];
const CALLS: usize = 1500;
/// After which a record is certainly on disk: far more than the 50 ms of a batch, for busy machines.
const CERTAIN: Duration = Duration::from_secs(1);

fn gate() -> TestGate {
    let toml: String = SERVERS.iter().map(|name| zoo(name, &[])).collect();
    TestGate::start(&toml)
}

async fn healthy(gate: &TestGate) {
    for server in SERVERS {
        gate.reaches(server, "healthy").await;
    }
}

/// One call with a request id of its own; whether it was answered with 200.
async fn call(client: &Client, url: &str, number: usize) -> bool {
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
    match request.send().await {
        Ok(response) => response.status() == 200 && response.bytes().await.is_ok(),
        Err(_) => false,
    }
}

/// How many records each request has, and their outcomes.
async fn records(gate: &TestGate) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    let text = gate.get("/api/audit?format=jsonl").await;
    for line in text.text().await.unwrap().lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| record[key].as_str().unwrap().to_owned();
        found
            .entry(text("request_id"))
            .or_default()
            .push(text("outcome"));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_one_record_while_servers_die() {
    let gate = gate();
    healthy(&gate).await;
    let (client, url) = (&gate.client, &gate.url);
    let calls = futures_util::stream::iter(0..CALLS).map(|number| call(client, url, number));
    let answered: Vec<bool> = calls.buffer_unordered(32).collect().await;
    assert!(answered.iter().all(|answered| *answered));
    let found = eventually("all records are written", SOON, async || {
        let found = records(&gate).await;
        let closed = |outcomes: &Vec<String>| outcomes.iter().all(|outcome| outcome != "open");
        (found.len() == CALLS && found.values().all(closed)).then_some(found)
    })
    .await;
    let twice: Vec<_> = found.iter().filter(|(_, all)| all.len() != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let seen: HashSet<&str> = found.values().flatten().map(String::as_str).collect();
    for outcome in ["ok", "unknown", "bad_arguments", "server"] {
        assert!(seen.contains(outcome), "{outcome} among {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_loses_at_most_the_last_instant() {
    let mut gate = gate();
    healthy(&gate).await;
    let acknowledged: Arc<Mutex<Vec<(usize, Instant)>>> = Arc::default();
    let next = Arc::new(AtomicUsize::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, url) = (gate.client.clone(), gate.url.clone());
        let (acknowledged, next) = (Arc::clone(&acknowledged), Arc::clone(&next));
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if !call(&client, &url, number).await {
                    return;
                }
                acknowledged.lock().unwrap().push((number, Instant::now()));
            }
        });
    }
    eventually("calls are answered, some long ago", SOON, async || {
        let acknowledged = acknowledged.lock().unwrap();
        let early = |(_, at): &&(usize, Instant)| at.elapsed() > CERTAIN;
        (acknowledged.iter().filter(early).count() >= 100).then_some(())
    })
    .await;
    gate.signal("-KILL");
    let killed = Instant::now();
    gate.ends().await;
    callers.join_all().await;
    gate.start_again();
    let found = records(&gate).await;
    for (number, at) in acknowledged.lock().unwrap().iter() {
        let outcomes = found.get(&format!("load-{number}"));
        let late = killed.saturating_duration_since(*at) < CERTAIN;
        assert!(outcomes.is_some() || late, "call {number} was lost");
        assert!(outcomes.is_none_or(|all| all.len() == 1), "{outcomes:?}");
    }
    let open = found
        .values()
        .flatten()
        .filter(|outcome| *outcome == "open");
    assert_eq!(open.count(), 0, "what was under way is `interrupted`");
    assert!(found.len() >= 100, "{} records", found.len());
}

//! The audit trail under load, while servers and the gateway are killed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use reqwest::Client;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

const SERVERS: [&str; 3] = ["one", "two", "three"];
const CALLS: usize = 1500;
/// Time after which a record must be on disk: far above the 50 ms batch interval, for busy machines.
const FLUSH_MARGIN: Duration = Duration::from_secs(1);

fn start_gate() -> TestGate {
    let toml: String = SERVERS.iter().map(|name| zoo(name, &[])).collect();
    TestGate::start(&toml)
}

async fn wait_until_healthy(gate: &TestGate) {
    for server in SERVERS {
        gate.wait_for_state(server, "healthy").await;
    }
}

/// Makes one call with its own request id and returns whether it was answered with 200.
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

/// Returns the outcomes of all records by request id.
async fn outcomes_by_request(gate: &TestGate) -> HashMap<String, Vec<String>> {
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
async fn every_call_has_one_record_while_servers_crash() {
    let gate = start_gate();
    wait_until_healthy(&gate).await;
    let (client, url) = (&gate.client, &gate.url);
    let calls = futures_util::stream::iter(0..CALLS).map(|number| call(client, url, number));
    let answered: Vec<bool> = calls.buffer_unordered(32).collect().await;
    assert!(answered.iter().all(|answered| *answered));
    let found = eventually("all records are written", WAIT_TIMEOUT, async || {
        let found = outcomes_by_request(&gate).await;
        let closed = |outcomes: &Vec<String>| outcomes.iter().all(|outcome| outcome != "open");
        (found.len() == CALLS && found.values().all(closed)).then_some(found)
    })
    .await;
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
async fn killed_gateway_loses_only_the_latest_records() {
    let mut gate = start_gate();
    wait_until_healthy(&gate).await;
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
    eventually(
        "calls are answered, some of them a while ago",
        WAIT_TIMEOUT,
        async || {
            let acknowledged = acknowledged.lock().unwrap();
            let early = |(_, at): &&(usize, Instant)| at.elapsed() > FLUSH_MARGIN;
            (acknowledged.iter().filter(early).count() >= 100).then_some(())
        },
    )
    .await;
    gate.signal("-KILL");
    let killed = Instant::now();
    gate.wait_for_exit().await;
    callers.join_all().await;
    gate.relaunch();
    let found = outcomes_by_request(&gate).await;
    for (number, at) in acknowledged.lock().unwrap().iter() {
        let outcomes = found.get(&format!("load-{number}"));
        let late = killed.saturating_duration_since(*at) < FLUSH_MARGIN;
        assert!(outcomes.is_some() || late, "call {number} was lost");
        assert!(outcomes.is_none_or(|all| all.len() == 1), "{outcomes:?}");
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
    assert!(found.len() >= 100, "{} records", found.len());
}

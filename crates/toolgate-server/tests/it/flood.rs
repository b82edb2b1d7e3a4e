//! What anybody can make the gateway store is bounded: refused calls, unknown names and large errors.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::caller::{ALICE, BOB, EXECUTE, tool_call};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::oracle::export_records;

const CONNECTIONS: usize = 16;
/// Calls of a flood; fewer on a machine that does not get there in [`MAX_FLOOD_TIME`].
const FLOOD_CALLS: usize = 20_000;
const MAX_FLOOD_TIME: Duration = Duration::from_secs(12);
const ARGUMENT_BYTES: usize = 10 * 1024;
const MEGABYTE: u64 = 1024 * 1024;

/// Returns the size of the database and its log.
fn database_size(gate: &TestGate) -> u64 {
    let data = gate.folder.path().join("data");
    let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    ["toolgate.db", "toolgate.db-wal"]
        .map(|name| size(&data.join(name)))
        .iter()
        .sum()
}

/// Sends calls as fast as possible and returns how many were answered with a status.
async fn flood(
    gate: &TestGate,
    key: &'static str,
    calls: usize,
    body: impl Fn(usize) -> String + Clone + Send + 'static,
) -> Vec<u16> {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (next, body, client) = (Arc::clone(&next), body.clone(), Client::new());
        let url = format!("{}{EXECUTE}", gate.url);
        clients.spawn(async move {
            let mut statuses = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls || start.elapsed() > MAX_FLOOD_TIME {
                    return statuses;
                }
                let request = client.post(&url).bearer_auth(key).body(body(number));
                let response = request.send().await.unwrap();
                statuses.push(response.status().as_u16());
                response.bytes().await.unwrap();
            }
        });
    }
    clients.join_all().await.concat()
}

/// Returns the number of events that the records with an outcome stand for.
fn count_occurrences(records: &[Value], outcome: &str) -> i64 {
    let records = records.iter().filter(|record| record["outcome"] == outcome);
    let occurrences = |record: &Value| record["occurrences"].as_i64().unwrap();
    records.map(occurrences).sum()
}

#[tokio::test]
async fn refused_calls_are_counted_and_take_little_space() {
    let toml = zoo("zoo", &[])
        + &format!("[keys.alice]\nkey = \"{ALICE}\"\nrate_limit = \"1/min\"\n")
        + &format!("[keys.bob]\nkey = \"{BOB}\"\n");
    let mut gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let before = database_size(&gate);
    let text = "x".repeat(ARGUMENT_BYTES);
    let body = tool_call("zoo_echo", &json!({"text": text})).to_string();
    let limited = flood(&gate, ALICE, FLOOD_CALLS, move |_| body.clone()).await;
    let unknown = flood(&gate, BOB, FLOOD_CALLS / 10, |number| {
        let name = format!("no_such_tool_{number}_{}", "y".repeat(number % 1000));
        tool_call(&name, &json!({"text": "z".repeat(ARGUMENT_BYTES)})).to_string()
    })
    .await;
    let grown = database_size(&gate).saturating_sub(before);
    assert!(grown < 5 * MEGABYTE, "{grown} bytes");
    // Counts are written at intervals, and at the end.
    gate.restart().await;
    let grown = database_size(&gate).saturating_sub(before);
    assert!(grown < 5 * MEGABYTE, "{grown} bytes");

    let count = |statuses: &[u16], status: u16| {
        let found = statuses.iter().filter(|found| **found == status).count();
        i64::try_from(found).unwrap()
    };
    let records = export_records(&gate, "").await;
    let refused = count(&limited, 429);
    assert!(refused > 100, "{refused}");
    assert_eq!(count_occurrences(&records, "limited"), refused);
    assert_eq!(count_occurrences(&records, "ok"), count(&limited, 200));
    assert_eq!(count(&limited, 200) + refused, limited.len() as i64);
    assert_eq!(count(&unknown, 200), unknown.len() as i64);
    assert_eq!(count_occurrences(&records, "unknown"), count(&unknown, 200));
    assert!(records.len() < 1000, "{} records", records.len());
    let is_refusal = |record: &&Value| record["outcome"] != "ok";
    for record in records.iter().filter(is_refusal) {
        assert_eq!(record["arguments"], Value::Null, "{record}");
        assert!(record.to_string().len() < 4096, "{record}");
    }
}

#[tokio::test]
async fn large_errors_of_servers_take_little_space() {
    let mut gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let before = database_size(&gate);
    let caller = gate.caller();
    for _ in 0..8 {
        let arguments = json!({"bytes": MEGABYTE});
        let message = caller.call("zoo_rpc_error", &arguments).await;
        assert_eq!(message["is_error"], true);
    }
    for _ in 0..8 {
        let arguments = json!({"text": "e".repeat(100_000), "fails": true});
        let message = caller.call("zoo_say", &arguments).await;
        assert_eq!(message["is_error"], true);
    }
    gate.restart().await;
    let grown = database_size(&gate).saturating_sub(before);
    assert!(grown < MEGABYTE, "{grown} bytes");
    let records = export_records(&gate, "").await;
    let outcomes: Vec<&str> = records
        .iter()
        .map(|r| r["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, [["tool_error"; 8], ["server"; 8]].concat());
}

#[tokio::test]
async fn failed_authentication_takes_little_space() {
    const WRONG_KEY: &str = "wrong-key-0123456789abcdef";
    let toml = zoo("zoo", &[]) + &format!("[keys.alice]\nkey = \"{ALICE}\"\n");
    let mut gate = TestGate::start(&toml);
    let before = database_size(&gate);
    let body = tool_call("zoo_echo", &json!({"text": "x".repeat(ARGUMENT_BYTES)})).to_string();
    let statuses = flood(&gate, WRONG_KEY, FLOOD_CALLS / 10, move |_| body.clone()).await;
    assert!(statuses.iter().all(|status| [401, 429].contains(status)));
    gate.restart().await;
    let grown = database_size(&gate).saturating_sub(before);
    assert!(grown < MEGABYTE, "{grown} bytes");
    assert!(export_records(&gate, "").await.is_empty());
}

/// A caller cannot escape the limit of its key with an array of calls.
#[tokio::test]
async fn array_counts_every_call_against_the_rate() {
    let toml =
        zoo("zoo", &[]) + &format!("[keys.alice]\nkey = \"{ALICE}\"\nrate_limit = \"10/hour\"\n");
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let alice = gate.with_key(ALICE);
    let array = |count: usize| json!(vec![tool_call("zoo_add", &json!({"a": 1, "b": 2})); count]);
    let larger_than_the_burst = alice.post(EXECUTE, &array(11)).await;
    assert_eq!(
        larger_than_the_burst.status, 400,
        "{larger_than_the_burst:?}"
    );
    alice.post(EXECUTE, &array(6)).await.expect_status(200);
    let refused = alice.post(EXECUTE, &array(5)).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.retry_after.is_some());
    alice.post(EXECUTE, &array(4)).await.expect_status(200);
    toolgate_testkit::eventually("all calls are recorded", WAIT_TIMEOUT, async || {
        let records = gate.all_records().await;
        (count_occurrences(&records, "ok") == 10).then_some(())
    })
    .await;
}

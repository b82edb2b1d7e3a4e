//! The second sink of the audit trail.

use serde_json::{Value, json};
use toolgate::CallError;
use toolgate_testkit::{ZooLog, eventually};

use crate::support::{WAIT_TIMEOUT, call_json, start_settled, stdio_zoo, stop};

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn sink_has_the_opening_before_the_call_and_then_its_end_and_seal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trail.jsonl");
    let sink = format!("[audit.sink]\nfile = {:?}\n", file.display().to_string());
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + &sink)).await;
    call_json(&gateway, "zoo_add", &json!({"a": 1, "b": 2}))
        .await
        .unwrap();
    let opened = &lines(&file)[0];
    assert_eq!(opened["entry"], "opened");
    assert_eq!(opened["record"]["tool"], "add");
    let last = eventually("the end is delivered", WAIT_TIMEOUT, async || {
        let lines = lines(&file);
        (lines.last()?["entry"] == "seal").then_some(lines)
    })
    .await;
    let kinds: Vec<&str> = last
        .iter()
        .map(|line| line["entry"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["opened", "closed", "seal"]);
    let end = gateway.audit().verify().await.unwrap().end.unwrap();
    assert_eq!(
        (last[2]["seq"].as_i64(), last[2]["hash"].as_str()),
        (Some(end.0), Some(end.1.as_str()))
    );
    stop(gateway).await;
}

#[tokio::test]
async fn call_is_not_sent_while_the_sink_refuses_it_and_recovers_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("missing").join("trail.jsonl");
    let sink = format!("[audit.sink]\nfile = {:?}\n", file.display().to_string());
    let log = ZooLog::create();
    let gateway = start_settled(&(stdio_zoo("zoo", &log.flags()) + &sink)).await;
    let add = json!({"a": 1, "b": 2});
    let refused = call_json(&gateway, "zoo_add", &add).await.unwrap_err();
    assert!(matches!(refused, CallError::Unrecorded), "{refused}");
    assert_eq!(log.calls("add"), 0);
    assert!(gateway.audit().sink_problem().is_some());
    std::fs::create_dir(folder.path().join("missing")).unwrap();
    eventually("the sink accepts records again", WAIT_TIMEOUT, async || {
        call_json(&gateway, "zoo_add", &add).await.ok()
    })
    .await;
    assert_eq!(log.calls("add"), 1);
    assert_eq!(gateway.audit().sink_problem(), None);
    stop(gateway).await;
    // The refusal was delivered later, in its place.
    let delivered = lines(&file);
    assert!(
        delivered
            .iter()
            .any(|line| line["record"]["outcome"] == "unrecorded"),
        "{delivered:?}"
    );
}

#[tokio::test]
async fn calls_go_on_without_the_sink_if_so_configured() {
    let sink =
        "[audit]\non_failure = \"continue\"\n[audit.sink]\nurl = \"http://127.0.0.1:9/trail\"\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + sink)).await;
    call_json(&gateway, "zoo_add", &json!({"a": 1, "b": 2}))
        .await
        .unwrap();
    stop(gateway).await;
}

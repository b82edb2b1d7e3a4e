//! Calls to a server that has lost its connection wait for it, unless it will not be back in time or too many
//! wait already.

use std::path::Path;
use std::pin::pin;

use futures_util::future::{Either, select};
use serde_json::json;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::agent::{PATHS, add_call, request, run_agent};
use crate::gate::{TestGate, server, zoo};

/// A server that starts only while this file does not exist, and then creates it.
fn starts_without(name: &str, file: &Path) -> String {
    let (file, zoo) = (file.display(), toolgate_testkit::zoo_path());
    let script = format!(
        "[ -e {file} ] && exit 1; touch {file}; exec {} stdio",
        zoo.display()
    );
    server(name, "sh", &["-c", &script])
}

#[tokio::test]
async fn calls_wait_for_a_reconnecting_server_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let (patient, hasty) = (folder.path().join("patient"), folder.path().join("hasty"));
    let toml = starts_without("patient", &patient)
        + "reconnect_wait = \"1h\"\ntimeout = \"1h\"\nmax_queue = 1\n"
        + &starts_without("hasty", &hasty)
        + "reconnect_wait = \"0s\"\n";
    let gate = TestGate::start(&toml);
    for name in ["patient", "hasty"] {
        gate.wait_for_state(name, "healthy").await;
        gate.call(&format!("{name}_die"), "{}").await;
        gate.wait_for_state(name, "unavailable").await;
    }
    let sum = "{\"a\":1,\"b\":1}";
    let refused = gate.call("hasty_add", sum).await.to_string();
    assert!(refused.contains("unavailable"), "{refused}");
    // Only one call may wait.
    let (first, second) = (
        pin!(gate.call("patient_add", sum)),
        pin!(gate.call("patient_add", sum)),
    );
    let (busy, waiting) = match select(first, second).await {
        Either::Left((busy, waiting)) | Either::Right((busy, waiting)) => (busy, waiting),
    };
    assert!(busy.to_string().contains("is busy"), "{busy}");
    std::fs::remove_file(&patient).unwrap();
    let answer = waiting.await;
    assert_eq!(answer["content"], "2", "{answer}");
}

#[tokio::test]
async fn run_survives_the_crash_of_a_server() {
    let die = ("c1".to_owned(), "zoo_die", json!({}));
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([die]),
        Reply::calls([add_call("c2", 1), add_call("c3", 2)]),
        Reply::text("ok"),
    ]);
    let toml = zoo("zoo", &[])
        + "tools_to_auto_execute = [\"*\"]\nreconnect_wait = \"1h\"\ntimeout = \"1h\"\n"
        + &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let note = run_agent(&gate, PATHS[0].1, &request("openai", "p/m", false))
        .await
        .note;
    let executed = note["executed"].as_array().unwrap();
    let results: Vec<_> = executed[1..].iter().map(|call| &call["result"]).collect();
    assert_eq!(results, ["2", "3"], "{note}");
}

//! What operators see of faults, runs and calls: in the log, and in the metrics.

use reqwest::header::HeaderMap;
use serde_json::Value;
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::agent::{add_call, request, start_gate};
use crate::gate::{TestGate, WAIT_TIMEOUT, processes_with, server, zoo};

/// Waits until the log has this number of lines with a message, and returns them.
async fn wait_for_lines(gate: &TestGate, message: &str, count: usize) -> Vec<Value> {
    let lines = || {
        let log = gate.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines = lines.filter(|line: &Value| line["message"] == message);
        lines.collect::<Vec<Value>>()
    };
    let what = format!("{count} lines {message:?}");
    let found = eventually(&what, WAIT_TIMEOUT, async || {
        Some(lines()).filter(|lines| lines.len() >= count)
    })
    .await;
    assert_eq!(found.len(), count, "{found:?}");
    found
}

async fn metric(gate: &TestGate, name: &str) -> Option<f64> {
    let text = gate.get("/metrics").await.text().await.unwrap();
    let line = format!("toolgate_{name} ");
    let value = text.lines().find_map(|text| text.strip_prefix(&line));
    value.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn every_lost_connection_is_logged_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("appended").display().to_string();
    let gate = TestGate::start(&zoo("zoo", &["--append-to", &marker]));
    for kills in 1..=3_u8 {
        let status = gate.wait_for_state("zoo", "healthy").await;
        let pid = eventually("the server runs", WAIT_TIMEOUT, async || {
            processes_with(&marker).first().copied()
        })
        .await;
        let kill = std::process::Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .status();
        assert!(kill.unwrap().success(), "{status}");
        let lines = wait_for_lines(&gate, "lost the connection to the server", kills.into()).await;
        let last = lines.last().unwrap();
        assert_eq!(last["level"], "WARN");
        assert_eq!(last["server"], "zoo");
        assert!(
            last["reason"].as_str().unwrap().contains("SIGKILL"),
            "{last}"
        );
        eventually("the reconnect is counted", WAIT_TIMEOUT, async || {
            let reconnects = metric(&gate, "server_reconnects_total{server=\"zoo\"}").await;
            (reconnects == Some(kills.into())).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn runs_calls_and_failed_requests_are_logged_and_counted() {
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([add_call("c1", 1)]),
        Reply::text("Done."),
        Reply::error(503, "overloaded"),
        Reply::calls([("c2".to_owned(), "zoo_echo", serde_json::json!({}))]),
    ]);
    let extra =
        "[log]\ncalls = true\n[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let gate = start_gate(&model, "[\"*\"]", extra).await;
    let ask = async || {
        let body = request("openai", "openai/m", false).to_string();
        gate.post("/v1/chat/completions", &body, HeaderMap::new())
            .await
            .status()
            .as_u16()
    };
    assert_eq!(ask().await, 200);
    let ended = wait_for_lines(&gate, "run ended", 1).await.remove(0);
    assert_eq!(ended["level"], "INFO");
    assert_eq!(
        (&ended["stop_reason"], &ended["turns"]),
        (&"done".into(), &2.into())
    );
    assert_eq!(ended["calls"], 1, "{ended}");
    let call = wait_for_lines(&gate, "tool call", 1).await.remove(0);
    assert_eq!(
        (&call["tool"], &call["outcome"]),
        (&"zoo.add".into(), &"ok".into()),
        "{call}"
    );
    assert!(call["ms"].is_u64(), "{call}");

    assert_eq!(ask().await, 503);
    let failed = wait_for_lines(&gate, "the provider answered with an error", 1)
        .await
        .remove(0);
    assert_eq!(failed["level"], "WARN");
    assert_eq!(
        (&failed["provider"], &failed["status"]),
        (&"openai".into(), &503.into())
    );

    assert_eq!(metric(&gate, "approvals_waiting").await, Some(0.0));
    assert_eq!(ask().await, 200);
    assert_eq!(metric(&gate, "approvals_waiting").await, Some(1.0));
    for (stop_reason, count) in [
        ("done", 1.0),
        ("error", 1.0),
        ("needs_approval", 1.0),
        ("budget", 0.0),
    ] {
        let name = format!("runs_total{{stop_reason=\"{stop_reason}\"}}");
        assert_eq!(metric(&gate, &name).await, Some(count), "{stop_reason}");
    }
    assert!(metric(&gate, "memory_bytes").await > Some(1e6));
    assert!(metric(&gate, "uptime_seconds").await > Some(0.0));
    assert_eq!(metric(&gate, "mcp_sessions").await, Some(0.0));
}

#[tokio::test]
async fn timeouts_are_logged_and_debug_shows_only_the_gateway() {
    let toml = zoo("zoo", &[]) + "[mcp.tool_manager_config]\ntool_execution_timeout = \"200ms\"\n";
    let gate = TestGate::start_with(&toml, &["--log", "debug"], &[]);
    gate.wait_for_state("zoo", "healthy").await;
    gate.call("zoo_sleep", "{\"ms\": 60000}").await;
    let line = wait_for_lines(&gate, "tool call timed out", 1)
        .await
        .remove(0);
    assert_eq!(
        (&line["level"], &line["tool"]),
        (&"WARN".into(), &"zoo.sleep".into())
    );
    gate.call("zoo_add", "{\"a\": 1, \"b\": 2}").await;
    let call = wait_for_lines(&gate, "tool call", 1).await.remove(0);
    assert_eq!(call["level"], "DEBUG");
    let log = gate.log();
    let foreign = log.lines().find(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["level"] == "DEBUG" && !line["target"].as_str().unwrap().starts_with("toolgate")
    });
    assert_eq!(foreign, None);
}

#[tokio::test]
async fn reason_of_a_failed_package_runner_is_the_telling_line() {
    let script = "echo 'npm error code E404' >&2; echo \"npm error 404 Not Found - GET https://registry.example/nope - Not found\" >&2; echo 'npm error 404' >&2; echo 'npm error A complete log of this run can be found in: /x.log' >&2; exit 1";
    let gate = TestGate::start(&server("nope", "sh", &["-c", script]));
    let entry = gate.wait_for_state("nope", "unavailable").await;
    let reason = entry["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("404 Not Found - GET https://registry.example/nope - Not found"),
        "{reason}"
    );
}

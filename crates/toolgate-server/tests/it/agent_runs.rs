//! Cancelled, abandoned and resumed runs: nothing is lost, and nothing runs without a client.

use std::collections::HashSet;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::agent::{
    PATHS, add_call, fetch_run, read_response, request, resume_run, run_agent, start_gate,
};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::headers;

/// Builds a call that lasts longer than any test.
fn slow_call(id: &str) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_sleep", json!({"ms": 600_000}))
}

/// Waits until the newest run reaches a state and returns it.
async fn wait_for_run_state(gate: &TestGate, state: &str) -> Value {
    eventually(&format!("the run is {state}"), WAIT_TIMEOUT, async || {
        let runs = gate.json("/api/runs").await;
        let run = runs["runs"].get(0)?.clone();
        if run["state"] == state {
            Some(fetch_run(gate, &run["id"]).await)
        } else {
            None
        }
    })
    .await
}

/// Waits until the newest run has opened this call.
async fn wait_for_opened_call(gate: &TestGate, call: &str) {
    eventually(&format!("{call} is opened"), WAIT_TIMEOUT, async || {
        let runs = gate.json("/api/runs").await;
        let run = fetch_run(gate, &runs["runs"].get(0)?["id"]).await;
        let mut steps = run["timeline"].as_array()?.iter();
        let opened = |step: &Value| step["kind"] == "call_opened" && step["id"] == call;
        steps.any(|entry| opened(&entry["step"])).then_some(())
    })
    .await;
}

async fn cancel_newest_run(gate: &TestGate) -> u16 {
    let runs = gate.json("/api/runs").await;
    let id = runs["runs"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/runs/{id}/cancel");
    gate.post(&path, "", headers(&[])).await.status().as_u16()
}

#[tokio::test]
async fn cancelled_run_reports_executed_calls() {
    for (dialect, path) in PATHS {
        for stream in [false, true] {
            let model = ScriptedModel::start_strict(vec![
                Reply::calls([add_call("c1", 1)]).with_usage(10, 1),
                Reply::calls([slow_call("c2")]).with_usage(20, 2),
            ]);
            let gate = start_gate(&model, "[\"*\"]", "").await;
            let body = request(dialect, &format!("{dialect}/m"), stream).to_string();
            let answering = async {
                let answer = gate.post(path, &body, headers(&[])).await;
                let status = answer.status();
                (status, answer.text().await.unwrap())
            };
            let ((status, text), ()) = tokio::join!(answering, async {
                wait_for_opened_call(&gate, "c2").await;
                assert_eq!(cancel_newest_run(&gate).await, 200);
            });
            // A stream has already begun; otherwise the status tells clients not to retry.
            assert_eq!(status, if stream { 200 } else { 424 }, "{text}");
            let note = if stream {
                let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
                let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
                let mut notes = events.filter_map(|event| {
                    let inner = event["response"]["toolgate"].clone();
                    let outer = event["toolgate"].clone();
                    [inner, outer].into_iter().find(Value::is_object)
                });
                notes.next().unwrap_or_else(|| panic!("{dialect}: {text}"))
            } else {
                serde_json::from_str::<Value>(&text).unwrap()["toolgate"].clone()
            };
            assert!(text.contains("cancelled"), "{text}");
            assert_eq!(note["executed"][0]["result"], "2", "{text}");
            let interrupted = note["executed"][1]["result"].as_str().unwrap();
            assert!(interrupted.contains("may have run"), "{text}");
            let run = wait_for_run_state(&gate, "cancelled").await;
            assert_eq!(
                (&run["iterations"], &run["input_tokens"]),
                (&json!(2), &json!(30)),
                "{run}"
            );
            assert_eq!(cancel_newest_run(&gate).await, 409, "the run has ended");
        }
    }
}

/// Starts a model whose first turn needs approval and whose second turn lasts forever.
fn model_with_pending_then_slow_call() -> ScriptedModel {
    let echo = ("c1".to_owned(), "zoo_echo", json!({"x": 1}));
    ScriptedModel::start_strict(vec![Reply::calls([echo]), Reply::calls([slow_call("c2")])])
}

#[tokio::test]
async fn disconnecting_cancels_resumed_run() {
    for stream in [false, true] {
        let model = model_with_pending_then_slow_call();
        let gate = start_gate(&model, "[\"sleep\"]", "").await;
        let body = request("openai", "openai/m", stream).to_string();
        let response = read_response(gate.post(PATHS[0].1, &body, headers(&[])).await).await;
        let approve = json!({"decisions": [{"id": "c1", "decision": "approve"}]});
        let resuming = async {
            let answer = resume_run(&gate, &response.note["run_id"], approve, &[]).await;
            answer.text().await
        };
        tokio::select! {
            answer = resuming => panic!("the call should still sleep: {answer:?}"),
            () = async {
                wait_for_opened_call(&gate, "c2").await;
                gate.wait_for_in_flight_call().await;
            } => {}
        }
        let run = wait_for_run_state(&gate, "cancelled").await;
        assert_eq!(run["iterations"], 2, "{run}");
        eventually("the call is cancelled", WAIT_TIMEOUT, async || {
            let audit = gate.json("/api/audit").await;
            (audit["records"][0]["outcome"] == "cancelled").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn resumed_run_emits_tool_call_events() {
    let echo = |id: &str| (id.to_owned(), "zoo_echo", json!({"x": 1}));
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([echo("c1"), echo("c2")]),
        Reply::text("ok"),
    ]);
    let gate = start_gate(&model, "[\"add\"]", "").await;
    let body = request("openai", "openai/m", true).to_string();
    let answering = gate.post(PATHS[0].1, &body, headers(&[("x-toolgate-events", "on")]));
    let response = read_response(answering.await).await;
    let decided = json!({"decisions": [
        {"id": "c1", "decision": "approve"}, {"id": "c2", "decision": "deny"}]});
    let answer = resume_run(&gate, &response.note["run_id"], decided, &[]).await;
    let text = answer.text().await.unwrap();
    let events: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    let expected = ["toolgate.tool_call.started", "toolgate.tool_call.ended"];
    assert_eq!(events, expected, "{text}");
}

#[tokio::test]
async fn interrupted_run_resumes_after_gateway_restart() {
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([add_call("c1", 1), slow_call("c2")]),
        Reply::text("After all."),
    ]);
    let mut gate = start_gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", false).to_string();
    let (answer, ()) = tokio::join!(gate.post(PATHS[0].1, &body, headers(&[])), async {
        wait_for_opened_call(&gate, "c2").await;
        gate.wait_for_in_flight_call().await;
        gate.signal("-TERM");
        // A second signal skips the drain. Signals can coalesce, so wait until the first is handled.
        eventually("the gateway is stopping", WAIT_TIMEOUT, async || {
            gate.log().contains("stopping").then_some(())
        })
        .await;
        gate.signal("-TERM");
    });
    assert_eq!(answer.status(), 424, "a tool has run");
    gate.wait_for_exit().await;
    gate.relaunch();
    gate.wait_for_state("zoo", "healthy").await;
    let run = wait_for_run_state(&gate, "interrupted").await;
    let answer = read_response(resume_run(&gate, &run["id"], json!({}), &[]).await).await;
    assert_eq!(answer.text, "After all.");
    let sent = model.turns()[1].body["messages"].clone();
    assert_eq!(sent[2]["content"], "2");
    let unknown = sent[3]["content"].as_str().unwrap();
    assert!(unknown.contains("may have run"), "{sent}");
}

/// Replies with calls that succeed, fail, take long or kill their server.
fn mixed_calls(body: &Value) -> Reply {
    let messages = body["messages"].to_string();
    let kills_server = messages.contains("kill it");
    match messages.matches("tool_call_id").count() {
        0 => Reply::calls([
            add_call("c1", 1),
            ("c2".to_owned(), "zoo_fail", json!({})),
            ("c3".to_owned(), "slow_sleep", json!({"ms": 50})),
            if kills_server {
                ("c4".to_owned(), "mortal_die", json!({}))
            } else {
                ("c4".to_owned(), "mortal_echo", json!({"x": 1}))
            },
        ]),
        4 => Reply::calls([add_call("c5", 2)]),
        _ => Reply::text("done"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_concurrent_runs_survive_failing_servers() {
    const RUNS: usize = 500;
    let model = ScriptedModel::start(vec![Reply::from_request(mixed_calls)]);
    let mut toml = String::new();
    for name in ["zoo", "slow", "mortal"] {
        toml += &zoo(name, &[]);
        // No call may time out in the queue of a busy machine.
        toml += "tools_to_auto_execute = [\"*\"]\nmax_queue = 2000\ntimeout = \"1h\"\n";
    }
    toml += &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let gate = TestGate::start(&toml);
    for name in ["zoo", "slow", "mortal"] {
        gate.wait_for_state(name, "healthy").await;
    }
    let runs = (0..RUNS).map(|n| {
        let mut body = request("openai", "p/m", n % 2 == 0);
        if n % 50 == 7 {
            body["messages"][0]["content"] = json!("kill it");
        }
        let gate = &gate;
        async move { run_agent(gate, PATHS[0].1, &body).await }
    });
    let mut runs: FuturesUnordered<_> = runs.collect();
    let (mut ids, mut succeeded) = (HashSet::new(), 0);
    // Bounds the time without progress: how long all of them take depends on the machine.
    while let Some(response) = tokio::time::timeout(WAIT_TIMEOUT, runs.next())
        .await
        .expect("no run ended for a long time")
    {
        let note = &response.note;
        assert_eq!(note["stop_reason"], "done", "{response:?}");
        assert!(ids.insert(note["run_id"].to_string()), "{note}");
        let executed = note["executed"].as_array().unwrap();
        let results: Vec<&Value> = executed.iter().map(|call| &call["result"]).collect();
        assert_eq!(executed.len(), 5, "{note}");
        assert_eq!(results[0], "2", "{note}");
        assert_eq!(executed[1]["is_error"], true, "{note}");
        assert_eq!(results[2], "slept 50 ms", "{note}");
        assert_eq!(results[4], "3", "{note}");
        succeeded += usize::from(executed[3]["is_error"] == false);
    }
    assert!(succeeded > 0, "a killed server restarts");
    let done = gate.json("/api/runs?state=done&limit=1000").await;
    assert_eq!(done["runs"].as_array().unwrap().len(), RUNS);
}

//! Runs that are cut off, left or gone on with: nothing is lost, and nothing goes on for nobody.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Model, Reply};

use crate::agent::{PATHS, add, ask, gate, request, resume, run_of, seen};
use crate::gate::{SOON, TestGate, zoo};
use crate::mcp::headers;

/// A call that lasts longer than any test.
fn slow(id: &str) -> (String, &'static str, Value) {
    (id.to_owned(), "zoo_sleep", json!({"ms": 600_000}))
}

/// Waits until the newest run is in a state, and gives it.
async fn reaches(gate: &TestGate, state: &str) -> Value {
    eventually(&format!("the run is {state}"), SOON, async || {
        let runs = gate.json("/api/runs").await;
        let run = runs["runs"].get(0)?.clone();
        match run["state"] == state {
            true => Some(run_of(gate, &run["id"]).await),
            false => None,
        }
    })
    .await
}

/// Waits until a call of the newest run is about to run.
async fn opens(gate: &TestGate, call: &str) {
    eventually(&format!("{call} is opened"), SOON, async || {
        let runs = gate.json("/api/runs").await;
        let run = run_of(gate, &runs["runs"].get(0)?["id"]).await;
        let mut steps = run["timeline"].as_array()?.iter();
        let opened = |step: &Value| step["kind"] == "call_opened" && step["id"] == call;
        steps.any(|entry| opened(&entry["step"])).then_some(())
    })
    .await;
}

async fn cancel(gate: &TestGate) -> u16 {
    let runs = gate.json("/api/runs").await;
    let id = runs["runs"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/runs/{id}/cancel");
    gate.post(&path, "", headers(&[])).await.status().as_u16()
}

#[tokio::test]
async fn a_run_that_is_cut_off_tells_what_ran() {
    for (wanted, path) in PATHS {
        for stream in [false, true] {
            let model = Model::strict(vec![
                Reply::calls([add("c1", 1)]).usage(10, 1),
                Reply::calls([slow("c2")]).usage(20, 2),
            ]);
            let gate = gate(&model, "[\"*\"]", "").await;
            let body = request(wanted, &format!("{wanted}/m"), stream).to_string();
            let asked = async {
                let answer = gate.post(path, &body, headers(&[])).await;
                let status = answer.status();
                (status, answer.text().await.unwrap())
            };
            let ((status, text), ()) = tokio::join!(asked, async {
                opens(&gate, "c2").await;
                assert_eq!(cancel(&gate).await, 200);
            });
            // A stream has begun by then; anything else is not to be tried again.
            assert_eq!(status, if stream { 200 } else { 424 }, "{text}");
            let error = match stream {
                true => {
                    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
                    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
                    let mut notes = events.filter_map(|event| {
                        let inner = event["response"]["toolgate"].clone();
                        let outer = event["toolgate"].clone();
                        [inner, outer].into_iter().find(Value::is_object)
                    });
                    notes.next().unwrap_or_else(|| panic!("{wanted}: {text}"))
                }
                false => serde_json::from_str::<Value>(&text).unwrap()["toolgate"].clone(),
            };
            assert!(text.contains("cancelled"), "{text}");
            assert_eq!(error["executed"][0]["result"], "2", "{text}");
            let late = error["executed"][1]["result"].as_str().unwrap();
            assert!(late.contains("may have run"), "{text}");
            let run = reaches(&gate, "cancelled").await;
            assert_eq!(
                (&run["iterations"], &run["input_tokens"]),
                (&json!(2), &json!(30)),
                "{run}"
            );
            assert_eq!(cancel(&gate).await, 409, "it is over");
        }
    }
}

/// The first answer leaves a call to its caller; then comes one that lasts.
fn half_way() -> Model {
    let echo = ("c1".to_owned(), "zoo_echo", json!({"x": 1}));
    Model::strict(vec![Reply::calls([echo]), Reply::calls([slow("c2")])])
}

#[tokio::test]
async fn whoever_leaves_a_run_that_was_gone_on_with_stops_it() {
    for stream in [false, true] {
        let model = half_way();
        let gate = gate(&model, "[\"sleep\"]", "").await;
        let body = request("openai", "openai/m", stream).to_string();
        let seen = seen(gate.post(PATHS[0].1, &body, headers(&[])).await).await;
        let approve = json!({"decisions": [{"id": "c1", "decision": "approve"}]});
        let going_on = async {
            let answer = resume(&gate, &seen.note["run_id"], approve, &[]).await;
            answer.text().await
        };
        tokio::select! {
            answer = going_on => panic!("it sleeps: {answer:?}"),
            () = async {
                opens(&gate, "c2").await;
                gate.works_on_a_call().await;
            } => {}
        }
        let run = reaches(&gate, "cancelled").await;
        assert_eq!(run["iterations"], 2, "{run}");
        eventually("the call is cancelled", SOON, async || {
            let audit = gate.json("/api/audit").await;
            (audit["records"][0]["outcome"] == "cancelled").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_run_that_is_gone_on_with_tells_of_its_calls() {
    let echo = |id: &str| (id.to_owned(), "zoo_echo", json!({"x": 1}));
    let model = Model::strict(vec![
        Reply::calls([echo("c1"), echo("c2")]),
        Reply::text("ok"),
    ]);
    let gate = gate(&model, "[\"add\"]", "").await;
    let body = request("openai", "openai/m", true).to_string();
    let asked = gate.post(PATHS[0].1, &body, headers(&[("x-toolgate-events", "on")]));
    let seen = seen(asked.await).await;
    let decided = json!({"decisions": [
        {"id": "c1", "decision": "approve"}, {"id": "c2", "decision": "deny"}]});
    let answer = resume(&gate, &seen.note["run_id"], decided, &[]).await;
    let text = answer.text().await.unwrap();
    let told: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    let expected = ["toolgate.tool_call.started", "toolgate.tool_call.ended"];
    assert_eq!(told, expected, "{text}");
}

#[tokio::test]
async fn a_gateway_that_ends_leaves_runs_to_be_gone_on_with() {
    let model = Model::strict(vec![
        Reply::calls([add("c1", 1), slow("c2")]),
        Reply::text("After all."),
    ]);
    let mut gate = gate(&model, "[\"*\"]", "").await;
    let body = request("openai", "openai/m", false).to_string();
    let (answer, ()) = tokio::join!(gate.post(PATHS[0].1, &body, headers(&[])), async {
        opens(&gate, "c2").await;
        gate.works_on_a_call().await;
        gate.signal("-TERM");
        // Whoever signals again does not want to wait; a signal may be lost in the one before.
        eventually("it is about to end", SOON, async || {
            gate.log().contains("stopping").then_some(())
        })
        .await;
        gate.signal("-TERM");
    });
    assert_eq!(answer.status(), 424, "a tool has run");
    gate.ends().await;
    gate.start_again();
    gate.reaches("zoo", "healthy").await;
    let run = reaches(&gate, "interrupted").await;
    let answer = seen(resume(&gate, &run["id"], json!({}), &[]).await).await;
    assert_eq!(answer.text, "After all.");
    let sent = model.turns()[1].body["messages"].clone();
    assert_eq!(sent[2]["content"], "2");
    let unknown = sent[3]["content"].as_str().unwrap();
    assert!(unknown.contains("may have run"), "{sent}");
}

/// What the model of many runs asks for: tools that answer, fail, take their time, and die.
fn trouble(body: &Value) -> Reply {
    let said = body["messages"].to_string();
    let kills = said.contains("kill it");
    match said.matches("tool_call_id").count() {
        0 => Reply::calls([
            add("c1", 1),
            ("c2".to_owned(), "zoo_fail", json!({})),
            ("c3".to_owned(), "slow_sleep", json!({"ms": 50})),
            match kills {
                true => ("c4".to_owned(), "mortal_die", json!({})),
                false => ("c4".to_owned(), "mortal_echo", json!({"x": 1})),
            },
        ]),
        4 => Reply::calls([add("c5", 2)]),
        _ => Reply::text("done"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_runs_at_once_among_failing_slow_and_dying_servers() {
    const RUNS: usize = 500;
    let model = Model::start(vec![Reply::with(trouble)]);
    let mut toml = String::new();
    for name in ["zoo", "slow", "mortal"] {
        toml += &zoo(name, &[]);
        toml += "tools_to_auto_execute = [\"*\"]\nmax_queue = 2000\n";
    }
    toml += &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let gate = TestGate::start(&toml);
    for name in ["zoo", "slow", "mortal"] {
        gate.reaches(name, "healthy").await;
    }
    let runs = (0..RUNS).map(|n| {
        let mut body = request("openai", "p/m", n % 2 == 0);
        if n % 50 == 7 {
            body["messages"][0]["content"] = json!("kill it");
        }
        let gate = &gate;
        async move { ask(gate, PATHS[0].1, &body).await }
    });
    let runs = futures_util::future::join_all(runs);
    let runs = tokio::time::timeout(Duration::from_secs(60), runs).await;
    let (mut ids, mut answered) = (HashSet::new(), 0);
    for seen in runs.expect("all of them end in time") {
        let note = &seen.note;
        assert_eq!(note["stop_reason"], "done", "{seen:?}");
        assert!(ids.insert(note["run_id"].to_string()), "{note}");
        let executed = note["executed"].as_array().unwrap();
        let results: Vec<&Value> = executed.iter().map(|one| &one["result"]).collect();
        assert_eq!(executed.len(), 5, "{note}");
        assert_eq!(results[0], "2", "{note}");
        assert_eq!(executed[1]["is_error"], true, "{note}");
        assert_eq!(results[2], "slept 50 ms", "{note}");
        assert_eq!(results[4], "3", "{note}");
        answered += usize::from(executed[3]["is_error"] == false);
    }
    assert!(answered > 0, "a server that dies comes back");
    let done = gate.json("/api/runs?state=done&limit=1000").await;
    assert_eq!(done["runs"].as_array().unwrap().len(), RUNS);
}

//! Runs that are resumed again and again: limits hold for all parts of a run together.

use serde_json::{Value, json};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel, has_tool_result};

use crate::agent::{PATHS, add_call, fetch_run, read_response, request, resume_run, start_gate};
use crate::agent_properties::Random;
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::headers;

const SEED: u64 = 20_261_118;
const CASES: usize = 30;
/// Far more than any limit allows.
const MAX_RESUMES: usize = 40;

/// What a run may use at most; `None` for no limit.
#[derive(Clone, Copy, Debug)]
struct Limits {
    depth: u64,
    tool_calls: Option<u64>,
    model_calls: Option<u64>,
    tokens: Option<u64>,
}

impl Limits {
    fn generate(random: &mut Random) -> Self {
        let mut maybe = |max: u64| (random.below(2) == 0).then(|| 1 + random.below(max));
        let (tool_calls, model_calls, tokens) = (maybe(6), maybe(4), maybe(4));
        Self {
            depth: 1 + random.below(4),
            tool_calls,
            model_calls,
            tokens: tokens.map(|turns| turns * 10),
        }
    }

    fn budget_header(self) -> String {
        let limits = [
            ("tool_calls", self.tool_calls),
            ("model_calls", self.model_calls),
            ("tokens", self.tokens),
        ];
        let set = limits
            .iter()
            .filter_map(|(name, limit)| Some(format!("{name}={}", (*limit)?)));
        set.collect::<Vec<_>>().join(",")
    }

    /// Maximum number of model requests. Each has 10 tokens.
    fn max_turns(self) -> u64 {
        let turns = [
            Some(self.depth + 1),
            self.model_calls,
            self.tokens.map(|tokens| tokens / 10),
        ];
        turns.into_iter().flatten().min().unwrap()
    }
}

/// Never stops to request calls: one that runs, one or two that need a decision.
fn endless_calls(body: &Value) -> Reply {
    let turn = body["messages"].as_array().unwrap().len();
    let echo = |name: &str| (format!("{name}{turn}"), "zoo_echo", json!({"turn": turn}));
    let mut calls = vec![add_call(&format!("a{turn}"), turn as i64), echo("e")];
    if turn % 2 == 1 {
        calls.push(echo("f"));
    }
    Reply::calls(calls).with_usage(9, 1)
}

fn decide(pending: &Value, random: &mut Random) -> Value {
    let decisions = pending.as_array().unwrap().iter().map(|call| {
        let id = &call["id"];
        match random.below(4) {
            0 => json!({"id": id, "decision": "deny"}),
            1 => json!({"id": id, "decision": "result", "result": "mine"}),
            _ => json!({"id": id, "decision": "approve"}),
        }
    });
    json!({"decisions": decisions.collect::<Vec<_>>()})
}

fn count_calls(log: &std::path::Path) -> u64 {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let calls = log.lines().filter(|line| line.starts_with("tools/call"));
    calls.count() as u64
}

/// Resumes a run until that is refused. Returns the message.
async fn resume_to_the_end(gate: &TestGate, first: &Value, random: &mut Random) -> String {
    let mut note = first.clone();
    for _ in 0..MAX_RESUMES {
        let decisions = decide(&note["pending"], random);
        let answer = resume_run(gate, &note["run_id"], decisions, &[]).await;
        if answer.status() == 409 {
            let text = answer.text().await.unwrap();
            if text.contains("approve no more than that") {
                continue; // other decisions fit
            }
            return text;
        }
        note = read_response(answer).await.note;
        if note["pending"] == json!([]) {
            return note["explanation"].to_string();
        }
    }
    panic!("the run does not end: {note}");
}

#[tokio::test]
async fn no_sequence_of_resumes_exceeds_a_limit() {
    let model = ScriptedModel::start(vec![Reply::from_request(endless_calls)]);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("count");
    let toml = zoo("zoo", &["--count", log.to_str().unwrap()])
        + "tools_to_auto_execute = [\"add\"]\n"
        + &format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let mut random = Random(SEED);
    for case in 0..CASES {
        let limits = Limits::generate(&mut random);
        let (turns, calls) = (model.turns().len() as u64, count_calls(&log));
        let (depth, budget) = (limits.depth.to_string(), limits.budget_header());
        let limit_headers = headers(&[
            ("x-toolgate-max-depth", &depth),
            ("x-toolgate-budget", &budget),
        ]);
        let body = request("openai", "p/m", random.below(2) == 0).to_string();
        let first = read_response(gate.post(PATHS[0].1, &body, limit_headers).await).await;
        let end = resume_to_the_end(&gate, &first.note, &mut random).await;
        let what = format!("case {case}, {limits:?}: {end}");
        assert!(end.contains("The run has ended"), "{what}");
        let turns = model.turns().len() as u64 - turns;
        assert!(turns <= limits.max_turns(), "{what}: {turns} turns");
        let calls = count_calls(&log) - calls;
        let max_calls = limits.tool_calls.unwrap_or(u64::MAX);
        assert!(calls <= max_calls, "{what}: {calls} calls");
    }
}

#[tokio::test]
async fn loop_guard_counts_across_resumes() {
    let fail = ("f".to_owned(), "zoo_fail", json!({}));
    for decision in ["approve", "deny"] {
        let model = ScriptedModel::start(vec![Reply::calls([fail.clone()])]);
        let gate = start_gate(&model, "[\"add\"]", "").await;
        let body = request("openai", "openai/m", false).to_string();
        let mut note = read_response(gate.post(PATHS[0].1, &body, headers(&[])).await)
            .await
            .note;
        let decided = json!({"decisions": [{"id": "f", "decision": decision}]});
        for _ in 0..2 {
            assert_eq!(note["stop_reason"], "needs_approval", "{note}");
            let answer = resume_run(&gate, &note["run_id"], decided.clone(), &[]).await;
            note = read_response(answer).await.note;
        }
        assert_eq!(note["stop_reason"], "loop_guard", "{decision}: {note}");
        let turns = model.turns().len();
        let refused = resume_run(&gate, &note["run_id"], decided, &[]).await;
        assert_eq!(refused.status(), 409);
        assert!(refused.text().await.unwrap().contains("keep failing"));
        assert_eq!(model.turns().len(), turns, "{decision}");
    }
}

#[tokio::test]
async fn denial_holds_for_its_run_unless_its_scope_is_wider() {
    let model = ScriptedModel::start(vec![Reply::from_request(|body| {
        if has_tool_result(body) {
            Reply::text("done")
        } else {
            Reply::calls([add_call("c1", 1)])
        }
    })]);
    let rule = "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"ask\"\n";
    let gate = start_gate(&model, "[\"*\"]", rule).await;
    let body = request("openai", "openai/m", false).to_string();
    let start = || async {
        let answer = gate.post(PATHS[0].1, &body, headers(&[])).await;
        read_response(answer).await.note
    };
    let first = start().await;
    let deny = json!({"decisions": [{"id": "c1", "decision": "deny", "reason": "not today"}]});
    let answer = read_response(resume_run(&gate, &first["run_id"], deny, &[]).await).await;
    assert_eq!(answer.text, "done");
    let sent = model.turns().last().unwrap().body.to_string();
    assert!(sent.contains("not today"), "{sent}");
    // Another run asks again, and so does a call outside of runs.
    let second = start().await;
    let approval = second["pending"][0]["approval_id"].clone();
    assert!(approval.is_string(), "{second}");
    assert_ne!(approval, first["pending"][0]["approval_id"]);
    let outside = gate.call("zoo_add", "{\"a\":1,\"b\":1}").await;
    assert!(outside.to_string().contains("approv"), "{outside}");
    let path = format!("/api/approvals/{}", approval.as_str().unwrap());
    let wrong = json!({"decision": "deny", "scope": "always"}).to_string();
    assert_eq!(gate.post(&path, &wrong, headers(&[])).await.status(), 400);
    let deny = json!({"decision": "deny", "scope": "caller", "reason": "never"}).to_string();
    assert_eq!(gate.post(&path, &deny, headers(&[])).await.status(), 200);
    let third = start().await;
    assert_eq!(third["stop_reason"], "done", "{third}");
    let result = third["executed"][0]["result"].as_str().unwrap();
    assert!(result.contains("never"), "{third}");
}

/// Starts a gateway in which adding needs an approver, and a run that waits for one.
async fn start_waiting_run(model: &ScriptedModel, extra: &str) -> (TestGate, Value) {
    let rule = "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"ask\"\n";
    let gate = start_gate(model, "[\"*\"]", &format!("{rule}{extra}")).await;
    let body = request("openai", "openai/m", true).to_string();
    let answer = gate.post(PATHS[0].1, &body, headers(&[])).await;
    let note = read_response(answer).await.note;
    assert_eq!(note["stop_reason"], "needs_approval", "{note}");
    (gate, note)
}

async fn decide_approval(gate: &TestGate, note: &Value, decision: &Value) {
    let id = note["pending"][0]["approval_id"].as_str().unwrap();
    let path = format!("/api/approvals/{id}");
    let decided = gate.post(&path, &decision.to_string(), headers(&[])).await;
    assert_eq!(decided.status(), 200);
}

#[tokio::test]
async fn resume_uses_decisions_that_were_made_elsewhere() {
    let approve = json!({"decision": "approve", "arguments": {"a": 20, "b": 2}});
    let deny = json!({"decision": "deny", "reason": "not today"});
    for (decision, expected) in [(approve, "22"), (deny, "not today")] {
        let model =
            ScriptedModel::start_strict(vec![Reply::calls([add_call("c1", 1)]), Reply::text("ok")]);
        let (gate, note) = start_waiting_run(&model, "").await;
        let open = resume_run(&gate, &note["run_id"], json!({}), &[]).await;
        assert_eq!(open.status(), 409);
        assert!(open.text().await.unwrap().contains("still open"));
        decide_approval(&gate, &note, &decision).await;
        let answer = resume_run(&gate, &note["run_id"], json!({}), &[]).await;
        let answer = read_response(answer).await;
        assert_eq!(answer.text, "ok", "{answer:?}");
        let result = answer.note["executed"][0]["result"].as_str().unwrap();
        assert!(result.contains(expected), "{answer:?}");
    }
}

#[tokio::test]
async fn decided_run_continues_without_its_client_if_configured() {
    for (setting, state) in [
        ("", "waiting"),
        ("[agent]\nresume_on_approval = true\n", "done"),
    ] {
        let model =
            ScriptedModel::start_strict(vec![Reply::calls([add_call("c1", 1)]), Reply::text("ok")]);
        let (gate, note) = start_waiting_run(&model, setting).await;
        decide_approval(&gate, &note, &json!({"decision": "approve"})).await;
        let run = eventually(&format!("the run is {state}"), WAIT_TIMEOUT, async || {
            let run = fetch_run(&gate, &note["run_id"]).await;
            (run["state"] == state).then_some(run)
        })
        .await;
        if state == "done" {
            assert_eq!(run["answer"], "ok", "{run}");
            let steps = run["timeline"].as_array().unwrap().iter();
            let mut closed = steps.filter(|step| step["step"]["kind"] == "call_closed");
            let result = &closed.next().unwrap()["step"]["result"][0]["text"];
            assert_eq!(result, "2", "{run}");
        } else {
            assert_eq!(run["answer"], Value::Null, "{run}");
            assert_eq!(model.turns().len(), 1);
        }
    }
}

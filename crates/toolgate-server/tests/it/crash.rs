//! The gateway is killed with SIGKILL at random points, again and again on the same data, while clients make
//! calls and changes. After each restart, everything acknowledged is there, exactly once.
//!
//! `SEED` repeats a run; `TOOLGATE_SOAK_KILLS` sets the number of kills (`make soak`).

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::caller::{EXECUTE, tool_call};
use crate::gate::{TestGate, toolgate};
use crate::oracle::{APPEND, AppendClient, CallAnswer, CallLedger, ExecutionFile, export_records};

const DEFAULT_KILLS: u64 = 8;
const CALL_CLIENTS: usize = 4;
const MODEL: &str = "openai/scripted";
/// Answer of the model after its tool call.
const DONE: &str = "all done";
const PRICE: f64 = 0.001;
/// Requests that are answered before a kill, at most.
const MAX_ANSWERS: u64 = 120;
/// Delay of a kill after the last of them, at most: about as long as a batch of records takes.
const MAX_DELAY_MICROS: u64 = 60_000;

/// A generator of reproducible random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn from_env() -> Self {
        let seed = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
        // Not `eprintln`, whose output is captured for passing tests.
        let mut terminal = std::io::stderr();
        writeln!(terminal, "crash test: SEED={seed}").unwrap();
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Tells clients when to stop, and counts answers.
#[derive(Clone)]
struct Round {
    number: u64,
    is_over: Arc<AtomicBool>,
    answers: watch::Sender<u64>,
}

impl Round {
    fn note_answer(&self) {
        self.answers.send_modify(|count| *count += 1);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// What must be there after a restart; whatever was under way at the kill may or may not have happened.
#[derive(Debug, Default)]
struct AdminLedger {
    /// Whether each key exists, by name; `None` if unknown.
    keys: BTreeMap<String, Option<bool>>,
    /// Texts that the rule may have: the acknowledged one, and the one under way.
    rules: Vec<String>,
    /// Ids of approvals that were given.
    approvals: Vec<String>,
}

/// Sends changes as the administrator.
#[derive(Clone)]
struct AdminClient {
    client: Client,
    url: String,
}

impl AdminClient {
    /// Returns the body of a successful response; `None` if the gateway is gone.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Option<Value> {
        let request = self.client.request(method, format!("{}{path}", self.url));
        let response = request.body(body.to_string()).send().await.ok()?;
        let status = response.status();
        let text = response.text().await.ok()?;
        assert!(status.is_success(), "{path}: {status} {text}");
        Some(serde_json::from_str(&text).unwrap())
    }

    /// Creates keys and deletes every other one.
    async fn change_keys(self, round: Round) -> AdminLedger {
        let mut ledger = AdminLedger::default();
        for number in 0.. {
            let name = format!("r{}-{number}", round.number);
            ledger.keys.insert(name.clone(), None);
            let body = json!({"name": name});
            if self.send(Method::POST, "/api/keys", &body).await.is_none() {
                break;
            }
            ledger.keys.insert(name.clone(), Some(true));
            round.note_answer();
            if number % 2 == 0 {
                ledger.keys.insert(name.clone(), None);
                let path = format!("/api/keys/{name}");
                if self
                    .send(Method::DELETE, &path, &Value::Null)
                    .await
                    .is_none()
                {
                    break;
                }
                ledger.keys.insert(name, Some(false));
                round.note_answer();
            }
            if round.is_over() {
                break;
            }
        }
        ledger
    }

    /// Replaces the rule about a tool that nobody calls.
    async fn change_rules(self, round: Round, current: String) -> AdminLedger {
        let mut rules = vec![current];
        for number in 0.. {
            let tool = format!("zoo_r{}_{number}", round.number);
            rules.push(tool.clone());
            let body = json!({"rules": [{"tool": tool, "action": "deny"}, {"tool": "zoo_say", "action": "ask"}]});
            if self
                .send(Method::PUT, "/api/permissions", &body)
                .await
                .is_none()
            {
                break;
            }
            rules = vec![tool];
            round.note_answer();
            if round.is_over() {
                break;
            }
        }
        AdminLedger {
            rules,
            ..AdminLedger::default()
        }
    }

    /// Asks for approvals as a caller, and gives them.
    async fn approve_calls(self, round: Round, key: String) -> AdminLedger {
        let mut ledger = AdminLedger::default();
        for number in 0.. {
            let text = format!("r{}-{number}", round.number);
            let call = tool_call("zoo_say", &json!({"text": text}));
            let request = self.client.post(format!("{}{EXECUTE}", self.url));
            let request = request.bearer_auth(&key).body(call.to_string());
            let Ok(response) = request.send().await else {
                break;
            };
            let Ok(text) = response.text().await else {
                break;
            };
            let waiting: Value = serde_json::from_str(&text).unwrap();
            let id = waiting["approval"]["id"].as_str();
            let id = id.unwrap_or_else(|| panic!("no approval: {waiting}"));
            let path = format!("/api/approvals/{id}");
            let approve = json!({"decision": "approve"});
            if self.send(Method::POST, &path, &approve).await.is_none() {
                break;
            }
            ledger.approvals.push(id.to_owned());
            round.note_answer();
            if round.is_over() {
                break;
            }
        }
        ledger
    }
}

impl AdminLedger {
    fn merge(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.rules.extend(other.rules);
        self.approvals.extend(other.approvals);
    }

    async fn check(&self, gate: &TestGate) {
        for (name, exists) in &self.keys {
            let found = gate.get(&format!("/api/keys/{name}")).await.status() == 200;
            if let Some(exists) = exists {
                assert_eq!(found, *exists, "key {name}");
            }
        }
        let rule = current_rule(gate).await;
        assert!(self.rules.contains(&rule), "{rule}: {:?}", self.rules);
        for id in &self.approvals {
            let approval = gate.json(&format!("/api/approvals/{id}")).await;
            assert_eq!(approval["state"], "approved", "{approval}");
        }
    }
}

/// Denies the approvals that nobody decided before the kill, whose number is limited.
async fn deny_pending_approvals(gate: &TestGate) {
    let page = gate.json("/api/approvals?state=pending").await;
    for approval in page["approvals"].as_array().unwrap() {
        let path = format!("/api/approvals/{}", approval["id"].as_str().unwrap());
        let denied = gate
            .caller()
            .post(&path, &json!({"decision": "deny"}))
            .await;
        denied.expect_status(200);
    }
}

async fn current_rule(gate: &TestGate) -> String {
    let permissions = gate.json("/api/permissions").await;
    permissions["rules"][0]["tool"].as_str().unwrap().to_owned()
}

async fn make_calls(client: AppendClient, round: Round, index: usize) -> CallLedger {
    let mut ledger = CallLedger::default();
    for number in 0.. {
        let id = format!("r{}-{index}-{number}", round.number);
        let answer = client.call(&id).await;
        ledger.note(id, answer);
        if answer == CallAnswer::Lost {
            break;
        }
        round.note_answer();
        if round.is_over() {
            break;
        }
    }
    ledger
}

/// Starts runs, each of which calls the tool `append` once, with its request id as the argument.
async fn make_runs(client: AppendClient, round: Round) -> CallLedger {
    let mut ledger = CallLedger::default();
    for number in 0.. {
        let id = format!("r{}-run-{number}", round.number);
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": id}]});
        let request = client
            .client
            .post(format!("{}/v1/chat/completions", client.url))
            .bearer_auth(&client.key)
            .header("x-request-id", &id)
            .body(body.to_string());
        let answer = match request.send().await {
            Ok(response) => response.text().await.ok(),
            Err(_) => None,
        };
        let Some(answer) = answer else {
            ledger.note(id, CallAnswer::Lost);
            break;
        };
        assert!(answer.contains(DONE), "{answer}");
        ledger.note(id, CallAnswer::Acknowledged);
        round.note_answer();
        if round.is_over() {
            break;
        }
    }
    ledger
}

/// Starts a model that calls the tool `append` with what it is told, and is done then.
fn start_model() -> ScriptedModel {
    let reply = Reply::from_request(|request| {
        let messages = request["messages"].as_array().unwrap();
        let last = messages.last().unwrap();
        if last["role"] == "tool" {
            return Reply::text(DONE);
        }
        let line = last["content"].as_str().unwrap();
        Reply::calls([("c1", APPEND, json!({"line": line}))])
    });
    ScriptedModel::start(vec![reply])
}

/// What one round acknowledged.
struct Acknowledged {
    calls: CallLedger,
    admin: AdminLedger,
}

/// Runs all clients until the gateway is killed.
async fn run_until_killed(
    gate: &mut TestGate,
    number: u64,
    key: &str,
    random: &mut Random,
) -> Acknowledged {
    let (answers, mut answered) = watch::channel(0);
    let round = Round {
        number,
        is_over: Arc::default(),
        answers,
    };
    let mut callers = JoinSet::new();
    for index in 0..CALL_CLIENTS {
        let client = AppendClient::new(gate, key);
        callers.spawn(make_calls(client, round.clone(), index));
    }
    callers.spawn(make_runs(AppendClient::new(gate, key), round.clone()));
    let admin = AdminClient {
        client: gate.client.clone(),
        url: gate.url.clone(),
    };
    let rule = current_rule(gate).await;
    let mut admins = JoinSet::new();
    admins.spawn(admin.clone().change_keys(round.clone()));
    admins.spawn(admin.clone().change_rules(round.clone(), rule));
    admins.spawn(admin.approve_calls(round.clone(), key.to_owned()));
    let target = random.below(MAX_ANSWERS) + 1;
    answered.wait_for(|count| *count >= target).await.unwrap();
    // Not a wait for anything: the point in time of the kill is random.
    tokio::time::sleep(Duration::from_micros(random.below(MAX_DELAY_MICROS))).await;
    gate.child.kill().unwrap();
    gate.child.wait().unwrap();
    round.is_over.store(true, Ordering::Relaxed);
    let mut acknowledged = Acknowledged {
        calls: CallLedger::default(),
        admin: AdminLedger::default(),
    };
    for calls in callers.join_all().await {
        acknowledged.calls.merge(calls);
    }
    for admin in admins.join_all().await {
        acknowledged.admin.merge(admin);
    }
    acknowledged
}

/// Starts the gateway and kills it at a random point of its start, most of which is recovery.
async fn kill_during_start(gate: &TestGate, random: &mut Random) {
    let mut child = toolgate(gate.folder.path())
        .args(["serve", "--port", "0", "--data-dir", "data"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    tokio::time::sleep(Duration::from_micros(random.below(400_000))).await;
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn killed_gateway_loses_and_doubles_nothing() {
    let kills = std::env::var("TOOLGATE_SOAK_KILLS").ok();
    let kills = kills.map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap());
    let mut random = Random::from_env();
    let folder = tempfile::tempdir().unwrap();
    let executions = ExecutionFile::in_folder(folder.path());
    let model = start_model();
    let toml = executions.server()
        + "tools_to_auto_execute = [\"append\"]\n"
        + &format!("[mcp_servers.zoo.tools.append]\nprice = {PRICE}\n")
        + "[[permissions.rules]]\ntool = \"zoo_nothing\"\naction = \"deny\"\n\
           [[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n"
        + &format!(
            "[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"k\"\n",
            model.url()
        );
    let mut gate = TestGate::start(&toml);
    let worker = json!({"name": "worker", "budget": {"calls": 1_000_000}});
    let worker = gate.caller().post("/api/keys", &worker).await;
    let worker = worker.expect_status(201);
    let key = worker["key"].as_str().unwrap().to_owned();
    let mut calls = CallLedger::default();
    for number in 0..kills {
        gate.wait_for_state("zoo", "healthy").await;
        let since = SystemTime::now() - Duration::from_secs(1);
        let since = humantime::format_rfc3339_millis(since);
        let acknowledged = run_until_killed(&mut gate, number, &key, &mut random).await;
        if random.below(4) == 0 {
            kill_during_start(&gate, &mut random).await;
        }
        gate.relaunch();
        acknowledged.admin.check(&gate).await;
        deny_pending_approvals(&gate).await;
        // Every round by itself, so that a failure shows the round that caused it.
        let records = export_records(&gate, &format!("tool=append&since={since}")).await;
        let prefix = format!("r{number}-");
        let mut executed = executions.read();
        executed.retain(|id| id.starts_with(&prefix));
        acknowledged.calls.check(&executed, &records);
        check_costs(&records);
        check_runs(&gate).await;
        calls.merge(acknowledged.calls);
    }
    assert!(calls.count(CallAnswer::Acknowledged) > 0);
    let records = export_records(&gate, "tool=append").await;
    calls.check(&executions.read(), &records);
    gate.wait_for_state("zoo", "healthy").await;
    check_budget(&gate, &key).await;
}

/// Checks that no run seems to go on: the process that made it is gone.
async fn check_runs(gate: &TestGate) {
    let page = gate.json("/api/runs?limit=1000").await;
    for run in page["runs"].as_array().unwrap() {
        assert_ne!(run["state"], "running", "{run}");
    }
}

/// Checks that each call is charged once if it may have run, and else not at all.
fn check_costs(records: &[Value]) {
    for record in records {
        let cost = record["cost_usd"].as_f64().unwrap();
        let is_charged = (cost - PRICE).abs() < 1e-9;
        let may_have_run = ["ok", "interrupted"].contains(&record["outcome"].as_str().unwrap());
        assert!(is_charged || !may_have_run, "not charged: {record}");
        assert!(is_charged || cost == 0.0, "{record}");
    }
}

/// Checks that the budget counts exactly the calls that the records charge.
async fn check_budget(gate: &TestGate, key: &str) {
    let records = export_records(gate, "caller=worker").await;
    let charged = records.iter().filter(|record| {
        let outcome = record["outcome"].as_str().unwrap();
        ["ok", "interrupted"].contains(&outcome)
    });
    let mut outcomes: HashMap<&str, usize> = HashMap::new();
    for record in &records {
        *outcomes
            .entry(record["outcome"].as_str().unwrap())
            .or_default() += 1;
    }
    let budget = json!({"budget": {"calls": charged.count() + 2}});
    let changed = gate.caller().put("/api/keys/worker", &budget).await;
    changed.expect_status(200);
    let caller = gate.with_key(key);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(caller.call_status().await);
    }
    assert_eq!(statuses, [200, 200, 429, 429], "{outcomes:?}");
}
